// What a block of prepared weights has that become e4m3: a byte for a row and 16 of K, as of NVFP4.
#pragma once

namespace ws {

inline constexpr int BLOCK_SCALE_BYTES = 256;  // of 64 rows × 64 of K

}  // namespace ws
