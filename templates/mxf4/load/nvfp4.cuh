// Rows of an NVFP4 operand: global → shared as they are, shared → fragments, which are codes.
//
// Shared memory holds rows of TILE_K / 2 bytes of codes, and behind all codes ROWS × 4 scales for each K block. Of a
// row's CHUNKS 16-byte chunks, chunk i lies at place i xor (row div (8 / CHUNKS)) mod CHUNKS: eight rows of one chunk,
// a matrix of ldmatrix, are 128 bytes in eight different places, so there is no bank conflict.
//
// A fragment is 16 rows × one K block: four matrices (rows 0 … 7 and 8 … 15, then the same of the second half of k), which
// are a0 … a3 of a m16 tile, or b0 and b1 of two n8 tiles. Lane 4·g + c of the scales of 32 rows has those of row 8c + g:
// so one register has the scales of two m16 tiles, or of four n8 tiles, and the instruction is told which.
#pragma once

#include "mma_sync/load/nvfp4.cuh"

namespace ws {

struct Swizzled {
  static constexpr int CHUNKS = TILE_K / 32;

  __device__ static int chunk(int position, int chunk) {
    return position * (TILE_K / 2) + (chunk ^ position / (8 / CHUNKS) % CHUNKS) * 16;
  }

  template <class Order>
  __device__ static int place(int row, int chunk) {
    return Swizzled::chunk(Order::position(row), chunk);
  }
};

template <int ROWS, class Order>
struct Nvfp4Tile : Nvfp4Rows<ROWS, Order, Swizzled> {
  using Nvfp4Rows<ROWS, Order, Swizzled>::CODES;

  // Codes of `rows` rows from `first` on, 8 or 16 of them; of 8, r[1] and r[3] are what r[0] and r[2] are.
  __device__ static void codes(u32 (&r)[4], int offset, int k_block, int first, int rows) {
    const int position = first + lane_index() % (rows < 16 ? 8 : 16);
    ldmatrix_x4(shared_address(offset + Swizzled::chunk(position, 2 * k_block + lane_index() / 16)), r);
  }

  // This lane's share of the scales of `rows` rows from `first` on, up to 32 of them.
  __device__ static u32 scales(int offset, int k_block, int first, int rows) {
    const int eighth = rows < 32 ? min(lane_k(), rows / 8 - 1) : lane_k();
    return word(offset, k_block, first + 8 * eighth + lane_row());
  }

  // Changes the signs of the codes whose scale is negative. This lane's are of the rows at `position`, those of r[1] and
  // r[3] at `next`.
  __device__ static void apply_signs(u32 (&r)[4], int offset, int k_block, int position, int next) {
    const u32 first = word(offset, k_block, position), second = word(offset, k_block, next);
    r[0] ^= flips(first, lane_k() / 2);
    r[1] ^= flips(second, lane_k() / 2);
    r[2] ^= flips(first, 2 + lane_k() / 2);
    r[3] ^= flips(second, 2 + lane_k() / 2);
  }

  // The scales of a K block of a row.
  __device__ static u32 word(int offset, int k_block, int position) {
    return *reinterpret_cast<const u32*>(shared_memory + offset + CODES + k_block * ROWS * 4 + position * 4);
  }

  // The signs of eight codes of block `block`.
  __device__ static u32 flips(u32 scales, int block) { return (scales >> (8 * block + 7) & 1u) * 0x88888888u; }
};

}  // namespace ws
