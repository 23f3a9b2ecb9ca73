// Weights are the sigmoid of the logit. It rises with the logit, so that the logit chooses.
#pragma once

#include "simt/route/select.cuh"
#include "simt/route/sigmoid_weight.cuh"

namespace ws {

struct Score : Selecting<Score>, SigmoidWeight {
  static constexpr bool PAIRS = false;
  static constexpr bool BY_LOGIT = true;

  __device__ static float choice(const RouteParams&, int, float logit) { return logit; }

  __device__ static u32 of_group(u32 first, u32) { return first; }

  __device__ float weight(const RouteParams& params, int, int, u32 key, bool is_slot) const {
    return of(params, value_of(key), is_slot);
  }
};

}  // namespace ws
