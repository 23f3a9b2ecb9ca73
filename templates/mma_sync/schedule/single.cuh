// Blocks of an ungrouped problem: x walks the tiles of tokens (so that blocks which share weights run together),
// y the tiles of columns, z the splits of K.
#pragma once

#include "common/groups/single.cuh"

namespace ws {

__device__ __forceinline__ bool schedule(const Params& params, Block& block) {
  block.group = 0;
  block.first_row = blockIdx.x * TOKENS;
  block.rows = params.m - block.first_row;
  schedule_columns(block);
  return block.rows > 0;
}

}  // namespace ws
