// C in f32.
#pragma once

#include "common/output/vector.cuh"

namespace ws {

struct Output {
  static constexpr int BYTES = 4;
  enum : bool { IN_BLOCKS = false };

  // Stores COUNT consecutive elements.
  template <int COUNT>
  __device__ static void store(u8* c, long long element, const float (&values)[COUNT]) {
    store_floats(c + element * 4, values);
  }
};

}  // namespace ws
