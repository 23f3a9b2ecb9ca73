// Tokens by the numbers of their rows: the warps that copy scales bring their codes, too, as the tensor memory accelerator would
// have put them, in the 128-byte swizzle. A number that A has not stands for a row of zeros.
#pragma once

namespace ws {

// The rows of which a thread copies one of PARTS parts: every STEP-th of the HEIGHT rows of a tile.
template <int HEIGHT, int PARTS>
struct GatheredRows {
  static constexpr int STEP = COPY_THREADS / PARTS, COUNT = ceil_div(HEIGHT, STEP);
  static_assert(COPY_THREADS % PARTS == 0 && HEIGHT % STEP == 0, "every thread has as many rows");
  int numbers[COUNT];  // of A; less than 0: none

  // Of the rows of the product from `first` on.
  __device__ GatheredRows(const MovedParams& params, int first) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int row = first + GatheredRows::row(i), number = row < params.m ? params.rows[row] : -1;
      numbers[i] = u32(number) < u32(params.a_rows) ? number : -1;
    }
  }

  // Which row of the tile the `i`th is, and the part of this thread.
  __device__ static int row(int i) { return copy_thread() / PARTS + i * STEP; }
  __device__ static int part() { return copy_thread() % PARTS; }
};

struct TokenScales {
  static constexpr bool COPIES = true;
  static constexpr int CHUNKS = TILE_K / 32;  // of 16 bytes of codes in a row
  static constexpr int TO = WEIGHT_ROWS ? WIDE_SCALES_OFFSET : ROW_SCALES_OFFSET;

  // Codes of the rows that this block loads; scales of all that it multiplies.
  struct Share {
    GatheredRows<WEIGHT_ROWS ? WIDTH_HERE : ROWS, CHUNKS> codes;
    GatheredRows<TokenScaleRows::TILE_BLOCKS * 128, K_BLOCKS> scales;

    __device__ Share(const Params& launch, const Tile& tile, int rank)
        : codes(static_cast<const MovedParams&>(launch), tile.token_row(rank)),
          scales(static_cast<const MovedParams&>(launch), TokenScaleRows::first(tile, rank)) {}
  };

  __device__ static int column(const Tile&) { return 0; }

  // This thread's share of a stage.
  __device__ static void copy(const Params& params, const Ring& ring, u32 slot, const Tile& tile, int k_tile,
                              const Share& share) {
    const u32 stage = ring.stage(slot);
    const int chunk = share.codes.part(), k = k_tile * TILE_K + chunk * 32;
    // Where tokens are columns, no more of them than the instruction has.
    const int height = WEIGHT_ROWS ? tile.width() / BLOCKS : ROWS;
#pragma unroll
    for (int i = 0; i < share.codes.COUNT; i++) {
      const int row = share.codes.row(i), number = share.codes.numbers[i];
      if (i * share.codes.STEP >= height) break;
      const bool is_there = number >= 0 && k < K;
      const long long from = is_there ? number * (K / 2ll) + k / 2 : 0;
      cp_async_16(stage + TOKENS_OFFSET + row * 128 + (chunk ^ row % 8) * 16, params.a + from, is_there);
    }
    const int block = share.scales.part(), k_block = k_tile * K_BLOCKS + block;
#pragma unroll
    for (int i = 0; i < share.scales.COUNT; i++) {
      const int number = share.scales.numbers[i];
      const bool is_there = number >= 0 && k_block < K_BLOCKS_ALL;
      const long long from = is_there ? scale_begin(number) + scale_offset(scale_row(number), k_block) : 0;
      cp_async_4(stage + TO + scale_place(share.scales.row(i), block), params.a_scales + from, is_there);
    }
  }
};

// Nobody loads tokens but who copies.
__device__ __forceinline__ void prefetch_tokens(const Params&, const Maps&) {}
__device__ __forceinline__ void load_tokens(const Params&, const Maps&, const Ring&) {}

}  // namespace ws
