// <{ symbol }>
//
// Codes and block scales of rows. A thread takes a block of 16 elements, 16 bytes at a time. The rule is that of docs/formats.md.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "simt/quantise/params.cuh"
#include "common/quantise/round.cuh"
#include "simt/quantise/x/<{ x }>.cuh"
#include "common/quantise/scales/<{ scales }>.cuh"

namespace ws {

inline constexpr u32 BLOCKS = <{ k }> / 16;  // of a row
inline constexpr u32 THREADS = 128;

}  // namespace ws

#include "simt/quantise/factor/<{ factor }>.cuh"

extern "C" __global__ void __launch_bounds__(ws::THREADS) <{ symbol }>(const __grid_constant__ ws::QuantiseParams params) {
  using namespace ws;
  launch_dependents();
  wait_for_dependencies();
  const float factor = tensor_factor(params);
  const u32 end = rows_with_scales(params.blocks / BLOCKS) * BLOCKS;
  for (u32 at = blockIdx.x * THREADS + threadIdx.x; at < end; at += gridDim.x * THREADS) {
    u8* to = params.scales + block_scale_offset(BLOCKS, at / BLOCKS, at % BLOCKS);
    if (at >= params.blocks) {
      *to = 0;
      continue;
    }
    X x[2];
    x[0].load(params.x, at * 16ll);
    x[1].load(params.x, at * 16ll + 8);
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; i++) most = max_nan(most, fabsf(x[i / 8].at(i % 8)));
    const BlockScale scale(most, factor);
    u32 codes[2];
    scale.codes<8>(x, codes);
    reinterpret_cast<uint2*>(params.codes)[at] = {codes[0], codes[1]};
    *to = scale.byte();
  }
}
