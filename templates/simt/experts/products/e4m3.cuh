// Products of e4m3 values, in a launch of simt/experts.cu: each row of x and of h is rounded under a factor of its own, as a quantiser
// does, and weights as they are decoded. They are multiplied as f16 values, which hold them exactly.
#pragma once

#include "common/quantise/e4m3.cuh"

namespace ws {

// Of rows of x and of h: their largest magnitude, as bits, and what that makes.
struct Factors {
  u32 largest_of_x[TOKENS], largest_of_h[ROWS];
  E4m3Factor of_x[TOKENS], of_h[ROWS];
};

enum : int { FACTORS = LISTS_END, SHARED_BYTES = FACTORS + sizeof(Factors) };

__device__ __forceinline__ Factors& factors() { return *reinterpret_cast<Factors*>(shared_memory + FACTORS); }

// The magnitudes of every byte that a scale may have: warps that multiply few tokens decode all the time, and an entry for each costs fewer
// instructions than one for each mantissa.
struct Table {
  static constexpr int BYTES = 256 * 8;
  static_assert(DECODE_BYTES >= BYTES, "the host gives as much");

  __device__ static u32 entry(u32 byte) { return shared_base() + DECODE_OFFSET + byte * 8; }

  __device__ static void make() {
    for (int i = threadIdx.x; i < 256; i += THREADS) {
      const Decode::Magnitudes of = Decode::of_byte(static_cast<signed char>(i));
      st_shared_8(entry(i), of.low, of.high);
    }
  }

  __device__ __forceinline__ static Decode::Magnitudes of(u32 byte) {
    const uint2 words = ld_shared_8(entry(byte));
    return {words.x, words.y};
  }
};

// What a lane reads of a slice's block: 16 codes of each of two rows, under a scale each.
struct WholeRows {
  uint4 codes;
  Decode::Magnitudes low, high;

  __device__ __forceinline__ void load(u32 block, u32, int lane) {
    codes = ld_shared_16(block + lane * 16);
    low = Table::of(ld_shared_1(block + BLOCK_CODES + lane * 2));
    high = Table::of(ld_shared_1(block + BLOCK_CODES + lane * 2 + 1));
  }

  // Eight of each row along K: four in the first two words.
  __device__ __forceinline__ void decode(u32 (&a)[4], int step) const {
    Decode::codes(step == 0 ? codes.x : codes.y, low, a[0], a[2]);
    Decode::codes(step == 0 ? codes.z : codes.w, high, a[1], a[3]);
  }
};

// Before all meet first.
__device__ __forceinline__ void prepare_products() {
  Table::make();
  for (int i = threadIdx.x; i < TOKENS; i += THREADS) factors().largest_of_x[i] = 0;
  for (int i = threadIdx.x; i < ROWS; i += THREADS) factors().largest_of_h[i] = 0;
}

// Where a column of a row lies, in elements, in the order in which lanes take them: [block of 64][half of 16][c][8].
__device__ __forceinline__ int fragment_place(int column) {
  const int block = column / 64, c = column % 64 / 16, inside = column % 16;
  return block * 64 + inside / 8 * 32 + c * 8 + column % 8;
}

// A row's largest magnitude, of eight lanes' pieces of it.
__device__ __forceinline__ void note_largest(u32& to, u32 largest, bool is_inside) {
#pragma unroll
  for (int distance = 4; distance > 0; distance /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
  if (is_inside && lane_index() % 8 == 0) atomicMax(&to, largest);
}

// Eight values, rounded, as f16.
__device__ __forceinline__ uint4 rounded_piece(const Addend& x, const E4m3Factor& factor) {
  u32 words[2];
  if (factor.is_quick) {
#pragma unroll
    for (int i = 0; i < 2; i++) words[i] = factor.four(x, i * 4);
  } else {
#pragma unroll
    for (int i = 0; i < 2; i++)
      words[i] = factor.one(x.at(4 * i)) | factor.one(x.at(4 * i + 1)) << 8 | factor.one(x.at(4 * i + 2)) << 16 |
                 factor.one(x.at(4 * i + 3)) << 24;
  }
  return make_uint4(cvt_f16x2_e4m3x2<0>(words[0]), cvt_f16x2_e4m3x2<1>(words[0]), cvt_f16x2_e4m3x2<0>(words[1]),
                    cvt_f16x2_e4m3x2<1>(words[1]));
}

__device__ __forceinline__ void look_at_x(const uint4 (&x)[X_PIECES], int tokens) {
#pragma unroll
  for (int nth = 0; nth < X_PIECES; nth++) {
    const int token = (threadIdx.x + nth * THREADS) / 8 / UP_BLOCKS;
    const bool is_inside = token < tokens;
    note_largest(factors().largest_of_x[is_inside ? token : 0], is_inside ? largest_finite(Addend{x[nth]}) : 0, is_inside);
  }
}

// Once all have met behind that. Ends with another meeting.
__device__ __forceinline__ void finish_x(const uint4 (&x)[X_PIECES], int tokens) {
#pragma unroll
  for (int nth = 0; nth < X_PIECES; nth++) {
    const int i = threadIdx.x + nth * THREADS, piece = i % 8, block = i / 8 % UP_BLOCKS, token = i / 8 / UP_BLOCKS;
    if (token >= tokens) break;
    const E4m3Factor factor(factor_of(factors().largest_of_x[token]));
    if (i % (8 * UP_BLOCKS) == 0) factors().of_x[token] = factor;
    const uint4 words = rounded_piece(Addend{x[nth]}, factor);
    st_shared_16(shared_base() + BODY + block * 1024 + piece % 2 * 512 + token * 64 + piece / 2 * 16, words.x, words.y, words.z,
                 words.w);
  }
  __syncthreads();
}

// All rows of h, in their places. Begins and ends with all together.
__device__ __forceinline__ void round_h(int tokens) {
  constexpr int PIECES = INTERMEDIATE / 8;
  const int all = tokens * K * PIECES;
  const u32 h = shared_base() + BODY;
#pragma unroll 1
  for (int first = 0; first < all; first += THREADS) {
    const int i = first + threadIdx.x, row = i / PIECES;
    const bool is_inside = i < all;
    u32 largest = 0;
    if (is_inside) largest = largest_finite(Addend{ld_shared_16(h + row * H_STRIDE + i % PIECES * 16)});
    note_largest(factors().largest_of_h[is_inside ? row : 0], largest, is_inside);
  }
  __syncthreads();
  for (int row = threadIdx.x; row < tokens * K; row += THREADS)
    factors().of_h[row] = E4m3Factor(factor_of(factors().largest_of_h[row]));
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < all; i += THREADS) {
    const u32 at = h + i / PIECES * H_STRIDE + i % PIECES * 16;
    const uint4 words = rounded_piece(Addend{ld_shared_16(at)}, factors().of_h[i / PIECES]);
    st_shared_16(at, words.x, words.y, words.z, words.w);
  }
  __syncthreads();
}

// Products of a slice's block, whose tokens are at `b`; two sums in turn, as the next of one waits for the last.
__device__ __forceinline__ void multiply(float (&sums)[2][4], const WholeRows& rows, const uint4 (&b)[2]) {
#pragma unroll
  for (int step = 0; step < 2; step++) {
    u32 a[4];
    rows.decode(a, step);
#pragma unroll
    for (int four = 0; four < 2; four++) {
      const u32 low = a[2 * four], high = a[2 * four + 1];
      Compute::mma(sums[four], cvt_f16x2_e4m3x2<0>(low), cvt_f16x2_e4m3x2<0>(high), cvt_f16x2_e4m3x2<1>(low),
                   cvt_f16x2_e4m3x2<1>(high), four == 0 ? b[step].x : b[step].z, four == 0 ? b[step].y : b[step].w);
    }
  }
}

// A power of two for each row of the weights of a product, f32 [experts, products, N] behind their blocks.
__device__ __forceinline__ const float* up_units_of(const ExpertsParams& params, int expert, int column) {
  constexpr u64 BLOCKS_BYTES = u64(LOCAL_EXPERTS) * UP_TILES * UP_BLOCKS * BLOCK_BYTES;
  return reinterpret_cast<const float*>(params.up + BLOCKS_BYTES) + (static_cast<u64>(expert) * 2 * INTERMEDIATE + column);
}

__device__ __forceinline__ const float* down_units_of(const ExpertsParams& params, int expert, int column) {
  constexpr u64 BLOCKS_BYTES = u64(LOCAL_EXPERTS) * DOWN_TILES * DOWN_BLOCKS * BLOCK_BYTES;
  return reinterpret_cast<const float*>(params.down + BLOCKS_BYTES) + (static_cast<u64>(expert) * HIDDEN + column);
}

// Into the L2 cache.
__device__ __forceinline__ void ask_for_up_units(const ExpertsParams& params, int expert, int column) {
  if (lane_index() < 2) prefetch_line(up_units_of(params, expert, column) + lane_index() * INTERMEDIATE);
}
__device__ __forceinline__ void ask_for_down_units(const ExpertsParams& params, int expert, int column) {
  if (lane_index() == 0) prefetch_line(down_units_of(params, expert, column));
}

// What makes true sums of those of e4m3 values, for two columns of a token. Never contracted, as in every kernel (wgmma/unit/e4m3.cuh).
struct UpUnits {
  float2 gate, up;
  float token;

  __device__ UpUnits(const ExpertsParams& params, int expert, int column, int token)
      : gate(*reinterpret_cast<const float2*>(up_units_of(params, expert, column))),
        up(*reinterpret_cast<const float2*>(up_units_of(params, expert, column) + INTERMEDIATE)),
        token(factors().of_x[token].factor) {}

  __device__ __forceinline__ float of_gate(float sum, int j) const { return __fmul_rn(__fmul_rn(sum, j == 0 ? gate.x : gate.y), token); }
  __device__ __forceinline__ float of_up(float sum, int j) const { return __fmul_rn(__fmul_rn(sum, j == 0 ? up.x : up.y), token); }
};

// For a lane's two columns, of which the second is eight behind, and two tokens.
struct DownUnits {
  float columns[2], tokens[2];

  __device__ DownUnits(const ExpertsParams& params, const Lists& lists, int hit, int column) {
    const float* const of_columns = down_units_of(params, lists.hit[hit].expert, column);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = lists.row[hit][lane_index() % 4 * 2 + i];
      columns[i] = of_columns[8 * i];
      tokens[i] = row >= 0 ? factors().of_h[row].factor : 0.f;
    }
  }

  __device__ __forceinline__ float of(float sum, int column, int token) const {
    return __fmul_rn(__fmul_rn(sum, columns[column]), tokens[token]);
  }
};

}  // namespace ws
