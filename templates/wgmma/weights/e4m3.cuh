// What a block of prepared weights has that become e4m3: a byte for a row and 16 of K, as of NVFP4.
#pragma once

namespace ws {

// Of 64 rows × 64 of K. No variable: those are part of what is compiled, in their order.
enum : int { BLOCK_SCALE_BYTES = 256 };

}  // namespace ws
