// gelu(x) = x·Φ(x) = max(x, 0) − t·Q(t), t = |x|: Q(t) = Φ(−t) is at most 1/2 and small where t is large, so that nothing
// cancels. Q(t) = e^(−t²/2)·s·p(s), s = 1/(1 + 0.304·t); p is the polynomial of its degree with the least relative error,
// 2^-23.5, over all t at which Q(t) is a normal number of fp32.
#pragma once

namespace ws {

__device__ __forceinline__ float activate(float x) {
  constexpr float HALF_LOG2_E = 0.7213475204444817f, STEP = 0.304f;
  constexpr float P[] = {0.121234678f,   0.122170694f, 0.102422938f,  0.123551935f,
                         -0.0431264006f, 0.192184627f, -0.155296266f, 0.0368578173f};
  // t·Q(t) is 0 in fp32 from there on, and ∞·0 would be NaN.
  const float t = min_nan(fabsf(x), 16.f);
  const float s = rcp_approx(__fmaf_rn(STEP, t, 1.f));
  float p = P[7];
#pragma unroll
  for (int i = 6; i >= 0; i--) p = __fmaf_rn(p, s, P[i]);
  const float envelope = t * s * ex2_approx(-HALF_LOG2_E * t * t);
  // The one place where the compiler could fuse, so it is told to.
  return __fmaf_rn(-envelope, p, fmaxf(x, 0.f));
}

}  // namespace ws

#include "common/activation/linear.cuh"
