// Logits in f32.
#pragma once

namespace ws {

__device__ __forceinline__ float load_logit(const u8* logits, long long element) {
  return reinterpret_cast<const float*>(logits)[element];
}

}  // namespace ws
