// Who waits in vain ends the kernel as a fault: it writes to address 0. Not by `trap`, beside which ptxas gives every warp as few
// registers as all have at the launch, whatever `setmaxnreg` says.
#pragma once

namespace ws {

__device__ __forceinline__ void stuck_if(bool is_stuck) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.u32 [%1], 0; }" ::"r"(u32(is_stuck)), "l"(0ull));
}

}  // namespace ws
