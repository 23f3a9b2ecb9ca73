// Scale words for kernels that multiply in f16.
#pragma once

namespace ws {

// Of two steps, each given as a pair of binary16 scales. The odd step is where rotating left by 8 brings it into place.
__device__ __forceinline__ u32 scale_word(u32 even, u32 odd) { return even | __funnelshift_r(odd, odd, 8); }

}  // namespace ws
