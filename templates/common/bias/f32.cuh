// An addend for each column, in binary32.
#pragma once

namespace ws {

using Addend = float;

__device__ __forceinline__ float widened(Addend value) { return value; }

}  // namespace ws

#include "common/bias/column.cuh"
