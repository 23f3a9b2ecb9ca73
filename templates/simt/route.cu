// <{ symbol }>
//
// Chooses <{ k }> of <{ experts }> experts for each token and sorts the rows of those that are local by (expert, token, slot). A
// warp takes a token, at most 32 tokens are a chunk: a bit each in the mask of an expert, so that the bits before a token's own are
// its place among the chunk's rows. A token has an expert once.
//
//   _few     one launch: each block of a cluster has a chunk, and is sent the masks of the others
//   _count   many tokens: each block chooses for its share of the chunks, and counts rows of each expert
//   _place   adds up the counts, and gives the rows of its share their places

#include "common/base.cuh"
#include "simt/ptx.cuh"
#include "simt/exact.cuh"

namespace ws {

inline constexpr int EXPERTS = <{ experts }>;
inline constexpr int FIRST_LOCAL = <{ first_local }>;
inline constexpr int LOCAL_EXPERTS = <{ local_experts }>;  // that rows are listed of; they are counted from the first
inline constexpr int K = <{ k }>;
inline constexpr int EXPERT_GROUPS = <{ groups }>;
inline constexpr int KEPT_GROUPS = <{ kept_groups }>;
inline constexpr bool RENORMALISE = <{ renormalise }>;
inline constexpr int THREADS = 1024;
inline constexpr int WARPS = THREADS / 32;
inline constexpr int CHUNK = 32;
inline constexpr int CLUSTER = <{ cluster }>;  // blocks at most, where they are not one
static_assert(WARPS == CHUNK && EXPERTS <= THREADS && K <= 32, "a warp a token, a thread an expert, a lane a slot");

// The same order and sizes as `Params` on the host side (src/run/route.rs).
struct RouteParams {
  const u8* logits;   // [tokens, EXPERTS]
  const float* bias;  // [EXPERTS]
  int* ids;           // [tokens, K]: the expert of each slot
  float* weights;     // [tokens, K]
  int* offsets;       // [LOCAL_EXPERTS + 1]: the first row of each expert, and the end
  int* rows;          // [tokens * K]: the token of each row
  int* slots;         // [tokens * K]: the slot of each row, token * K + j
  int* positions;     // [tokens * K]: the row of each slot, or -1
  int* hit;           // [LOCAL_EXPERTS]: experts that have rows, and then -1
  int* tiles_before;  // [LOCAL_EXPERTS + 1]: tiles of those before each of them, and then of all
  int* summary;       // [4]: experts that have rows, tiles, rows, slots without a row
  int* counts;        // [blocks, LOCAL_EXPERTS]: rows of each block of `_count`
  float scale;        // of weights
  int tokens;
  int tile_rows;
  int share;          // tokens of a block of `_few`, chunks of one of `_count` and `_place`
};

}  // namespace ws

#include "simt/logits/<{ logits }>.cuh"
#include "simt/route/score/<{ score }>.cuh"
#include "simt/route/exchange.cuh"

namespace ws {

struct Totals {
  int rows, tiles;

  __device__ Totals operator+(const Totals& other) const { return {rows + other.rows, tiles + other.tiles}; }
  __device__ Totals operator-(const Totals& other) const { return {rows - other.rows, tiles - other.tiles}; }
};

// Of the local experts, a thread each.
inline constexpr int EXPERT_WARPS = ceil_div(LOCAL_EXPERTS, 32);

struct Shared {
  u32 tile_inverse;           // 2^32 - 1 over the rows of a tile
  int before[LOCAL_EXPERTS];  // rows of blocks before this one, and then where the next row goes
  Totals warps[EXPERT_WARPS];
  int hits[EXPERT_WARPS];     // experts that have rows
  int rows;

  // By all threads, before they meet: a division is done before there is anything to divide.
  __device__ __forceinline__ void begin(const RouteParams& params) {
    if (threadIdx.x == 0) tile_inverse = ~0u / u32(params.tile_rows);
  }
};

// The sum over the lanes up to this one, of those that have something: the first COUNT.
template <int COUNT>
__device__ __forceinline__ Totals until(Totals value) {
#pragma unroll
  for (int distance = 1; distance < COUNT; distance *= 2) {
    const Totals left = {__shfl_up_sync(~0u, value.rows, distance), __shfl_up_sync(~0u, value.tiles, distance)};
    if (lane_index() >= distance) value = value + left;
  }
  return value;
}

// How many tiles rows are.
__device__ __forceinline__ int tiles_of(const RouteParams& params, const Shared& shared, int count) {
  const u32 rows = params.tile_rows, all = count + rows - 1, least = __umulhi(all, shared.tile_inverse);
  return least + (all - least * rows >= rows);
}

// Of all experts the number among the local ones, or -1.
__device__ __forceinline__ int local_of(int expert) {
  if constexpr (LOCAL_EXPERTS == EXPERTS) return expert;
  const int local = expert - FIRST_LOCAL;
  return static_cast<u32>(local) < static_cast<u32>(LOCAL_EXPERTS) ? local : -1;
}

__device__ __forceinline__ void mark(u32* masks, int expert, int item) {
  if (expert >= 0) atomicOr(&masks[expert], 1u << item);
}

// From the rows of each expert, a thread each, to where the next of this block goes. One block writes what all would.
__device__ __forceinline__ void share_out(const RouteParams& params, Shared& shared, int count, int before, bool is_writer) {
  const int expert = threadIdx.x, lane = lane_index(), warp = warp_index();
  const Totals own = {count, tiles_of(params, shared, count)};
  // The others would only be in the way.
  if (warp < EXPERT_WARPS) {
    Totals first = until<32>(own);
    const u32 with_rows = __ballot_sync(~0u, count > 0);
    if (lane == 31) {
      shared.warps[warp] = first;
      shared.hits[warp] = __popc(with_rows);
    }
    named_barrier_sync<EXPERT_WARPS * 32>(1);
    const bool is_warp = lane < EXPERT_WARPS;
    const Totals of_warp = is_warp ? shared.warps[lane] : Totals{0, 0}, of_warps = until<EXPERT_WARPS>(of_warp);
    const Totals all = {__shfl_sync(~0u, of_warps.rows, EXPERT_WARPS - 1), __shfl_sync(~0u, of_warps.tiles, EXPERT_WARPS - 1)};
    const Totals left = of_warps - of_warp;
    first = first - own + Totals{__shfl_sync(~0u, left.rows, warp), __shfl_sync(~0u, left.tiles, warp)};
    if (expert < LOCAL_EXPERTS) shared.before[expert] = first.rows + before;
    if (expert == 0) shared.rows = all.rows;
    if (is_writer) {
      const int hits = is_warp ? shared.hits[lane] : 0, all_hits = redux_add(hits);
      const int hit = redux_add(lane < warp ? hits : 0) + __popc(with_rows & ((1u << lane) - 1));
      if (expert < LOCAL_EXPERTS) {
        params.offsets[expert] = first.rows;
        if (count > 0) {
          params.hit[hit] = expert;
          params.tiles_before[hit] = first.tiles;
        }
        if (expert >= all_hits) {
          params.hit[expert] = -1;
          params.tiles_before[expert] = all.tiles;
        }
      }
      if (expert == 0) {
        params.offsets[LOCAL_EXPERTS] = all.rows;
        params.tiles_before[LOCAL_EXPERTS] = all.tiles;
        params.summary[0] = all_hits;
        params.summary[1] = all.tiles;
        params.summary[2] = all.rows;
        params.summary[3] = params.tokens * K - all.rows;
      }
    }
  }
  __syncthreads();
  if (is_writer) {
#pragma unroll 1
    for (int row = shared.rows + expert; row < params.tokens * K; row += THREADS) {
      params.rows[row] = -1;
      params.slots[row] = -1;
    }
  }
}

// Gives the rows of a token their places.
__device__ __forceinline__ void place(const RouteParams& params, const Shared& shared, const u32* masks, int expert, int token,
                                      int item) {
  const int lane = lane_index();
  if (token >= params.tokens || lane >= K) return;
  const int slot = token * K + lane;
  int row = -1;
  if (expert >= 0) {
    row = shared.before[expert] + __popc(masks[expert] & ((1u << item) - 1));
    params.rows[row] = token;
    params.slots[row] = slot;
  }
  params.positions[slot] = row;
}

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::THREADS, 1)
<{ symbol }>_few(const __grid_constant__ ws::RouteParams params) {
  using namespace ws;
  __shared__ Shared shared;
  __shared__ Masks masks;
  // Weights are made by the last warps while the first count rows of experts.
  const int expert = threadIdx.x, item = WARPS - 1 - warp_index(), rank = cluster_rank(), blocks = gridDim.x;
  const int token = item < params.share ? rank * params.share + item : params.tokens;
  masks.begin(rank, blocks);
  shared.begin(params);
  wait_for_dependencies();
  // Not before: what comes next may begin with what was there when this began (a quantiser that is settled).
  launch_dependents();
  __syncthreads();
  Score::Choice choice{-1};
  if (token < params.tokens) choice = Score::pick(params, token);
  const int chosen = local_of(choice.expert);
  mark(masks.of[rank], chosen, item);
  __syncthreads();
  masks.send(rank, blocks);
  // While they are on their way.
  if (token < params.tokens) Score::write(params, token, choice);
  Rows rows = {0, 0};
  if (expert < LOCAL_EXPERTS) {
    masks.wait(blocks);
    rows = masks.rows(expert, rank, blocks);
  }
  share_out(params, shared, rows.all, rows.before, rank == 0);
  place(params, shared, masks.of[rank], chosen, token, item);
}

extern "C" __global__ void __launch_bounds__(ws::THREADS, 1)
<{ symbol }>_count(const __grid_constant__ ws::RouteParams params) {
  using namespace ws;
  __shared__ u32 masks[LOCAL_EXPERTS];
  const int expert = threadIdx.x, item = warp_index();
  if (expert < LOCAL_EXPERTS) masks[expert] = 0;
  wait_for_dependencies();
  // Not before, or what comes next takes the room of what this waits for.
  launch_dependents();
  __syncthreads();
  int count = 0;
  for (int chunk = 0; chunk < params.share; chunk++) {
    const int token = (blockIdx.x * params.share + chunk) * CHUNK + item;
    if (token < params.tokens) mark(masks, local_of(Score::choose(params, token)), item);
    __syncthreads();
    if (expert < LOCAL_EXPERTS) {
      count += __popc(masks[expert]);
      masks[expert] = 0;
    }
    __syncthreads();
  }
  if (expert < LOCAL_EXPERTS) params.counts[blockIdx.x * LOCAL_EXPERTS + expert] = count;
}

extern "C" __global__ void __launch_bounds__(ws::THREADS, 1)
<{ symbol }>_place(const __grid_constant__ ws::RouteParams params) {
  using namespace ws;
  constexpr int WIDTH = EXPERT_WARPS * 32, READERS = THREADS / WIDTH;
  __shared__ Shared shared;
  __shared__ u32 masks[LOCAL_EXPERTS];
  __shared__ int total[LOCAL_EXPERTS];  // rows of all blocks
  const int thread = threadIdx.x, item = warp_index();
  if (thread < LOCAL_EXPERTS) {
    masks[thread] = 0;
    total[thread] = 0;
    shared.before[thread] = 0;
  }
  shared.begin(params);
  wait_for_dependencies();
  launch_dependents();
  __syncthreads();
  const int column = thread % WIDTH;
  if (thread / WIDTH < READERS && column < LOCAL_EXPERTS) {
    int all = 0, before = 0;
#pragma unroll 8
    for (int block = thread / WIDTH; block < static_cast<int>(gridDim.x); block += READERS) {
      const int count = params.counts[block * LOCAL_EXPERTS + column];
      all += count;
      if (block < static_cast<int>(blockIdx.x)) before += count;
    }
    // Integers: in any order the same.
    atomicAdd(&total[column], all);
    atomicAdd(&shared.before[column], before);
  }
  __syncthreads();
  const bool is_expert = thread < LOCAL_EXPERTS;
  const int count = is_expert ? total[thread] : 0, before = is_expert ? shared.before[thread] : 0;
  share_out(params, shared, count, before, blockIdx.x == 0);
  for (int chunk = 0; chunk < params.share; chunk++) {
    const int token = (blockIdx.x * params.share + chunk) * CHUNK + item;
    const int chosen = token < params.tokens ? local_of(Score::chosen(params, token)) : -1;
    mark(masks, chosen, item);
    __syncthreads();
    place(params, shared, masks, chosen, token, item);
    __syncthreads();
    if (is_expert) {
      shared.before[thread] += __popc(masks[thread]);
      masks[thread] = 0;
    }
    __syncthreads();
  }
}
