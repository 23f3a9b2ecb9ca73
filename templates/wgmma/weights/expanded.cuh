// A block of 64 rows × 64 of K of prepared weights that are e4m3 values: two steps of 32, 16 bytes a thread.
#pragma once

namespace ws {

struct WeightBlock {
  u8 steps[2][128][16];
};

}  // namespace ws
