// A grouped problem by as many blocks as run at once, in a static schedule: each block makes the same table of groups and
// takes its share of the tiles, the largest first, to and fro over the blocks, so that all end at about the same time.
//
// A group of more than TOKENS rows is divided evenly, and a tile is multiplied as wide as its rows, rounded up to 8.
#pragma once

#include "groups/grouped.cuh"

namespace ws {

struct GroupRows {
  int first_row, rows;
  int group;
  int tiles_before;  // of groups before it in the table

  __device__ int tiles() const { return ceil_div(rows, TOKENS); }
  // Rows of each of its tiles but the last.
  __device__ int height() const { return rows == 0 ? 0 : (ceil_div(rows, tiles()) + 7) / 8 * 8; }
};

struct Schedule {
  int token_tiles = 0;

  __device__ Schedule(const Params& params, const Ring&) {
    wait_for_dependencies();  // the offsets may be their result
    GroupRows* unsorted = table() + GROUPS;
    for (int group = threadIdx.x; group < GROUPS; group += blockDim.x) {
      const int begin = clamped_offset(params, group);
      unsorted[group] = {begin, max(clamped_offset(params, group + 1) - begin, 0), group, 0};
    }
    __syncthreads();
    for (int group = threadIdx.x; group < GROUPS; group += blockDim.x) {
      GroupRows row = unsorted[group];
      const int height = row.height();
      int place = 0;
      for (int other = 0; other < GROUPS; other++) {
        const int theirs = unsorted[other].height();
        if (theirs > height || (theirs == height && other < group)) {
          place++;
          row.tiles_before += unsorted[other].tiles();
        }
      }
      table()[place] = row;
    }
    __syncthreads();
    token_tiles = table()[GROUPS - 1].tiles_before + table()[GROUPS - 1].tiles();
  }

  __device__ static GroupRows* table() { return reinterpret_cast<GroupRows*>(shared_memory + TABLE_OFFSET); }

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params&, int index, Tile& tile) const {
    const int turn = index % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    const int ordinal = index * gridDim.x + turn;
    const int token_tile = ordinal / COLUMN_TILES;
    if (token_tile >= token_tiles) return false;
    int low = 0, high = GROUPS;  // the last group with at most `token_tile` tiles before it
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (table()[middle].tiles_before <= token_tile ? low : high) = middle;
    }
    const GroupRows found = table()[low];
    const int offset = (token_tile - found.tiles_before) * found.height();
    tile.group = found.group;
    tile.first_row = found.first_row + offset;
    tile.rows = min(found.rows - offset, found.height());
    tile.column_tile = ordinal % COLUMN_TILES;
    tile.take_split(0);
    return true;
  }
};

}  // namespace ws
