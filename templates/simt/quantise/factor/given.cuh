// The tensor's factor is given.
#pragma once

namespace ws {

__device__ __forceinline__ float tensor_factor(const QuantiseParams& params) {
  return params.given != nullptr ? *params.given : params.factor;
}

}  // namespace ws
