// A factor for each row of B, which is a column of C.
#pragma once

namespace ws {

struct RowScale {
  float of[PRODUCTS];

  __device__ void load(const Params& launch, int group, int column) {
    const ColumnParams& params = static_cast<const ColumnParams&>(launch);
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++)
      of[i] = params.row_scale[i][static_cast<long long>(group) * params.row_scale_step[i] + column];
  }

  // Never contracted, so that all variants give the same bits.
  __device__ float scaled(int product, float value) const { return __fmul_rn(value, of[product]); }
};

}  // namespace ws
