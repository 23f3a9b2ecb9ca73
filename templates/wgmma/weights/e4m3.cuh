// A block of 64 rows × 64 of K of prepared weights that become e4m3: a scale's byte for a row and 16 of K, as of NVFP4.
#pragma once

namespace ws {

struct WeightBlock {
  u8 codes[2048], scales[256];
};

}  // namespace ws
