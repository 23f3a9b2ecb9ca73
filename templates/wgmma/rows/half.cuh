// From prepared weights in shared memory to the registers of wgmma's A operand: 64 rows × 16 of k a step.
#pragma once

namespace ws {

__device__ __forceinline__ void prepare_decoding(u32) {}

__device__ __forceinline__ u32 word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// What a thread reads of one block: the codes of four k16 steps, and the scales of its two rows.
struct Packed {
  uint4 codes;
  WeightFormat::Scales scales;

  __device__ static Packed load(u32 block, int thread = threadIdx.x % 128) {
    return {ld_shared_16(block + thread * 16), WeightFormat::load(block + BLOCK_CODES, thread / 4)};
  }

  __device__ u32 step_scales(int step) const { return WeightFormat::step_scales(scales, step); }
};

// The 64 rows of one m64 tile as they are: of B, or 32 of the gate and 32 of up.
struct WholeRows {
  static constexpr int TILES_USED = 1;
  Packed packed;

  // As thread `thread` of a warpgroup.
  __device__ void load(u32 block, u32, int thread = threadIdx.x % 128) { packed = Packed::load(block, thread); }

  __device__ void decode(u32 (&a)[4], int step) const {
    const u32 word = word_of(packed.codes, step), scales = packed.step_scales(step);
    a[0] = Decode::mul(Decode::codes<0>(word), both<0>(scales));
    a[1] = Decode::mul(Decode::codes<1>(word), both<1>(scales));
    a[2] = Decode::mul(Decode::codes<2>(word), both<0>(scales));
    a[3] = Decode::mul(Decode::codes<3>(word), both<1>(scales));
  }

  // Once COUNT steps from `first` on are decoded.
  template <int COUNT>
  __device__ void finish(u32 (&a)[COUNT][4], int first) const {
    if (__builtin_expect(WeightFormat::any_large(packed.scales), false)) {
#pragma unroll
      for (int step = 0; step < COUNT; step++)
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
          a[step][k] = WeightFormat::enlarged<0>(a[step][k], packed.scales, first + step);
          a[step][k + 1] = WeightFormat::enlarged<1>(a[step][k + 1], packed.scales, first + step);
        }
    }
  }
};

// The 32 rows of one product in each of two neighbouring m64 tiles.
template <int PRODUCT>
struct ProductRows {
  static constexpr int TILES_USED = 2;
  Packed packed[2];

  __device__ void load(u32 block, u32) {
    packed[0] = Packed::load(block);
    packed[1] = Packed::load(block + K_BLOCKS * BLOCK_BYTES);
  }

  __device__ void decode(u32 (&a)[4], int step) const {
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      const u32 word = word_of(packed[tile].codes, step), scale = both<PRODUCT>(packed[tile].step_scales(step));
      a[tile] = Decode::mul(Decode::codes<PRODUCT>(word), scale);
      a[2 + tile] = Decode::mul(Decode::codes<PRODUCT + 2>(word), scale);
    }
  }

  template <int COUNT>
  __device__ void finish(u32 (&a)[COUNT][4], int first) const {
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      const WeightFormat::Scales& scales = packed[tile].scales;
      if (__builtin_expect(WeightFormat::any_large(scales), false)) {
#pragma unroll
        for (int step = 0; step < COUNT; step++)
#pragma unroll
          for (int k = 0; k < 4; k += 2)
            a[step][k + tile] = WeightFormat::enlarged<PRODUCT>(a[step][k + tile], scales, first + step);
      }
    }
  }
};

}  // namespace ws
