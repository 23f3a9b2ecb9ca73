// Who waits in vain ends the kernel as a fault.
#pragma once

namespace ws {

__device__ __forceinline__ void stuck_if(bool is_stuck) {
  if (is_stuck) __trap();
}

}  // namespace ws
