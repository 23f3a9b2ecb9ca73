// Registers → shared memory by who multiplies, → global memory by a warp of its own, while the next tile is multiplied.
//
// That warp is ahead of those by what it stores, so it also finds the next tile for them (found.cuh):
//
//   who multiplies   stored ▸ the tile to scratch memory ─▶ staged (the last one: to C) ▸ the next tile, as it was found
//   who stores       the next tile found ─▶ stored ▸ staged ▸ scratch memory to C
#pragma once

#include "wgmma/epilogue/staged.cuh"

namespace ws {

static_assert(PERSISTENT && K_GROUPS * PRODUCT_GROUPS == 1, "host and device agree: nobody else uses scratch memory");

// The barrier that who multiplies arrives at when a tile is staged.
enum : int { STAGED_THREADS = GROUP_THREADS + 32 };
__device__ __forceinline__ int staged_barrier(int tile_group) { return 1 + TILE_GROUPS + tile_group; }

// Shared memory → global memory, 16 bytes a thread, by so many threads.
template <int THREADS>
__device__ __forceinline__ void store_staged(const Params& params, const Tile& tile, const u8* staged, int thread) {
  constexpr int PIECES = COLUMNS * Output::BYTES / 16;
  constexpr int OF_ROW = PIECES <= THREADS ? PIECES : PIECES % THREADS == 0 ? THREADS : 16, ROWS = THREADS / OF_ROW;
  static_assert(PIECES % OF_ROW == 0, "each thread of a row has as many");
  // Of a warp of its own with few registers.
  constexpr int UNDER_WAY = THREADS == 32 && PRODUCER_REGISTERS > 0 && PRODUCER_REGISTERS <= 32 ? 2 : 4;
  const int rows = min(tile.rows, STAGED_ROWS), pieces = tile.columns() * Output::BYTES / 16;
  if (thread >= ROWS * OF_ROW) return;
#pragma unroll UNDER_WAY
  for (int row = thread / OF_ROW; row < rows; row += ROWS) {
    const int to = Destination::row(params, tile.first_row + row);
    if (!Destination::is_there(params, to)) continue;
#pragma unroll
    for (int first = 0; first < PIECES; first += OF_ROW) {
      const int piece = first + thread % OF_ROW;
      if (piece < pieces) store_piece(params, tile, staged + row * STAGED_ROW, to, piece);
    }
  }
}

// Nobody waits for what is stored last: all do that.
template <int N8, class Value>
__device__ __forceinline__ void store_tile(const Params& params, const Ring& ring, const Tile& tile, const ConsumerId& consumer, int, Value value) {
  mbarrier_wait(ring.stored(consumer.tile_group), tile.turn & 1);
  stage_tile<N8>(ring, consumer, value);
  if (found_tile(consumer.tile_group, tile.turn + 1).rows > 0) {
    named_barrier_arrive<STAGED_THREADS>(staged_barrier(consumer.tile_group));
  } else {
    group_sync(consumer);
    store_staged<GROUP_THREADS>(params, tile, shared_memory + scratch_offset(consumer), threadIdx.x % GROUP_THREADS);
  }
}

__device__ __forceinline__ void hand_over(int tile_group, u32 turn, const Tile& tile, bool is_there) {
  if (lane_index() == 0) found_tile(tile_group, turn) = {tile.group, tile.first_row, is_there ? tile.rows : 0, tile.column_tile};
}

// All tiles of the block but the last of each tile group, by a warp.
//
// Who multiplies has waited for `stored` when a tile is staged, and only then it completes again: so a parity tells its phases apart.
template <class Tiles>
__device__ __forceinline__ void store_tiles(const Params& params, const Ring& ring, const Tiles& schedule) {
  const auto say_stored = [&](int tile_group) {
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(ring.stored(tile_group));
  };
  Tile tile, next;
  bool is_there = false;
#pragma unroll 1
  for (int tile_group = TILE_GROUPS - 1; tile_group >= 0; tile_group--) {
    is_there = schedule.tile(params, tile_group, tile);
    hand_over(tile_group, 0, tile, is_there);
    hand_over(tile_group, 1, next, schedule.tile(params, tile_group + TILE_GROUPS, next));
    say_stored(tile_group);
  }
#pragma unroll 1
  for (int index = 0; is_there; index++) {
    const int tile_group = index % TILE_GROUPS, turn = index / TILE_GROUPS;
    const bool has_next = schedule.tile(params, index + TILE_GROUPS, next);
    if (turn > 0) {
      hand_over(tile_group, turn + 1, next, has_next);
      say_stored(tile_group);
    }
    if (has_next) {
      named_barrier_sync<STAGED_THREADS>(staged_barrier(tile_group));
      store_staged<32>(params, tile, shared_memory + SCRATCH_OFFSET + tile_group * SCRATCH_BYTES, lane_index());
    }
    is_there = schedule.tile(params, index + 1, tile);
  }
}

// Before a further tile; the factors of the one before may still be read.
__device__ __forceinline__ void reuse_scratch(const ConsumerId& consumer) {
  if constexpr (HAS_FACTORS) group_sync(consumer);
}
__device__ __forceinline__ void finish_stores() {}

}  // namespace ws
