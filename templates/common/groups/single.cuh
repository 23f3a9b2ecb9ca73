// No groups: all rows are of one.
#pragma once

namespace ws {

static_assert(GROUPS == 1, "one group");

__device__ __forceinline__ int group_of_row(const Params& params, int row) { return row < params.m ? 0 : -1; }

}  // namespace ws
