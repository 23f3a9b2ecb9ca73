// Products of 16-bit values, in a launch of simt/experts.cu: x and h are multiplied as they are.
#pragma once

#include "wgmma/rows/half.cuh"

namespace ws {

enum : int { SHARED_BYTES = LISTS_END };

__device__ __forceinline__ void prepare_products() {}

// Where a column of a row lies, in elements, in the order in which lanes take them: [block of 64][half][c][step][upper][2].
__device__ __forceinline__ int fragment_place(int column) {
  const int block = column / 64, step = column % 64 / 16, inside = column % 16;
  return block * 64 + step / 2 * 32 + inside % 8 / 2 * 8 + step % 2 * 4 + inside / 8 * 2 + column % 2;
}

// Puts a thread's pieces of x in this order. They are there once all have met.
__device__ __forceinline__ void look_at_x(const uint4 (&x)[X_PIECES], int tokens) {
#pragma unroll
  for (int nth = 0; nth < X_PIECES; nth++) {
    // The lower or the upper eight elements of a step.
    const int i = threadIdx.x + nth * THREADS, piece = i % 8, block = i / 8 % UP_BLOCKS, token = i / 8 / UP_BLOCKS;
    const int step = piece / 2, upper = piece % 2;
    if (token >= tokens) break;
    u8* const half = shared_memory + BODY + block * 1024 + step / 2 * 512;
    u32* const to = reinterpret_cast<u32*>(half + token * 64 + step % 2 * 8 + upper * 4);
    to[0] = x[nth].x, to[4] = x[nth].y, to[8] = x[nth].z, to[12] = x[nth].w;
  }
}

__device__ __forceinline__ void finish_x(const uint4 (&)[X_PIECES], int) {}
__device__ __forceinline__ void round_h(int) {}

// Products of a slice's block, whose tokens are at `b`; two sums in turn, as the next of one waits for the last.
__device__ __forceinline__ void multiply(float (&sums)[2][4], const WholeRows& rows, const uint4 (&b)[2]) {
  u32 a[4][4];
#pragma unroll
  for (int step = 0; step < 4; step++) rows.decode(a[step], step);
  rows.finish(a, 0);
#pragma unroll
  for (int step = 0; step < 4; step++) {
    const uint4& of = b[step / 2];
    const u32 low = step % 2 == 0 ? of.x : of.z, high = step % 2 == 0 ? of.y : of.w;
    Compute::mma(sums[step % 2], a[step][0], a[step][1], a[step][2], a[step][3], low, high);
  }
}

// What makes true sums of those of decoded weights: of the columns from one on, and of tokens.
struct UpUnits {
  __device__ UpUnits(const ExpertsParams&, int, int, int) {}
  __device__ __forceinline__ float of_gate(float sum, int) const { return WeightFormat::unit() * sum; }
  __device__ __forceinline__ float of_up(float sum, int) const { return WeightFormat::unit() * sum; }
};

struct DownUnits {
  __device__ DownUnits(const ExpertsParams&, const Lists&, int, int) {}
  __device__ __forceinline__ float of(float sum, int, int) const { return WeightFormat::unit() * sum; }
};

__device__ __forceinline__ void ask_for_up_units(const ExpertsParams&, int, int) {}
__device__ __forceinline__ void ask_for_down_units(const ExpertsParams&, int, int) {}

}  // namespace ws
