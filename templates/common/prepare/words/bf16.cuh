// Scale words for kernels that multiply in bf16.
#pragma once

namespace ws {

// Of two steps, each given as a pair of binary16 scales. As for f16, and then right by 3, from the places of binary16's
// exponent and mantissa to those of bfloat16.
__device__ __forceinline__ u32 scale_word(u32 even, u32 odd) {
  const u32 word = even | __funnelshift_r(odd, odd, 8);
  return __funnelshift_r(word, word, 3);
}

}  // namespace ws
