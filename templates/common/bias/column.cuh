// An addend for each column of C, for each product: what `f16`, `bf16` and `f32` have in common. `Addend` is how it lies
// in memory, `widened` its value.
#pragma once

namespace ws {

struct Bias {
  float of[PRODUCTS];

  __device__ void load(const Params& launch, int group, int column) {
    const ColumnParams& params = static_cast<const ColumnParams&>(launch);
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++) {
      const Addend* addends = reinterpret_cast<const Addend*>(params.bias[i]);
      of[i] = widened(addends[static_cast<long long>(group) * params.bias_step[i] + column]);
    }
  }

  // Never contracted, so that all variants give the same bits.
  __device__ float added(int product, float value) const { return __fadd_rn(value, of[product]); }
};

}  // namespace ws
