// Weights are the sigmoid of the logit. It rises with the logit, so that the logit chooses.
#pragma once

#include "simt/route/select.cuh"
#include "simt/route/sigmoid_weight.cuh"

namespace ws {

struct Score : Selecting<Score>, SigmoidWeight {
  static constexpr bool PAIRS = false;
  static constexpr bool BY_LOGIT = true;

  __device__ static float choice(const RouteParams&, int, float logit) { return settled(logit); }

  __device__ static u32 of_group(u32 first, u32) { return first; }
};

}  // namespace ws
