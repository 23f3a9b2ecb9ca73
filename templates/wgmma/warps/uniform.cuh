// Every warp multiplies; the first loads as well, between starting one stage and waiting for the next.
#pragma once

namespace ws {

inline constexpr int THREADS = CONSUMER_THREADS;
static_assert(!PERSISTENT && Tokens::WARPS == 1 && !K_FACTORS, "checked by Spec");

// Loads as far ahead as stages are empty; never waits longer than the multiplying has to.
struct InlineProducer {
  const TensorMaps& maps;
  const Ring& ring;
  const Tile& tile;
  mutable Weights<Tokens> weights;
  bool loads;                      // this is the warp that does
  mutable u32 loaded = 0;          // stages so far
  mutable Cursor at = Cursor::at(0);

  __device__ InlineProducer(const Params& params, const TensorMaps& maps, const Ring& ring, const Tile& tile, bool loads)
      : maps(maps), ring(ring), tile(tile), weights(params, tile), loads(loads) {
    if (loads) fill(STAGES, 0);
  }

  __device__ void load_next() const {
    const int k_tile = tile.first_k_tile + (PASSES == 1 || loaded < tile.k_tiles ? loaded : loaded - tile.k_tiles);
    const Place place = ring.place(at.slot);
    weights.load(place, k_tile);
    Tokens::copy(maps, place, tile, k_tile);
    loaded++;
    at.advance<1>();
    if (loaded == PASSES * tile.k_tiles) launch_dependents();
  }

  // Stages up to `wanted` are waited for, others taken if they are empty.
  __device__ void fill(u32 until, u32 wanted) const {
    if (elect_one()) {
      while (loaded < min(until, u32(PASSES * tile.k_tiles))) {
        const u32 empty = ring.empty(at.slot), parity = at.parity ^ 1;
        if (loaded < wanted)
          mbarrier_wait(empty, parity);
        else if (!mbarrier_test_wait(empty, parity))
          break;
        load_next();
      }
    }
    // All lanes know how far it is.
    loaded = __shfl_sync(~0u, loaded, leader());
    at = Cursor::at(loaded);
  }

  // The lane that elect.sync elects is the same each time.
  __device__ static int leader() { return __ffs(__ballot_sync(~0u, elect_one())) - 1; }

  // After stage `stage` of this warpgroup has been started: the next one, K_GROUPS further, must be on its way.
  __device__ void operator()(u32 stage) const {
    if (loads) fill(~0u, stage + K_GROUPS + 1);
  }
};

template <class Consume>
__device__ __forceinline__ void run(const Params& params, const TensorMaps& maps, const Ring& ring, const Schedule& schedule,
                                    Consume consume) {
  const int warp = warp_index();
  const ConsumerId consumer(warp / 4);
  // Also a block without a tile ends after what came before.
  if (warp == 0) wait_for_dependencies();
  for_each_tile(params, schedule, 0, [&](const Tile& tile, u32 stage) {
    const InlineProducer inline_producer(params, maps, ring, tile, warp == 0);
    consume(tile, consumer, stage, inline_producer);
  });
  finish_stores();
}

}  // namespace ws
