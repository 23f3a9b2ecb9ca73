// The experts of each token are given. An id that there is no expert of, or that its token has already, is no expert.
#pragma once

namespace ws {

struct Score {
  struct Choice {
    int expert;
  };

  // The expert of slot `lane` of a token, or -1.
  __device__ static int chosen(const RouteParams& params, int token) {
    const int lane = lane_index();
    const int given = lane < K ? params.ids[static_cast<long long>(token) * K + lane] : -1;
    const bool is_expert = static_cast<u32>(given) < static_cast<u32>(EXPERTS);
    const u32 same = __match_any_sync(~0u, is_expert ? given : -1 - lane);
    return is_expert && (same & ((1u << lane) - 1)) == 0 ? given : -1;
  }

  __device__ static Choice pick(const RouteParams& params, int token) { return {chosen(params, token)}; }
  __device__ static void write(const RouteParams&, int, const Choice&) {}

  __device__ static int choose(const RouteParams& params, int token) { return chosen(params, token); }
};

}  // namespace ws
