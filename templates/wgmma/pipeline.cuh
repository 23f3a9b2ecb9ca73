// A ring of STAGES stages in shared memory between those who load and those who multiply. Each stage has two mbarriers:
// `full` completes when its bytes have arrived, `empty` when every warp that read it has said so.
#pragma once

namespace ws {

inline constexpr u32 TILE_STAGES = PASSES * K_TILES;  // of a persistent block: K is not split there
inline constexpr int RING_BYTES = STAGES * STAGE_BYTES;
// From a stage of a warpgroup to its next one: those of a tile are every TILE_GROUPSth of the ring, and K groups share these.
inline constexpr int STAGE_STEP = TILE_GROUPS * K_GROUPS;
static_assert(STAGES % TILE_GROUPS == 0, "a place in the ring is of one tile group");
static_assert(BARRIERS_OFFSET >= RING_BYTES && BARRIERS_OFFSET + 16 * STAGES + 16 <= SHARED_BYTES, "barriers behind the ring");

// A place in a ring of SLOTS, and the parity of its phase.
template <int SLOTS>
struct CursorOf {
  u32 slot, parity;

  // For who waits for `full`; who waits for `empty` has the opposite parity, so that the first round does not wait.
  __device__ static CursorOf at(u32 index) { return {index % SLOTS, index / SLOTS & 1}; }

  template <int STEP>
  __device__ void advance() {
    static_assert(STEP <= SLOTS, "at most one round further");
    slot += STEP;
    if (slot >= SLOTS) slot -= SLOTS, parity ^= 1;
  }
};
using Cursor = CursorOf<STAGES>;

// A line of decoded weights: for each m64 tile 64 rows of 128 bytes along K, as tokens are.
enum : int { DECODED_TILE_BYTES = 64 * 128, DECODED_BYTES = TILES * DECODED_TILE_BYTES };

// From the barriers of a stage to those of its weights, which are behind the others; none where tokens and weights have the same. Each warp
// that decodes arrives when it has read what it decodes of the stage.
enum : u32 { WEIGHT_BARRIERS = DECODERS > 0 ? 16 * STAGES + 16 : 0 };
enum : int { WEIGHT_EMPTY_ARRIVALS = 4 * DECODERS };
using DecodedCursor = CursorOf<DECODED_SLOTS>;

// Stages and barriers begin at a multiple of this. So a barrier's address tells its slot: a loop needs no base for that.
inline constexpr u32 RING_ALIGNMENT = 1024;
static_assert(BARRIERS_OFFSET % RING_ALIGNMENT == 0 && 16 * STAGES < RING_ALIGNMENT, "host and device agree");

// A stage's addresses in shared memory.
struct Place {
  u32 stage, full;

  __device__ u32 empty() const { return full + 8 * STAGES; }
};

// The same on somebody's way round the ring, with the parity of the phase: a step is additions only.
struct Stop : Place {
  u32 parity;

  template <int STEP>
  __device__ void advance() {
    static_assert(STEP <= STAGES, "at most one round further");
    stage += STEP * STAGE_BYTES;
    full += STEP * 8;
    if (full % RING_ALIGNMENT >= STAGES * 8) {
      stage -= RING_BYTES;
      full -= STAGES * 8;
      parity ^= 1;
    }
  }
};

struct Ring {
  u32 base;

  __device__ u32 stage(u32 slot) const { return base + slot * STAGE_BYTES; }
  __device__ u32 full(u32 slot) const { return base + BARRIERS_OFFSET + 8 * slot; }
  __device__ u32 empty(u32 slot) const { return full(slot) + 8 * STAGES; }
  __device__ Place place(u32 slot) const { return {stage(slot), full(slot)}; }
  __device__ u32 slot(const Place& place) const { return (place.full - full(0)) / 8; }

  // Where compilers know the slot (the first, of a tile that is a block's only one), the way round and the ring's base are one for them, and
  // ptxas 13.0 reads what is at a distance from the base from where the way has got to.
  __device__ Stop stop(u32 index) const {
    const Cursor at = Cursor::at(index);
    return {place(of_unknown_value(at.slot)), at.parity};
  }

  // Completes when all shares of the sums have come from the other blocks of the cluster.
  __device__ u32 exchanged() const { return empty(STAGES); }

  // Completes when a tile group's tile may come to scratch memory and the one behind it is found, for the first one when both are; in place of
  // the other, as persistent blocks are in no cluster.
  __device__ u32 stored(int tile_group) const { return empty(STAGES) + 8 * tile_group; }

  // Where others decode, the weights of a stage have barriers of their own.
  __device__ u32 weights_full(u32 slot) const { return full(slot) + WEIGHT_BARRIERS; }
  __device__ u32 weights_empty(u32 slot) const { return empty(slot) + WEIGHT_BARRIERS; }

  // A line of decoded weights, of all m64 tiles, and its barriers.
  __device__ u32 decoded(u32 slot) const { return base + DECODED_OFFSET + slot * DECODED_BYTES; }
  __device__ u32 decoded_full(u32 slot) const { return weights_empty(STAGES) + 8 * slot; }
  __device__ u32 decoded_empty(u32 slot) const { return decoded_full(slot) + 8 * DECODED_SLOTS; }

  // By one thread, before all meet.
  __device__ void initialise() const {
    for (int slot = 0; slot < STAGES; slot++) {
      mbarrier_init(full(slot), FULL_ARRIVALS);
      mbarrier_init(empty(slot), EMPTY_ARRIVALS);
    }
    if constexpr (CLUSTER_SPLITS > 1) mbarrier_init(exchanged(), 1);
    if constexpr (STORES_APART)
      for (int tile_group = 0; tile_group < TILE_GROUPS; tile_group++) mbarrier_init(stored(tile_group), 1);
    if constexpr (DECODERS > 0) {
      for (int slot = 0; slot < STAGES; slot++) {
        mbarrier_init(weights_full(slot), 1);
        mbarrier_init(weights_empty(slot), WEIGHT_EMPTY_ARRIVALS);
      }
      for (int slot = 0; slot < DECODED_SLOTS; slot++) {
        mbarrier_init(decoded_full(slot), TILES);
        mbarrier_init(decoded_empty(slot), 4 * GROUP_WARPGROUPS);
      }
    }
    fence_mbarrier_init();
  }

  // By each warp that is done with a stage, whose barrier is `empty`. One lane speaks for all: waiting for wgmma has brought them
  // together, after they used what they read. (A __syncwarp here makes ptxas serialise wgmma.)
  __device__ static void release(u32 empty) {
    if constexpr (MULTICAST == 1) {
      if (lane_index() == 0) mbarrier_arrive(empty);
    } else {
      // Every block of the cluster writes into this block's stage.
      if (lane_index() < MULTICAST) mbarrier_arrive_remote(empty, lane_index());
    }
  }
};

}  // namespace ws
