// An addend for each column, in binary16.
#pragma once

namespace ws {

using Addend = u16;

__device__ __forceinline__ float widened(Addend value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
  return wide;
}

}  // namespace ws

#include "common/bias/column.cuh"
