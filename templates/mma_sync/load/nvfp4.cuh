// Rows of an NVFP4 operand, global → shared, as they come: tiles of one path differ in where codes lie.
#pragma once

namespace ws {

// Places::place<Order>(row, chunk) is where a tile has 16 bytes of codes of a row: 32 elements. Behind all codes it has
// ROWS × 4 scales for each K block.
template <int ROWS, class Order, class Places>
struct Nvfp4Rows {
  static constexpr int CODES = ROWS * TILE_K / 2;
  static constexpr int BYTES = CODES + ROWS * TILE_K / 16;

  // What finds tile `k_tile` along K, which was loaded at `offset`.
  __device__ static int loaded(int offset, int) { return offset; }

  // Rows of A.
  __device__ static Rows tokens(const Params& params, int first, int count) {
    return rows(params.a, params.a_scales, first, count);
  }

  // `count` rows from `first` on, of a matrix.
  __device__ static Rows rows(const u8* values, const u8* scales, int first, int count) {
    return {values + static_cast<long long>(first) * (K / 2), scales + scale_begin(first), scale_row(first), count};
  }

  // The weights of a group: `count` rows from `first` on.
  __device__ static Rows rows_of_group(const u8* values, const u8* scales, int group, int first, int count) {
    return rows(values + group * (static_cast<long long>(N) * (K / 2)), scales + group * SCALE_BYTES_PER_GROUP, first,
                count);
  }

  // Starts copying tile `k_tile` along K into the shared memory at `offset`; rows past the end and blocks past K are
  // zeros.
  __device__ static void load(int offset, const Rows& rows, int k_tile) {
    load_codes(offset, rows, k_tile);
    load_scales(offset, rows, k_tile,
                [&](int row, int k_block) { return scale_offset(rows.scale_row + row, k_block); });
  }

  __device__ static void load_codes(int offset, const Rows& rows, int k_tile) {
    copy_codes(offset, k_tile, [&](int row, int to, int in_row, bool is_inside) {
      const bool valid = row < rows.count && is_inside;
      const int from = row * (K / 2) + in_row;
      cp_async_16(shared_address(to), rows.values + (valid ? from : 0), valid);
    });
  }

  // word(row, k_block) is where the four bytes are that have the scales of a K block of a row.
  template <class Word>
  __device__ static void load_scales(int offset, const Rows& rows, int k_tile, Word word) {
    copy_scales(offset, k_tile, [&](int row, int to, int k_block, bool is_inside) {
      const bool valid = row < rows.count && is_inside;
      const int from = word(row, k_block);
      cp_async_4(shared_address(to), rows.scales + (valid ? from : 0), valid);
    });
  }

  // Calls copy(row, to, in_row, is_inside) for each 16 bytes of codes of a tile that are this thread's: where they go, where
  // they begin in their row, and whether that is inside of K.
  template <class Copy>
  __device__ static void copy_codes(int offset, int k_tile, Copy copy) {
    constexpr int CHUNKS = TILE_K / 32;  // in a row
    for_each_row<ROWS, CHUNKS>([&](int row, int chunk) {
      copy(row, offset + Places::template place<Order>(row, chunk), k_tile * (TILE_K / 2) + chunk * 16,
           k_tile * TILE_K + chunk * 32 < K);
    });
  }

  // The same for the scales of each K block of a row.
  template <class Copy>
  __device__ static void copy_scales(int offset, int k_tile, Copy copy) {
    for_each_row<ROWS, K_BLOCKS>([&](int row, int block) {
      copy(row, offset + CODES + block * ROWS * 4 + Order::position(row) * 4, k_tile * K_BLOCKS + block,
           k_tile * TILE_K + block * K_BLOCK < K);
    });
  }
};

}  // namespace ws
