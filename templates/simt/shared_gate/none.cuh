// The shared expert's row is added as it is.
#pragma once

namespace ws {

struct SharedGate {
  __device__ __forceinline__ SharedGate(const CombineParams&, int) {}

  __device__ __forceinline__ float added(float sum, float row) const { return __fadd_rn(sum, row); }
};

}  // namespace ws
