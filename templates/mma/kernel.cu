// <{ name }>
//
//   C = combine(A·Bᵀ), or combine(A·B1ᵀ, A·B2ᵀ)      A [M, K], B [N, K], C [M, N], all row-major
//
// Weights (B) are the 16 rows of mma.sync.m16n8k16, tokens (A) its 8 columns, so that a tile of few tokens wastes
// nothing. One block computes TOKENS × COLUMNS of C: mma_sync/layout.cuh.
//
// Shared memory: STAGES × { tokens' values and scales, weights' values and scales (once or twice) }, each stage TILE_K
// deep, filled by cp.async while older stages are multiplied. NVFP4 weights stay NVFP4 in shared memory and become 16-bit
// values, exactly, on their way into registers; NVFP4 tokens, which every warp of a row needs, do so once a stage, in
// shared memory. Every warp loads and every warp multiplies; the only waiting is cp.async.wait_group and one
// __syncthreads a stage (two with NVFP4 tokens).

<% include "mma_sync/constants.cu" %>
// What the formats choose, by file, and what the others know of it; the rest is in mma_sync/kernel.cu:
//   compute/, e2m1, scales/   16-bit products; NVFP4 to 16-bit values; where block scales lie
//   load/        a tile of rows: tokens(…) of A, rows_of_group(…) of B, load(offset, rows, k_tile), ready(offset), fragment(…)
//   warps/       multiply_stage(sums, stage, weights)
#include "common/ptx.cuh"
#include "mma_sync/layout.cuh"
#include "mma_sync/sums.cuh"
#include "common/compute/<{ compute }>.cuh"
#include "common/e2m1.cuh"
#include "common/scales/<{ scales }>.cuh"
#include "mma/load/<{ load_a }>.cuh"
#include "mma/load/<{ load_b }>.cuh"
#include "mma/warps/<{ warps }>.cuh"
<% include "mma_sync/kernel.cu" %>