// <{ symbol }>
//
// The sum of a token's rows, each times its weight, in the order of its slots, then the shared expert's row (in some models times
// a gate), then the residual: f32, each step rounded once, and once more to the result. A thread takes eight elements of a
// token, 16 bytes of a row.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "common/output/<{ out }>.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "simt/rows/<{ rows }>.cuh"
#include "simt/addend/<{ out }>.cuh"

namespace ws {

inline constexpr int HIDDEN = <{ hidden }>;
inline constexpr int K = <{ k }>;
inline constexpr bool WEIGHTED = <{ weighted }>;
inline constexpr bool PLACED = <{ placed }>;
inline constexpr bool HAS_SHARED = <{ shared }>;
inline constexpr bool HAS_RESIDUAL = <{ residual }>;
inline constexpr int THREADS = 128;
inline constexpr int WIDTH = 8;
inline constexpr int TOKEN_BLOCKS = ceil_div(HIDDEN, THREADS * WIDTH);
// Rows that are under way at a time.
inline constexpr int AHEAD = K < 8 ? K : 8;

// The same order and sizes as `Params` on the host side (src/run/combine.rs).
struct CombineParams {
  const u8* rows;         // [tokens * K, HIDDEN]
  const float* weights;   // [tokens, K]
  const int* positions;   // [tokens, K]: the row of each slot; without, slot after slot
  const u8* shared;       // [tokens, HIDDEN]
  const u8* residual;     // [tokens, HIDDEN]
  u8* out;                // [tokens, HIDDEN]
  int tokens;
  const u8* x;            // [tokens, HIDDEN], as rows: what the shared expert's gate multiplies
  const u8* gate;         // [HIDDEN], f32
};

}  // namespace ws

#include "simt/shared_gate/<{ shared_gate }>.cuh"

extern "C" __global__ void __launch_bounds__(ws::THREADS) <{ symbol }>(const __grid_constant__ ws::CombineParams params) {
  using namespace ws;
  const int token = blockIdx.x / TOKEN_BLOCKS;
  const int column = (blockIdx.x % TOKEN_BLOCKS * THREADS + threadIdx.x) * WIDTH;
  launch_dependents();
  ask_for(params);
  wait_for_dependencies();
  const SharedGate gate(params, token);
  if (column >= HIDDEN) return;
  const long long element = static_cast<long long>(token) * HIDDEN + column;
  float sum[WIDTH] = {};
#pragma unroll
  for (int first = 0; first < K; first += AHEAD) {
    Rows rows[AHEAD];
    float weights[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      if (first + j >= K) break;
      const int slot = token * K + first + j;
      const int row = PLACED ? params.positions[slot] : slot;
      // A slot without a row adds nothing.
      const bool is_row = static_cast<u32>(row) < static_cast<u32>(params.tokens) * K;
      rows[j] = {};
      if (is_row) rows[j].load(params.rows, static_cast<long long>(row) * HIDDEN + column);
      weights[j] = !is_row ? 0.0f : WEIGHTED ? params.weights[slot] : 1.0f;
    }
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      if (first + j >= K) break;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) sum[i] = __fmaf_rn(weights[j], rows[j].at(i), sum[i]);
    }
  }
  if constexpr (HAS_SHARED) {
    Addend shared;
    shared.load(params.shared, element);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) sum[i] = gate.added(sum[i], shared.at(i));
  }
  if constexpr (HAS_RESIDUAL) {
    Addend residual;
    residual.load(params.residual, element);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) sum[i] = __fadd_rn(sum[i], residual.at(i));
  }
  Output::store(params.out, element, sum);
}
