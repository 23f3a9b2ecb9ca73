// <{ name }>
//
//   C = combine(A·Bᵀ), or combine(A·B1ᵀ, A·B2ᵀ)      A [M, K], B [N, K], C [M, N], all row-major
//
// Both operands are NVFP4 and stay so: weights (B) are the 16 rows of the block-scaled mma.sync.m16n8k64, tokens (A) its
// 8 columns, so that a tile of few tokens wastes nothing, and one instruction multiplies a K block with all its scales.
// One block computes TOKENS × COLUMNS of C: mma_sync/layout.cuh.
//
// Shared memory: STAGES × { tokens' codes and scales, weights' codes and scales (once or twice) }, each stage TILE_K
// deep, filled by cp.async while older stages are multiplied. Every warp loads and every warp multiplies; the only
// waiting is cp.async.wait_group and one __syncthreads a stage.

<% include "mma_sync/constants.cu" %>
// What the formats choose, by file, and what the others know of it; the rest is in mma_sync/kernel.cu:
//   scales/      where block scales lie
//   load/        a tile of rows: tokens(…) of A, rows_of_group(…) of B, load(offset, rows, k_tile), codes(…), scales(…)
//   warps/       multiply_stage(sums, stage, weights)
#include "common/ptx.cuh"
#include "mxf4/ptx.cuh"
#include "mma_sync/layout.cuh"
#include "mma_sync/sums.cuh"
#include "common/scales/<{ scales }>.cuh"
#include "mxf4/load/nvfp4.cuh"
#include "mxf4/load/<{ load_a }>.cuh"
#include "mxf4/warps/<{ warps }>.cuh"
<% include "mma_sync/kernel.cu" %>