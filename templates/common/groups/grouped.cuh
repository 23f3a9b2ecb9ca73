// Which rows a group has is read from the offsets on the device, so that a captured graph can be replayed with other
// group sizes. Offsets are clamped to the rows there are: wrong ones give a wrong result, never an access outside A or C.
#pragma once

namespace ws {

__device__ __forceinline__ const int* offset_at(const Params& params, int group) {
  return params.offsets + min(group, GROUPS);
}

__device__ __forceinline__ int clamped(const Params& params, int offset) { return min(max(offset, 0), params.m); }

__device__ __forceinline__ int clamped_offset(const Params& params, int group) {
  return clamped(params, *offset_at(params, group));
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

}  // namespace ws
