// Logits in f16, widened exactly.
#pragma once

namespace ws {

inline constexpr bool SHORT_LOGITS = true;  // of 16 bits

__device__ __forceinline__ float load_logit(const u8* logits, long long element) {
  return cvt_f32_f16(reinterpret_cast<const u16*>(logits)[element]);
}

}  // namespace ws
