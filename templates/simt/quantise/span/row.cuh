// A row has a factor. A warp needs no block to meet for a short one; elements are kept, if they are not many, until it is known.
#pragma once

namespace ws {

inline constexpr bool KEPT = STEPS <= 4;

// The largest of the magnitudes of all threads of a row, as bits. All of them have met when it returns.
__device__ __forceinline__ u32 largest_of_row(u32 magnitude) {
  const u32 of_warp = redux_max(magnitude);
  if constexpr (ROW_THREADS == 32) return of_warp;
  __shared__ u32 of_warps[THREADS / 32];
  __syncthreads();  // the row before has been read
  if (lane_index() == 0) of_warps[warp_index()] = of_warp;
  __syncthreads();
  return redux_max(of_warps[lane_index() % (THREADS / 32)]);
}

__device__ __forceinline__ void quantise_row(const QuantiseE4m3Params& params, u32 row, u32 thread) {
  const long long first = static_cast<long long>(row) * K;
  X kept[KEPT ? STEPS * 2 : 2];
  u32 largest = 0;
  if constexpr (KEPT) {
    // All are asked for before one is looked at.
#pragma unroll
    for (u32 step = 0; step < STEPS; step++) load_or_clear(kept + step * 2, params, first, (step * ROW_THREADS + thread) * 16);
    largest = largest_finite(kept);
  } else {
    for (u32 step = 0; step < STEPS; step++) {
      load_or_clear(kept, params, first, (step * ROW_THREADS + thread) * 16);
      largest = max(largest, largest_finite(kept));
    }
  }
  const float factor = factor_of(largest_of_row(largest));
  if (thread == 0) params.factors[row] = factor;
  const Rounding rounding(factor);
#pragma unroll(KEPT ? STEPS : 1)
  for (u32 step = 0; step < STEPS; step++) {
    const u32 k = (step * ROW_THREADS + thread) * 16;
    X* x = kept + (KEPT ? step * 2 : 0);
    if (!KEPT && k < K) load(x, params, first + k);
    put(params, rounding, x, first + k, k < K);
  }
}

}  // namespace ws
