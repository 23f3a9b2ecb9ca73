// <{ symbol }>
//
// A whole mixture of experts, for few tokens, as one launch. Weights are what takes the time, so they never stop coming: each
// warp copies its next blocks into a ring of its own in shared memory while it multiplies, and those of the second product while
// the first ends.
//
//   route    in every block, which saves a launch
//   slice    16 rows of prepared weights (src/format/prepared.rs) over all of K: the A operand of mma, whose columns are tokens
//   up       slices of all experts that have tokens; warps share K; h = act(gate) · up goes to global memory, in the order in which
//            a lane of mma takes it
//   down     slices of the result's columns; warps share K of all experts, whose sums are weighted as they come: no block needs
//            another's
//
// Blocks take numbers as they begin, and the work goes with the number. One that waits for h takes what no block has taken, so
// that a launch ends however few of its blocks the device runs at a time.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "common/words.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"

namespace ws {

// What weights are looked up in, if they are.
enum : int { DECODE_OFFSET = 0, DECODE_BYTES = <{ decode_bytes }> };

}  // namespace ws

#include "common/compute/<{ compute }>.cuh"
#include "common/output/<{ format }>.cuh"
#include "simt/addend/<{ format }>.cuh"
#include "wgmma/decode/<{ decode }>.cuh"
#include "wgmma/weights/<{ weights }>.cuh"

namespace ws {

inline constexpr int HIDDEN = <{ hidden }>;
inline constexpr int INTERMEDIATE = <{ intermediate }>;  // with padding
inline constexpr int EXPERTS = <{ experts }>;
inline constexpr int FIRST_LOCAL = <{ first_local }>;
inline constexpr int LOCAL_EXPERTS = <{ local_experts }>;  // that there are weights of; they are counted from the first
inline constexpr int K = <{ k }>;
inline constexpr int EXPERT_GROUPS = <{ groups }>;
inline constexpr int KEPT_GROUPS = <{ kept_groups }>;
inline constexpr bool RENORMALISE = <{ renormalise }>;
inline constexpr bool ARE_GIVEN = <{ given }>;  // ids and weights
inline constexpr int TOKENS = <{ tokens }>;  // at most
inline constexpr bool HAS_SHARED = <{ shared }>;
inline constexpr bool HAS_RESIDUAL = <{ residual }>;
inline constexpr int WARPS = <{ warps }>;
inline constexpr int THREADS = 32 * WARPS;
inline constexpr int ROWS = TOKENS * K;
inline constexpr int BLOCKS = <{ blocks }>;  // of a launch, at most
enum : int { LIMIT = <{ limit }> };            // of activations that have one

// A block of weights is 64 rows × 64 of K; a slice has a quarter of it.
inline constexpr int BLOCK_BYTES = sizeof(WeightBlock);
inline constexpr int K_BLOCKS = 1;
inline constexpr int BLOCK_CODES = sizeof(WeightBlock::codes) / 4;
inline constexpr int SLICE_SCALES = sizeof(WeightBlock::scales) / 4;

// What a warp takes at a time: blocks of a slice that are neighbours along K. Each lane copies four bytes of their scales, where these
// are fewer the same ones to another place: a branch around a copy costs more.
inline constexpr int STEP_BLOCKS = <{ step_blocks }>;
inline constexpr int SCALES_ROOM = 32 * 4 / STEP_BLOCKS;
inline constexpr int SLICE_BYTES = BLOCK_CODES + SCALES_ROOM;    // in the ring
inline constexpr int STEP_BYTES = STEP_BLOCKS * SLICE_BYTES;
static_assert(SCALES_ROOM % SLICE_SCALES == 0, "whole ones again");

inline constexpr int UP_BLOCKS = HIDDEN / 64;                    // along K
inline constexpr int UP_SLICES = INTERMEDIATE / 8;               // of an expert: eight columns of the gate and of up
inline constexpr int UP_TILES = ceil_div(INTERMEDIATE, 32);
inline constexpr int UP_WARPS = <{ up_warps }>;                  // that share K of a slice
inline constexpr int SLICE_STEPS = UP_BLOCKS / STEP_BLOCKS;      // of a slice
inline constexpr int UP_STEPS = ceil_div(SLICE_STEPS, UP_WARPS); // of these that a warp has
inline constexpr int UP_GROUPS = WARPS / UP_WARPS;               // slices at a time, which are neighbours
inline constexpr int DOWN_BLOCKS = INTERMEDIATE / 64;
inline constexpr int DOWN_STEPS = DOWN_BLOCKS / STEP_BLOCKS;     // of a slice of an expert
inline constexpr int DOWN_SLICES = HIDDEN / 16;
inline constexpr int DOWN_TILES = ceil_div(HIDDEN, 64);

static_assert(SLICE_STEPS * STEP_BLOCKS == UP_BLOCKS && DOWN_STEPS * STEP_BLOCKS == DOWN_BLOCKS, "whole steps");

// Steps that a warp has under way: those of whole slices of up.
inline constexpr int SLICES_AHEAD = ceil_div(<{ ahead }>, UP_STEPS);
inline constexpr int AHEAD = SLICES_AHEAD * UP_STEPS;

// Slices × tokens whose sums are added up at a time.
inline constexpr int BATCH_ROWS = <{ batch }>;
static_assert(TOKENS <= 8 && BATCH_ROWS >= TOKENS * UP_GROUPS, "columns of mma; at least a slice of each group");
static_assert(WARPS % UP_WARPS == 0 && UP_SLICES % UP_GROUPS == 0, "whole groups");
static_assert(WARPS > TOKENS, "a warp chooses nothing, and takes the block's number");

// A row of h in shared memory; the next begins 16 banks further.
inline constexpr int H_STRIDE = INTERMEDIATE * 2 + 64;

// The same order and sizes as `Params` on the host side (src/run/experts.rs).
struct ExpertsParams {
  const u8* x;           // [tokens, HIDDEN]
  const u8* up;          // prepared, gate and up
  const u8* down;        // prepared
  const float* alpha[3];  // of gate, up, down: [LOCAL_EXPERTS] by `alpha_step`; without, `alpha_value`
  const u8* logits;      // [tokens, EXPERTS]
  const float* bias;     // [EXPERTS]
  const int* ids;        // [tokens, K], and their weights: where they are given
  const float* weights;
  int* state;            // blocks that have begun, shares of up done and blocks past that: 0 before and after; the half of cells
  u8* h;                 // [tokens · K, INTERMEDIATE]
  u8* cells;             // two times [ROWS, INTERMEDIATE], used instead of h, 0 but for what the last launch wrote; or none
  const u8* shared;      // [tokens, HIDDEN]
  const u8* residual;    // [tokens, HIDDEN]
  u8* out;               // [tokens, HIDDEN]
  float alpha_value[3];
  int alpha_step[3];
  float scale;           // of weights
  int tokens;
};

// What chooses takes and leaves (simt/route.cu).
struct RouteParams {
  const u8* logits;
  const float* bias;
  int* ids;
  float* weights;
  float scale;
};

}  // namespace ws

#include "simt/exact.cuh"
#include "simt/logits/<{ logits }>.cuh"
#include "simt/route/score/<{ score }>.cuh"

#include "common/activation/<{ activation }>.cuh"

namespace ws {

extern "C" {
extern __shared__ __align__(1024) u8 shared_memory[];
}

__device__ __forceinline__ u32 shared_base() { return static_cast<u32>(__cvta_generic_to_shared(shared_memory)); }

inline constexpr int WORDS = ceil_div(LOCAL_EXPERTS, 32);

// An expert that has tokens, and these, a bit each.
struct Hit {
  unsigned short expert, tokens;
};
static_assert(LOCAL_EXPERTS <= 1 << 16, "a half of a word");

struct Lists {
  int ids[ROWS];               // of slots; local ones, or -1
  float weights[ROWS];
  u32 bits[WORDS];             // experts that have tokens
  alignas(4) Hit hit[ROWS];    // these, ascending
  float alpha[3][LOCAL_EXPERTS];
  alignas(16) short row[ROWS][8];  // of one of these and a token: the row of h, which is the slot, or -1
  float weight[ROWS][8];
  int ticket, half, stolen;
  short taken[BLOCKS];         // numbers of this block
};

enum : int {
  RING_BYTES = WARPS * AHEAD * STEP_BYTES,
  X_BYTES = UP_BLOCKS * 1024,
  BATCH_BYTES = BATCH_ROWS * UP_WARPS * 64,  // [slice][warp][token][16 rows]
  H_BYTES = ROWS * H_STRIDE,
  BODY_BYTES = X_BYTES + 2 * BATCH_BYTES > H_BYTES ? X_BYTES + 2 * BATCH_BYTES : H_BYTES,
  OUT_BYTES = TOKENS * WARPS * 64,
  RING = DECODE_OFFSET + DECODE_BYTES,
  BODY = RING + RING_BYTES,
  OUT = BODY + BODY_BYTES,
  LISTS = OUT + 2 * OUT_BYTES,
  LISTS_END = LISTS + sizeof(Lists),
};

// Eight elements of x a piece.
inline constexpr int X_PIECES = ceil_div(TOKENS * UP_BLOCKS * 8, THREADS);  // of a thread

}  // namespace ws

#include "simt/experts/products/<{ products }>.cuh"
#include "simt/experts/exchange.cuh"

static_assert(ws::SHARED_BYTES <= <{ shared_bytes }>, "the host gives as much");

namespace ws {

// What a block has to do with a number that it has taken: every `numbers`th slice, of up every `numbers`th of neighbours.
struct Share {
  int number, numbers, hits;
};

// Where a lane finds a step of a slice.
struct Place {
  const u8* codes;
  int scales;  // from there

  __device__ __forceinline__ void set(const u8* product, u32 tile, int blocks, int quarter, int block) {
    const int at = lane_index() * 4;
    codes = product + (static_cast<u64>(tile) * blocks + block) * BLOCK_BYTES + quarter * BLOCK_CODES + lane_index() * 16;
    scales = 2048 + quarter * (SLICE_SCALES - BLOCK_CODES) + at / SCALES_ROOM * BLOCK_BYTES + at % SLICE_SCALES - lane_index() * 16;
  }
};

// What a lane has of a step.
struct Rows {
  WholeRows of[STEP_BLOCKS];
};

// And of the tokens that it is multiplied with.
struct Columns {
  uint4 of[STEP_BLOCKS][2];
};

// Of blocks that are so many bytes apart, in two halves each.
template <int BYTES>
__device__ __forceinline__ Columns load_columns(u32 from) {
  Columns columns;
#pragma unroll
  for (int block = 0; block < STEP_BLOCKS; block++)
#pragma unroll
    for (int half = 0; half < 2; half++) columns.of[block][half] = ld_shared_16(from + block * BYTES + half * (BYTES / 2));
  return columns;
}

__device__ __forceinline__ void multiply_step(float (&sums)[2][4], const Rows& rows, const Columns& columns) {
#pragma unroll
  for (int block = 0; block < STEP_BLOCKS; block++) multiply(sums, rows.of[block], columns.of[block]);
}

// A warp's ring. Each place of it is asked for again as soon as it is read.
struct Ring {
  u32 begin, at;

  __device__ void reset(u32 ring) {
    cp_async_wait_group<0>();
    __syncwarp();
    begin = at = ring;
  }
  __device__ __forceinline__ void ask(const u8* codes, int scales) {
    const int lane = lane_index(), of_scales = lane * 4 / SCALES_ROOM * SLICE_BYTES + lane * 4 % SCALES_ROOM;
#pragma unroll
    for (int block = 0; block < STEP_BLOCKS; block++)
      cp_async_16(at + block * SLICE_BYTES + lane * 16, codes + block * BLOCK_BYTES, true);
    cp_async_4(at + BLOCK_CODES + of_scales, codes + scales, true);
  }
  __device__ __forceinline__ void go_on() {
    cp_async_commit_group();
    at += STEP_BYTES;
    if (at == begin + AHEAD * STEP_BYTES) at = begin;
  }
  // The step whose turn it is, whatever it is of, to registers.
  __device__ __forceinline__ Rows take() const {
    cp_async_wait_group<AHEAD - 1>();
    __syncwarp();
    Rows rows;
#pragma unroll
    for (int block = 0; block < STEP_BLOCKS; block++) rows.of[block].load(at + block * SLICE_BYTES, 0, lane_index());
    return rows;
  }
};

// A warp's sums for a slice, [token][16 rows].
__device__ __forceinline__ void store_sums(u32 to, const float (&of)[4], int tokens) {
  to += lane_index() % 4 * 128 + lane_index() / 4 * 4;
#pragma unroll
  for (int j = 0; j < 2; j++)
    if (lane_index() % 4 * 2 + j < tokens) {
      st_shared_4(to + j * 64, __float_as_uint(of[j]));
      st_shared_4(to + j * 64 + 32, __float_as_uint(of[2 + j]));
    }
}

// What COUNT warps have for two rows of a slice, in their order.
template <int COUNT>
__device__ __forceinline__ void load_sums(float (&to)[2], u32 from, int of_warp) {
  to[0] = to[1] = 0.f;
#pragma unroll
  for (int warp = 0; warp < COUNT; warp++) {
    const uint2 two = ld_shared_8(from + warp * of_warp);
    to[0] += __uint_as_float(two.x);
    to[1] += __uint_as_float(two.y);
  }
}

// What of down is asked for next: of each slice a warp has a run of the steps of all experts, one behind the other.
struct Down {
  Place place;
  int slice, hit, steps, left;  // steps of this expert, and of the run behind them

  __device__ void begin(const ExpertsParams& params, const Lists& lists, const Share& share, int at) {
    slice = at;
    steps = 0;
    const int all = share.hits * DOWN_STEPS, run = ceil_div(all, WARPS), first = warp_index() * run;
    left = slice < DOWN_SLICES ? min(run, all - first) : 0;
    if (left > 0) go_to(params, lists, first / DOWN_STEPS, first % DOWN_STEPS);
  }
  __device__ void go_to(const ExpertsParams& params, const Lists& lists, int hit_, int step) {
    hit = hit_;
    place.set(params.down, lists.hit[hit].expert * DOWN_TILES + slice / 4, DOWN_BLOCKS, slice % 4, step * STEP_BLOCKS);
    ask_for_down_units(params, lists.hit[hit].expert, slice * 16);
    steps = min(DOWN_STEPS - step, left);
    left -= steps;
  }
  __device__ __forceinline__ void ask(const ExpertsParams& params, const Lists& lists, const Share& share, Ring& ring) {
    if (steps > 0) {
      ring.ask(place.codes, place.scales);
      place.codes += STEP_BLOCKS * BLOCK_BYTES;
      if (--steps == 0) {
        if (left > 0)
          go_to(params, lists, hit + 1, 0);
        else
          begin(params, lists, share, slice + share.numbers);
      }
    }
    ring.go_on();
  }
};

// Steps of up's neighbours `neighbours`, or of down where there are none.
struct Up {
  Place place;
  bool is_there;

  __device__ void begin(const ExpertsParams& params, const Lists& lists, const Share& share, int neighbours) {
    is_there = neighbours < share.hits * (UP_SLICES / UP_GROUPS);
    if (!is_there) return;
    const int slice = neighbours * UP_GROUPS + warp_index() / UP_WARPS, hit = slice / UP_SLICES, at = slice % UP_SLICES;
    place.set(params.up, lists.hit[hit].expert * UP_TILES + at / 4, UP_BLOCKS, at % 4,
              warp_index() % UP_WARPS * (UP_STEPS * STEP_BLOCKS));
    ask_for_up_units(params, lists.hit[hit].expert, at * 8);
  }
  __device__ __forceinline__ void ask(const ExpertsParams& params, const Lists& lists, const Share& share, Ring& ring, Down& down,
                                      int step) {
    if (!is_there) return down.ask(params, lists, share, ring);
    if (SLICE_STEPS % UP_WARPS == 0 || warp_index() % UP_WARPS * UP_STEPS + step < SLICE_STEPS)
      ring.ask(place.codes + step * (STEP_BLOCKS * BLOCK_BYTES), place.scales);
    ring.go_on();
  }
};

// The sums of `count` slices to h. Few tokens have chosen an expert: lanes take those only, two of a slice at a time.
__device__ __forceinline__ void finish_up(const ExpertsParams& params, const Lists& lists, const Share& share,
                                          const Exchange& exchange, u32 sums, int first, int count) {
  const int tokens = params.tokens, are_several = tokens > 1;
  for (int i = threadIdx.x; i < count << (2 + are_several); i += THREADS) {
    const int pair = i % 4, nth = i >> (2 + are_several);
    const int slice = (first + nth / UP_GROUPS * share.numbers) * UP_GROUPS + nth % UP_GROUPS;
    const int hit = slice / UP_SLICES, expert = lists.hit[hit].expert, column = slice % UP_SLICES * 8 + pair * 2;
    u32 left = lists.hit[hit].tokens;
    if (i / 4 & are_several) left &= left - 1;
    while (left) {
      const int token = __ffs(left) - 1, row = lists.row[hit][token];
      float gate[2], up[2];
      const u32 from = sums + nth * UP_WARPS * tokens * 64 + token * 64 + pair * 8;
      load_sums<UP_WARPS>(gate, from, tokens * 64);
      load_sums<UP_WARPS>(up, from + 32, tokens * 64);
      const UpUnits units(params, expert, column, token);
      float h[2];
#pragma unroll
      for (int j = 0; j < 2; j++)
        h[j] = activate(lists.alpha[0][expert] * units.of_gate(gate[j], j)) * linear(lists.alpha[1][expert] * units.of_up(up[j], j));
      const long long element = static_cast<long long>(row) * INTERMEDIATE + fragment_place(column);
      exchange.put(element, Output::round(h[0], h[1]));
      left &= left - 1;
      if (are_several) left &= left - 1;
    }
  }
}

__device__ __forceinline__ void do_up(const ExpertsParams& params, const Lists& lists, const Share& share,
                                      const Exchange& exchange, Ring& ring, Down& down, u32 x) {
  const int tokens = params.tokens, lane = lane_index(), all = share.hits * (UP_SLICES / UP_GROUPS);
  const int warp = warp_index() % UP_WARPS, group = warp_index() / UP_WARPS;
  // Columns of mma without a token are the last one's.
  const u32 of_lane = x + min(lane / 4, tokens - 1) * 64 + lane % 4 * 16;
  const int batch = BATCH_ROWS / UP_GROUPS / tokens;
  u32 sums_at = x + X_BYTES;
  int first = share.number, nth = 0;
#pragma unroll 1
  for (int neighbours = share.number; neighbours < all; neighbours += share.numbers) {
    Up next;
    next.begin(params, lists, share, neighbours + SLICES_AHEAD * share.numbers);
    float sums[2][4] = {};
#pragma unroll 4
    for (int step = 0; step < UP_STEPS; step++) {
      const int nth_of_slice = warp * UP_STEPS + step;
      const bool is_of_slice = SLICE_STEPS % UP_WARPS == 0 || nth_of_slice < SLICE_STEPS;
      const u32 from = of_lane + (is_of_slice ? nth_of_slice : 0) * (STEP_BLOCKS * 1024);
      const Rows rows = ring.take();
      const Columns columns = load_columns<1024>(from);
      __syncwarp();
      next.ask(params, lists, share, ring, down, step);
      if (is_of_slice) multiply_step(sums, rows, columns);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sums[0][i] += sums[1][i];
    store_sums(sums_at + ((nth * UP_GROUPS + group) * UP_WARPS + warp) * tokens * 64, sums[0], tokens);
    nth++;
    if (nth == batch || neighbours + share.numbers >= all) {
      __syncthreads();
      finish_up(params, lists, share, exchange, sums_at, first, nth * UP_GROUPS);
      first = neighbours + share.numbers;
      nth = 0;
      sums_at = sums_at == x + X_BYTES ? sums_at + BATCH_BYTES : x + X_BYTES;
    }
  }
}

__device__ __forceinline__ void do_down(const ExpertsParams& params, const Lists& lists, const Share& share, Ring& ring,
                                        Down& down, u32 h, u32 sums_at) {
  const int tokens = params.tokens, lane = lane_index(), warp = warp_index();
  const int all = share.hits * DOWN_STEPS, run = ceil_div(all, WARPS);
  u32 out = sums_at;
#pragma unroll 1
  for (int slice = share.number; slice < DOWN_SLICES; slice += share.numbers) {
    int at = warp * run;
    const int end = min(at + run, all);
    const bool ends = threadIdx.x < tokens * 8;
    const int pair = threadIdx.x % 8, token = threadIdx.x / 8;
    const long long element = static_cast<long long>(token) * HIDDEN + slice * 16 + pair * 2;
    float shared[2] = {}, residual[2] = {};
#pragma unroll
    for (int j = 0; j < 2; j++) {
      if (HAS_SHARED && ends) shared[j] = Addend::one(params.shared, element + j);
      if (HAS_RESIDUAL && ends) residual[j] = Addend::one(params.residual, element + j);
    }
    float totals[4] = {};
#pragma unroll 1
    for (int hit = at / DOWN_STEPS; at < end; hit++) {
      const int row = lists.row[hit][lane / 4], until = min(end, (hit + 1) * DOWN_STEPS);
      // A token that has not chosen the expert has another's row, whose sums nobody adds.
      u32 from = h + max(row, 0) * H_STRIDE + (at - hit * DOWN_STEPS) * (STEP_BLOCKS * 128) + lane % 4 * 16;
      const DownUnits units(params, lists, hit, slice * 16 + lane / 4);
      float sums[2][4] = {};
#pragma unroll 1
      for (; at < until; at++, from += STEP_BLOCKS * 128) {
        const Rows rows = ring.take();
        const Columns columns = load_columns<128>(from);
        __syncwarp();
        down.ask(params, lists, share, ring);
        multiply_step(sums, rows, columns);
      }
      const float alpha = lists.alpha[2][lists.hit[hit].expert];
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (lists.row[hit][lane % 4 * 2 + i % 2] >= 0)
          totals[i] += lists.weight[hit][lane % 4 * 2 + i % 2] * (alpha * units.of(sums[0][i] + sums[1][i], i / 2, i % 2));
    }
    store_sums(out + warp * tokens * 64, totals, tokens);
    __syncthreads();
    if (ends) {
      float sum[2];
      load_sums<WARPS>(sum, out + token * 64 + pair * 8, tokens * 64);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        if constexpr (HAS_SHARED) sum[j] += shared[j];
        if constexpr (HAS_RESIDUAL) sum[j] += residual[j];
      }
      *reinterpret_cast<u32*>(params.out + element * 2) = Output::round(sum[0], sum[1]);
    }
    out = out == sums_at ? sums_at + OUT_BYTES : sums_at;
  }
}

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::THREADS, 1) <{ symbol }>(const __grid_constant__ ws::ExpertsParams params) {
  using namespace ws;
  Lists& lists = *reinterpret_cast<Lists*>(shared_memory + LISTS);
  const u32 base = shared_base();
  const int tokens = params.tokens, thread = threadIdx.x, lane = lane_index(), warp = warp_index();
  launch_dependents();
  prepare_products();
  for (int i = thread; i < WORDS; i += THREADS) lists.bits[i] = 0;
  for (int i = thread; i < ROWS; i += THREADS) {
    lists.hit[i] = {};
    *reinterpret_cast<uint4*>(lists.row[i]) = make_uint4(~0u, ~0u, ~0u, ~0u);
#pragma unroll
    for (int j = 0; j < 8; j++) lists.weight[i][j] = 0.f;
  }
  __syncthreads();
  wait_for_dependencies();
  // All on their way at once: x, which becomes what lanes take, what chooses, and by who does not choose the number and factors.
  uint4 x[X_PIECES];
#pragma unroll
  for (int nth = 0; nth < X_PIECES; nth++)
    if (const int i = thread + nth * THREADS; i < tokens * UP_BLOCKS * 8) x[nth] = reinterpret_cast<const uint4*>(params.x)[i];
  // A warp a token, a lane a slot.
  RouteParams route{params.logits, params.bias, lists.ids, lists.weights, params.scale};
  if (ARE_GIVEN) route.ids = const_cast<int*>(params.ids);
  const bool chooses = warp < tokens;
  Score::Choice choice{-1};
  int local = -1;
  if (chooses) {
    choice = Score::pick(route, warp);
    if (lane < K) local = choice.expert - FIRST_LOCAL;
    if (static_cast<u32>(local) >= static_cast<u32>(LOCAL_EXPERTS)) local = -1;
    if (local >= 0) atomicOr(&lists.bits[local / 32], 1u << local % 32);
  } else {
    const bool counts = thread == THREADS - 1;
    const int ticket = counts ? atomicAdd(params.state, 1) : 0, half = counts ? ld_relaxed_gpu(params.state + 2) : 0;
    for (int i = thread - tokens * 32; i < LOCAL_EXPERTS; i += THREADS - tokens * 32)
#pragma unroll
      for (int j = 0; j < 3; j++)
        lists.alpha[j][i] = params.alpha[j] ? params.alpha[j][i * params.alpha_step[j]] : params.alpha_value[j];
    if (counts) lists.ticket = ticket, lists.half = half;
  }
  look_at_x(x, tokens);
  __syncthreads();
  // Which of those that have tokens an expert is: how many are before it.
  int hits = 0;
#pragma unroll 4
  for (int word = 0; word < WORDS; word++) hits += __popc(lists.bits[word]);
  int hit = 0;
  if (local >= 0) {
    hit = __popc(lists.bits[local / 32] & ((1u << local % 32) - 1));
#pragma unroll 4
    for (int word = 0; word < local / 32; word++) hit += __popc(lists.bits[word]);
    atomicOr(reinterpret_cast<u32*>(&lists.hit[hit]), u32(local) | 1u << (16 + warp));
    lists.row[hit][warp] = warp * K + lane;
  }
  __syncthreads();
  Share share{lists.ticket, static_cast<int>(gridDim.x), hits};
  const u32 body = base + BODY;
  Ring ring;
  Down down;
  const auto begin_up = [&] {
    ring.reset(base + RING + warp * (AHEAD * STEP_BYTES));
    // Up is asked for first; where that is less than what goes ahead, down goes on.
    const bool is_short = share.number + (SLICES_AHEAD - 1) * share.numbers >= share.hits * (UP_SLICES / UP_GROUPS);
    if (is_short) down.begin(params, lists, share, share.number);
    for (int nth = 0; nth < SLICES_AHEAD; nth++) {
      Up up;
      up.begin(params, lists, share, share.number + nth * share.numbers);
      for (int step = 0; step < UP_STEPS; step++) up.ask(params, lists, share, ring, down, step);
    }
    if (!is_short) down.begin(params, lists, share, share.number);
  };
  // Down is the first to take weights of rows.
  const auto weigh = [&] {
    if (!chooses) return;
    Score::write(route, warp, choice);
    __syncwarp();
    if (lane < K) lists.ids[warp * K + lane] = local;
    if (local >= 0) lists.weight[hit][warp] = (ARE_GIVEN ? params.weights : lists.weights)[warp * K + lane];
  };
  const Exchange exchange(params.cells, params.h, lists.half);
  // Nothing waits for its answer but the last instruction.
  int counted = 0;
  const auto is_past = [&] {
    if (thread == 0) counted = atomicAdd(params.state + 1, IS_PAST);
  };
  if (share.number < share.numbers) {
    begin_up();
    weigh();
    finish_x(x, tokens);
    int own = 0;
    for (;;) {
      exchange.clear(share.number, share.numbers);
      do_up(params, lists, share, exchange, ring, down, body);
      if (thread == 0) lists.taken[own] = share.number;
      own++;
      __syncthreads();
      if (thread == 0) lists.stolen = wait_for_others(params, exchange, share.numbers);
      __syncthreads();
      const int more = lists.stolen;
      if (more < 0) break;
      share.number = more;
      begin_up();
    }
    is_past();
    load_h(params, lists, exchange, body);
    __syncthreads();
    round_h(tokens);
    for (bool is_first = true;; is_first = false) {
      if (!is_first) {
        // Begun and left when a number was added.
        share.number = lists.taken[own - 1];
        ring.reset(ring.begin);
        down.begin(params, lists, share, share.number);
        for (int i = 0; i < AHEAD; i++) down.ask(params, lists, share, ring);
      }
      do_down(params, lists, share, ring, down, body, base + OUT);
      if (--own == 0) break;
      __syncthreads();
    }
  } else {
    is_past();
  }
  if (thread == 0 && counted / IS_PAST == static_cast<int>(gridDim.x) - 1) {
    params.state[0] = params.state[1] = 0;
    if (exchange.next) params.state[2] = 1 - lists.half;
  }
}
