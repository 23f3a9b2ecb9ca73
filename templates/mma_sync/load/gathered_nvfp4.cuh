// Rows of an NVFP4 A by their numbers: as Nvfp4Rows, but each is looked up.
#pragma once

namespace ws {

// `Tile` is what has the rows in shared memory.
template <class Tile>
struct GatheredNvfp4 {
  __device__ static void load(int offset, const GatheredRows& rows, int k_tile) {
    Tile::copy_codes(offset, k_tile, [&](int row, int to, int in_row, bool is_inside) {
      const int number = rows.number(row);
      const bool valid = rows.is_there(number) && is_inside;
      const long long from = valid ? static_cast<long long>(number) * (K / 2) + in_row : 0;
      cp_async_16(shared_address(to), rows.values + from, valid);
    });
    Tile::copy_scales(offset, k_tile, [&](int row, int to, int k_block, bool is_inside) {
      const int number = rows.number(row);
      const bool valid = rows.is_there(number) && is_inside;
      // Scales of a row lie where the layout of all of A puts them.
      const long long from = valid ? scale_begin(number) + scale_offset(scale_row(number), k_block) : 0;
      cp_async_4(shared_address(to), rows.scales + from, valid);
    });
  }
};

}  // namespace ws
