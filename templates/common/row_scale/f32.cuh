// A factor for each row of B, which is a column of C.
#pragma once

namespace ws {

struct RowScale {
  float of[PRODUCTS];

  __device__ static const float* at(const Params& launch, int product, int group, int column) {
    const ColumnParams& params = static_cast<const ColumnParams&>(launch);
    return params.row_scale[product] + static_cast<long long>(group) * params.row_scale_step[product] + column;
  }

  __device__ static void prefetch(const Params& params, int group, int column) {
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++) prefetch_line(at(params, i, group, column));
  }

  __device__ void load(const Params& params, int group, int column) {
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++) of[i] = *at(params, i, group, column);
  }

  // Never contracted, so that all variants give the same bits.
  __device__ float scaled(int product, float value) const { return __fmul_rn(value, of[product]); }
};

}  // namespace ws
