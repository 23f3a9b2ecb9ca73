// Rows of a 16-bit operand: global → shared, shared → fragments.
//
// Shared memory holds, for each K block, ROWS × 128 bytes; of a row's eight 16-byte chunks, chunk i lies at place
// i xor (row mod 8). Lane 4·g + c takes the 16 elements k = 16c … 16c+15 of its rows: chunks 2c and 2c + 1. Eight lanes
// (two rows) read eight different places: no bank conflict.
#pragma once

namespace ws {

template <int ROWS, class Order>
struct HalfTile {
  static constexpr int BYTES = ROWS * TILE_K * 2;

  // Rows of A.
  __device__ static Rows tokens(const Params& params, int first, int count) { return rows(params.a, nullptr, first, count); }

  // `count` rows from `first` on, of a matrix.
  __device__ static Rows rows(const u8* values, const u8*, int first, int count) {
    return {values + static_cast<long long>(first) * (K * 2), nullptr, 0, count};
  }

  // The weights of a group: `count` rows from `first` on.
  __device__ static Rows rows_of_group(const u8* values, const u8*, int group, int first, int count) {
    return rows(values + group * (static_cast<long long>(N) * (K * 2)), nullptr, first, count);
  }

  // Starts copying tile `k_tile` along K into the shared memory at `offset`; rows past the end and blocks past K are
  // zeros.
  __device__ static void load(int offset, const Rows& rows, int k_tile) {
    constexpr int CHUNKS = TILE_K / 8;  // of 16 bytes in a row
    for_each_row<ROWS, CHUNKS>([&](int row, int chunk) {
      const bool valid = row < rows.count && k_tile * TILE_K + chunk * 8 < K;
      const int from = (row * K + k_tile * TILE_K + chunk * 8) * 2;
      const int position = Order::position(row);
      cp_async_16(shared_address(offset + place(chunk / 8, position, chunk % 8)), rows.values + (valid ? from : 0), valid);
    });
  }

  // Where a chunk of a K block of a row lies.
  __device__ static int place(int k_block, int position, int chunk) {
    return k_block * ROWS * 128 + position * 128 + (chunk ^ (position % 8)) * 16;
  }

  // What finds tile `k_tile` along K, which was loaded at `offset`.
  __device__ static int loaded(int offset, int) { return offset; }

  // Values as they come need nothing done to a stage.
  __device__ static int ready(int offset) { return offset; }

  // Puts one chunk, four pairs along k, in its place.
  __device__ static void store(const u32 (&pairs)[4], int offset, int k_block, int position, int chunk) {
    *reinterpret_cast<uint4*>(shared_memory + offset + place(k_block, position, chunk)) =
        make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }

  // Eight of this lane's 16 elements of a row, in four pairs along k: the first eight for half 0, the others for half 1.
  template <int HALF>
  __device__ static void fragment(u32 (&pairs)[4], int offset, int k_block, int position) {
    const int from = place(k_block, position, 2 * lane_k() + HALF);
    const uint4 chunk = *reinterpret_cast<const uint4*>(shared_memory + offset + from);
    pairs[0] = chunk.x;
    pairs[1] = chunk.y;
    pairs[2] = chunk.z;
    pairs[3] = chunk.w;
  }
};

}  // namespace ws
