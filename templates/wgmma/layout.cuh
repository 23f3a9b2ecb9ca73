// How a block's work is shared by its warpgroups, and what lies where in shared memory.
#pragma once

namespace ws {

inline constexpr int K_BLOCK = 64;                            // K goes through the kernel in blocks of 64: four k16 steps
inline constexpr int K_BLOCKS = TILE_K / K_BLOCK;             // of which one stage holds this many
inline constexpr int K_BLOCKS_ALL = K / K_BLOCK;
inline constexpr int K_TILES = ceil_div(K, TILE_K);
inline constexpr int LAST_BLOCKS = K_BLOCKS_ALL - (K_TILES - 1) * K_BLOCKS;  // of the last tile along K
inline constexpr bool K_TAIL = LAST_BLOCKS != K_BLOCKS;
inline constexpr int K_TILES_PER_SPLIT = ceil_div(K_TILES, SPLITS * CLUSTER_SPLITS);

// Prepared weights: m64 tiles of 64 rows, in blocks of 64 along K (src/format/prepared.rs).
inline constexpr int TILE_COLUMNS = 64 / PRODUCTS;            // columns of C that an m64 tile stands for
inline constexpr int TILES = COLUMNS / TILE_COLUMNS;          // m64 tiles of a block
inline constexpr int TILES_PER_GROUP = ceil_div(N, TILE_COLUMNS);
inline constexpr int COLUMN_TILES = ceil_div(N, COLUMNS);
inline constexpr int BLOCK_BYTES = sizeof(WeightBlock);
[[maybe_unused]] inline constexpr int BLOCK_CODES = 64 * 64 / 2;  // before its scales, where it has such

// What a stage of the ring holds. Offsets are the compiler's; that the host has the same size is checked below.
struct alignas(1024) Stage {
  u8 tokens[TILE_K / LINE_K][TOKENS][128];  // in TMA's 128-byte swizzle
  WeightBlock weights[TILES][K_BLOCKS];
};
inline constexpr int TOKEN_BYTES = sizeof(Stage::tokens);  // weights follow at once
inline constexpr int WEIGHT_BYTES = sizeof(Stage::weights);

// Warpgroups that multiply: TILE_GROUPS × PRODUCT_GROUPS × K_GROUPS × TOKEN_PARTS × PARTS.
inline constexpr int PARTS = TILES / TILES_PER_PART;          // parts of the columns
inline constexpr int GROUP_WARPGROUPS = PARTS * TOKEN_PARTS * K_GROUPS * PRODUCT_GROUPS;  // that work on one tile of C
inline constexpr int GROUP_THREADS = 128 * GROUP_WARPGROUPS;
inline constexpr int CONSUMER_THREADS = TILE_GROUPS * GROUP_THREADS;
inline constexpr int ACCUMULATORS = TOKENS / TOKEN_PARTS / 2;  // of one thread for 64 rows of weights

static_assert(N % 16 == 0 && K % K_BLOCK == 0 && TILE_K % K_BLOCK == 0 && TOKENS % 8 == 0, "checked by Spec");
static_assert(COLUMNS % TILE_COLUMNS == 0 && TILES % TILES_PER_PART == 0, "whole m64 tiles");
static_assert(sizeof(Stage) == STAGE_BYTES, "host and device agree on a stage");
static_assert(alignof(WeightBlock) == 1, "no bytes between tokens and weights");

extern "C" {
extern __shared__ __align__(1024) u8 shared_memory[];
}

// The address of shared memory, opaque so that it is kept in a register and not computed again in loops; by its name, as
// ptxas then sees that all threads have the same one. (NVRTC's addresses have 64 bits. One that is made of those is kept in
// vector registers, and so is every address and descriptor that follows from it: up to 4 % of the time.)
__device__ __forceinline__ u32 shared_base() { return mov_shared_memory(shared_memory); }

__device__ __forceinline__ int warp_index() { return __shfl_sync(~0u, threadIdx.x / 32, 0); }
__device__ __forceinline__ int lane_index() { return threadIdx.x % 32; }

// Which part of the work a consumer warpgroup has.
struct ConsumerId {
  int part;         // of the columns
  int token_part;   // of the tokens
  int k_group;      // of the stages: every K_GROUPSth
  int product;      // where each product has its own warpgroups
  int tile_group;   // of the tiles: every TILE_GROUPSth

  __device__ explicit ConsumerId(int warpgroup)
      : part(warpgroup % PARTS),
        token_part(warpgroup / PARTS % TOKEN_PARTS),
        k_group(warpgroup / (PARTS * TOKEN_PARTS) % K_GROUPS),
        product(warpgroup / (PARTS * TOKEN_PARTS * K_GROUPS) % PRODUCT_GROUPS),
        tile_group(warpgroup / GROUP_WARPGROUPS) {}
};

// All threads that work on the same tile of C.
__device__ __forceinline__ void group_sync(const ConsumerId& consumer) {
  named_barrier_sync<GROUP_THREADS>(1 + consumer.tile_group);
}

// A tile of C, and the part of K that this block multiplies for it.
struct Tile {
  int group;
  int first_row, rows;  // of A and C; the rows may be more than TOKENS
  int column_tile;      // in units of COLUMNS
  int split;
  int first_k_tile, k_tiles;
  u32 turn;             // of a tile group's tiles, where a warp of its own stores them

  __device__ int first_column() const { return column_tile * COLUMNS; }
  // Columns of the tile that are inside C.
  __device__ int columns() const { return N % COLUMNS == 0 ? COLUMNS : min(COLUMNS, N - first_column()); }
  // m64 tiles that there are weights for.
  __device__ int weight_tiles() const {
    return TILES_PER_GROUP % TILES == 0 ? TILES : min(TILES, TILES_PER_GROUP - column_tile * TILES);
  }
  __device__ void take_split(int which) {
    split = which;
    first_k_tile = which * K_TILES_PER_SPLIT;
    k_tiles = min(K_TILES_PER_SPLIT, K_TILES - first_k_tile);
  }
};

// The widths that a tile may be loaded and multiplied in: the first that holds its rows.
template <int... TOKENS_>
struct Widths {
  static constexpr int COUNT = sizeof...(TOKENS_);
};
using TileWidths = Widths<WS_WIDTHS>;

struct Width {
  int index, tokens;
};

template <int TOKENS_, int... WIDER>
__device__ __forceinline__ Width width_in(Widths<TOKENS_, WIDER...>, int rows, int index) {
  if constexpr (sizeof...(WIDER) > 0)
    if (rows > TOKENS_) return width_in(Widths<WIDER...>(), rows, index + 1);
  return {index, TOKENS_};
}

__device__ __forceinline__ Width width_of(const Tile& tile) { return width_in(TileWidths(), tile.rows, 0); }

// What tells the tensor memory accelerator of the tokens: a box for each width, and perhaps one of few rows.
struct TensorMaps {
  TensorMap of[TileWidths::COUNT + HAS_FEW];
};

// Blocks along K in a tile along K.
__device__ __forceinline__ int blocks_of(int k_tile) {
  return K_TAIL && k_tile == K_TILES - 1 ? LAST_BLOCKS : K_BLOCKS;
}

}  // namespace ws
