// A reader multiplies scales by what is stored.
#pragma once

namespace ws {

// What a code of 1 stands for under a scale.
__device__ __forceinline__ float step_of(u32 scale, const QuantiseWeightsParams& params) {
  return __fmul_rn(scale_value(scale), params.stored);
}

}  // namespace ws
