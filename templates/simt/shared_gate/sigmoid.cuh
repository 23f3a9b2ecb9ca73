// The shared expert's row is added times the sigmoid of the token's product with a vector, in f32. A block multiplies the whole
// token, whichever columns it adds up: each thread every 128th eight of elements, an element after the other; then the sums of
// a warp's lanes (exact.cuh), then those of the warps in their order. That order is the same in every block, so all have the
// same weight, and a host computes the same bits (crates/warpsmith-tune/src/oracle/combine.rs does).
#pragma once

#include "simt/exact.cuh"

namespace ws {

struct SharedGate {
  float weight;

  // All threads of a block, for the same token.
  __device__ __forceinline__ SharedGate(const CombineParams& params, int token) {
    const long long first = static_cast<long long>(token) * HIDDEN;
    float sum = 0.0f;
#pragma unroll 2
    for (int column = threadIdx.x * WIDTH; column < HIDDEN; column += THREADS * WIDTH) {
      Rows x;
      F32Values vector;
      x.load(params.x, first + column);
      vector.load(params.gate, column);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) sum = __fmaf_rn(x.at(i), vector.at(i), sum);
    }
    sum = sum_of_lanes(sum);
    __shared__ float of_warps[THREADS / 32];
    if (lane_index() == 0) of_warps[warp_index()] = sum;
    __syncthreads();
    float product = of_warps[0];
#pragma unroll
    for (int warp = 1; warp < THREADS / 32; warp++) product = __fadd_rn(product, of_warps[warp]);
    // The sigmoid of NaN is a number.
    weight = product != product ? product : sigmoid(product);
  }

  __device__ __forceinline__ float added(float sum, float row) const { return __fmaf_rn(weight, row, sum); }
};

}  // namespace ws
