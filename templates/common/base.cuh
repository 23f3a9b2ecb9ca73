// What every kernel knows: fixed-width types and the parameters of a launch. No toolkit header is included anywhere.
#pragma once

namespace ws {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

}  // namespace ws

#include "common/params.cuh"

namespace ws {

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace ws
