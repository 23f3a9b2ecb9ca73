// The block has partial sums: store them in fp32 for the elementwise kernel.
#pragma once

#include "common/output/vector.cuh"

namespace ws {

struct Result {
  const Params& params;
  const StoredTile& stored;

  __device__ Result(const Params& params, const StoredTile& stored, const Tile&) : params(params), stored(stored) {}

  __device__ void store(int part, const float (&sums)[BLOCK_PRODUCTS][16]) const {
#pragma unroll
    for (int i = 0; i < BLOCK_PRODUCTS; i++) stored.store_partial(part, product_of(params, i), sums[i]);
  }
};

}  // namespace ws
