// No activation.
#pragma once

namespace ws {

__device__ __forceinline__ float activate(float x) { return x; }

}  // namespace ws

#include "common/activation/linear.cuh"
