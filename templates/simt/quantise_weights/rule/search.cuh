// The scale of the least error, of those from half of to 1.75 times the plain one; the nearest to it where several are level.
#pragma once

namespace ws {

__device__ __forceinline__ Choice chosen(const X (&x)[2], const QuantiseWeightsParams& params, const Choice& plain) {
  const float value = scale_value(plain.scale);
  Choice best = plain;
  // 0, -1, +1, -2, … -8: a binade has eight scales, and no scale that is tried is further below or above.
#pragma unroll 1
  for (int nth = 0; nth < 16; nth++) {
    const u32 tried = plain.scale + ((nth & 1) ? -((nth + 1) / 2) : nth / 2);
    // 0 is no scale, and 0x7F is NaN.
    if (tried - 1 > 0x7D) continue;
    // Both products are exact.
    if (2.0f * scale_value(tried) < value || scale_value(tried) > 1.75f * value) continue;
    const float step = step_of(tried, params);
    const double error = error_of(x, step, step);
    if (error < best.error) best = {tried, step, error};
  }
  return best;
}

}  // namespace ws
