// Weights are the softmax of the logits. It rises with the logit, so that the logit chooses; a group of experts counts as much
// as its largest logit.
#pragma once

#include "simt/route/select.cuh"

namespace ws {

struct Score : Selecting<Score> {
  static constexpr bool PAIRS = false;
  static constexpr bool BY_LOGIT = true;

  __device__ static float choice(const RouteParams&, int, float logit) { return settled(logit); }

  __device__ static u32 of_group(u32 first, u32) { return first; }

  // Of all experts, before any are excluded.
  float largest, sum;

  __device__ void see(const u32 (&keys)[LANE_EXPERTS]) {
    if constexpr (!RENORMALISE) {
      u32 best = 0;
#pragma unroll
      for (int i = 0; i < LANE_EXPERTS; i++) best = max(best, keys[i]);
      largest = value_of(redux_max(best));
      float part = 0.0f;
#pragma unroll
      for (int i = 0; i < LANE_EXPERTS; i++)
        if (keys[i] != 0) part = __fadd_rn(part, exp_of_minus(__fsub_rn(largest, value_of(keys[i]))));
      sum = sum_of_lanes(part);
    }
  }

  __device__ float weight(const RouteParams& params, float logit, bool is_slot) const {
    const float most = RENORMALISE ? __shfl_sync(~0u, logit, 0) : largest;
    const float e = is_slot ? exp_of_minus(__fsub_rn(most, logit)) : 0.0f;
    const float all = RENORMALISE ? sum_of_lanes(e) : sum;
    // A quotient of 0 takes the long way, all lanes with it.
    return __fmul_rn(__fdiv_rn(is_slot ? e : 1.0f, all), params.scale);
  }
};

}  // namespace ws
