// How a tile is shared by the blocks of a pair, and what lies where in shared and in tensor memory.
#pragma once

namespace ws {

inline constexpr int K_BLOCK = 64;                 // of K: one instruction
inline constexpr int K_BLOCKS = TILE_K / K_BLOCK;  // of a stage
inline constexpr int K_BLOCKS_ALL = K / K_BLOCK;
inline constexpr int K_TILES = ceil_div(K, TILE_K);
inline constexpr int LAST_BLOCKS = K_BLOCKS_ALL - (K_TILES - 1) * K_BLOCKS;  // of the last tile along K
inline constexpr int COLUMN_TILES = ceil_div(N, COLUMNS);

inline constexpr int BLOCKS = PAIR ? 2 : 1;
inline constexpr int ROWS = 128;                                  // of the instruction, in each block
inline constexpr int WIDTH = WEIGHT_ROWS ? TOKENS : COLUMNS;      // its columns, of both blocks together, at most
inline constexpr int WIDTH_HERE = WIDTH / BLOCKS;                 // of which a block loads so many
inline constexpr int ROW_TILES = WEIGHT_ROWS ? BLOCK_PRODUCTS : 1;   // operands that are rows, and
inline constexpr int WIDE_TILES = WEIGHT_ROWS ? 1 : BLOCK_PRODUCTS;  // those that are columns

static_assert((WEIGHT_ROWS ? COLUMNS : TOKENS) == ROWS * BLOCKS, "one instruction has all rows of a tile");
static_assert(TILE_K == 256, "128 bytes of codes: a row of the swizzle");
static_assert(WIDTH % (16 * BLOCKS) == 0 && WIDTH <= 256, "checked by Spec");

// Block scales lie as tcgen05.cp wants them: 512 bytes for 128 rows and 64 of K.
struct ScaleBlock {
  u8 of[K_BLOCKS][512];
};
inline constexpr int SCALE_BLOCK_BYTES = sizeof(ScaleBlock);

// What a stage of the ring holds. Rows of 128 bytes of codes in TMA's 128-byte swizzle.
struct alignas(1024) Stage {
  u8 rows[ROW_TILES][ROWS][128];
  u8 wide[WIDE_TILES][WIDTH_HERE][128];
  ScaleBlock row_scales[ROW_TILES];
  ScaleBlock wide_scales[WIDE_TILES][WIDE_SCALE_BLOCKS];
};
inline constexpr int ROW_TILE_BYTES = ROWS * 128, WIDE_TILE_BYTES = WIDTH_HERE * 128;
inline constexpr int WIDE_OFFSET = ROW_TILES * ROW_TILE_BYTES;
inline constexpr int ROW_SCALES_OFFSET = WIDE_OFFSET + WIDE_TILES * WIDE_TILE_BYTES;
inline constexpr int WIDE_SCALES_OFFSET = ROW_SCALES_OFFSET + ROW_TILES * SCALE_BLOCK_BYTES;
static_assert(sizeof(Stage) == STAGE_BYTES, "host and device agree on a stage");

// Columns of tensor memory: sums of each product, once or twice, then scales of SCALE_SLOTS stages.
inline constexpr int SUM_COLUMNS = BLOCK_PRODUCTS * WIDTH;
inline constexpr int ROW_SCALE_COLUMNS = 4 * K_BLOCKS, WIDE_SCALE_COLUMNS = 4 * K_BLOCKS * WIDE_SCALE_BLOCKS;
inline constexpr int SLOT_COLUMNS = ROW_TILES * ROW_SCALE_COLUMNS + WIDE_TILES * WIDE_SCALE_COLUMNS;
inline constexpr int SCALES_COLUMN = SUM_SETS * SUM_COLUMNS;
static_assert(SCALES_COLUMN + SCALE_SLOTS * SLOT_COLUMNS <= TENSOR_COLUMNS && TENSOR_COLUMNS <= 512, "checked by Spec");

// Warps: four that store, one that loads weights, one that loads tokens, one that multiplies, and those that copy scales.
inline constexpr int WEIGHT_WARP = 4, TOKEN_WARP = 5, MULTIPLY_WARP = 6, COPY_WARP = 7;
inline constexpr int STORE_THREADS = 128;
inline constexpr int THREADS = 32 * (COPY_WARP + COPY_WARPS);

extern __shared__ __align__(1024) u8 shared_memory[];

__device__ __forceinline__ u32 shared_base() { return static_cast<u32>(__cvta_generic_to_shared(shared_memory)); }
__device__ __forceinline__ int warp_index() { return __shfl_sync(~0u, threadIdx.x / 32, 0); }
__device__ __forceinline__ int lane_index() { return threadIdx.x % 32; }
// All threads, of both blocks of a pair, and what they have done to tensor memory.
__device__ __forceinline__ void meet() {
  tcgen05_fence_before_thread_sync();
  if constexpr (PAIR) {
    cluster_arrive();
    cluster_wait();
  }
  __syncthreads();
  tcgen05_fence_after_thread_sync();
}

// Which block of the pair this is. The first multiplies for both.
__device__ __forceinline__ int pair_rank() { return PAIR ? cluster_rank() : 0; }

// A tile of C, and the part of K that is multiplied for it.
struct Tile {
  int group;
  int first_row, rows;  // of A and C; the rows may be more than TOKENS
  int column_tile;
  int split;
  int first_k_tile, k_tiles;

  __device__ int first_column() const { return column_tile * COLUMNS; }
  __device__ void take_split(int which) {
    constexpr int PER_SPLIT = ceil_div(K_TILES, SPLITS);
    split = which;
    first_k_tile = which * PER_SPLIT;
    k_tiles = min(PER_SPLIT, K_TILES - first_k_tile);
  }
  // Columns of the instruction: where they are tokens, no more than there are.
  __device__ int width() const {
    constexpr int STEP = 16 * BLOCKS;
    return WEIGHT_ROWS ? min(ceil_div(rows, STEP) * STEP, WIDTH) : WIDTH;
  }
  // The first row of the weights' tile that this block loads, and of the tokens'.
  __device__ int weight_row(int rank) const { return first_column() + rank * (WEIGHT_ROWS ? ROWS : WIDTH_HERE); }
  __device__ int token_row(int rank) const { return first_row + rank * (WEIGHT_ROWS ? width() / BLOCKS : ROWS); }
};

// Blocks along K in a tile along K.
__device__ __forceinline__ int blocks_of(int k_tile) { return k_tile == K_TILES - 1 ? LAST_BLOCKS : K_BLOCKS; }

// What tells the tensor memory accelerator of codes, or of block scales.
struct OperandMaps {
  TensorMap tokens;
  TensorMap weights[2];
};

// Which product is the `i`th of this launch.
__device__ __forceinline__ int product_of(const Params& params, int i) { return BLOCK_PRODUCTS == PRODUCTS ? i : params.product; }

}  // namespace ws
