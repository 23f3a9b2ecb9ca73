// C in NVFP4: codes [rows, N/2] and an e4m3 scale for 16 columns, under a factor that is given. The rule is that of the
// quantisers (docs/formats.md): bit for bit what they make of the same values in f32.
#pragma once

#include "common/quantise/round.cuh"

namespace ws {

// Some of a block's values.
template <int COUNT>
struct SomeValues {
  float of[COUNT];

  __device__ __forceinline__ float at(int i) const { return of[i]; }
};

struct Output {
  enum : bool { IN_BLOCKS = true };

  template <int LANE_STEP, int COUNT>
  __device__ static void store_block(const Params& launch, int group, int row, int column, const float (&values)[COUNT]) {
    constexpr int LANES = 16 / COUNT, WORDS = COUNT > 8 ? 2 : 1, OF_WORD = COUNT / WORDS;
    static_assert(16 % COUNT == 0 && COUNT > 1, "whole bytes of a whole block");
    const CodedParams& params = static_cast<const CodedParams&>(launch);
    SomeValues<OF_WORD> x[WORDS];
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      x[i / OF_WORD].of[i % OF_WORD] = values[i];
      most = max_nan(most, fabsf(values[i]));
    }
    // Which of the lanes of its block this one is, and all of them.
    const int lane = threadIdx.x % 32, which = lane / LANE_STEP % LANES;
    u32 lanes = 0;
#pragma unroll
    for (int i = 0; i < LANES; i++) lanes |= 1u << (i * LANE_STEP);
    lanes <<= lane - which * LANE_STEP;
#pragma unroll
    for (int i = 1; i < LANES; i *= 2) most = max_nan(most, __shfl_xor_sync(lanes, most, i * LANE_STEP));

    const float factor = params.c_factor ? params.c_factor[group * params.c_factor_step] : params.c_factor_value;
    const BlockScale scale(most, factor);
    u32 codes[WORDS];
    scale.codes<OF_WORD>(x, codes);
    u8* to = params.c + static_cast<long long>(row) * (N / 2) + column / 2;
    if constexpr (COUNT == 16)
      *reinterpret_cast<uint2*>(to) = make_uint2(codes[0], codes[1]);
    else if constexpr (COUNT == 8)
      *reinterpret_cast<u32*>(to) = codes[0];
    else if constexpr (COUNT == 4)
      *reinterpret_cast<u16*>(to) = static_cast<u16>(codes[0]);
    else
      *to = static_cast<u8>(codes[0]);
    if (which == 0) params.c_scales[block_scale_offset<long long>(N / 16, row, column / 16)] = scale.byte();
  }
};

}  // namespace ws
