// The sums of a block's warps, and the rows of the operands that they are of.
#pragma once

namespace ws {

// fp32 sums of one product: n8 tile of tokens, m16 tile of columns, mma's four.
using Accumulators = float[WARP_N8][WARP_M16][4];

__device__ __forceinline__ void clear(Accumulators& sums) {
#pragma unroll
  for (auto& tokens : sums)
#pragma unroll
    for (auto& columns : tokens)
#pragma unroll
      for (float& sum : columns) sum = 0.f;
}

// Adds up the sums of the warps at one place, in their order, through shared memory that no stage needs any more. The
// first of them then has the whole sums.
template <int COUNT>
__device__ __forceinline__ void add_up(Accumulators (&sums)[COUNT]) {
  if constexpr (WARPS_K > 1) {
    constexpr int LANES = PLACES * 32, LENGTH = COUNT * WARP_N8 * WARP_M16 * 4;
    static_assert((WARPS_K - 1) * LENGTH * LANES * 4 <= SHARED_BYTES, "sums fit into shared memory");
    float* shared = reinterpret_cast<float*>(shared_memory);
    float* own = &sums[0][0][0][0];
    const int lane = threadIdx.x % LANES;
    __syncthreads();
    if (warp_k() > 0) {
#pragma unroll
      for (int i = 0; i < LENGTH; i++) shared[((warp_k() - 1) * LENGTH + i) * LANES + lane] = own[i];
    }
    __syncthreads();
    if (warp_k() == 0) {
#pragma unroll
      for (int other = 0; other < WARPS_K - 1; other++)
#pragma unroll
        for (int i = 0; i < LENGTH; i++) own[i] += shared[(other * LENGTH + i) * LANES + lane];
    }
  }
}

template <class TokenTile>
__device__ __forceinline__ auto token_rows(const Params& params, const Block& block) {
  return TokenTile::tokens(params, block.first_row, block.rows);
}

template <class WeightTile>
__device__ __forceinline__ Rows weight_rows(const Params& params, const Block& block, int product) {
  return WeightTile::rows_of_group(params.b[product], params.b_scales[product], block.group, block.first_column,
                                   block.columns);
}

}  // namespace ws
