// Registers → shared memory → global memory by bulk copies, one a row of the tile.
#pragma once

#include "wgmma/epilogue/staged.cuh"

namespace ws {

// The warp of a tile group that starts the copies.
__device__ __forceinline__ bool is_storing() { return threadIdx.x % GROUP_THREADS < 32; }

// Before scratch memory is used for a further tile: the one before may still be on its way out of it.
__device__ __forceinline__ void reuse_scratch(const ConsumerId& consumer) {
  if (is_storing()) bulk_wait_group_read();
  group_sync(consumer);
}

template <int N8, class Value>
__device__ __forceinline__ void store_tile(const Params& params, const Ring& ring, const Tile& tile, const ConsumerId& consumer,
                                           int first_token, Value value) {
  stage_tile<N8>(ring, consumer, value);
  fence_proxy_async();
  group_sync(consumer);
  if (is_storing()) {
    const u32 bytes = tile.columns() * Output::BYTES;
    const int first = first_token - first_staged(consumer);
    for (int row = lane_index(); row < STAGED_ROWS && first + row < tile.rows; row += 32) {
      const int to = Destination::row(params, tile.first_row + first + row);
      if (!Destination::is_there(params, to)) continue;
      const long long at = static_cast<long long>(to) * N + tile.first_column();
      bulk_store(params.c + at * Output::BYTES, ring.base + scratch_offset(consumer) + row * STAGED_ROW, bytes);
    }
    bulk_commit_group();
  }
}

__device__ __forceinline__ void finish_stores() { bulk_wait_group(); }

}  // namespace ws
