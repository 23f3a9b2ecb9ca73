// An addend for each column of C, for each product: what `f16`, `bf16` and `f32` have in common. `Addend` is how it lies
// in memory, `widened` its value.
#pragma once

namespace ws {

struct Bias {
  float of[PRODUCTS];

  __device__ static const Addend* at(const Params& launch, int product, int group, int column) {
    const ColumnParams& params = static_cast<const ColumnParams&>(launch);
    return reinterpret_cast<const Addend*>(params.bias[product]) + static_cast<long long>(group) * params.bias_step[product] + column;
  }

  __device__ static void prefetch(const Params& params, int group, int column) {
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++) prefetch_line(at(params, i, group, column));
  }

  __device__ void load(const Params& params, int group, int column) {
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++) of[i] = widened(*at(params, i, group, column));
  }

  // Never contracted, so that all variants give the same bits.
  __device__ float added(int product, float value) const { return __fadd_rn(value, of[product]); }
};

}  // namespace ws
