// Blocks of a grouped problem: as for one group, but which rows an x stands for is found on the device. The grid has
// room for every way to divide the rows; blocks that no group needs end at once.
#pragma once

#include "common/groups/grouped.cuh"

namespace ws {

// Where tile `wanted` of TOKENS rows is, counted through all groups, by a converged warp.
struct FoundTile {
  int group;  // −1: there are fewer tiles
  int first_row, rows;
};

__device__ __forceinline__ FoundTile find_tile(const Params& params, int wanted) {
  int before = 0;  // tiles of the groups already looked at
  for (int first = 0; first < GROUPS; first += 32) {
    const int group = first + lane_index();
    const int begin = clamped_offset(params, group);
    const int rows = group < GROUPS ? max(clamped_offset(params, group + 1) - begin, 0) : 0;
    const int tiles = ceil_div(rows, TOKENS);
    int until = tiles;  // tiles of the groups up to and with this lane's
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int left = __shfl_up_sync(~0u, until, distance);
      if (lane_index() >= distance) until += left;
    }
    const u32 reached = __ballot_sync(~0u, before + until > wanted);
    if (reached) {
      const int owner = __ffs(reached) - 1;
      const int tile = wanted - before - __shfl_sync(~0u, until - tiles, owner);
      return {first + owner, __shfl_sync(~0u, begin, owner) + tile * TOKENS,
              __shfl_sync(~0u, rows, owner) - tile * TOKENS};
    }
    before += __shfl_sync(~0u, until, 31);
  }
  return {-1, 0, 0};
}

__device__ __forceinline__ bool schedule(const Params& params, Block& block) {
  schedule_columns(block);
  const FoundTile found = find_tile(params, blockIdx.x);
  block.group = found.group;
  block.first_row = found.first_row;
  block.rows = found.rows;
  return found.group >= 0;
}

}  // namespace ws
