// Neighbouring columns of a row of C, stored as its format wants them.
#pragma once

namespace ws {

// Stores COUNT columns of row `row` of C, of a row of `group` of the product. Of a format in blocks of 16 columns, the lanes
// that have the others of a block are multiples of LANE_STEP apart, in their order, and all of them come here.
template <int LANE_STEP, int COUNT, class Out = Output>
__device__ __forceinline__ void store_columns(const Params& params, int group, int row, int column,
                                              const float (&values)[COUNT]) {
  if constexpr (Out::IN_BLOCKS)
    Out::template store_block<LANE_STEP>(params, group, row, column, values);
  else
    Out::store(params.c, static_cast<long long>(row) * N + column, values);
}

}  // namespace ws
