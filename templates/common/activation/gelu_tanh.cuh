// gelu(x) ≈ x/2 · (1 + tanh u), u = √(2/π)·(x + 0.044715·x³); since (1 + tanh u)/2 = 1 / (1 + e^-2u), the same form as
// silu.
#pragma once

namespace ws {

__device__ __forceinline__ float activate(float x) {
  constexpr float TWO_LOG2_E = 2.885390081777927f, SQRT_2_OVER_PI = 0.7978845608028654f;
  // The one place where the compiler could fuse one addition with either of two products, so it is told which.
  const float u = SQRT_2_OVER_PI * __fmaf_rn(0.044715f * x * x, x, x);
  return div_approx(x, 1.f + ex2_approx(-TWO_LOG2_E * u));
}

}  // namespace ws

#include "common/activation/linear.cuh"
