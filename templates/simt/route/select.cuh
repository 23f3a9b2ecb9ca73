// The k best experts of a token, by a warp: lane l has the experts l, l + 32, …, as keys that are in the order of what chooses.
// A key of 0 is no expert. Ties go to the lower expert.
#pragma once

namespace ws {

inline constexpr int LANE_EXPERTS = ceil_div(EXPERTS, 32);
inline constexpr int GROUP_EXPERTS = EXPERTS / EXPERT_GROUPS;

__device__ __forceinline__ long long element(int token, int expert) {
  return static_cast<long long>(token) * EXPERTS + expert;
}

// Excludes the experts of all groups but the best.
template <class Score>
__device__ __forceinline__ void keep_groups(u32 (&keys)[LANE_EXPERTS]) {
  const int lane = lane_index();
  u32 own_first = 0, own_second = 0;  // lane g has those of group g
#pragma unroll
  for (int group = 0; group < EXPERT_GROUPS; group++) {
    constexpr int SIZE = GROUP_EXPERTS;
    const int begin = group * SIZE, end = begin + SIZE;
    u32 first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
      if (i * 32 + 31 < begin || i * 32 >= end) continue;
      const int expert = i * 32 + lane;
      const u32 key = expert >= begin && expert < end ? keys[i] : 0;
      second = max(second, min(first, key));
      first = max(first, key);
    }
    const u32 best = redux_max(first);
    u32 next = 0;
    if constexpr (Score::PAIRS) {
      const int owner = __ffs(__ballot_sync(~0u, first == best)) - 1;
      next = redux_max(lane == owner ? second : first);
    }
    if (lane == group) {
      own_first = best;
      own_second = next;
    }
  }
  u32 score = lane < EXPERT_GROUPS ? Score::of_group(own_first, own_second) : 0;
  u32 kept = 0;
  for (int i = 0; i < KEPT_GROUPS; i++) {
    const u32 best = redux_max(score);
    const u32 group = redux_min(score == best ? lane : 32);
    kept |= 1u << group;
    if (lane == group) score = 0;
  }
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++) {
    const int group = (i * 32 + lane) / GROUP_EXPERTS;
    if ((kept >> min(group, 31) & 1u) == 0) keys[i] = 0;
  }
}

// Where a lane has so many experts that registers are short, it knows its best only.
inline constexpr bool TWO_HEADS = LANE_EXPERTS <= 16;

// The best two of a lane's experts that are not taken: few lanes have a third of a token's experts, so that few look again.
struct Head {
  u32 key, next_key;
  int at, next_at;

  __device__ __forceinline__ Head(const u32 (&keys)[LANE_EXPERTS], u32 taken) : key(0), next_key(0), at(0), next_at(0) {
#pragma unroll
    for (int i = LANE_EXPERTS - 1; i >= 0; i--) {
      const bool is_free = (taken >> i & 1u) == 0;
      const bool is_first = is_free && keys[i] >= key, is_second = is_free && keys[i] >= next_key;
      if constexpr (TWO_HEADS) {
        next_key = is_first ? key : is_second ? keys[i] : next_key;
        next_at = is_first ? at : is_second ? i : next_at;
      }
      key = is_first ? keys[i] : key;
      at = is_first ? i : at;
    }
  }

  // Takes the first away.
  __device__ __forceinline__ void advance(const u32 (&keys)[LANE_EXPERTS], u32& taken) {
    taken |= 1u << at;
    if (next_key != 0) {
      key = next_key;
      at = next_at;
      next_key = 0;
    } else {
      *this = Head(keys, taken);
    }
  }
};

// The expert of slot `lane` and its key, of keys that have 32 bits.
__device__ __forceinline__ void take_best(const u32 (&keys)[LANE_EXPERTS], int& own, u32& own_key) {
  const int lane = lane_index();
  u32 taken = 0;
  Head head(keys, taken);
#pragma unroll 1
  for (int slot = 0; slot < K; slot++) {
    const u32 best = redux_max(head.key);
    const int expert = redux_min(head.key == best ? head.at * 32 + lane : EXPERTS - 1);
    if (lane == slot) {
      own = expert;
      own_key = best;
    }
    if (expert % 32 == lane) head.advance(keys, taken);
  }
}

// The same of keys that have 19, so that one word holds an expert's number, too: the greatest is the lowest of the best.
__device__ __forceinline__ void take_best_short(const u32 (&keys)[LANE_EXPERTS], int& own, u32& own_key) {
  constexpr u32 NUMBERS = 1023;
  static_assert(EXPERTS <= NUMBERS + 1, "10 bits");
  const int lane = lane_index();
  u32 words[LANE_EXPERTS];
  constexpr bool ALL = EXPERTS % 32 == 0 && EXPERT_GROUPS == 1;  // no key is 0
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++)
    words[i] = !ALL && keys[i] == 0 ? 0 : short_key_of(keys[i]) << 10 | (NUMBERS - (i * 32 + lane));
  // A lane's best first: what is taken is one's first, and the others move up.
#pragma unroll
  for (int end = LANE_EXPERTS - 1; end > 0; end--)
#pragma unroll
    for (int i = 0; i < end; i++) {
      const u32 least = min(words[i], words[i + 1]);
      words[i] = max(words[i], words[i + 1]);
      words[i + 1] = least;
    }
  u32 own_word = 0;
#pragma unroll 8
  for (int slot = 0; slot < K; slot++) {
    const u32 best = redux_max(words[0]);
    if (lane == slot) own_word = best;
    const bool is_taken = words[0] == best;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
      const u32 next = i + 1 < LANE_EXPERTS ? words[i + 1] : 0;
      words[i] = is_taken ? next : words[i];
    }
  }
  if (own_word != 0) {
    own = NUMBERS - (own_word & NUMBERS);
    own_key = key_of_short(own_word >> 10);
  }
}

// Where a lane has many experts, the best two of them are sooner known than all in order.
template <class Score>
inline constexpr bool HAS_SHORT_KEYS = SHORT_LOGITS && Score::BY_LOGIT && LANE_EXPERTS <= 8;

// What the kernels call, for scores of logits.
template <class Score>
struct Selecting {
  // What slot `lane` of a token has.
  struct Choice {
    int expert;  // or -1
    u32 key;
    Score score;
  };

  __device__ static Choice pick(const RouteParams& params, int token) {
    const int lane = lane_index();
    u32 keys[LANE_EXPERTS];
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
      const int expert = i * 32 + lane;
      keys[i] = 0;
      if (expert < EXPERTS)
        keys[i] = key_of(Score::choice(params, expert, settled(load_logit(params.logits, element(token, expert)))));
    }
    Choice choice{-1};
    choice.score.see(keys);
    if constexpr (EXPERT_GROUPS > 1) keep_groups<Score>(keys);
    if constexpr (HAS_SHORT_KEYS<Score>)
      take_best_short(keys, choice.expert, choice.key);
    else
      take_best(keys, choice.expert, choice.key);
    return choice;
  }

  // Ids and weights.
  __device__ static void write(const RouteParams& params, int token, const Choice& choice) {
    const int lane = lane_index();
    const bool is_slot = lane < K;
    const float weight = choice.score.weight(params, token, choice.expert, choice.key, is_slot);
    if (is_slot) {
      const long long at = static_cast<long long>(token) * K + lane;
      params.ids[at] = choice.expert;
      params.weights[at] = weight;
    }
  }

  // Both.
  __device__ static int choose(const RouteParams& params, int token) {
    const Choice choice = pick(params, token);
    write(params, token, choice);
    return choice.expert;
  }

  // What an earlier launch chose.
  __device__ static int chosen(const RouteParams& params, int token) {
    const int lane = lane_index();
    const int expert = lane < K ? params.ids[static_cast<long long>(token) * K + lane] : -1;
    return static_cast<u32>(expert) < static_cast<u32>(EXPERTS) ? expert : -1;
  }
};

}  // namespace ws
