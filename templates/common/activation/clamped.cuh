// What activations that clamp both products at LIMIT have in common. NaN stays NaN.
#pragma once

namespace ws {

// Below −128 an x·σ(x) is 0 in fp32, and −∞ would be NaN there.
__device__ __forceinline__ float clamped_gate(float gate) {
  return max_nan(min_nan(gate, static_cast<float>(LIMIT)), -128.f);
}

__device__ __forceinline__ float clamped_up(float up) {
  return max_nan(min_nan(up, static_cast<float>(LIMIT)), -static_cast<float>(LIMIT));
}

}  // namespace ws
