// From expanded weights in shared memory to the registers of wgmma's A operand: 64 rows × 32 of k a step, as they lie there.
//
// k is in the order of docs/formats.md, as of weights that are decoded (rows/e4m3.cuh).
#pragma once

namespace ws {

__device__ __forceinline__ void prepare_decoding(u32) {}

// A step's bytes of a thread.
__device__ __forceinline__ u32 step_at(u32 block, int step) {
  return block + step * int(sizeof(WeightBlock::steps[0])) + threadIdx.x % 128 * 16;
}

// The 64 rows of one m64 tile as they are: of B, or 32 of the gate and 32 of up. They are read where others decode, not before: held in other
// registers until those of an instruction under way are free, they make ptxas serialise the instructions.
struct WholeRows {
  static constexpr int TILES_USED = 1;
  u32 block;

  __device__ void load(u32 from, u32) { block = from; }

  __device__ void decode(u32 (&a)[4], int step) const {
    const uint4 values = ld_shared_16(step_at(block, step));
    a[0] = values.x;
    a[1] = values.y;
    a[2] = values.z;
    a[3] = values.w;
  }
};

// The 32 rows of one product in each of two neighbouring m64 tiles.
template <int PRODUCT>
struct ProductRows {
  static constexpr int TILES_USED = 2;
  u32 block;

  __device__ void load(u32 from, u32) { block = from; }

  __device__ void decode(u32 (&a)[4], int step) const {
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      const u32 from = step_at(block + tile * K_BLOCKS * BLOCK_BYTES, step) + PRODUCT * 4;
      a[tile] = ld_shared_4(from);
      a[2 + tile] = ld_shared_4(from + 8);
    }
  }
};

}  // namespace ws
