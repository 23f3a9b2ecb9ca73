// The block has partial sums: store them in fp32 for the elementwise kernel.
#pragma once

#include "common/output/vector.cuh"

namespace ws {

template <class Fusion>
__device__ __forceinline__ void store_result(const Params& params, const Block& block, const Fusion& fusion) {
  for_each_run(block, [&](int row, int column, int n8, int token) {
#pragma unroll
    for (int sum = 0; sum < Fusion::COUNT; sum++) {
      float run[RUN];
#pragma unroll
      for (int i = 0; i < RUN; i++) run[i] = fusion.sums[sum][n8][i / 2][2 * (i % 2) + token];
      float* to = partial_sum(params, block.split, fusion.product(params, sum), row, column);
      store_floats(reinterpret_cast<u8*>(to), run);
    }
  });
}

}  // namespace ws
