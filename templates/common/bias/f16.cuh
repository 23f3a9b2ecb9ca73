// An addend for each column, in binary16.
#pragma once

namespace ws {

using Addend = u16;

__device__ __forceinline__ float widened(Addend value) { return cvt_f32_f16(value); }

}  // namespace ws

#include "common/bias/column.cuh"
