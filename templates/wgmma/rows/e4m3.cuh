// From prepared weights in shared memory to the registers of wgmma's A operand: 64 rows × 32 of k a step.
//
// Thread t of a row's four has k 16t … 16t + 15 of each K block, eight of them a step: what the instruction takes for k 4t … 4t + 3
// and 16 + 4t … is another k for it, the same as in the tokens, whose order is made for this (E4m3Tensor::position).
#pragma once

namespace ws {

static_assert(DECODE_OFFSET + 8 * (Decode::SMALL + Decode::MANTISSAS) <= SHARED_BYTES, "host and device agree");

__device__ __forceinline__ void prepare_decoding(u32 base) { Decode::make_table(base); }

// The 16 codes of a thread and a row, and the magnitudes under their scale.
struct Sixteen {
  u32 words[2];
  Decode::Magnitudes magnitudes;

  __device__ void decode(u32& first, u32& second, int step) const { Decode::codes(words[step], magnitudes, first, second); }
};

// The scales' bytes of a thread's two rows.
__device__ __forceinline__ u32 scale_bytes(u32 block, int thread = threadIdx.x % 128) {
  return ld_shared_2(block + BLOCK_CODES + thread * 2);
}
template <int ROW>
__device__ __forceinline__ int scale_byte(u32 bytes) {
  return ROW == 0 ? static_cast<signed char>(bytes) : static_cast<short>(bytes) >> 8;
}

// The 64 rows of one m64 tile as they are: of B, or 32 of the gate and 32 of up.
struct WholeRows {
  static constexpr int TILES_USED = 1;
  Sixteen low, high;

  // As thread `thread` of a warpgroup.
  __device__ void load(u32 block, u32 base, int thread = threadIdx.x % 128) {
    const u32 bytes = scale_bytes(block, thread);
    const uint4 codes = ld_shared_16(block + thread * 16);
    low = {{codes.x, codes.y}, Decode::magnitudes(Decode::table(base), scale_byte<0>(bytes))};
    high = {{codes.z, codes.w}, Decode::magnitudes(Decode::table(base), scale_byte<1>(bytes))};
  }

  __device__ void decode(u32 (&a)[4], int step) const {
    low.decode(a[0], a[2], step);
    high.decode(a[1], a[3], step);
  }
};

// The 32 rows of one product in each of two neighbouring m64 tiles.
template <int PRODUCT>
struct ProductRows {
  static constexpr int TILES_USED = 2;
  Sixteen rows[2];

  __device__ void load(u32 block, u32 base) {
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      const u32 from = block + tile * K_BLOCKS * BLOCK_BYTES, bytes = scale_bytes(from);
      const uint2 codes = ld_shared_8(from + threadIdx.x % 128 * 16 + PRODUCT * 8);
      rows[tile] = {{codes.x, codes.y}, Decode::magnitudes(Decode::table(base), scale_byte<PRODUCT>(bytes))};
    }
  }

  __device__ void decode(u32 (&a)[4], int step) const {
#pragma unroll
    for (int tile = 0; tile < 2; tile++) rows[tile].decode(a[tile], a[2 + tile], step);
  }
};

}  // namespace ws
