// Which block scales a tile of weights, or of tokens, has, and where they go in a stage.
#pragma once

namespace ws {

// Who copies: the last warps, if any do.
inline constexpr int COPY_THREADS = 32 * COPY_WARPS;
__device__ __forceinline__ int copy_thread() { return threadIdx.x - 32 * COPY_WARP; }

// What such a thread remembers of a tile, where it is nothing.
struct Nothing {
  __device__ Nothing(const Params&, const Tile&, int) {}
};

// Where the four scales of a row of a tile and 64 of K go, from its first block of scales on.
__device__ __forceinline__ u32 scale_place(int row, int block) {
  return row / 128 * SCALE_BLOCK_BYTES + block * 512 + row % 32 * 16 + row % 128 / 32 * 4;
}

// Where the tile begins in its first block of scales, if whole blocks are loaded.
template <class Rows>
__device__ __forceinline__ int column_in_block(const Tile& tile) {
  return Rows::first(tile, 0) % 128 / 32;
}

// Of weights: of each product, from a row of the group's weights on, a multiple of 64.
struct WeightScaleRows {
  static constexpr int TILES = BLOCK_PRODUCTS;
  static constexpr int TILE_BLOCKS = WEIGHT_ROWS ? 1 : WIDE_SCALE_BLOCKS;
  static constexpr int OFFSET = WEIGHT_ROWS ? ROW_SCALES_OFFSET : WIDE_SCALES_OFFSET;
  static constexpr bool IN_BOTH = !WEIGHT_ROWS;  // blocks of a pair, whole

  __device__ static const u8* scales(const Params& params, const Tile& tile, int product) {
    return params.b_scales[product_of(params, product)] + tile.group * SCALE_BYTES_PER_GROUP;
  }
  // Each block of a pair has the rows that it multiplies; of columns both have all.
  __device__ static int first(const Tile& tile, int rank) { return tile.first_column() + (WEIGHT_ROWS ? rank * ROWS : 0); }
  __device__ static int end(const Params&, const Tile&) { return N; }
  // What is known of them, and blocks of 128 rows that others have before.
  __device__ static const TensorMap& map(const Params& params, const OperandMaps& scales, int product) {
    return scales.weights[product_of(params, product)];
  }
  __device__ static int blocks_before(const Tile& tile) { return tile.group * ceil_div(N, 128); }
};

// Of tokens: from any row on.
struct TokenScaleRows {
  static constexpr int TILES = 1;
  static constexpr int TILE_BLOCKS = WEIGHT_ROWS ? WIDE_SCALE_BLOCKS : 1;
  static constexpr int OFFSET = WEIGHT_ROWS ? WIDE_SCALES_OFFSET : ROW_SCALES_OFFSET;
  static constexpr bool IN_BOTH = WEIGHT_ROWS;

  __device__ static const u8* scales(const Params& params, const Tile&, int) { return params.a_scales; }
  __device__ static int first(const Tile& tile, int rank) { return tile.first_row + (WEIGHT_ROWS ? 0 : rank * ROWS); }
  __device__ static int end(const Params& params, const Tile&) { return params.m; }
  __device__ static const TensorMap& map(const Params&, const OperandMaps& scales, int) { return scales.tokens; }
  __device__ static int blocks_before(const Tile&) { return 0; }
};

}  // namespace ws
