// Every warp loads and multiplies: what one warp does with one stage.
#pragma once

namespace ws {

// Up to 32 rows of a K block: two fragments, and the scales of both.
template <class Tile>
struct Fragments {
  u32 codes[2][4];
  u32 scales;

  // `rows` is a constant where this is inlined.
  __device__ __forceinline__ void load(int offset, int k_block, int first, int rows) {
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (16 * i < rows) Tile::codes(codes[i], offset, k_block, first + 16 * i, rows - 16 * i);
    scales = Tile::scales(offset, k_block, first, rows);
  }

  // The instruction takes scales for positive: their signs become those of the codes.
  __device__ __forceinline__ void apply_signs(int offset, int k_block, int first, int rows) {
    scales &= 0x7F7F7F7Fu;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int position = first + 16 * i + lane_row();
      const bool is_whole = rows - 16 * i >= 16;
      if (16 * i < rows) Tile::apply_signs(codes[i], offset, k_block, position, is_whole ? position + 8 : position);
    }
  }
};

// Whether any lane has a negative scale.
__device__ __forceinline__ bool is_any_negative(u32 scales) { return __ballot_sync(~0u, (scales & 0x80808080u) != 0) != 0; }

// sums[p] += tokens · weights[p]ᵀ over one K block, for n8 tile TILE of the 32 tokens that begin with tile `n8`.
template <int TILE, class TokenTile, class WeightTile, int COUNT>
__device__ __forceinline__ void multiply_tile(Accumulators (&sums)[COUNT], int n8, const Fragments<TokenTile>& tokens,
                                              const Fragments<WeightTile> (&weights)[COUNT]) {
  if (n8 + TILE >= WARP_N8) return;
  const u32 b0 = tokens.codes[TILE / 2][TILE % 2], b1 = tokens.codes[TILE / 2][2 + TILE % 2];
#pragma unroll
  for (int product = 0; product < COUNT; product++) {
    const auto& rows = weights[product];
    const auto& first = rows.codes[0];
    auto& sum = sums[product][n8 + TILE];
    mma_m16n8k64_mxf4nvf4<0, TILE>(sum[0], first[0], first[1], first[2], first[3], b0, b1, rows.scales, tokens.scales);
    if constexpr (WARP_M16 > 1) {
      const auto& second = rows.codes[1];
      mma_m16n8k64_mxf4nvf4<1, TILE>(sum[1], second[0], second[1], second[2], second[3], b0, b1, rows.scales,
                                     tokens.scales);
    }
  }
}

// The same for all tokens of the warp, COUNT products sharing their fragments; those of the next 32 are loaded before the
// ones that are there are multiplied.
template <class TokenTile, class WeightTile, int COUNT>
__device__ __forceinline__ void multiply_block(Accumulators (&sums)[COUNT], int tokens, const int (&weights)[COUNT],
                                               int k_block) {
  static_assert(WARP_M16 <= 2, "one register has the scales of a warp's weights");
  constexpr int ROUNDS = ceil_div(WARP_N8, 4);
  const int column = warp_column() * WARP_COLUMNS, row = warp_token() * WARP_TOKENS;
  Fragments<WeightTile> held[COUNT];
  u32 scales = 0;
#pragma unroll
  for (int product = 0; product < COUNT; product++) {
    held[product].load(weights[product], k_block, column, WARP_COLUMNS);
    scales |= held[product].scales;
  }
  if (is_any_negative(scales)) {
#pragma unroll
    for (int product = 0; product < COUNT; product++)
      held[product].apply_signs(weights[product], k_block, column, WARP_COLUMNS);
  }
  Fragments<TokenTile> round[2];
  round[0].load(tokens, k_block, row, WARP_TOKENS);
#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    auto& here = round[i % 2];
    const int first = row + 32 * i, rest = WARP_TOKENS - 32 * i;
    if (is_any_negative(here.scales)) here.apply_signs(tokens, k_block, first, rest);
    if (i + 1 < ROUNDS) round[(i + 1) % 2].load(tokens, k_block, first + 32, rest - 32);
    multiply_tile<0>(sums, 4 * i, here, held);
    multiply_tile<1>(sums, 4 * i, here, held);
    multiply_tile<2>(sums, 4 * i, here, held);
    multiply_tile<3>(sums, 4 * i, here, held);
  }
}

// The same over a whole stage.
template <class TokenTile, class WeightTile, int COUNT>
__device__ __forceinline__ void multiply_stage(Accumulators (&sums)[COUNT], int stage, const int (&weights)[COUNT]) {
#pragma unroll
  for (int k_block = 0; k_block < K_BLOCKS / WARPS_K; k_block++)
    multiply_block<TokenTile, WeightTile>(sums, stage, weights, k_block * WARPS_K + warp_k());
}

}  // namespace ws
