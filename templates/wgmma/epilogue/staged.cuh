// Registers → shared memory, as rows of C: what `shared` and `tma` begin with.
#pragma once

namespace ws {

// Rows are 16 bytes apart from a multiple of 128, so that neither rows nor columns meet in the same banks.
inline constexpr int STAGED_ROW = COLUMNS * Output::BYTES + 16;
inline constexpr int STAGED_ROWS = 8 * HELD_N8 * TOKEN_PARTS;
static_assert(STAGED_ROW * STAGED_ROWS <= SCRATCH_BYTES, "the tile of C fits");

// The first row that a warpgroup stages.
__device__ __forceinline__ int first_staged(const ConsumerId& consumer) { return consumer.token_part * 8 * HELD_N8; }

// Of the first 8·N8 of the tokens that the thread holds.
template <int N8, class Out = Output, class Value>
__device__ __forceinline__ void stage_tile(const Ring& ring, const ConsumerId& consumer, Value value) {
  if constexpr (K_GROUPS > 1) group_sync(consumer);
  if (consumer.k_group != 0 || consumer.product != 0) return;
  const int lane = lane_index(), from = scratch_offset(consumer) + first_staged(consumer) * STAGED_ROW;
#pragma unroll
  for (int held = 0; held < Fusion::HELD_COLUMNS; held++) {
    const u32 to = ring.base + from + Fusion::column(consumer, held) * Out::BYTES;
    if constexpr (Out::BYTES == 2) {
      u32 pairs[N8];
#pragma unroll
      for (int n8 = 0; n8 < N8; n8++) pairs[n8] = Out::round(value(held, n8, 0), value(held, n8, 1));
      if constexpr (N8 % 4 == 0) {
#pragma unroll
        for (int n8 = 0; n8 < N8; n8 += 4)
          stmatrix_trans_x4(to + (8 * n8 + lane) * STAGED_ROW, pairs[n8], pairs[n8 + 1], pairs[n8 + 2], pairs[n8 + 3]);
      } else {
#pragma unroll
        for (int n8 = 0; n8 < N8; n8++) stmatrix_trans_x1(to + (8 * n8 + lane % 8) * STAGED_ROW, pairs[n8]);
      }
    } else {
      float* rows = reinterpret_cast<float*>(shared_memory + from + Fusion::column(consumer, held) * 4);
#pragma unroll
      for (int n8 = 0; n8 < N8; n8++)
#pragma unroll
        for (int token = 0; token < 2; token++)
          rows[(8 * n8 + lane % 4 * 2 + token) * (STAGED_ROW / 4) + lane / 4] = value(held, n8, token);
    }
  }
}

// 16 bytes of a row in shared memory → that row of C.
__device__ __forceinline__ void store_piece(const Params& params, const Tile& tile, const u8* row, int to, int piece) {
  const long long at = static_cast<long long>(to) * N + tile.first_column();
  *reinterpret_cast<uint4*>(params.c + at * Output::BYTES + piece * 16) = *reinterpret_cast<const uint4*>(row + piece * 16);
}

}  // namespace ws
