// silu(x) = x / (1 + e^-x).
#pragma once

namespace ws {

__device__ __forceinline__ float activate(float x) {
  constexpr float LOG2_E = 1.4426950408889634f;
  return div_approx(x, 1.f + ex2_approx(-LOG2_E * x));
}

}  // namespace ws

#include "common/activation/linear.cuh"
