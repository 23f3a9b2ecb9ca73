// Prepared weights: bulk copies of whole blocks, one for each m64 tile of a stage.
#pragma once

namespace ws {

// Block `k_block` along K of an m64 tile, those of all groups counted.
__device__ __forceinline__ const u8* weight_block(const Params& params, long long tile, int k_block) {
  return params.b[0] + (tile * K_BLOCKS_ALL + k_block) * BLOCK_BYTES;
}

// Where the weights of a tile are, and the copies that bring one stage of them after the other.
struct Weights {
  const u8* first;
  const u8* next;
  int last_k_tile;
  int tiles;
  u32 token_bytes;

  __device__ Weights(const Params& params, const Tile& tile)
      : last_k_tile(tile.first_k_tile + tile.k_tiles - 1), tiles(tile.weight_tiles()), token_bytes(Tokens::bytes(tile)) {
    const long long first_tile = static_cast<long long>(tile.group) * TILES_PER_GROUP + tile.column_tile * TILES;
    first = weight_block(params, first_tile, tile.first_k_tile * K_BLOCKS);
    next = first;
  }

  // The next stage, by one thread, when its place is empty; announces the bytes of tokens, too.
  __device__ void load(const Place& place, int k_tile) {
    const u32 bytes = blocks_of(k_tile) * BLOCK_BYTES, to = place.stage + TOKEN_BYTES;
    mbarrier_arrive_expect_tx(place.full, token_bytes + tiles * bytes);
#pragma unroll
    for (int i = 0; i < TILES; i++)
      if (TILES_PER_GROUP % TILES == 0 || i < tiles)
        bulk_load(to + i * K_BLOCKS * BLOCK_BYTES, next + static_cast<long long>(i) * K_BLOCKS_ALL * BLOCK_BYTES, bytes,
                  place.full);
    next = PASSES > 1 && k_tile == last_k_tile ? first : next + K_BLOCKS * BLOCK_BYTES;
  }
};

}  // namespace ws
