// Logits in f32.
#pragma once

namespace ws {

inline constexpr bool SHORT_LOGITS = false;  // of 16 bits

__device__ __forceinline__ float load_logit(const u8* logits, long long element) {
  return reinterpret_cast<const float*>(logits)[element];
}

}  // namespace ws
