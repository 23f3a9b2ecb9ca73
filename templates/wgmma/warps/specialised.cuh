// For each tile group one warp loads weights, one (or several, where they decode) tokens; CONSUMER_THREADS multiply. Between those,
// DECODERS warpgroups may decode weights into shared memory.
#pragma once

namespace ws {

inline constexpr int CONSUMER_WARPS = CONSUMER_THREADS / 32;
// The first warp that loads.
enum : int { PRODUCER_WARP = CONSUMER_WARPS + 4 * DECODERS };
// That load for a tile group.
enum : int { PRODUCER_WARPS = 1 + Tokens::WARPS, STORING_WARP = PRODUCER_WARP + TILE_GROUPS * PRODUCER_WARPS };
// Registers change hands between whole warpgroups: then there are warps that only make up the number.
inline constexpr int THREADS = 32 * (CONSUMER_REGISTERS > 0 ? PRODUCER_WARP + 4 : STORING_WARP + STORES_APART);
static_assert(CONSUMER_REGISTERS == 0 || STORING_WARP + STORES_APART <= PRODUCER_WARP + 4, "who loads and who stores are one warpgroup");
static_assert(CONSUMER_WARPS / 4 * CONSUMER_REGISTERS + DECODERS * DECODER_REGISTERS + PRODUCER_REGISTERS <= THREADS / 128 * LAUNCH_REGISTERS,
              "nobody waits for registers that there are none of");

// Weights do not wait for what came before: they are prepared at load, long ago.
__device__ __forceinline__ void load_weights(const Params& params, const Ring& ring, const Schedule& schedule, int tile_group) {
  WeightProducer producer(ring, tile_group);
  for_each_tile(params, schedule, tile_group, [&](const Tile& tile, u32) {
    Weights<Tokens> weights(params, tile);
    producer.fill<WEIGHT_PACE>(tile, [&](const Place& place, int k_tile) { weights.load(place, k_tile); });
  });
  // Not before, or it holds up what is still to come.
  if (params.next_strips > 0) {
    producer.wait_for_last();
    for_each_tile(params, schedule, tile_group, [&](const Tile& tile, u32) { ask_for_next(params, tile); });
  }
}

// By one thread, or by warp `warp` of those that bring them together.
__device__ __forceinline__ void load_tokens(const Params& params, const TensorMaps& maps, const Ring& ring,
                                            const Schedule& schedule, int tile_group, int warp) {
  wait_for_dependencies();
  Producer producer(ring, tile_group);
  for_each_tile(params, schedule, tile_group,
                [&](const Tile& tile, u32) { Tokens::load(params, maps, producer, tile, warp); });
  // Every read of what came before is done or under way, and nothing is written before it has arrived.
  launch_dependents();
}

// By all threads of the decoders, if there are any (stage/decoded.cuh).
template <class Rows>
__device__ void decode_weights(const Params& params, const Ring& ring, const Schedule& schedule, int warp);

// By a warp, if one stores tiles (epilogue/apart.cuh).
template <class Tiles>
__device__ void store_tiles(const Params& params, const Ring& ring, const Tiles& schedule);

// Who multiplies has nothing to load.
struct InlineProducer {
  __device__ void operator()(u32) const {}
};

template <class Consume>
__device__ __forceinline__ void run(const Params& params, const TensorMaps& maps, const Ring& ring, const Schedule& schedule,
                                    Consume consume) {
  const int warp = warp_index();
  const auto bring = [&] {
    if constexpr (STORES_APART) {
      if (warp == STORING_WARP) {
        store_tiles(params, ring, schedule);
        return;
      }
    }
    const int producer = warp - PRODUCER_WARP, tile_group = TILE_GROUPS == 1 ? 0 : producer / PRODUCER_WARPS;
    const int role = producer - tile_group * PRODUCER_WARPS;
    if (role == 0) {
      if (elect_one()) load_weights(params, ring, schedule, tile_group);
      __syncwarp();
    } else if (role < PRODUCER_WARPS) {
      if (TOKEN_WARPS > 0 || K_FACTORS || elect_one()) load_tokens(params, maps, ring, schedule, tile_group, role - 1);
      __syncwarp();
    }
  };
  const auto multiply = [&] {
    const ConsumerId consumer(warp / 4);
    const auto multiply_tile = [&](const Tile& tile, u32 stage) { consume(tile, consumer, stage, InlineProducer()); };
    if constexpr (STORES_APART)
      for_each_found_tile(ring, consumer.tile_group, multiply_tile);
    else
      for_each_tile(params, schedule, consumer.tile_group, multiply_tile);
    finish_stores();
  };
  if constexpr (CONSUMER_REGISTERS == 0) {
    if (warp >= PRODUCER_WARP)
      bring();
    else if (DECODERS > 0 && warp >= CONSUMER_WARPS) {
      if constexpr (DECODERS > 0) decode_weights<WholeRows>(params, ring, schedule, warp - CONSUMER_WARPS);
    } else
      multiply();
  } else if (warp >= PRODUCER_WARP) {
    // All warps of a warpgroup by one instruction.
    change_registers<LAUNCH_REGISTERS, PRODUCER_REGISTERS>();
    bring();
  } else if (DECODERS > 0 && warp >= CONSUMER_WARPS) {
    if constexpr (DECODERS > 0) {
      change_registers<LAUNCH_REGISTERS, DECODER_REGISTERS>();
      decode_weights<WholeRows>(params, ring, schedule, warp - CONSUMER_WARPS);
    }
  } else {
    change_registers<LAUNCH_REGISTERS, CONSUMER_REGISTERS>();
    multiply();
  }
}

}  // namespace ws
