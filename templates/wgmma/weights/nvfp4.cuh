// What a block of prepared NVFP4 weights has, and what of it a thread takes: a scale for a row and a k16 step.
#pragma once

namespace ws {

// Of 64 rows × 64 of K.
struct WeightBlock {
  u8 codes[2048], scales[256];
};

struct WeightFormat {
  // Decoded weights are 2^-14 of the true ones.
  __device__ static constexpr float unit() { return 16384.f; }

  // Two words for a row pair: of the steps 0 and 1, and 2 and 3.
  using Scales = uint2;

  __device__ static Scales load(u32 scales, int row_pair) { return ld_shared_8(scales + row_pair * 8); }

  // Of step `step`: row g in the low half, row g + 8 in the high half.
  __device__ static u32 step_scales(const Scales& scales, int step) {
    const u32 word = step / 2 == 0 ? scales.x : scales.y;
    return step % 2 == 0 ? Decode::scales<0>(word) : Decode::scales<1>(word);
  }

  __device__ static constexpr bool any_large(const Scales&) { return false; }

  template <int HALF>
  __device__ static u32 enlarged(u32 weights, const Scales&, int) {
    return weights;
  }
};

}  // namespace ws
