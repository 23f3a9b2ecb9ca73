// The tiles of a block one after the other, and the stages of a tile.
#pragma once

namespace ws {

// Calls body(tile, stage) for every STEPth tile of this block from `first` on; `stage` counts all stages before it.
template <int STEP, class Body>
__device__ __forceinline__ void for_each_tile(const Params& params, const Schedule& schedule, int first, Body body) {
  Tile tile;
  if constexpr (PERSISTENT) {
#pragma unroll 1
    for (int index = first; schedule.tile(params, index, tile); index += STEP) body(tile, u32(index) * TILE_STAGES);
  } else {
    if (schedule.tile(params, 0, tile)) body(tile, 0u);
  }
}

// Calls body(k_tile) for every stage of a tile.
template <class Body>
__device__ __forceinline__ void for_each_stage(const Tile& tile, Body body) {
#pragma unroll 1
  for (int pass = 0; pass < PASSES; pass++) {
#pragma unroll 1
    for (int k_tile = tile.first_k_tile; k_tile < tile.first_k_tile + tile.k_tiles; k_tile++) body(k_tile);
  }
}

// Where the weights of a tile are, and the copies that bring one stage of them.
struct Weights {
  const u8* first;
  int tiles;
  u32 token_bytes;

  __device__ Weights(const Params& params, const Tile& tile) : tiles(tile.weight_tiles()), token_bytes(Tokens::bytes(tile)) {
    const long long first_tile = static_cast<long long>(tile.group) * TILES_PER_GROUP + tile.column_tile * TILES;
    first = params.b[0] + first_tile * K_BLOCKS_ALL * BLOCK_BYTES;
  }

  // By one thread, when the stage is empty; announces the bytes of tokens, too.
  __device__ void load(const Ring& ring, u32 slot, int k_tile) const {
    const u32 bytes = blocks_of(k_tile) * BLOCK_BYTES, full = ring.full(slot);
    mbarrier_arrive_expect_tx(full, token_bytes + tiles * bytes);
    const u8* from = first + static_cast<long long>(k_tile) * (K_BLOCKS * BLOCK_BYTES);
    const u32 to = ring.stage(slot) + TOKEN_BYTES;
#pragma unroll
    for (int i = 0; i < TILES; i++)
      if (TILES_PER_GROUP % TILES == 0 || i < tiles)
        bulk_load(to + i * K_BLOCKS * BLOCK_BYTES, from + static_cast<long long>(i) * K_BLOCKS_ALL * BLOCK_BYTES, bytes, full);
  }
};

}  // namespace ws
