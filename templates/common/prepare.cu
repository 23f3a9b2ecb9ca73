// <{ symbol }>
//
// Repacks <{ weights }> weights, <{ products }> × [groups, n, k], into blocks of 64 rows × 64 k (docs/formats.md).
// One kernel for every n, k and number of groups.
//
//                    ┌──────────── 64 of k: four steps ────────────┐
//   row 16w + g      │ codes 2c, 2c+1, 2c+8 and 2c+9 of every step │  low     thread 32w + 4g + c writes 16 bytes:
//   row 16w + g + 8  │ the same                                    │  high    a code word for every step
//
// A block of threads repacks a block of weights, and then another. Every thread loads the 64 elements of both its rows,
// 32 bytes and their scales each: the four threads of a row load the same, which is one transaction. It keeps its
// quarter, makes of scales and of codes under them what is stored (weights/) and encodes; the first of the four writes
// the rows' scales. There is no shared memory, and nobody waits for anybody.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "common/prepare/scales/<{ scales }>.cuh"
#include "common/prepare/words/<{ compute }>.cuh"
#include "common/prepare/weights/<{ weights }>.cuh"
#include "common/prepare/store/<{ weights }>.cuh"

namespace ws {

inline constexpr int PRODUCTS = <{ products }>;
inline constexpr int THREADS = 128;
inline constexpr int BLOCK_BYTES = <{ block_bytes }>;
inline constexpr int CODE_BYTES = THREADS * 16;
inline constexpr u32 TILE_COLUMNS = 64 / PRODUCTS;

}  // namespace ws

#include "common/prepare/segment.cuh"

namespace ws {

// The code word of eight codes: a linear map over GF(2), the inverse of what kernels do to decode (computed in
// src/format/prepared/words.rs). Bit i of the codes contributes ENCODER[i].
__device__ __forceinline__ u32 encode(u32 codes) {
  constexpr u32 ENCODER[32] = {
      <{ encoder }>
  };
  u32 word = 0;
#pragma unroll
  for (int bit = 0; bit < 32; bit++) word ^= (codes >> bit & 1u) != 0 ? ENCODER[bit] : 0u;
  return word;
}


}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::THREADS) <{ symbol }>(const __grid_constant__ ws::PrepareParams params) {
  using namespace ws;
  const u32 thread = threadIdx.x;
  const u32 row_pair = thread / 4, c = thread % 4;  // row_pair = 8w + g
  // Of two products, low rows are the first's and high rows the second's.
  const u32 low_row = PRODUCTS == 2 ? row_pair : row_pair / 8 * 16 + row_pair % 8;
  const u32 high_row = PRODUCTS == 2 ? row_pair : low_row + 8;

  const u32 k_blocks = params.k / 64;
  const u32 tiles = (params.n - 1) / TILE_COLUMNS + 1;
  const u64 blocks = static_cast<u64>(params.groups) * tiles * k_blocks;
  for (u64 block = blockIdx.x; block < blocks; block += gridDim.x) {
    const u64 group_tile = block / k_blocks;
    const u32 k_block = static_cast<u32>(block % k_blocks);
    const u32 group = static_cast<u32>(group_tile / tiles);
    const u32 first = static_cast<u32>(group_tile % tiles) * TILE_COLUMNS;
    const Segment low(params, 0, group, first + low_row, k_block);
    const Segment high(params, PRODUCTS - 1, group, first + high_row, k_block);

    u32 words[4];
#pragma unroll
    for (int step = 0; step < 4; step++) {
      words[step] = encode(prmt(low.settled(step, c), high.settled(step, c), 0x5140u));  // bytes low 0, high 0, low 1, high 1
    }
    u8* to = params.prepared + block * BLOCK_BYTES;
    *reinterpret_cast<uint4*>(to + thread * 16) = make_uint4(words[0], words[1], words[2], words[3]);
    if (c == 0) store_scales(to + CODE_BYTES, row_pair, low.scales, high.scales);
  }
}
