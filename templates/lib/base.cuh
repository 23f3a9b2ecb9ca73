// What every kernel knows: fixed-width types and the parameters of a launch. No toolkit header is included anywhere.
#pragma once

namespace ws {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// The one argument of every kernel. The same order and sizes as `Params` on the host side (src/run/params.rs).
struct Params {
  const u8* a;             // values of A
  const u8* a_scales;      // its block scales, if NVFP4
  const u8* b[2];          // values of B, or of B1 and B2
  const u8* b_scales[2];   // their block scales, if NVFP4
  const float* alpha[2];   // α in device memory, or null
  const int* offsets;      // GROUPS + 1 row offsets, if grouped
  u8* c;                   // the result
  float* workspace;        // partial sums [split, product, row, column], if the variant has them
  u8* decoded;             // NVFP4 tokens as 16-bit values [m, K], if the variant has a prepass
  float alpha_value[2];    // α where `alpha` is null
  int alpha_step[2];       // 0: one α for all groups; 1: one a group
  int m;                   // rows of A and C, of all groups together
  int product;             // which product this launch computes, where it computes one of two
  int early;               // whether the prepass, if there is one, may begin before what came before is done
};

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace ws
