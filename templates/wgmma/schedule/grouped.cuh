// The tiles of a grouped problem, the largest first: every block makes the same table of groups from the offsets.
//
// A group of more than TOKENS rows is divided evenly into tiles of a multiple of 8 rows. A block for each tile: x walks the
// tiles of columns, y those of tokens of all groups, z the splits of K; the grid has room for every way to divide the rows,
// and blocks that no group needs end at once. Persistent: as many blocks as run at once, in a static schedule: each takes its
// share of the tiles, to and fro over the blocks, so that all end at about the same time.
#pragma once

#include "common/groups/grouped.cuh"

namespace ws {

struct GroupRows {
  int group;
  int first_row, rows;
  int tiles;
  int height;        // rows of each tile but the last
  int tiles_before;  // of groups before it in the table
};

struct GroupTable {
  int token_tiles;

  __device__ explicit GroupTable(const Params& params) {
    // The offsets may be the result of a kernel before. Where a prepass began after that had ended, this one did, too.
    if (!PREPASS || params.early) wait_for_dependencies();
    GroupRows* unsorted = rows() + GROUPS;
    for (int group = threadIdx.x; group < GROUPS; group += blockDim.x) {
      const int begin = offset(params, group), count = max(offset(params, group + 1) - begin, 0);
      const int tiles = ceil_div(count, TOKENS);
      const int height = tiles <= 1 ? (count + 7) / 8 * 8 : (ceil_div(count, tiles) + 7) / 8 * 8;
      unsorted[group] = {group, begin, count, tiles, height, 0};
    }
    __syncthreads();
    for (int group = threadIdx.x; group < GROUPS; group += blockDim.x) {
      GroupRows row = unsorted[group];
      int place = 0;
      for (int other = 0; other < GROUPS; other++) {
        const int height = unsorted[other].height;
        if (height > row.height || (height == row.height && other < group)) {
          place++;
          row.tiles_before += unsorted[other].tiles;
        }
      }
      rows()[place] = row;
    }
    __syncthreads();
    token_tiles = rows()[GROUPS - 1].tiles_before + rows()[GROUPS - 1].tiles;
  }

  // The L1 cache may hold what was there before where nothing was waited for.
  __device__ static int offset(const Params& params, int group) {
    if constexpr (PREPASS) return clamped(params, ld_relaxed_gpu(offset_at(params, group)));
    return clamped_offset(params, group);
  }

  __device__ static GroupRows* rows() { return reinterpret_cast<GroupRows*>(shared_memory + TABLE_OFFSET); }

  // Which rows the `token_tile`th tile has; false behind the last.
  __device__ bool find(int token_tile, Tile& tile) const {
    if (token_tile >= token_tiles) return false;
    int low = 0, high = GROUPS;  // the last group with at most `token_tile` tiles before it
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (rows()[middle].tiles_before <= token_tile ? low : high) = middle;
    }
    const GroupRows found = rows()[low];
    const int offset = (token_tile - found.tiles_before) * found.height;
    tile.group = found.group;
    tile.first_row = found.first_row + offset;
    tile.rows = min(found.rows - offset, found.height);
    return true;
  }
};

struct Schedule {
  const GroupTable table;

  __device__ Schedule(const Params& params, const Ring&) : table(params) {}

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params&, int index, Tile& tile) const {
    if constexpr (PERSISTENT) {
      const int turn = index % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
      const int ordinal = index * gridDim.x + turn;
      tile.column_tile = ordinal % COLUMN_TILES;
      tile.take_split(0);
      return table.find(ordinal / COLUMN_TILES, tile);
    } else {
      tile.column_tile = blockIdx.x;
      tile.take_split(SPLITS * CLUSTER_SPLITS == 1 ? 0 : blockIdx.z);
      return index == 0 && table.find(blockIdx.y, tile);
    }
  }
};

}  // namespace ws
