// Registers → shared memory → global memory, 16 bytes a thread and whole rows of the tile at a time.
#pragma once

#include "wgmma/epilogue/staged.cuh"

namespace ws {

// Sums of other K groups or factors come to scratch memory first, at the start of a tile.
enum : bool { SCRATCH_IS_SHARED = K_GROUPS > 1 || HAS_FACTORS };

template <int N8, class Value>
__device__ __forceinline__ void store_tile(const Params& params, const Ring& ring, const Tile& tile, const ConsumerId& consumer,
                                           int first_token, Value value) {
  // Until the tile before is out of there. Who was done with that has multiplied meanwhile.
  if constexpr (PERSISTENT && !SCRATCH_IS_SHARED) group_sync(consumer);
  stage_tile<N8>(ring, consumer, value);
  group_sync(consumer);
  constexpr int PIECES = COLUMNS * Output::BYTES / 16;
  const int pieces = tile.columns() * Output::BYTES / 16;
  const u8* staged = shared_memory + scratch_offset(consumer);
  for (int i = threadIdx.x % GROUP_THREADS; i < STAGED_ROWS * PIECES; i += GROUP_THREADS) {
    const int row = i / PIECES, piece = i % PIECES, token = first_token - first_staged(consumer) + row;
    if (token < tile.rows && piece < pieces) {
      const int to = Destination::row(params, tile.first_row + token);
      if (!Destination::is_there(params, to)) continue;
      store_piece(params, tile, staged + row * STAGED_ROW, to, piece);
    }
  }
  if constexpr (PERSISTENT && SCRATCH_IS_SHARED) group_sync(consumer);
}

__device__ __forceinline__ void reuse_scratch(const ConsumerId&) {}
__device__ __forceinline__ void finish_stores() {}

}  // namespace ws
