// Rows of a 16-bit A by their numbers: as HalfTile, but each is looked up.
#pragma once

#include "mma/load/half.cuh"

namespace ws {

// Rows that a tile takes.
struct GatheredRows {
  const u8* values;   // of all rows of A
  const int* numbers;
  int a_rows, count;  // a number that A has not stands for a row of zeros; so do a tile's further rows
};

template <int ROWS, class Order>
struct GatheredTile : HalfTile<ROWS, Order> {
  __device__ static GatheredRows tokens(const Params& launch, int first, int count) {
    const MovedParams& params = static_cast<const MovedParams&>(launch);
    return {params.a, params.rows + first, params.a_rows, count};
  }

  __device__ static void load(int offset, const GatheredRows& rows, int k_tile) {
    constexpr int CHUNKS = TILE_K / 8;  // of 16 bytes in a row
    for_each_row<ROWS, CHUNKS>([&](int row, int chunk) {
      const int number = row < rows.count ? rows.numbers[row] : -1;
      const bool valid = u32(number) < u32(rows.a_rows) && k_tile * TILE_K + chunk * 8 < K;
      const long long from = valid ? (static_cast<long long>(number) * K + k_tile * TILE_K + chunk * 8) * 2 : 0;
      const int to = HalfTile<ROWS, Order>::place(chunk / 8, Order::position(row), chunk % 8);
      cp_async_16(shared_address(offset + to), rows.values + from, valid);
    });
  }
};

}  // namespace ws
