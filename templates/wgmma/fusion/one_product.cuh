// Warpgroups that multiply with one product's rows of two neighbouring m64 tiles: 64 columns.
#pragma once

namespace ws {

struct OneProduct {
  static constexpr int HELD_COLUMNS = 2;
  static_assert(TILES_PER_PART == 2, "host and device agree");

  // The first of eight columns, one for each lane / 4.
  __device__ static int column(const ConsumerId& consumer, int held) {
    return consumer.part * 64 + held * 32 + threadIdx.x / 32 % 4 * 8;
  }
};

}  // namespace ws
