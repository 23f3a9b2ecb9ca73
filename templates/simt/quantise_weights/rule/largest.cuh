// The plain scale.
#pragma once

namespace ws {

__device__ __forceinline__ Choice chosen(const X (&)[2], const QuantiseWeightsParams&, const Choice& plain) { return plain; }

}  // namespace ws
