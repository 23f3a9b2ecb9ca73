// The warp that multiplies, of the first block of a pair: block scales from shared to tensor memory, then the products, 64 of K
// at a time. One lane asks for all of them.
#pragma once

namespace ws {

// "Instruction descriptor": e2m1 operands, e4m3 scales, `rows` × `columns`.
__device__ __forceinline__ constexpr u32 instruction_descriptor(int rows, int columns) {
  return 1u << 7 | 1u << 10 | u32(columns / 8) << 17 | u32(rows / 128) << 27;
}

// "Shared memory descriptor": rows of 128 bytes in the 128-byte swizzle, groups of eight rows 1024 bytes apart.
inline constexpr u64 CODES_DESCRIPTOR = 0x4000404000010000;
// Rows of 16 bytes as they are, groups of eight 128 bytes apart.
inline constexpr u64 SCALES_DESCRIPTOR = 0x0000400800010000;

__device__ __forceinline__ u64 descriptor(u64 kind, u32 shared) { return kind | (shared & 0x3FFFF) >> 4; }

// Where everything of a stage is.
struct StageAt {
  u32 stage;   // in shared memory
  u32 scales;  // columns of tensor memory

  __device__ u64 rows(int tile, int block) const {
    return descriptor(CODES_DESCRIPTOR, stage + tile * ROW_TILE_BYTES + block * (K_BLOCK / 2));
  }
  __device__ u64 wide(int tile, int block) const {
    return descriptor(CODES_DESCRIPTOR, stage + WIDE_OFFSET + tile * WIDE_TILE_BYTES + block * (K_BLOCK / 2));
  }
  __device__ u32 row_scales(int tile, int block) const { return scales + tile * ROW_SCALE_COLUMNS + block * 4; }
  __device__ u32 wide_scales(int tile, int block) const {
    return scales + ROW_TILES * ROW_SCALE_COLUMNS + tile * WIDE_SCALE_COLUMNS + block * 4 * WIDE_SCALE_BLOCKS;
  }

  // Scales of 64 of K into their columns.
  __device__ void copy_scales(int block) const {
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++) {
      const u32 from = stage + ROW_SCALES_OFFSET + tile * SCALE_BLOCK_BYTES + block * 512;
      tcgen05_cp_32x128b_warpx4<PAIR>(row_scales(tile, block), descriptor(SCALES_DESCRIPTOR, from));
    }
#pragma unroll
    for (int tile = 0; tile < WIDE_TILES; tile++)
#pragma unroll
      for (int part = 0; part < WIDE_SCALE_BLOCKS; part++) {
        const u32 from = stage + WIDE_SCALES_OFFSET + (tile * WIDE_SCALE_BLOCKS + part) * SCALE_BLOCK_BYTES + block * 512;
        tcgen05_cp_32x128b_warpx4<PAIR>(wide_scales(tile, block) + part * 4, descriptor(SCALES_DESCRIPTOR, from));
      }
  }

  // 64 of K of every product. The rows of a token tile are the same for both: they stay in the collector.
  __device__ void multiply(u32 sums, u32 instruction, u32 column, int block, bool accumulate) const {
    if constexpr (BLOCK_PRODUCTS == 1) {
      tcgen05_mma_mxf4nvf4<PAIR, Collector::DISCARD>(sums, rows(0, block), wide(0, block), instruction, row_scales(0, block),
                                                     wide_scales(0, block) + column, accumulate);
    } else if constexpr (WEIGHT_ROWS) {
#pragma unroll
      for (int product = 0; product < BLOCK_PRODUCTS; product++)
        tcgen05_mma_mxf4nvf4<PAIR, Collector::DISCARD>(sums + product * WIDTH, rows(product, block), wide(0, block),
                                                       instruction, row_scales(product, block),
                                                       wide_scales(0, block) + column, accumulate);
    } else {
      tcgen05_mma_mxf4nvf4<PAIR, Collector::FILL>(sums, rows(0, block), wide(0, block), instruction, row_scales(0, block),
                                                  wide_scales(0, block) + column, accumulate);
      tcgen05_mma_mxf4nvf4<PAIR, Collector::LAST_USE>(sums + WIDTH, rows(0, block), wide(1, block), instruction,
                                                      row_scales(0, block), wide_scales(1, block) + column, accumulate);
    }
  }
};

// A stage's scales are in columns of their own. Where there are fewer of these than stages, what was there before has to have
// been multiplied: copies do not wait for products.
struct ScaleSlots {
  u32 slot = 0;
  Cursor before;  // the stage that had this slot
  u32 begun = 0;

  __device__ u32 next(const Ring& ring) {
    if constexpr (SCALE_SLOTS < STAGES) {
      if (begun < SCALE_SLOTS) {
        begun++;
      } else {
        mbarrier_wait(ring.empty(before.slot), before.parity);
        before.next();
      }
    }
    const u32 here = slot;
    slot = slot + 1 == SCALE_SLOTS ? 0 : slot + 1;
    return here;
  }
};

__device__ __forceinline__ void multiply_tiles(const Params& params, const Ring& ring, u32 tensor_memory) {
  Cursor at;
  ScaleSlots slots;
  Tile tile;
  for (int index = 0; take_tile(params, index, tile); index++) {
    const int set = index % SUM_SETS;
    // The first tile of each set finds it free.
    mbarrier_wait(ring.stored(set), index / SUM_SETS & 1 ^ 1);
    const u32 sums = tensor_memory + set * SUM_COLUMNS, instruction = instruction_descriptor(ROWS * BLOCKS, tile.width());
    const u32 column = WEIGHT_ROWS ? TokenScales::column(tile) : WeightScales::column(tile);
#pragma unroll 1
    for (int i = 0; i < tile.k_tiles; i++, at.next()) {
      const u32 scales = tensor_memory + SCALES_COLUMN + slots.next(ring) * SLOT_COLUMNS;
      ring.wait_full(at);
      // Behind all three of what was waited for: sums that were loaded, scales that were multiplied, a stage that is full.
      tcgen05_fence_after_thread_sync();
      if (elect_one()) {
        const StageAt stage{ring.stage(at.slot), scales};
        const int blocks = blocks_of(tile.first_k_tile + i);
#pragma unroll
        for (int block = 0; block < K_BLOCKS; block++)
          if (K_BLOCKS_ALL % K_BLOCKS == 0 || block < blocks) {
            stage.copy_scales(block);
            stage.multiply(sums, instruction, column, block, i > 0 || block > 0);
          }
        tcgen05_commit<PAIR>(ring.empty(at.slot));
        if (i == tile.k_tiles - 1) tcgen05_commit<PAIR>(ring.sums(set));
      }
      __syncwarp();
    }
  }
}

}  // namespace ws
