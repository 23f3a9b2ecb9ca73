// The tiles of a grouped problem, the largest first where they differ by much: every block makes the same table of groups
// from the offsets, in a time that is linear in the groups.
//
// A group of more than TOKENS rows is divided evenly into tiles of a multiple of 8 rows. A block for each tile: x walks the
// tiles of columns, y those of tokens of all groups, z the splits of K; the grid has room for every way to divide the rows, and
// blocks that no group needs end at once. Persistent: as many blocks as run at once, in a static schedule: each takes its
// share of the tiles, to and fro over the blocks, so that all end at about the same time. Where a group has many weights, both
// have tall tiles in bands.
#pragma once

#include "common/groups/grouped.cuh"
#include "wgmma/schedule/bands.cuh"

namespace ws {

struct GroupRows {
  int group;
  int first_row, rows;
  int tiles;
  int height;        // rows of each tile but the last
  int tiles_before;  // of groups before it in the table
};

// A lane for each: a warp sorts them.
enum : int { FEW_GROUPS = 32 };
// Who has one tile alone, or few groups, searches them all.
enum : bool { SEARCHES_ALL = !PERSISTENT || GROUPS <= FEW_GROUPS };

struct GroupTable {
  int token_tiles;
  int more;  // token tiles than groups that have rows, unless all are searched

  __device__ explicit GroupTable(const Params& params) {
    // The offsets may be the result of a kernel before. Where a prepass began after that had ended, this one did, too; and
    // where the caller says that they were there before the kernel before began.
    if ((!PREPASS || params.early) && !params.settled) wait_for_dependencies();
    if constexpr (GROUPS <= FEW_GROUPS)
      sort_by_comparing(params);
    else if constexpr (TOKENS <= 16)
      gather_groups(params);
    else
      sort_by_counting(params);
    __syncthreads();
    token_tiles = rows()[GROUPS - 1].tiles_before + rows()[GROUPS - 1].tiles;
    if constexpr (!SEARCHES_ALL) more = token_tiles - with_rows();
  }

  // The tiles of a group of `count` rows.
  __device__ static GroupRows divided(int group, int begin, int count) {
    const int tiles = ceil_div(count, TOKENS);
    const int height = tiles <= 1 ? (count + 7) / 8 * 8 : (ceil_div(count, tiles) + 7) / 8 * 8;
    return {group, begin, count, tiles, height, 0};
  }

  // A warp has them all: each lane compares its group with every other.
  __device__ void sort_by_comparing(const Params& params) {
    if (warp_index() != 0) return;
    const int group = lane_index();
    GroupRows row = divided(group, 0, 0);
    if (group < GROUPS) {
      const int begin = offset(params, group);
      row = divided(group, begin, max(offset(params, group + 1) - begin, 0));
    }
    int place = 0;
#pragma unroll
    for (int other = 0; other < GROUPS; other++) {
      const int height = __shfl_sync(~0u, row.height, other), tiles = __shfl_sync(~0u, row.tiles, other);
      if (height > row.height || (height == row.height && other < group)) {
        place++;
        row.tiles_before += tiles;
      }
    }
    if (group < GROUPS) rows()[place] = row;
  }

  // Tiles are alike: groups that have rows come first, in their order, and then the others.
  __device__ void gather_groups(const Params& params) {
    constexpr int CHUNKS = ceil_div(GROUPS, 32);
    static_assert(CHUNKS <= 32, "a lane for each");
    struct Work {
      int begin[GROUPS], count[GROUPS];
      int with_rows[CHUNKS], tiles[CHUNKS];
    };
    static_assert(GROUPS <= FEW_GROUPS || sizeof(Work) <= (GROUPS - 1) * sizeof(GroupRows), "fits where the host leaves room");
    Work& work = *reinterpret_cast<Work*>(rows() + GROUPS);
    const int lane = lane_index(), warps = blockDim.x / 32;

    for (int chunk = warp_index(); chunk < CHUNKS; chunk += warps) {
      const int group = chunk * 32 + lane;
      const int begin = offset(params, group), count = group < GROUPS ? max(offset(params, group + 1) - begin, 0) : 0;
      if (group < GROUPS) work.begin[group] = begin, work.count[group] = count;
      const u32 with_rows = __ballot_sync(~0u, count > 0);
      const int tiles = sum_of_lanes_up_to(ceil_div(count, TOKENS));
      if (lane == 31) work.with_rows[chunk] = __popc(with_rows), work.tiles[chunk] = tiles;
    }
    __syncthreads();
    const int chunk_rows = lane < CHUNKS ? work.with_rows[lane] : 0, chunk_tiles = lane < CHUNKS ? work.tiles[lane] : 0;
    const int groups_until = sum_of_lanes_up_to(chunk_rows), tiles_until = sum_of_lanes_up_to(chunk_tiles);
    const int groups = __shfl_sync(~0u, groups_until, 31), tiles = __shfl_sync(~0u, tiles_until, 31);
    if (threadIdx.x == 0) with_rows() = groups;
    for (int chunk = warp_index(); chunk < CHUNKS; chunk += warps) {
      const int group = chunk * 32 + lane, count = group < GROUPS ? work.count[group] : 0;
      GroupRows row = divided(group, group < GROUPS ? work.begin[group] : 0, count);
      const int here = __popc(__ballot_sync(~0u, count > 0) & ((1u << lane) - 1));
      const int before = __shfl_sync(~0u, groups_until - chunk_rows, chunk) + here;
      const int tiles_before = __shfl_sync(~0u, tiles_until - chunk_tiles, chunk) + sum_of_lanes_up_to(row.tiles) - row.tiles;
      row.tiles_before = count > 0 ? tiles_before : tiles;
      if (group < GROUPS) rows()[count > 0 ? before : groups + group - before] = row;
    }
  }

  // Heights are few: groups of a height are counted, 32 groups a warp at a time, and then each knows its place. Groups
  // without rows need none: behind the others there are rows of no tiles.
  __device__ void sort_by_counting(const Params& params) {
    constexpr int CHUNKS = ceil_div(GROUPS, 32), HEIGHTS = TOKENS / 8;
    static_assert(HEIGHTS <= 32 && CHUNKS <= 32, "a lane for each");
    struct Work {
      int begin[GROUPS], count[GROUPS];
      unsigned short places[CHUNKS][HEIGHTS];  // taken in the chunk, and then before it
      int first[HEIGHTS];                      // places of greater heights
      int tiles[CHUNKS];                       // of a chunk of the table
    };
    static_assert(GROUPS <= FEW_GROUPS || sizeof(Work) <= (GROUPS - 1) * sizeof(GroupRows), "fits where the host leaves room");
    Work& work = *reinterpret_cast<Work*>(rows() + GROUPS);
    const int lane = lane_index(), warps = blockDim.x / 32;

    for (int chunk = warp_index(); chunk < CHUNKS; chunk += warps) {
      const int group = chunk * 32 + lane;
      if (lane < HEIGHTS) work.places[chunk][lane] = 0;
      __syncwarp();
      if (group < GROUPS) {
        const int begin = offset(params, group), count = max(offset(params, group + 1) - begin, 0);
        work.begin[group] = begin;
        work.count[group] = count;
        const int height = HEIGHTS - divided(group, begin, count).height / 8;
        const u32 same = __match_any_sync(lanes_of(chunk), height);
        if (height < HEIGHTS && lane == __ffs(same) - 1) work.places[chunk][height] = __popc(same);
      }
    }
    __syncthreads();
    if (warp_index() == 0) {
      int here = 0;  // groups of this lane's height
      if (lane < HEIGHTS) {
#pragma unroll 8
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
          const int more = work.places[chunk][lane];
          work.places[chunk][lane] = here;
          here += more;
        }
      }
      const int until = sum_of_lanes_up_to(here);
      if (lane < HEIGHTS) work.first[lane] = until - here;
      if (lane == 31) with_rows() = until;
    }
    __syncthreads();
    for (int chunk = warp_index(); chunk < CHUNKS; chunk += warps) {
      const int group = chunk * 32 + lane;
      if (group < GROUPS) {
        const GroupRows row = divided(group, work.begin[group], work.count[group]);
        const int height = HEIGHTS - row.height / 8;
        const u32 same = __match_any_sync(lanes_of(chunk), height);
        if (height < HEIGHTS)
          rows()[work.first[height] + work.places[chunk][height] + __popc(same & ((1u << lane) - 1))] = row;
      }
    }
    __syncthreads();
    for (int chunk = warp_index(); chunk < CHUNKS; chunk += warps) {
      const int place = chunk * 32 + lane, tiles = place < with_rows() ? rows()[place].tiles : 0;
      const int until = sum_of_lanes_up_to(tiles);
      if (place < GROUPS) {
        rows()[place].tiles = tiles;
        rows()[place].tiles_before = until - tiles;
      }
      if (lane == 31) work.tiles[chunk] = until;
    }
    __syncthreads();
    const int chunk_tiles = lane < CHUNKS ? work.tiles[lane] : 0;
    const int before = sum_of_lanes_up_to(chunk_tiles) - chunk_tiles;
    for (int chunk = warp_index(); chunk < CHUNKS; chunk += warps) {
      const int place = chunk * 32 + lane, more = __shfl_sync(~0u, before, chunk);
      if (place < GROUPS) rows()[place].tiles_before += more;
    }
  }

  // The lanes that have a group of the chunk. Which of them run at once is not said, so __activemask may be fewer.
  __device__ static u32 lanes_of(int chunk) {
    const int left = GROUPS - chunk * 32;
    return left >= 32 ? ~0u : (1u << left) - 1;
  }

  __device__ static int sum_of_lanes_up_to(int value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int left = __shfl_up_sync(~0u, value, distance);
      if (lane_index() >= distance) value += left;
    }
    return value;
  }

  // The L1 cache may hold what was there before where nothing was waited for.
  __device__ static int offset(const Params& params, int group) {
    return clamped(params, ld_relaxed_gpu(offset_at(params, group)));
  }

  __device__ static GroupRows* rows() { return reinterpret_cast<GroupRows*>(shared_memory + TABLE_OFFSET); }

  // How many groups have rows: where no work is any more.
  __device__ static int& with_rows() { return rows()[2 * GROUPS - 1].tiles_before; }

  // Which rows the `token_tile`th tile has; false behind the last.
  __device__ bool find(int token_tile, Tile& tile) const {
    if (token_tile >= token_tiles) return false;
    // The last group with at most `token_tile` tiles before it. Each that has rows has one at least.
    int low = SEARCHES_ALL ? 0 : max(token_tile - more, 0);
    int high = SEARCHES_ALL ? GROUPS : min(token_tile + 1, GROUPS);
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
      tile.take_split(0);
      if constexpr (GROUPS_IN_BANDS) return find_in_bands(ordinal, tile);
      tile.column_tile = ordinal % COLUMN_TILES;
      return table.find(ordinal / COLUMN_TILES, tile);
    } else {
      tile.take_split(SPLITS * CLUSTER_SPLITS == 1 ? 0 : blockIdx.z);
      if constexpr (GROUPS_IN_BANDS) return index == 0 && find_in_bands(blockIdx.y * gridDim.x + blockIdx.x, tile);
      tile.column_tile = blockIdx.x;
      return index == 0 && table.find(blockIdx.y, tile);
    }
  }

 private:
  __device__ bool find_in_bands(int ordinal, Tile& tile) const {
    if (ordinal >= table.token_tiles * COLUMN_TILES) return false;
    const TilePlace place = tile_place(ordinal, table.token_tiles, true);
    tile.column_tile = place.column_tile;
    return table.find(place.token_tile, tile);
  }
};

}  // namespace ws
