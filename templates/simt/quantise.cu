// <{ symbol }>
//
// Codes and block scales of rows. A thread takes a block of 16 elements, 16 bytes at a time. The rule is that of docs/formats.md.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "simt/quantise/params.cuh"
#include "simt/quantise/round.cuh"
#include "simt/quantise/x/<{ x }>.cuh"
#include "simt/quantise/scales/<{ scales }>.cuh"

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
    u8* to = params.scales + scale_offset(BLOCKS, at / BLOCKS, at % BLOCKS);
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
    const float scale = block_scale(most, factor);
    const float divisor = __fmul_rn(scale, factor);
    uint2 codes;
    if (QuickQuotients::can_be(divisor)) {
      const QuickQuotients quotients(divisor);
      codes = {e2m1_codes(x[0], quotients), e2m1_codes(x[1], quotients)};
    } else {
      codes = {e2m1_codes(x[0], Quotients{divisor}), e2m1_codes(x[1], Quotients{divisor})};
    }
    // NaN stays, as the scale: e2m1 has none.
    const bool is_nan = most != most;
    reinterpret_cast<uint2*>(params.codes)[at] = is_nan ? uint2{0, 0} : codes;
    *to = is_nan ? 0x7F : e4m3_byte(scale);
  }
}
