// Block scales as bulk.cuh has them, for a pair: bulk copies cannot count at the first block's barrier, loads by tensor maps can.
// A box has 128 rows and a stage's K. Of what both blocks have whole each asks for a part, for both.
#pragma once

namespace ws {

// The kernel's.
struct Maps : OperandMaps {
  OperandMaps scales;
};

template <class Rows>
struct LoadedScales {
  static constexpr bool COPIES = false;
  using Share = Nothing;

  // Those that this block is to have, whoever asks for them. Blocks of zeros behind the end of K come, too.
  __device__ static u32 bytes(const Params&, const Tile&, int, int) { return Rows::TILES * Rows::TILE_BLOCKS * SCALE_BLOCK_BYTES; }
  __device__ static void prefetch(const Params& params, const Maps& maps) { prefetch_tensor_map(Rows::map(params, maps.scales, 0)); }
  __device__ static void load(const Params& params, const Maps& maps, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    const int first = Rows::first(tile, ring.rank) / 128, last = ceil_div(Rows::end(params, tile), 128) - 1;
    const u32 counts = ring.first_blocks(ring.full(slot));
#pragma unroll
    for (int part = 0; part < Rows::TILES * Rows::TILE_BLOCKS; part++) {
      const TensorMap& map = Rows::map(params, maps.scales, part / Rows::TILE_BLOCKS);
      const u32 to = ring.stage(slot) + Rows::OFFSET + part * SCALE_BLOCK_BYTES;
      // In place of blocks that there are not the last one again: no box begins outside of the map.
      const int block = Rows::blocks_before(tile) + min(first + part % Rows::TILE_BLOCKS, last);
      if constexpr (!Rows::IN_BOTH)
        tensor_load_2d_pair(to, map, k_tile * MAPPED_K, block, counts);
      else if (part % BLOCKS == ring.rank)
        tensor_load_2d_pair_multicast(to, map, k_tile * MAPPED_K, block, counts, (1 << BLOCKS) - 1);
    }
  }
  __device__ static int column(const Tile& tile) { return column_in_block<Rows>(tile); }

 private:
  // A tile along K, for the map: in eight bytes, of which a box has 256.
  static constexpr int MAPPED_K = SCALE_BLOCK_BYTES / 8;
};

}  // namespace ws
