// Where the factors of a tile are that come to shared memory while it is multiplied, whatever they are (Factors), and those of its
// group among them.
#pragma once

namespace ws {

enum : bool { HAS_FACTORS = true };

static_assert(FACTORS_OFFSET + TILE_GROUPS * sizeof(Factors) <= SHARED_BYTES, "host and device agree");

// Of a tile group.
__device__ __forceinline__ int factors_offset(const ConsumerId& consumer) {
  return FACTORS_OFFSET + consumer.tile_group * int(sizeof(Factors));
}

__device__ __forceinline__ const Factors& factors_of(const ConsumerId& consumer) {
  return *reinterpret_cast<const Factors*>(shared_memory + factors_offset(consumer));
}

// Before all threads of the tile meet behind which they are read.
__device__ __forceinline__ void wait_for_factors() { cp_async_wait_group<0>(); }

// Of a tile's group: there when its other factors are.
struct TileAlphas {
  __device__ TileAlphas(const Params&, const Tile&) {}
  __device__ const Alphas& of(const ConsumerId& consumer) const { return factors_of(consumer).alphas; }
};

}  // namespace ws
