// Tiles that the warp which stores them has found for those who multiply them, who need not search.
#pragma once

namespace ws {

struct alignas(16) FoundTile {
  int group;
  int first_row, rows;  // no rows: there is none
  int column_tile;
};

// The `turn`th of a tile group: two are kept, as who multiplies has read one when it says that the tile before is staged.
__device__ __forceinline__ FoundTile& found_tile(int tile_group, u32 turn) {
  return reinterpret_cast<FoundTile*>(shared_memory + FOUND_OFFSET)[2 * tile_group + turn % 2];
}

__device__ __forceinline__ bool read_found(int tile_group, Tile& tile) {
  const FoundTile found = found_tile(tile_group, tile.turn);
  tile.group = found.group;
  tile.first_row = found.first_row;
  tile.rows = found.rows;
  tile.column_tile = found.column_tile;
  tile.take_split(0);
  return found.rows > 0;
}

// As for_each_tile, for who multiplies.
template <class Body>
__device__ __forceinline__ void for_each_found_tile(const Ring& ring, int tile_group, Body body) {
  Tile tile;
  tile.turn = 0;
  mbarrier_wait(ring.stored(tile_group), 0);
#pragma unroll 1
  for (; read_found(tile_group, tile); tile.turn++) body(tile, tile.turn * (TILE_GROUPS * TILE_STAGES) + tile_group);
}

}  // namespace ws
