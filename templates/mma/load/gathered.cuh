// Rows of a 16-bit A by their numbers: as HalfTile, but each is looked up.
#pragma once

#include "mma/load/half.cuh"

namespace ws {

template <int ROWS, class Order>
struct GatheredTile : HalfTile<ROWS, Order> {
  __device__ static GatheredRows tokens(const Params& params, int first, int count) {
    return GatheredRows::of(params, first, count);
  }

  __device__ static void load(int offset, const GatheredRows& rows, int k_tile) {
    constexpr int CHUNKS = TILE_K / 8;  // of 16 bytes in a row
    for_each_row<ROWS, CHUNKS>([&](int row, int chunk) {
      const int number = rows.number(row);
      const bool valid = rows.is_there(number) && k_tile * TILE_K + chunk * 8 < K;
      const long long from = valid ? (static_cast<long long>(number) * K + k_tile * TILE_K + chunk * 8) * 2 : 0;
      const int to = HalfTile<ROWS, Order>::place(chunk / 8, Order::position(row), chunk % 8);
      cp_async_16(shared_address(offset + to), rows.values + from, valid);
    });
  }
};

}  // namespace ws
