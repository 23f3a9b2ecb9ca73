// Prepared weights: bulk copies of whole blocks, one for each m64 tile of a stage.
#pragma once

namespace ws {

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
