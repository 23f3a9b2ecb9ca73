// An addend for each column, in bfloat16.
#pragma once

namespace ws {

using Addend = u16;

__device__ __forceinline__ float widened(Addend value) { return __uint_as_float(static_cast<u32>(value) << 16); }

}  // namespace ws

#include "common/bias/column.cuh"
