// A ring of STAGES stages in shared memory between those who load and the warp that multiplies. `full` of a stage completes
// when all its bytes have arrived (of a pair: those of both blocks, at the first one's barrier), `empty` when the products that
// read it are done (at both blocks' barriers). `sums` completes when a tile's sums are there, `stored` when they have been read.
#pragma once

namespace ws {

static_assert(BARRIERS_OFFSET >= STAGES * STAGE_BYTES && BARRIERS_OFFSET + 16 * STAGES + 32 + 8 <= SHARED_BYTES,
              "barriers behind the ring");

// Stages are counted on from tile to tile.
struct Cursor {
  u32 slot = 0, parity = 0;

  __device__ void next() {
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
};

struct Ring {
  u32 base, rank;

  __device__ u32 stage(u32 slot) const { return base + slot * STAGE_BYTES; }
  __device__ u32 barrier(u32 which) const { return base + BARRIERS_OFFSET + 8 * which; }
  __device__ u32 full(u32 slot) const { return barrier(slot); }
  __device__ u32 empty(u32 slot) const { return barrier(STAGES + slot); }
  __device__ u32 sums(u32 set) const { return barrier(2 * STAGES + set); }
  __device__ u32 stored(u32 set) const { return barrier(2 * STAGES + 2 + set); }
  // Where the address of tensor memory is written.
  __device__ u32 tensor_address() const { return barrier(2 * STAGES + 4); }

  // A barrier of the first block of the pair, for every block of it.
  __device__ u32 first_blocks(u32 barrier) const { return PAIR ? map_shared_rank(barrier, 0) : barrier; }

  // By one thread, before all meet. Whoever loads arrives at a full stage: with gathered tokens it is weights' warp alone.
  __device__ void initialise() const {
    constexpr int LOADERS = GATHERED ? 1 : 2;
    for (int slot = 0; slot < STAGES; slot++) {
      mbarrier_init(full(slot), BLOCKS * (LOADERS + COPY_WARPS));
      mbarrier_init(empty(slot), 1);
    }
    for (int set = 0; set < SUM_SETS; set++) {
      mbarrier_init(sums(set), 1);
      mbarrier_init(stored(set), BLOCKS * STORE_THREADS / 32);
    }
    fence_mbarrier_init();
  }

  // By who fills a part of a stage, when it is empty; the first round is.
  __device__ void wait_empty(const Cursor& at) const { mbarrier_wait(empty(at.slot), at.parity ^ 1); }

  // Announces bytes of this block's part of a stage.
  __device__ void announce(u32 slot, u32 bytes) const {
    if constexpr (PAIR)
      mbarrier_arrive_expect_tx_cluster(first_blocks(full(slot)), bytes);
    else
      mbarrier_arrive_expect_tx(full(slot), bytes);
  }

  // 256 of K of the rows that the box of `map` has, from `row` on.
  __device__ void load_codes(u32 slot, u32 offset, const TensorMap& map, int k_tile, int row) const {
    if constexpr (PAIR)
      tensor_load_2d_pair(stage(slot) + offset, map, k_tile * (TILE_K / 2), row, first_blocks(full(slot)));
    else
      tensor_load_2d(stage(slot) + offset, map, k_tile * (TILE_K / 2), row, full(slot));
  }

  // By a warp whose copies into a stage are done and fenced.
  __device__ void copied(u32 slot) const {
    if constexpr (PAIR) fence_release_shared();
    arrive(full(slot));
  }
  // By who multiplies: until all of a stage is there, also what warps of the other block have copied.
  __device__ void wait_full(const Cursor& at) const {
    if constexpr (PAIR && COPY_WARPS > 0) {
      mbarrier_wait_relaxed_cluster(full(at.slot), at.parity);
      fence_acquire_shared();
    } else {
      mbarrier_wait(full(at.slot), at.parity);
    }
  }
  // By a warp that has read a tile's sums. Its fence of tcgen05 orders these.
  __device__ void copied_to_registers(u32 set) const { arrive(stored(set)); }

 private:
  // At a barrier of the first block.
  __device__ void arrive(u32 barrier) const {
    if constexpr (PAIR)
      mbarrier_arrive_cluster(first_blocks(barrier));
    else
      mbarrier_arrive(barrier);
  }
};

}  // namespace ws
