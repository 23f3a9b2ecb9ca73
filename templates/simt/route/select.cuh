// The k best experts of a token, by a warp: lane l has the experts l, l + 32, … (its ith is i * 32 + l), as keys that are in the
// order of what chooses. A key of 0 is no expert. Ties go to the lower expert.
#pragma once

namespace ws {

inline constexpr int LANE_EXPERTS = ceil_div(EXPERTS, 32);
inline constexpr int GROUP_EXPERTS = EXPERTS / EXPERT_GROUPS;

__device__ __forceinline__ long long element(int token, int expert) {
  return static_cast<long long>(token) * EXPERTS + expert;
}

// The best two keys of some experts; one, where the second does not count.
template <bool PAIRS>
struct BestTwo {
  u32 first, second;

  __device__ __forceinline__ void add(const BestTwo& other) {
    const u32 least = min(first, other.first);
    first = max(first, other.first);
    if constexpr (PAIRS) second = max(least, max(second, other.second));
  }

  __device__ __forceinline__ BestTwo of_lane(int lane) const {
    return {__shfl_sync(~0u, first, lane), PAIRS ? __shfl_sync(~0u, second, lane) : 0};
  }
};

__host__ __device__ constexpr int power_of_two(int least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

// Excludes the experts of all groups but the best. Lanes exchange halves of what they know of eight groups until each knows one.
template <class Score>
__device__ __forceinline__ void keep_groups(u32 (&keys)[LANE_EXPERTS]) {
  using Best = BestTwo<Score::PAIRS>;
  // Beside many keys there are few registers.
  constexpr int MOST = LANE_EXPERTS > 16 ? 2 : 8, AT_ONCE = power_of_two(EXPERT_GROUPS < MOST ? EXPERT_GROUPS : MOST);
  constexpr int LANES = 32 / AT_ONCE;  // of a group
  const int lane = lane_index();
  Best own = {0, 0};  // of group `lane`
#pragma unroll
  for (int first = 0; first < EXPERT_GROUPS; first += AT_ONCE) {
    Best best[AT_ONCE];
#pragma unroll
    for (int nth = 0; nth < AT_ONCE; nth++) {
      const int group = first + nth, begin = group * GROUP_EXPERTS, end = begin + GROUP_EXPERTS;
      best[nth] = {0, 0};
#pragma unroll
      for (int i = 0; i < LANE_EXPERTS; i++) {
        if (group >= EXPERT_GROUPS || i * 32 + 31 < begin || i * 32 >= end) continue;
        const int expert = i * 32 + lane;
        best[nth].add({expert >= begin && expert < end ? keys[i] : 0, 0});
      }
    }
#pragma unroll
    for (int half = AT_ONCE / 2; half > 0; half /= 2) {
      const bool is_upper = (lane & half * LANES) != 0;
#pragma unroll
      for (int i = 0; i < half; i++) {
        const Best others = is_upper ? best[i] : best[i + half];
        if (is_upper) best[i] = best[i + half];
        best[i].add(others.of_lane(lane ^ half * LANES));
      }
    }
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) best[0].add(best[0].of_lane(lane ^ distance));
    const Best there = best[0].of_lane(lane % AT_ONCE * LANES);
    if (lane / AT_ONCE == first / AT_ONCE) own = there;
  }
  const u32 score = lane < EXPERT_GROUPS ? Score::of_group(own.first, own.second) : 0;
  int better = 0;  // groups that come before a lane's
#pragma unroll
  for (int group = 0; group < EXPERT_GROUPS; group++) {
    const u32 other = __shfl_sync(~0u, score, group);
    better += other >= score + (group < lane ? 0 : 1);
  }
  const u32 kept = __ballot_sync(~0u, better < KEPT_GROUPS);
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++) {
    const int group = (i * 32 + lane) / GROUP_EXPERTS;
    if (group >= EXPERT_GROUPS || (kept >> group & 1u) == 0) keys[i] = 0;
  }
}

// Of 16-bit logits that choose themselves, keys have 19 bits.
template <class Score>
inline constexpr bool HAS_SHORT_KEYS = SHORT_LOGITS && Score::BY_LOGIT;

// A key and which of the experts it is of, in one word. The greatest is the lowest expert of the best.
template <bool SHORT>
struct Word;

// A short key leaves room for the expert.
template <>
struct Word<true> {
  static constexpr u32 NUMBERS = 1023;
  static_assert(EXPERTS <= NUMBERS + 1, "10 bits");

  __device__ static u32 of(u32 key, int i) { return short_key_of(key) << 10 | (NUMBERS - (i * 32 + lane_index())); }
  __device__ static u32 least(u32 word) { return word; }  // that may come before it
  __device__ static int expert(u32 word, u32) { return NUMBERS - (word & NUMBERS); }
};

// In another one the place among a lane's experts takes the lowest bits, and the lane is known by who has the word.
template <>
struct Word<false> {
  static constexpr u32 PLACES = LANE_EXPERTS > 8 ? 15 : LANE_EXPERTS > 4 ? 7 : 3;

  __device__ static u32 of(u32 key, int i) { return (key & ~PLACES) | (PLACES - i); }
  __device__ static u32 least(u32 word) { return word & ~PLACES; }
  __device__ static int expert(u32 word, u32 lanes) { return (PLACES - (word & PLACES)) * 32 + __ffs(lanes) - 1; }

  // Of more than one lane, or with a key that differs from the next in the lowest bits only, if at all.
  __device__ static bool is_unsure(u32 word, u32 lanes, u32 next) {
    return (lanes & (lanes - 1)) != 0 || (word | PLACES) == (next | PLACES);
  }
};

// The greatest words of a lane, in order, and the greatest of the rest.
template <int COUNT>
struct Greatest {
  u32 words[COUNT] = {}, rest = 0;

  __device__ __forceinline__ void add(u32 word) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const u32 least = min(words[i], word);
      words[i] = max(words[i], word);
      word = least;
    }
    rest = max(rest, word);
  }

  // Takes the first away; the others move up.
  __device__ __forceinline__ void advance(bool is_taken) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const u32 next = i + 1 < COUNT ? words[i + 1] : 0;
      words[i] = is_taken ? next : words[i];
    }
  }
};

// The expert of slot `lane`, by whole keys: two reductions a slot.
__device__ __forceinline__ int best_surely(const u32 (&keys)[LANE_EXPERTS]) {
  const int lane = lane_index();
  int own = -1;
  u32 taken = 0;
#pragma unroll 1
  for (int slot = 0; slot < K; slot++) {
    u32 key = 0;
    int at = 0;
#pragma unroll
    for (int i = LANE_EXPERTS - 1; i >= 0; i--) {
      const bool is_better = (taken >> i & 1u) == 0 && keys[i] >= key;
      key = is_better ? keys[i] : key;
      at = is_better ? i : at;
    }
    const u32 best = redux_max(key);
    const int expert = redux_min(key == best ? at * 32 + lane : EXPERTS - 1);
    if (lane == slot) own = expert;
    if (expert % 32 == lane) taken |= 1u << at;
  }
  return own;
}

// The same by words, one reduction a slot. False for few tokens: those that have more experts of one lane than it keeps in order, or
// two whose keys differ in the lowest bits only. They are to be chosen surely.
template <bool SHORT>
__device__ __forceinline__ bool best_of(const u32 (&keys)[LANE_EXPERTS], int& own) {
  constexpr int MOST = K > 12 ? 6 : 4, COUNT = LANE_EXPERTS < MOST ? LANE_EXPERTS : MOST;
  const int lane = lane_index();
  Greatest<COUNT> greatest;
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++) greatest.add(Word<SHORT>::of(keys[i], i));
  u32 word = 0, lanes = 0, last = 0;
#pragma unroll 8
  for (int slot = 0; slot < K; slot++) {
    const u32 best = redux_max(greatest.words[0]);
    last = best;
    const bool is_taken = greatest.words[0] == best;
    greatest.advance(is_taken);
    if (lane == slot) word = best;
    if constexpr (!SHORT) {
      const u32 owners = __ballot_sync(~0u, is_taken);
      if (lane == slot) lanes = owners;
    }
  }
  bool is_unsure = COUNT < LANE_EXPERTS && greatest.rest >= Word<SHORT>::least(last);
  if constexpr (!SHORT) {
    const u32 behind = redux_max(greatest.words[0]), next = __shfl_down_sync(~0u, word, 1);
    is_unsure |= lane < K && Word<SHORT>::is_unsure(word, lanes, lane == K - 1 ? behind : next);
  }
  if (lane < K) own = Word<SHORT>::expert(word, lanes);
  return (SHORT && COUNT == LANE_EXPERTS) || !__any_sync(~0u, is_unsure);
}

// Beside more keys there are no registers for words.
inline constexpr bool HAS_WORDS = LANE_EXPERTS <= 16;

// What the kernels call, for scores of logits.
template <class Score>
struct Selecting {
  // What slot `lane` of a token has.
  struct Choice {
    int expert;   // or -1
    float logit;  // as it was loaded
    Score score;
  };

  __device__ static Choice pick(const RouteParams& params, int token) {
    const int lane = lane_index();
    const long long first = element(token, lane);
    u32 keys[LANE_EXPERTS];
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
      keys[i] = 0;
      if (i * 32 + lane < EXPERTS) keys[i] = key_of(Score::choice(params, i, load_logit(params.logits, first + i * 32)));
    }
    Choice choice{-1};
    choice.score.see(keys);
    if constexpr (EXPERT_GROUPS > 1) keep_groups<Score>(keys);
    bool is_sure = false;
    if constexpr (HAS_WORDS) is_sure = best_of<HAS_SHORT_KEYS<Score>>(keys, choice.expert);
    if (!is_sure) choice.expert = best_surely(keys);
    // It comes while rows are counted.
    choice.logit = lane < K ? load_logit(params.logits, element(token, choice.expert)) : 0.0f;
    return choice;
  }

  // Ids and weights.
  __device__ static void write(const RouteParams& params, int token, const Choice& choice) {
    const int lane = lane_index();
    const bool is_slot = lane < K;
    const float weight = choice.score.weight(params, settled(choice.logit), is_slot);
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
