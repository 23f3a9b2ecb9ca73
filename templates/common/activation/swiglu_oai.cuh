// g·σ(1.702·g) · (u + 1), g = min(gate, LIMIT), u = clamp(up, −LIMIT, LIMIT).
#pragma once

#include "common/activation/clamped.cuh"

namespace ws {

__device__ __forceinline__ float activate(float gate) {
  constexpr float ALPHA_LOG2_E = 2.4554669595930157f;
  const float x = clamped_gate(gate);
  return div_approx(x, 1.f + ex2_approx(-ALPHA_LOG2_E * x));
}

__device__ __forceinline__ float linear(float up) { return clamped_up(up) + 1.f; }

}  // namespace ws
