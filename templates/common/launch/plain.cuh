// Kernels that are launched one after the other: each finds the results of those before.
#pragma once

namespace ws {

__device__ __forceinline__ void wait_for_dependencies() {}

}  // namespace ws
