// Blocks of an ungrouped problem: x walks the tiles of tokens (so that blocks which share weights run together),
// y the tiles of columns, z the splits of K.
#pragma once

#include "schedule/columns.cuh"

namespace ws {

static_assert(GROUPS == 1, "one group");

__device__ __forceinline__ int group_of_row(const Params& params, int row) { return row < params.m ? 0 : -1; }

__device__ __forceinline__ bool schedule(const Params& params, Block& block) {
  block.group = 0;
  block.first_row = blockIdx.x * TOKENS;
  block.rows = params.m - block.first_row;
  schedule_columns(block);
  return block.rows > 0;
}

}  // namespace ws
