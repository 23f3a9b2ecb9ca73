// Tokens have an f32 factor for each 128 of K, [rows of A, ⌈K/128⌉]. They come to shared memory with the tokens of a stage, but
// behind the ring, where a stage need not be a multiple of 1024 bytes.
//
// A thread that multiplies has the sums of two tokens of every eight. The factors of those that it has of sixteen lie together:
//
//   token 16p + 8h + 2t + i  ─▶  place 16p + 4t + 2h + i            t = lane % 4; h, i < 2
#pragma once

namespace ws {

// No variables, as LIMIT.
enum : int {
  LINES_ALL = ceil_div(K, LINE_K),
  STAGE_LINES = TILE_K / LINE_K,
  LINE_FACTORS = ceil_div(TOKENS, 16) * 16,
  STAGE_FACTOR_BYTES = STAGE_LINES * LINE_FACTORS * sizeof(float)
};
static_assert(LINE_K == 128 && K_FACTORS_OFFSET % 16 == 0, "checked by Spec");
static_assert(K_FACTORS_OFFSET + STAGES * STAGE_FACTOR_BYTES <= SHARED_BYTES, "host and device agree");
static_assert(STAGES != STAGE_STEP, "checked by Spec: a stage is there until its factors have been used");

// Adds the sums of WIDTH tokens, each times its factor, to the totals of those from FIRST on; `factors` is where the thread has
// its first ones of the line. No instruction that adds to the sums is under way. A sum and its factor are rounded once.
template <int WIDTH, int FIRST>
__device__ __forceinline__ void promote_scaled_sums(u32 factors);

// Of the line of K whose sums are to be promoted.
class LineFactors {
  u32 at;

 public:
  // Before there are any sums: the first line's, as sums are zeros then.
  __device__ LineFactors(const Ring& ring, const Place& stage) { follow(ring, stage, 0); }

  __device__ void follow(const Ring& ring, const Place& stage, int line) {
    at = ring.base + K_FACTORS_OFFSET + ring.slot(stage) * STAGE_FACTOR_BYTES + line * (LINE_FACTORS * sizeof(float)) + threadIdx.x % 4 * 16;
  }

  template <int WIDTH, int FIRST = 0>
  __device__ void promote() const {
    promote_scaled_sums<WIDTH, FIRST>(at);
  }
};

// What THREADS threads bring of them: each has every THREADSth token.
template <int THREADS>
class FactorShare {
  static constexpr int ROUNDS = ceil_div(TOKENS, THREADS);
  static_assert(THREADS % 16 == 0 && ROUNDS <= 32, "a place of a thread in sixteen tokens, a bit for each of its tokens");
  // The rows' first. Rows that are not gathered lie at distances that are known: who loads has few registers.
  const float* from[COPIED ? ROUNDS : 1];
  u32 there = 0;  // a bit for each that is a row of A
  u32 to;         // of the first slot, the place of the thread's first token
  int rounds;     // of tokens that are multiplied

  __device__ const float* at(int round) const {
    return COPIED ? from[COPIED ? round : 0] : from[0] + static_cast<long long>(round) * THREADS * LINES_ALL;
  }

 public:
  __device__ FactorShare(const Params& launch, const Tile& tile, int thread) {
    const float* factors = reinterpret_cast<const float*>(launch.a_scales);
    const int place = thread / 16 * 16 + thread % 8 / 2 * 4 + thread % 16 / 8 * 2 + thread % 2;
    to = shared_base() + K_FACTORS_OFFSET + place * sizeof(float);
    rounds = ceil_div(width_of(tile).tokens - thread, THREADS);
    if constexpr (!COPIED) from[0] = factors + static_cast<long long>(tile.first_row + thread) * LINES_ALL;
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
      const int token = thread + round * THREADS;
      bool is_there = token < tile.rows;
      if constexpr (COPIED) {
        const MovedParams& params = static_cast<const MovedParams&>(launch);
        const int row = is_there ? params.rows[tile.first_row + token] : -1;
        is_there = u32(row) < u32(params.a_rows);
        from[round] = factors + static_cast<long long>(is_there ? row : 0) * LINES_ALL;
      }
      there |= u32(is_there) << round;
    }
  }

  // Asks for those of one stage: zeros where there is no row, or no K, of which nothing is read.
  __device__ void ask(const Place& place, int k_tile) const {
    const u32 slot = (place.full - shared_base() - BARRIERS_OFFSET) / 8;
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
      if (round >= rounds) break;
#pragma unroll
      for (int line = 0; line < STAGE_LINES; line++) {
        const int of_row = k_tile * STAGE_LINES + line;
        const bool is_any = (there >> round & 1) && of_row < LINES_ALL;
        cp_async_4(to + slot * STAGE_FACTOR_BYTES + (line * LINE_FACTORS + round * THREADS) * sizeof(float),
                   at(round) + of_row, is_any);
      }
    }
  }
};

}  // namespace ws
