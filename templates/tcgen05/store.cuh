// The four warps that store: each reads its quarter of the lanes of tensor memory, 16 columns of each product at a time.
#pragma once

namespace ws {

__device__ __forceinline__ void store_tiles(const Params& params, const Ring& ring, u32 tensor_memory) {
  // α may be the result of the kernel before, and C what it still reads.
  wait_for_dependencies();
  Tile tile;
  for (int index = 0; take_tile(params, index, tile); index++) {
    const int set = index % SUM_SETS, lane = threadIdx.x;
    const StoredTile stored(params, tile, ring.rank, lane);
    const Result result(params, stored, tile);
    mbarrier_wait(ring.sums(set), index / SUM_SETS & 1);
    tcgen05_fence_after_thread_sync();
    const u32 from = tensor_memory + (u32(warp_index() * 32) << 16) + set * SUM_COLUMNS;
    const int parts = stored.parts();
#pragma unroll 1
    for (int part = 0; part < parts; part++) {
      u32 loaded[BLOCK_PRODUCTS][16];
#pragma unroll
      for (int product = 0; product < BLOCK_PRODUCTS; product++)
        tcgen05_ld_32x32b_x16(loaded[product], from + product * WIDTH + part * 16);
      tcgen05_wait_ld(loaded);
      if (PERSISTENT && part == parts - 1) {
        // The sums are in registers: the next tile's may take their place.
        tcgen05_fence_before_thread_sync();
        __syncwarp();
        if (lane_index() == 0) ring.copied_to_registers(set);
      }
      float sums[BLOCK_PRODUCTS][16];
#pragma unroll
      for (int product = 0; product < BLOCK_PRODUCTS; product++)
#pragma unroll
        for (int i = 0; i < 16; i++) sums[product][i] = __uint_as_float(loaded[product][i]);
      result.store(part, sums);
    }
  }
}

}  // namespace ws
