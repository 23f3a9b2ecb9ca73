// The weight of a lane's expert where it is a sigmoid.
#pragma once

namespace ws {

struct SigmoidWeight {
  __device__ void see(const u32 (&)[LANE_EXPERTS]) {}

  __device__ static float weight(const RouteParams& params, float logit, bool is_slot) {
    const float s = is_slot ? sigmoid(logit) : 0.0f;
    // A quotient of 0 takes the long way, all lanes with it.
    const float weight = RENORMALISE ? __fdiv_rn(is_slot ? s : 1.0f, __fadd_rn(sum_of_lanes(s), 1e-20f)) : s;
    return __fmul_rn(weight, params.scale);
  }
};

}  // namespace ws
