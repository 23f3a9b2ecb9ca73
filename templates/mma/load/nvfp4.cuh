// Rows of an NVFP4 operand: global → shared as they are, shared → fragments of 16-bit values.
//
// Shared memory holds, for each K block, ROWS × 32 bytes of codes, and behind all codes ROWS × 4 scales for each K block.
// Lane 4·g + c takes the 16 elements k = 16c … 16c+15 of its rows: one scale, 8 bytes of codes. Sixteen lanes (four
// rows of 32 bytes) read 128 consecutive bytes: no bank conflict.
#pragma once

namespace ws {

template <int ROWS, class Order>
struct Nvfp4Tile {
  static constexpr int CODES = ROWS * TILE_K / 2;
  static constexpr int BYTES = CODES + ROWS * TILE_K / 16;

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
    constexpr int CHUNKS = TILE_K / 32;  // of 16 bytes in a row
    for_each_row<ROWS, CHUNKS>([&](int row, int chunk) {
      const bool valid = row < rows.count && k_tile * TILE_K + chunk * 32 < K;
      const int from = row * (K / 2) + k_tile * (TILE_K / 2) + chunk * 16;
      const int to = chunk / 2 * ROWS * 32 + Order::position(row) * 32 + chunk % 2 * 16;
      cp_async_16(shared_address(offset + to), rows.values + (valid ? from : 0), valid);
    });
    for_each_row<ROWS, K_BLOCKS>([&](int row, int block) {
      const bool valid = row < rows.count && k_tile * TILE_K + block * K_BLOCK < K;
      const int from = scale_offset(rows.scale_row + row, k_tile * K_BLOCKS + block);
      const int to = CODES + block * ROWS * 4 + Order::position(row) * 4;
      cp_async_4(shared_address(offset + to), rows.scales + (valid ? from : 0), valid);
    });
  }

  // Codes and scale of the 16 elements of quarter `quarter` of a K block of a row.
  struct Quarter {
    uint2 codes;
    u32 scale;

    __device__ Quarter(int offset, int k_block, int position, int quarter) {
      const u8* stage = shared_memory + offset;
      codes = *reinterpret_cast<const uint2*>(stage + k_block * ROWS * 32 + position * 32 + quarter * 8);
      scale = e4m3_pair(stage[CODES + k_block * ROWS * 4 + position * 4 + quarter]);
    }

    // Eight of them, in four pairs along k: the first eight for half 0, the others for half 1.
    template <int HALF>
    __device__ void decode(u32 (&pairs)[4]) const {
      e2m1x8(HALF == 0 ? codes.x : codes.y, scale, pairs);
    }
  };

  // Half of this lane's quarter of a row.
  template <int HALF>
  __device__ static void fragment(u32 (&pairs)[4], int offset, int k_block, int position) {
    Quarter(offset, k_block, position, lane_k()).template decode<HALF>(pairs);
  }
};

}  // namespace ws
