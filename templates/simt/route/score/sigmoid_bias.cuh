// Weights are the sigmoid of the logit; sigmoid and the expert's bias together choose. A group of experts counts as much as its
// best two together (DeepSeek-V3).
#pragma once

#include "simt/route/select.cuh"
#include "simt/route/sigmoid_weight.cuh"

namespace ws {

struct Score : Selecting<Score>, SigmoidWeight {
  static constexpr bool PAIRS = true;
  static constexpr bool BY_LOGIT = false;

  __device__ static float choice(const RouteParams& params, int i, float logit) {
    const float* const bias = params.bias + lane_index();
    // NaN as the smallest number; of what else is settled the sigmoid is the same.
    return __fadd_rn(sigmoid(fmaxf(logit, -LARGEST)), settled(bias[i * 32]));
  }

  __device__ static u32 of_group(u32 first, u32 second) {
    return key_of(settled(__fadd_rn(value_of(first), value_of(second))));
  }
};

}  // namespace ws
