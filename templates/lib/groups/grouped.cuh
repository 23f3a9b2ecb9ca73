// Which rows a group has is read from the offsets on the device, so that a captured graph can be replayed with other
// group sizes. Offsets are clamped to the rows there are: wrong ones give a wrong result, never an access outside A or C.
#pragma once

namespace ws {

__device__ __forceinline__ int clamped_offset(const Params& params, int group) {
  return min(max(params.offsets[min(group, GROUPS)], 0), params.m);
}

// Each lane looks at one group of 32 at a time.
__device__ __forceinline__ int group_of_row(const Params& params, int row) {
  for (int first = 0; first < GROUPS; first += 32) {
    const int group = first + lane_index();
    const bool here = group < GROUPS && clamped_offset(params, group) <= row && row < clamped_offset(params, group + 1);
    const u32 found = __ballot_sync(~0u, here);
    if (found) return first + __ffs(found) - 1;
  }
  return -1;
}

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

}  // namespace ws
