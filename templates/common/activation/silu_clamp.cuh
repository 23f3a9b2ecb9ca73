// silu(min(gate, LIMIT)) · clamp(up, −LIMIT, LIMIT).
#pragma once

#include "common/activation/clamped.cuh"

namespace ws {

__device__ __forceinline__ float activate(float gate) {
  constexpr float LOG2_E = 1.4426950408889634f;
  const float x = clamped_gate(gate);
  return div_approx(x, 1.f + ex2_approx(-LOG2_E * x));
}

__device__ __forceinline__ float linear(float up) { return clamped_up(up); }

}  // namespace ws
