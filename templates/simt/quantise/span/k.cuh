// Each 128 elements of a row have a factor: those of eight threads, which meet by themselves. The last of a row may be 64.
#pragma once

namespace ws {

inline constexpr u32 SPAN_THREADS = 8, SPANS = ceil_div(K, SPAN_THREADS * 16);

// The largest of the magnitudes of eight threads, as bits.
__device__ __forceinline__ u32 largest_of_span(u32 magnitude) {
#pragma unroll
  for (int distance = 1; distance < SPAN_THREADS; distance *= 2)
    magnitude = max(magnitude, __shfl_xor_sync(~0u, magnitude, distance));
  return magnitude;
}

__device__ __forceinline__ void quantise_row(const QuantiseE4m3Params& params, u32 row, u32 thread) {
  const long long first = static_cast<long long>(row) * K;
  for (u32 step = 0; step < STEPS; step++) {
    const u32 at = step * ROW_THREADS + thread, k = at * 16;
    X x[2];
    load_or_clear(x, params, first, k);
    const float factor = factor_of(largest_of_span(largest_finite(x)));
    if (k < K && at % SPAN_THREADS == 0) params.factors[static_cast<long long>(row) * SPANS + at / SPAN_THREADS] = factor;
    put(params, Rounding(factor), x, first + k, k < K);
  }
}

}  // namespace ws
