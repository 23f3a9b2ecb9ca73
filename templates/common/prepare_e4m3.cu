// <{ symbol }>
//
// Repacks NVFP4 weights, <{ products }> × [groups, n, k], for kernels that make e4m3 of them (docs/formats.md).
// One kernel for every n, k and number of groups, after one for the factors of rows:
//
//   factors   a warp a row: the largest scale of the row ─▶ 2^e, behind all blocks
//   blocks    128 threads a block of 64 rows × 64 k: thread 32w + 4g + t has, of the rows 16w + g and 16w + g + 8, block
//             scale t of the four, times 2^-e, and the 16 codes under it ─▶ what is stored of them (common/prepare/store/)
//
// There is no shared memory.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "simt/ptx.cuh"
#include "common/prepare/scales/<{ scales }>.cuh"

namespace ws {

inline constexpr int PRODUCTS = <{ products }>;
inline constexpr u32 THREADS = 128;
inline constexpr int BLOCK_BYTES = <{ block_bytes }>;
inline constexpr u32 TILE_COLUMNS = 64 / PRODUCTS;

}  // namespace ws

#include "common/prepare/weights/nvfp4.cuh"
#include "common/prepare/segment.cuh"

namespace ws {

__device__ __forceinline__ u64 block_count(const PrepareParams& params) {
  return static_cast<u64>(params.groups) * ((params.n - 1) / TILE_COLUMNS + 1) * (params.k / 64);
}

// Factors of rows, [groups, products, n].
__device__ __forceinline__ float* factors(const PrepareParams& params) {
  return reinterpret_cast<float*>(params.prepared + block_count(params) * BLOCK_BYTES);
}

// The value of an e4m3 magnitude that is no NaN, subnormal or not.
__device__ __forceinline__ float e4m3_value(u32 magnitude) { return __fmul_rn(__uint_as_float(magnitude << 20), 0x1p120f); }

// 2^e for the least e with 6 · largest · 2^-e <= 448. That is 7/6 · 2^6: of the largest's own power of two, up to a mantissa of
// 1 1/8, else of twice that.
__device__ __forceinline__ float factor_of(u32 largest) {
  if (largest == 0) return 1.f;
  const u32 bits = __float_as_uint(e4m3_value(largest));
  const u32 exponent = (bits >> 23) - 6 + ((bits & 0x7FFFFFu) > 0x100000u ? 1 : 0);
  return __uint_as_float(exponent << 23);
}

}  // namespace ws

#include "common/prepare/store/<{ store }>.cuh"

namespace ws {

// A row's part of a block that thread t of four has: the 16 codes under a scale.
__device__ __forceinline__ Quarter quarter(const PrepareParams& params, int product, u32 group, u32 row, u32 k_block, int t) {
  if (row >= params.n) return Quarter();
  const Segment segment(params, product, group, row, k_block);
  const uint4 both = t < 2 ? segment.codes[0] : segment.codes[1];
  const u32 codes[2] = {segment.scales.settle(t % 2 == 0 ? both.x : both.z, t), segment.scales.settle(t % 2 == 0 ? both.y : both.w, t)};
  return Quarter(codes, segment.scales.of(t), factors(params)[(static_cast<u64>(group) * PRODUCTS + product) * params.n + row]);
}

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::THREADS) <{ factors }>(const __grid_constant__ ws::PrepareParams params) {
  using namespace ws;
  launch_dependents();
  const u64 rows = static_cast<u64>(params.groups) * PRODUCTS * params.n;
  for (u64 at = blockIdx.x * (THREADS / 32) + warp_index(); at < rows; at += static_cast<u64>(gridDim.x) * (THREADS / 32)) {
    const u32 row = static_cast<u32>(at % params.n), product = static_cast<u32>(at / params.n % PRODUCTS);
    const u32 group = static_cast<u32>(at / params.n / PRODUCTS);
    u32 largest = 0;
    for (u32 k_block = lane_index(); k_block < params.k / 64; k_block += 32) {
      const u64 from = scale_offset(params.n, params.k, group, row, k_block);
      const u32 four = *reinterpret_cast<const u32*>(params.scales[product] + from);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const u32 magnitude = four >> (8 * i) & 0x7Fu;
        largest = max(largest, magnitude == 0x7Fu ? 0u : magnitude);
      }
    }
    largest = redux_max(largest);
    if (lane_index() == 0) factors(params)[at] = factor_of(largest);
  }
}

extern "C" __global__ void __launch_bounds__(ws::THREADS) <{ symbol }>(const __grid_constant__ ws::PrepareParams params) {
  using namespace ws;
  wait_for_dependencies();
  const u32 thread = threadIdx.x;
  const u32 row_pair = thread / 4;  // 8w + g
  const int t = thread % 4;
  // Of two products, low rows are the first's and high rows the second's.
  const u32 low_row = PRODUCTS == 2 ? row_pair : row_pair / 8 * 16 + row_pair % 8;
  const u32 high_row = PRODUCTS == 2 ? row_pair : low_row + 8;

  const u32 k_blocks = params.k / 64;
  const u32 tiles = (params.n - 1) / TILE_COLUMNS + 1;
  const u64 blocks = block_count(params);
  for (u64 block = blockIdx.x; block < blocks; block += gridDim.x) {
    const u64 group_tile = block / k_blocks;
    const u32 k_block = static_cast<u32>(block % k_blocks);
    const u32 group = static_cast<u32>(group_tile / tiles);
    const u32 first = static_cast<u32>(group_tile % tiles) * TILE_COLUMNS;
    const Quarter low = quarter(params, 0, group, first + low_row, k_block, t);
    const Quarter high = quarter(params, PRODUCTS - 1, group, first + high_row, k_block, t);
    store(params.prepared + block * BLOCK_BYTES, thread, low, high);
  }
}
