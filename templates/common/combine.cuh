// From the sums to an element of C, in fp32: α, a factor and an addend for the column, then activation and rounding.
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

// What a column of C has of its own, in one group.
struct Column {
  RowScale row_scale;
  Bias bias;

  __device__ __forceinline__ static void prefetch(const Params& params, int group, int column) {
    RowScale::prefetch(params, group, column);
    Bias::prefetch(params, group, column);
  }

  __device__ __forceinline__ void load(const Params& params, int group, int column) {
    row_scale.load(params, group, column);
    bias.load(params, group, column);
  }

  __device__ __forceinline__ float of(int product, float value) const {
    return bias.added(product, row_scale.scaled(product, value));
  }
};

// The columns of C that a thread holds: `first(i)` is the i-th. Beyond C, where nothing is stored, it is the last of C.
template <int COUNT>
struct HeldColumns {
  Column of[COUNT];

  template <class First>
  __device__ __forceinline__ HeldColumns(const Params& params, int group, First first) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) of[i].load(params, group, min(first(i), N - 1));
  }
};

__device__ __forceinline__ float combine(const float (&products)[PRODUCTS], const Alphas& alphas, const Column& column) {
  if constexpr (PRODUCTS == 1) {
    return activate(column.of(0, alphas.value[0] * products[0]));
  } else {
    return activate(column.of(0, alphas.value[0] * products[0])) * linear(column.of(1, alphas.value[1] * products[1]));
  }
}

// The same of the sums at `i` of each product.
template <int COUNT, int LENGTH>
__device__ __forceinline__ float combine_at(int i, const float (&sums)[COUNT][LENGTH], const Alphas& alphas, const Column& column) {
  float products[PRODUCTS];
#pragma unroll
  for (int product = 0; product < PRODUCTS; product++) products[product] = sums[product][i];
  return combine(products, alphas, column);
}

// Where a partial sum lies: [split, product, row, column].
__device__ __forceinline__ float* partial_sum(const Params& params, int split, int product, int row, int column) {
  const long long plane = split * PRODUCTS + product;
  return params.workspace + (plane * params.m + row) * N + column;
}

}  // namespace ws
