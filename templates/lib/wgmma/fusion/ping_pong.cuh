// As interleaved, but two groups of warpgroups take every second tile each: one's epilogue is under the other's
// multiplying.
#pragma once

#include "wgmma/fusion/interleaved.cuh"

namespace ws {

static_assert(TILE_GROUPS == 2, "host and device agree");

}  // namespace ws
