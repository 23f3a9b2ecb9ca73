// Weights are the sigmoid of the logit; sigmoid and the expert's bias together choose. A group of experts counts as much as its
// best two together (DeepSeek-V3).
#pragma once

#include "simt/route/select.cuh"
#include "simt/route/sigmoid_weight.cuh"

namespace ws {

struct Score : Selecting<Score>, SigmoidWeight {
  static constexpr bool PAIRS = true;
  static constexpr bool BY_LOGIT = false;

  __device__ static float choice(const RouteParams& params, int expert, float logit) {
    return settled(__fadd_rn(sigmoid(logit), params.bias[expert]));
  }

  __device__ static u32 of_group(u32 first, u32 second) {
    return key_of(settled(__fadd_rn(value_of(first), value_of(second))));
  }

  __device__ float weight(const RouteParams& params, int token, int expert, u32, bool is_slot) const {
    const float logit = is_slot ? settled(load_logit(params.logits, element(token, expert))) : 0.0f;
    return of(params, logit, is_slot);
  }
};

}  // namespace ws
