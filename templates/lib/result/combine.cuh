// From the sums to an element of C: α in fp32, before activation and rounding.
#pragma once

namespace ws {

struct Alphas {
  float value[PRODUCTS];

  __device__ Alphas(const Params& params, int group) {
#pragma unroll
    for (int i = 0; i < PRODUCTS; i++)
      value[i] = params.alpha[i] ? params.alpha[i][group * params.alpha_step[i]] : params.alpha_value[i];
  }
};

__device__ __forceinline__ float combine(const float (&products)[PRODUCTS], const Alphas& alphas) {
  if constexpr (PRODUCTS == 1) {
    return alphas.value[0] * products[0];
  } else {
    return activate(alphas.value[0] * products[0]) * (alphas.value[1] * products[1]);
  }
}

// Where a partial sum lies: [split, product, row, column].
__device__ __forceinline__ float* partial_sum(const Params& params, int split, int product, int row, int column) {
  const long long plane = split * PRODUCTS + product;
  return params.workspace + (plane * params.m + row) * N + column;
}

}  // namespace ws
