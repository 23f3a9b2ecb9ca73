// Every warp loads and multiplies: what one warp does with one stage.
#pragma once

namespace ws {

// sums[p] += tokens · weights[p]ᵀ over one K block, for COUNT products that share the tokens' fragments.
// A K block is two halves of two k16 steps each; in step s of a half a lane's pairs 2s and 2s + 1 are mma's two places
// along k, for weights and tokens alike, so the order of k inside a block does not matter.
template <int HALF, class TokenTile, class WeightTile, int COUNT>
__device__ __forceinline__ void multiply_half(Accumulators (&sums)[COUNT], int tokens, const int (&weights)[COUNT],
                                              int k_block) {
  u32 rows[COUNT][WARP_M16][2][4];
#pragma unroll
  for (int product = 0; product < COUNT; product++) {
#pragma unroll
    for (int m16 = 0; m16 < WARP_M16; m16++) {
      const int position = warp_column() * WARP_COLUMNS + m16 * 16 + lane_row();
      WeightTile::template fragment<HALF>(rows[product][m16][0], weights[product], k_block, position);
      WeightTile::template fragment<HALF>(rows[product][m16][1], weights[product], k_block, position + 8);
    }
  }
#pragma unroll
  for (int n8 = 0; n8 < WARP_N8; n8++) {
    u32 token[4];
    TokenTile::template fragment<HALF>(token, tokens, k_block, warp_token() * WARP_TOKENS + n8 * 8 + lane_row());
#pragma unroll
    for (int step = 0; step < 2; step++) {
#pragma unroll
      for (int product = 0; product < COUNT; product++) {
#pragma unroll
        for (int m16 = 0; m16 < WARP_M16; m16++) {
          const auto& row = rows[product][m16];
          Compute::mma(sums[product][n8][m16], row[0][2 * step], row[1][2 * step], row[0][2 * step + 1],
                       row[1][2 * step + 1], token[2 * step], token[2 * step + 1]);
        }
      }
    }
  }
}

// The same over a whole stage. (Unrolling by two is worth 5 % on an H200, by more nothing.)
template <class TokenTile, class WeightTile, int COUNT>
__device__ __forceinline__ void multiply_stage(Accumulators (&sums)[COUNT], int stage, const int (&weights)[COUNT]) {
  const int tokens = TokenTile::ready(stage);
#pragma unroll 2
  for (int k_block = warp_k(); k_block < K_BLOCKS; k_block += WARPS_K) {
    multiply_half<0, TokenTile, WeightTile>(sums, tokens, weights, k_block);
    multiply_half<1, TokenTile, WeightTile>(sums, tokens, weights, k_block);
  }
}

}  // namespace ws
