// C in bf16.
#pragma once

#include "output/vector.cuh"

namespace ws {

struct Output {
  // Rounds COUNT consecutive elements to nearest even and stores them at once.
  template <int COUNT>
  __device__ static void store(u8* c, long long element, const float (&values)[COUNT]) {
    u32 words[COUNT / 2];
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) words[i] = cvt_bf16x2(values[2 * i], values[2 * i + 1]);
    store_words(c + element * 2, words);
  }
};

}  // namespace ws
