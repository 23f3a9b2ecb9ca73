// From expanded weights in shared memory to the registers of wgmma's A operand: 64 rows × 32 of k a step, as they lie there.
//
// k is in the order of docs/formats.md, as of weights that are decoded (rows/e4m3.cuh).
#pragma once

namespace ws {

__device__ __forceinline__ void prepare_decoding(u32) {}

// The 64 rows of one m64 tile as they are: of B, or 32 of the gate and 32 of up.
struct WholeRows {
  static constexpr int TILES_USED = 1;
  uint4 steps[2];

  __device__ void load(u32 block, u32) {
#pragma unroll
    for (int step = 0; step < 2; step++) steps[step] = ld_shared_16(block + step * int(sizeof(WeightBlock::steps[0])) + threadIdx.x % 128 * 16);
  }

  __device__ void decode(u32 (&a)[4], int step) const {
    a[0] = steps[step].x;
    a[1] = steps[step].y;
    a[2] = steps[step].z;
    a[3] = steps[step].w;
  }
};

// A K block that is loaded.
template <class Rows>
__device__ __forceinline__ void decode_block(const Rows& rows, u32 (&a)[2][4]) {
  rows.decode(a[0], 0);
  rows.decode(a[1], 1);
}

// The 32 rows of one product in each of two neighbouring m64 tiles.
template <int PRODUCT>
struct ProductRows {
  static constexpr int TILES_USED = 2;
  u32 steps[2][4];

  __device__ void load(u32 block, u32) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int step = i / 4, tile = i % 2, word = i / 2 % 2 * 2 + PRODUCT;
      const u32 from = block + tile * K_BLOCKS * BLOCK_BYTES + step * int(sizeof(WeightBlock::steps[0])) + threadIdx.x % 128 * 16;
      steps[step][i % 4] = ld_shared_4(from + word * 4);
    }
  }

  __device__ void decode(u32 (&a)[4], int step) const {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = steps[step][i];
  }
};

}  // namespace ws
