// What templates/common/stuck/store.cuh has, on the CPU.
#pragma once

namespace ws {

inline void stuck_if(bool is_stuck) {
  if (is_stuck) __trap();
}

}  // namespace ws
