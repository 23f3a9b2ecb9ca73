// <{ symbol }>
//
// Weights to codes and block scales, and what is lost, bit for bit as the host makes them: docs/quantising.md has the rule.
//
//   block ─▶ plain scale ─▶ those near it, each with its error ─▶ the least ─▶ codes
//
// A warp takes a row, 32 blocks of 16 at a time, a lane each. Sums of a row are those of its blocks, one after the other.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "common/quantise/round.cuh"
#include "simt/quantise/x/<{ x }>.cuh"
#include "simt/quantise_weights/params.cuh"
#include "simt/quantise_weights/error.cuh"
#include "simt/quantise_weights/stored/<{ stored }>.cuh"
#include "simt/quantise_weights/rule/<{ rule }>.cuh"

namespace ws {

inline constexpr u32 THREADS = 128;
inline constexpr u32 WARPS = THREADS / 32;
inline constexpr u32 SUMS = 3;

// The 16 values of a block of a row.
__device__ __forceinline__ void load(X (&x)[2], const QuantiseWeightsParams& params, u64 block) {
  x[0].load(params.x, block * 16);
  x[1].load(params.x, block * 16 + 8);
}

template <class Quotients>
__device__ __forceinline__ uint2 codes_over(const X (&x)[2], const Quotients& quotients) {
  return {e2m1_codes<8>(x[0], quotients), e2m1_codes<8>(x[1], quotients)};
}

__device__ __forceinline__ uint2 codes_of(const X (&x)[2], float by) {
  return QuickQuotients::can_be(by) ? codes_over(x, QuickQuotients(by)) : codes_over(x, Quotients{by});
}

// A block to its codes and its scale. What sums have of it goes to `sums`, each kind 32 apart.
__device__ __forceinline__ void quantise_block(const QuantiseWeightsParams& params, u64 block, double* sums) {
  X x[2];
  load(x, params, block);
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < 16; i++) most = fmaxf(most, fabsf(x[i / 8].at(i % 8)));
  // The plain codes are those under the factor, the others those under what a reader makes of it.
  const float value = block_scale(most, params.factor), by = __fmul_rn(value, params.factor);
  const u32 scale = e4m3_byte(value);
  const Choice plain = {scale, by, error_of(x, by, step_of(scale, params))};
  const Choice best = chosen(x, params, plain);
  reinterpret_cast<uint2*>(params.codes)[block] = codes_of(x, best.by);
  params.scales[block] = static_cast<u8>(best.scale);
  sums[0] = sum_of_squares([&](int i) -> double { return x[i / 8].at(i % 8); });
  sums[32] = best.error;
  sums[64] = plain.error;
}

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::THREADS)
    <{ symbol }>(const __grid_constant__ ws::QuantiseWeightsParams params) {
  using namespace ws;
  launch_dependents();
  wait_for_dependencies();
  __shared__ double of_blocks[WARPS][SUMS][32];
  const u32 lane = lane_index(), warp = warp_index();
  for (u64 row = blockIdx.x * WARPS + warp; row < params.rows; row += gridDim.x * WARPS) {
    double sum = 0.0;
    for (u32 first = 0; first < params.blocks; first += 32) {
      const u32 count = min(params.blocks - first, 32u);
      if (lane < count) quantise_block(params, row * params.blocks + first + lane, &of_blocks[warp][0][lane]);
      __syncwarp();
      if (lane < SUMS)
        for (u32 i = 0; i < count; i++) sum = __dadd_rn(sum, of_blocks[warp][lane][i]);
      __syncwarp();
    }
    if (lane < SUMS) params.squares[row * SUMS + lane] = sum;
  }
}

// The largest magnitude of each row. As bits infinity is above all numbers, and NaN above that.
extern "C" __global__ void __launch_bounds__(ws::THREADS)
    <{ largest }>(const __grid_constant__ ws::QuantiseWeightsParams params) {
  using namespace ws;
  launch_dependents();
  wait_for_dependencies();
  for (u64 row = blockIdx.x * WARPS + warp_index(); row < params.rows; row += gridDim.x * WARPS) {
    u32 most = 0;
#pragma unroll 4
    for (u32 block = lane_index(); block < params.blocks; block += 32) {
      X x[2];
      load(x, params, row * params.blocks + block);
#pragma unroll
      for (int i = 0; i < 16; i++) most = max(most, __float_as_uint(fabsf(x[i / 8].at(i % 8))));
    }
    most = redux_max(most);
    if (lane_index() == 0) params.largest[row] = __uint_as_float(most);
  }
}
