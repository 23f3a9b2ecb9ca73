// The largest finite one of many magnitudes.
#pragma once

namespace ws {

// NaN and infinities are no numbers.
__device__ __forceinline__ bool is_number(float x) { return (__float_as_uint(x) & 0x7FFFFFFFu) < 0x7F800000u; }

// The largest finite magnitude of COUNT times eight values, as bits.
template <class Values, int COUNT>
__device__ __forceinline__ u32 largest_finite(const Values (&x)[COUNT]) {
  const float most = Values::most_of(x);
  if (is_number(most)) return __float_as_uint(most);
  u32 largest = 0;
#pragma unroll
  for (int i = 0; i < COUNT * 8; i++) {
    const float magnitude = fabsf(x[i / 8].at(i % 8));
    if (is_number(magnitude)) largest = max(largest, __float_as_uint(magnitude));
  }
  return largest;
}

// Of eight values.
template <class Values>
__device__ __forceinline__ u32 largest_finite(const Values& x) {
  const Values one[] = {x};
  return largest_finite(one);
}

}  // namespace ws
