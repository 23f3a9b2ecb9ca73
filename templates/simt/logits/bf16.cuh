// Logits in bf16, widened exactly.
#pragma once

namespace ws {

inline constexpr bool SHORT_LOGITS = true;  // of 16 bits

__device__ __forceinline__ float load_logit(const u8* logits, long long element) {
  return __uint_as_float(static_cast<u32>(reinterpret_cast<const u16*>(logits)[element]) << 16);
}

}  // namespace ws
