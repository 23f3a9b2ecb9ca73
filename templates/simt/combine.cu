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
// Rows that are under way at a time, and blocks on an SM: unless it is told that fewer registers gain nothing, ptxas keeps to 32, and
// asks for one row behind the other.
inline constexpr int AHEAD = K < 8 ? K : 8;
inline constexpr int RESIDENT = 6;

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

// Adds COUNT rows of a token, from the `first` on.
template <int COUNT>
__device__ __forceinline__ void add_rows(const CombineParams& params, int token, int first, int column, float (&sum)[WIDTH]) {
  const int slot = token * K + first;
  int places[COUNT];
  float weights[COUNT];
#pragma unroll
  for (int j = 0; j < COUNT; j++) {
    places[j] = PLACED ? params.positions[slot + j] : slot + j;
    weights[j] = WEIGHTED ? params.weights[slot + j] : 1.0f;
  }
  Rows rows[COUNT];
#pragma unroll
  for (int j = 0; j < COUNT; j++) {
    // A slot without a row adds nothing.
    rows[j] = {};
    if (static_cast<u32>(places[j]) < static_cast<u32>(params.tokens) * K)
      rows[j].load(params.rows, static_cast<long long>(places[j]) * HIDDEN + column);
    else
      weights[j] = 0.0f;
  }
#pragma unroll
  for (int j = 0; j < COUNT; j++)
#pragma unroll
    for (int i = 0; i < WIDTH; i++) sum[i] = __fmaf_rn(weights[j], rows[j].at(i), sum[i]);
}

}  // namespace ws

#include "simt/shared_gate/<{ shared_gate }>.cuh"

extern "C" __global__ void __launch_bounds__(ws::THREADS, ws::RESIDENT) <{ symbol }>(const __grid_constant__ ws::CombineParams params) {
  using namespace ws;
  const int token = blockIdx.x / TOKEN_BLOCKS;
  const int column = (blockIdx.x % TOKEN_BLOCKS * THREADS + threadIdx.x) * WIDTH;
  launch_dependents();
  wait_for_dependencies();
  const SharedGate gate(params, token);
  if (column >= HIDDEN) return;
  const long long element = static_cast<long long>(token) * HIDDEN + column;
  // All that no other number says where to find is asked for first.
  Addend shared, residual;
  if constexpr (HAS_SHARED) shared.load(params.shared, element);
  if constexpr (HAS_RESIDUAL) residual.load(params.residual, element);
  float sum[WIDTH] = {};
#pragma unroll 1
  for (int first = 0; first <= K - AHEAD; first += AHEAD) add_rows<AHEAD>(params, token, first, column, sum);
  if constexpr (K % AHEAD > 0) add_rows<K % AHEAD>(params, token, K - K % AHEAD, column, sum);
  if constexpr (HAS_SHARED) {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) sum[i] = gate.added(sum[i], shared.at(i));
  }
  if constexpr (HAS_RESIDUAL) {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) sum[i] = __fadd_rn(sum[i], residual.at(i));
  }
  Output::store(params.out, element, sum);
}
