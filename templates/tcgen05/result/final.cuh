// The block has whole sums: combine them, round, store C.
#pragma once

namespace ws {

struct Result {
  const StoredTile& stored;
  const Alphas alphas;

  __device__ Result(const Params& params, const StoredTile& stored, const Tile& tile)
      : stored(stored), alphas(params, tile.group) {}

  __device__ void store(int part, const float (&sums)[BLOCK_PRODUCTS][16]) const {
    static_assert(BLOCK_PRODUCTS == PRODUCTS && SPLITS == 1, "whole sums of every product");
    stored.store(part, sums, alphas, stored.columns(part));
  }
};

}  // namespace ws
