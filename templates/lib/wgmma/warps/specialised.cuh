// One warp loads weights, one (or four, where they decode) tokens; CONSUMER_THREADS multiply.
#pragma once

namespace ws {

constexpr int PRODUCER_WARPS = 1 + Tokens::WARPS;
constexpr int THREADS = CONSUMER_THREADS + 32 * PRODUCER_WARPS;

// Calls body(tile, stage) for every FEWth tile of this block from `first` on; `stage` counts all stages before it.
template <class Body>
__device__ __forceinline__ void for_each_tile(const Params& params, const Schedule& schedule, int first, int step, Body body) {
  Tile tile;
  if constexpr (PERSISTENT) {
    for (int index = first; schedule.tile(params, index, tile); index += step) body(tile, u32(index) * PASSES * K_TILES);
  } else {
    if (schedule.tile(params, 0, tile)) body(tile, 0u);
  }
}

__device__ __forceinline__ void load_weights(const Params& params, const Ring& ring, const Schedule& schedule) {
  Cursor at = Cursor::at(0);
  for_each_tile(params, schedule, 0, 1, [&](const Tile& tile, u32) {
    const int tiles = tile.weight_tiles();
    const long long first_tile = static_cast<long long>(tile.group) * TILES_PER_GROUP + tile.column_tile * TILES;
    const u8* first = params.b[0] + (first_tile * K_BLOCKS_ALL + tile.first_k_tile * K_BLOCKS) * BLOCK_BYTES;
#pragma unroll 1
    for (int pass = 0; pass < PASSES; pass++) {
      const u8* from = first;
#pragma unroll 1
      for (int k_tile = 0; k_tile < tile.k_tiles; k_tile++) {
        const u32 bytes = blocks_of(tile.first_k_tile + k_tile) * BLOCK_BYTES, full = ring.full(at.slot);
        mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
        mbarrier_arrive_expect_tx(full, Tokens::BYTES + tiles * bytes);
        const u32 to = ring.stage(at.slot) + TOKEN_BYTES;
#pragma unroll
        for (int i = 0; i < TILES; i++)
          if (TILES_PER_GROUP % TILES == 0 || i < tiles)
            bulk_load(to + i * K_BLOCKS * BLOCK_BYTES, from + static_cast<long long>(i) * K_BLOCKS_ALL * BLOCK_BYTES, bytes, full);
        from += K_BLOCKS * BLOCK_BYTES;
        at.advance<1>();
      }
    }
  });
}

__device__ __forceinline__ void load_tokens(const Params& params, const TensorMap& map, const Ring& ring,
                                            const Schedule& schedule) {
  wait_for_dependencies();
  Cursor at = Cursor::at(0);
  for_each_tile(params, schedule, 0, 1, [&](const Tile& tile, u32) {
#pragma unroll 1
    for (int pass = 0; pass < PASSES; pass++) {
#pragma unroll 1
      for (int k_tile = 0; k_tile < tile.k_tiles; k_tile++) {
        mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
        Tokens::load(map, ring, at.slot, tile, tile.first_k_tile + k_tile);
        at.advance<1>();
      }
    }
  });
  // Every read of what came before is done or under way, and nothing is written before it has arrived.
  launch_dependents();
}

template <class Consume>
__device__ __forceinline__ void run(const Params& params, const TensorMap& map, const Ring& ring, const Schedule& schedule,
                                    Consume consume) {
  const int warp = warp_index();
  if (warp == CONSUMER_THREADS / 32) {
    if (elect_one()) load_weights(params, ring, schedule);
    __syncwarp();
  } else if (warp > CONSUMER_THREADS / 32) {
    if constexpr (Tokens::WARPS == 1) {
      if (elect_one()) load_tokens(params, map, ring, schedule);
    } else {
      load_tokens(params, map, ring, schedule);
    }
    __syncwarp();
  } else {
    const Role role(warp / 4);
    for_each_tile(params, schedule, role.tile_group, TILE_GROUPS,
                  [&](const Tile& tile, u32 stage) { consume(tile, role, stage, [](int) {}); });
    finish_stores();
  }
}

}  // namespace ws
