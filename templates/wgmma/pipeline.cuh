// A ring of STAGES stages in shared memory between those who load and those who multiply. Each stage has two mbarriers:
// `full` completes when its bytes have arrived, `empty` when every warp that read it has said so.
#pragma once

namespace ws {

inline constexpr u32 TILE_STAGES = PASSES * K_TILES;  // of a persistent block: K is not split there
inline constexpr int RING_BYTES = STAGES * STAGE_BYTES;
static_assert(BARRIERS_OFFSET >= RING_BYTES && BARRIERS_OFFSET + 16 * STAGES + 16 <= SHARED_BYTES, "barriers behind the ring");

// A place in the ring, and the parity of its phase.
struct Cursor {
  u32 slot, parity;

  // For who waits for `full`; who waits for `empty` has the opposite parity, so that the first round does not wait.
  __device__ static Cursor at(u32 stage) { return {stage % STAGES, stage / STAGES & 1}; }

  template <int STEP>
  __device__ void advance() {
    static_assert(STEP <= STAGES, "at most one round further");
    slot += STEP;
    if (slot >= STAGES) slot -= STAGES, parity ^= 1;
  }
};

// A stage's addresses in shared memory.
struct Place {
  u32 stage, full;

  __device__ u32 empty() const { return full + 8 * STAGES; }
};

struct Ring {
  u32 base;

  __device__ u32 stage(u32 slot) const { return base + slot * STAGE_BYTES; }
  __device__ u32 full(u32 slot) const { return base + BARRIERS_OFFSET + 8 * slot; }
  __device__ u32 empty(u32 slot) const { return full(slot) + 8 * STAGES; }
  __device__ Place place(u32 slot) const { return {stage(slot), full(slot)}; }

  // Completes when a tile group may begin with its next tile, where two take turns.
  __device__ u32 turn(int tile_group) const { return empty(STAGES) + 8 * tile_group; }

  // Completes when all shares of the sums have come from the other blocks of the cluster. A block does one or the other.
  static_assert(TILE_GROUPS == 1 || CLUSTER_SPLITS == 1, "checked by Spec");
  __device__ u32 exchanged() const { return empty(STAGES); }

  // By one thread, before all meet.
  __device__ void initialise() const {
    for (int slot = 0; slot < STAGES; slot++) {
      mbarrier_init(full(slot), FULL_ARRIVALS);
      mbarrier_init(empty(slot), EMPTY_ARRIVALS);
    }
    if constexpr (TILE_GROUPS > 1)
      for (int group = 0; group < TILE_GROUPS; group++) mbarrier_init(turn(group), GROUP_THREADS / 32);
    if constexpr (CLUSTER_SPLITS > 1) mbarrier_init(exchanged(), 1);
    fence_mbarrier_init();
  }

  // By each warp that is done with a stage. One lane speaks for all: waiting for wgmma has brought them together, after
  // they used what they read. (A __syncwarp here makes ptxas serialise wgmma.)
  __device__ void release(u32 slot) const {
    if constexpr (MULTICAST == 1) {
      if (lane_index() == 0) mbarrier_arrive(empty(slot));
    } else {
      // Every block of the cluster writes into this block's stage.
      if (lane_index() < MULTICAST) mbarrier_arrive_remote(empty(slot), lane_index());
    }
  }
};

}  // namespace ws
