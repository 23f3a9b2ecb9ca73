// Logits in f16, widened exactly.
#pragma once

namespace ws {

__device__ __forceinline__ float load_logit(const u8* logits, long long element) {
  return widened_f16(reinterpret_cast<const u16*>(logits)[element]);
}

}  // namespace ws
