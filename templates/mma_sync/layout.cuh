// How a block's tile is shared by its warps and lanes, and in which order its rows lie in shared memory.
//
//               ┌──────────── COLUMNS ────────────┐
//          ┌──  │ warp 0 │ warp 1 │ … WARPS_COLUMNS│   a warp: 16·WARP_M16 columns × 8·WARP_N8 tokens;
//   TOKENS │    │────────┼────────┼───────────────│   warps in a row read the same tokens,
//          └──  │ … × WARPS_TOKENS               │   warps in a column the same weights
//
// Where that leaves warps over, WARPS_K of them share each place and take turns with the K blocks of a stage; their sums
// are added in shared memory at the end, always in the same order.
#pragma once

namespace ws {

inline constexpr int PLACES = WARPS_TOKENS * WARPS_COLUMNS;  // of warps in the tile
inline constexpr int WARPS = PLACES * WARPS_K;
inline constexpr int THREADS = 32 * WARPS;

inline constexpr int K_BLOCK = 64;                  // K goes through the kernel in blocks of 64: four k16 steps
inline constexpr int K_BLOCKS = TILE_K / K_BLOCK;   // of which one stage holds this many
inline constexpr int K_TILES = ceil_div(K, TILE_K);

inline constexpr int WARP_COLUMNS = COLUMNS / WARPS_COLUMNS;
inline constexpr int WARP_TOKENS = TOKENS / WARPS_TOKENS;
inline constexpr int WARP_M16 = WARP_COLUMNS / 16;  // m16 tiles of weights of one warp
inline constexpr int WARP_N8 = WARP_TOKENS / 8;     // n8 tiles of tokens of one warp
inline constexpr int RUN = 2 * WARP_M16;            // consecutive columns of C that one lane holds

static_assert(K % K_BLOCK == 0 && TILE_K % K_BLOCK == 0, "K comes in blocks of 64");
static_assert(N % 16 == 0, "a run of columns is inside C or outside");
static_assert(WARP_COLUMNS % 16 == 0 && WARP_TOKENS % 8 == 0, "warps hold whole mma tiles");
static_assert(16 % RUN == 0, "a run divides 16 columns");
static_assert(K_BLOCKS % WARPS_K == 0, "warps at one place have the same number of K blocks");

__device__ __forceinline__ int warp_index() { return threadIdx.x / 32; }
__device__ __forceinline__ int lane_index() { return threadIdx.x % 32; }
// Which warp of the tile's columns, of its tokens and of those at the same place this is.
__device__ __forceinline__ int warp_column() { return warp_index() % WARPS_COLUMNS; }
__device__ __forceinline__ int warp_token() {
  return WARPS_TOKENS == 1 ? 0 : warp_index() / WARPS_COLUMNS % WARPS_TOKENS;
}
__device__ __forceinline__ int warp_k() { return WARPS_K == 1 ? 0 : warp_index() / PLACES; }
// mma's lane = 4·g + c: g picks the row of a fragment, c its place along k.
__device__ __forceinline__ int lane_row() { return lane_index() / 4; }
__device__ __forceinline__ int lane_k() { return lane_index() % 4; }

// Tokens lie in shared memory as they come.
struct NaturalOrder {
  __device__ static int position(int row) { return row; }
};

// Weights lie so that fragment row g of all m16 tiles of a warp is a run of consecutive weight rows: the lane that
// holds them then holds consecutive columns of C and stores them at once. Row g·RUN + q of a warp's rows goes to
// position 8·q + g; positions 16·t + (0…7) and 16·t + (8…15) are the two halves of m16 tile t.
struct FragmentOrder {
  __device__ static int position(int row) {
    const int warp = row / WARP_COLUMNS, inside = row % WARP_COLUMNS;
    return warp * WARP_COLUMNS + (inside % RUN) * 8 + inside / RUN;
  }
};

// Rows of an operand that a tile takes. Offsets inside a tile fit 32 bits; only where it begins takes 64.
struct Rows {
  const u8* values;  // the first row's
  const u8* scales;  // the first row's, or those of the atom that it is in
  int scale_row;     // which row of `scales` the first is
  int count;         // rows there are; a tile's further rows are zeros
};

// Rows of A that a tile takes by their numbers. A number that A has not stands for a row of zeros; so do a tile's further rows.
struct GatheredRows {
  const u8* values;  // of all rows of A
  const u8* scales;
  const int* numbers;
  int a_rows, count;

  // `count` rows from `first` on, of the product.
  __device__ static GatheredRows of(const Params& launch, int first, int count) {
    const MovedParams& params = static_cast<const MovedParams&>(launch);
    return {params.a, params.a_scales, params.rows + first, params.a_rows, count};
  }
  // Which row of A one is.
  __device__ int number(int row) const { return row < count ? numbers[row] : -1; }
  __device__ bool is_there(int number) const { return u32(number) < u32(a_rows); }
};

// What one block computes.
struct Block {
  int group;
  int first_row, rows;        // rows of A and C
  int first_column, columns;  // columns of C: rows of B
  int first_k_tile, k_tiles;  // along K
  int split;
};

// Shares ROWS × PARTS pieces of a tile among the threads: part(row, which) for each piece of this thread. Consecutive
// threads take consecutive parts of a row, and a thread always the same part.
template <int ROWS, int PARTS, class Part>
__device__ __forceinline__ void for_each_row(Part part) {
  constexpr int STEP = THREADS / PARTS;
  static_assert(THREADS % PARTS == 0, "whole rows at a step");
  const int row = threadIdx.x / PARTS, which = threadIdx.x % PARTS;
#pragma unroll
  for (int begin = 0; begin < ROWS; begin += STEP)
    if (ROWS % STEP == 0 || begin + row < ROWS) part(begin + row, which);
}

extern __shared__ __align__(1024) u8 shared_memory[];

__device__ __forceinline__ u32 shared_address(int offset) {
  return static_cast<u32>(__cvta_generic_to_shared(shared_memory)) + offset;
}

// What y and z of the grid stand for, with and without groups: a tile of columns and a part of K.
__device__ __forceinline__ void schedule_columns(Block& block) {
  constexpr int PER_SPLIT = ceil_div(K_TILES, SPLITS);
  block.first_column = blockIdx.y * COLUMNS;
  block.columns = N - block.first_column;
  block.split = SPLITS == 1 ? 0 : blockIdx.z;  // a constant where it can be one: registers are scarce
  block.first_k_tile = block.split * PER_SPLIT;
  block.k_tiles = min(PER_SPLIT, K_TILES - block.first_k_tile);
}

// Kernels are launched one after the other: each finds the results of those before.
__device__ __forceinline__ void wait_for_dependencies() {}

}  // namespace ws
