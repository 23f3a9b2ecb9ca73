// What producers do: which tiles and stages there are, when a place in the ring is empty, and the weights' copies.
#pragma once

namespace ws {

// Calls body(tile, stage) for every tile of this block that a tile group has; `stage` is its first, of all that there are.
template <class Body>
__device__ __forceinline__ void for_each_tile(const Params& params, const Schedule& schedule, int tile_group, Body body) {
  Tile tile;
  if constexpr (PERSISTENT) {
#pragma unroll 1
    for (int index = tile_group; schedule.tile(params, index, tile); index += TILE_GROUPS)
      body(tile, u32(index - tile_group) * TILE_STAGES + tile_group);
  } else {
    if (schedule.tile(params, 0, tile)) body(tile, 0u);
  }
}

// Calls body(k_tile) for every stage of a tile.
template <class Body>
__device__ __forceinline__ void for_each_stage(const Tile& tile, Body body) {
#pragma unroll 1
  for (int pass = 0; pass < PASSES; pass++) {
#pragma unroll 1
    for (int k_tile = tile.first_k_tile; k_tile < tile.first_k_tile + tile.k_tiles; k_tile++) body(k_tile);
  }
}

// The box that a tile's tokens are loaded by: as high as the tile is wide to multiply or, of a last tile that has fewer rows, as
// high as they are (src/run/tensor_map.rs). The tensor memory accelerator takes longer for a row outside of A than for one inside.
// What then lies behind the rows in a stage is multiplied, but not stored: each token has sums of its own.
struct Box {
  int map, rows;
};
enum : int { FEW = TileWidths::COUNT };

__device__ __forceinline__ bool has_few_rows(const Tile& tile) { return HAS_FEW && tile.rows < width_of(tile).tokens; }

__device__ __forceinline__ Box box_of(const Tile& tile) {
  const Width width = width_of(tile);
  return has_few_rows(tile) ? Box{FEW, tile.rows} : Box{width.index, width.tokens};
}

// What a stage takes in the first round, in cycles (H200). Of weights: 22 bytes each, as memory delivers to all SMs at once.
// Of tokens: 50 bytes each, as an SM takes in from the L2 cache beside them; 32 where a cluster splits K, as all SMs ask for
// their first stage at once then.
inline constexpr u32 WEIGHT_PACE = WEIGHT_BYTES / 22;
inline constexpr u32 TOKEN_RATE = CLUSTER_SPLITS > 1 ? 32 : 50;
inline constexpr u32 TOKEN_PACE = TOKEN_BYTES / TOKEN_RATE > 200 ? TOKEN_BYTES / TOKEN_RATE : 200;

// A producer on its way round the ring, whose barriers are so many bytes behind the first. Where stages are small this is what limits,
// not memory: so a step is additions only.
template <u32 BARRIERS>
class ProducerOf {
  const Ring ring;
  const int tile_group;
  Place place;
  u32 parity = 1;  // of `empty`: opposite to that of `full`, so that the first round does not wait
  u32 paced = 0;   // stages of the first round that have been asked for, since `started`
  const u32 started = clock();

  // A warpgroup that waits for stage s of a tile has seen stage s − K_GROUPS. Where STAGES is no multiple of K_GROUPS it
  // must be sure that s − STAGES, another warpgroup's, has come too, or it takes the parity of the phase before that one
  // for its own. It is: s − K_GROUPS was loaded after the one before it in its place was released, which was after that
  // warpgroup had seen s − STAGES. Only the last K_GROUPS loads of the first round have nothing released before them; they
  // wait for what it would have been released after. (A stage has come when weights and tokens have: it is enough that the
  // one who loads weights goes by this.)
  static constexpr bool ORDERED = STAGES % K_GROUPS == 0;
  static_assert(ORDERED || (!PERSISTENT && PASSES == 1 && MULTICAST == 1 && STAGES > K_GROUPS), "checked by Spec");

 public:
  __device__ ProducerOf(const Ring& ring, int tile_group) : ring(ring), tile_group(tile_group), place(first()) {}

  __device__ Place first() const { return {ring.stage(tile_group), ring.full(tile_group) + BARRIERS}; }

  // Where it is, whether that is empty, and on to the next place: for who does not fill a stage at once.
  __device__ const Place& at() const { return place; }
  __device__ void wait() const { mbarrier_wait(place.empty(), parity); }
  __device__ void next() {
    place.stage += TILE_GROUPS * STAGE_BYTES;
    place.full += TILE_GROUPS * 8;
    if (place.full == ring.full(STAGES + tile_group) + BARRIERS) {
      place = first();
      parity ^= 1;
    }
  }

  // Until the last stage that was filled has come; at once, if there is none.
  __device__ void wait_for_last() const {
    const bool has_wrapped = place.full == first().full;
    const u32 last = ring.full(STAGES - TILE_GROUPS + tile_group) + BARRIERS;
    mbarrier_wait(has_wrapped ? last : place.full - TILE_GROUPS * 8, has_wrapped ? parity : parity ^ 1);
  }

  // Before a stage of the first round of a persistent block.
  template <u32 PACE>
  __device__ void keep_pace() {
    if (paced == STAGES / TILE_GROUPS) return;
    while (clock() - started < paced * PACE);
    paced++;
  }

  // Calls load(place, k_tile) for every stage of a tile, when its place is empty.
  //
  // Nothing holds up the first round of a block's first tile, but an SM takes copies in their order, and what it has more
  // under way than memory delivers only keeps the first stage's tokens waiting behind the last stage's weights (1.2 µs of
  // 10 at M = 1). So that round takes PACE cycles a stage.
  template <u32 PACE, class Load>
  __device__ __forceinline__ void fill(const Tile& tile, Load load) {
    if constexpr (PERSISTENT || PASSES > 1) {
      for_each_stage(tile, [&](int k_tile) {
        wait();
        if constexpr (PERSISTENT) keep_pace<PACE>();
        load(place, k_tile);
        next();
      });
    } else {
      int k_tile = tile.first_k_tile;
      const int end = k_tile + tile.k_tiles;
      const u32 begin = clock();
#pragma unroll 1
      for (int stage = 0; stage < STAGES && k_tile < end; stage++, k_tile++, next()) {
        if (!ORDERED && stage >= STAGES - K_GROUPS) mbarrier_wait(ring.full(stage - (STAGES - K_GROUPS)), 0);
        while (clock() - begin < stage * PACE);
        load(place, k_tile);
      }
#pragma unroll 1
      for (; k_tile < end; k_tile++, next()) {
        wait();
        load(place, k_tile);
      }
    }
  }
};

// Of tokens; and of weights, which have barriers of their own where others decode them: tokens need not wait for that.
using Producer = ProducerOf<0>;
using WeightProducer = ProducerOf<WEIGHT_BARRIERS>;

// Block `k_block` along K of an m64 tile of prepared weights, those of all groups counted.
__device__ __forceinline__ const u8* weight_block(const Params& params, long long tile, int k_block) {
  return params.b[0] + (tile * K_BLOCKS_ALL + k_block) * BLOCK_BYTES;
}

// Where the weights of a tile are, and the bulk copies that bring one stage of them after the other: one for each m64
// tile.
template <class Tokens>
struct Weights {
  const u8* first;
  const u8* next;
  int last_k_tile;
  int tiles;
  u32 token_bytes;

  __device__ Weights(const Params& params, const Tile& tile)
      : last_k_tile(tile.first_k_tile + tile.k_tiles - 1), tiles(tile.weight_tiles()), token_bytes(DECODERS > 0 ? 0 : Tokens::bytes(tile)) {
    const long long first_tile = static_cast<long long>(tile.group) * TILES_PER_GROUP + tile.column_tile * TILES;
    first = weight_block(params, first_tile, tile.first_k_tile * K_BLOCKS);
    next = first;
  }

  // The next stage, by one thread, when its place is empty; announces the bytes of tokens that count at the same barrier, too.
  __device__ void load(const Place& place, int k_tile) {
    const u32 bytes = blocks_of(k_tile) * BLOCK_BYTES, to = place.stage + TOKEN_BYTES;
    mbarrier_arrive_expect_tx(place.full, token_bytes + tiles * bytes);
#pragma unroll
    for (int i = 0; i < TILES; i++)
      if (TILES_PER_GROUP % TILES == 0 || i < tiles)
        bulk_load(to + i * K_BLOCKS * BLOCK_BYTES, next + static_cast<long long>(i) * K_BLOCKS_ALL * BLOCK_BYTES, bytes,
                  place.full);
    next = PASSES > 1 && k_tile == last_k_tile ? first : next + K_BLOCKS * BLOCK_BYTES;
  }
};

// Asks the L2 cache for what the launch behind this one reads first: blocks that have a group share out its strips by their columns.
__device__ __forceinline__ void ask_for_next(const Params& params, const Tile& tile) {
  const u8* strips = params.next + tile.group * params.next_strips * params.next_stride;
  for (int strip = tile.column_tile; strip < params.next_strips; strip += COLUMN_TILES)
    bulk_prefetch(strips + strip * params.next_stride, params.next_bytes);
}

}  // namespace ws
