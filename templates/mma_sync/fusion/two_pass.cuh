// Two launches, one product each; the elementwise kernel combines them.
#pragma once

#include "mma_sync/fusion/one_product.cuh"

namespace ws {

template <class TokenTile, class WeightTile>
struct Fusion : OneProduct<TokenTile, WeightTile> {
  __device__ void multiply(const Params& params, const Block& block) {
    OneProduct<TokenTile, WeightTile>::multiply(params, block, params.product);
  }
  // Which product `sums[i]` is.
  __device__ static int product(const Params& params, int) { return params.product; }
};

}  // namespace ws
