// relu²(x) = max(x, 0)². NaN stays NaN.
#pragma once

namespace ws {

__device__ __forceinline__ float activate(float x) {
  const float above = max_nan(x, 0.f);
  return above * above;
}

}  // namespace ws

#include "common/activation/linear.cuh"
