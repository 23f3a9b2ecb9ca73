// What templates/wgmma/ptx.cuh has, on the CPU.
#pragma once

#include "common/async.cuh"
#include "common/ptx.cuh"
#include "common/words.cuh"
#include "wgmma.h"

namespace ws {

inline void wgmma_fence() { emu_wgmma::fence(); }
inline void wgmma_commit_group() { emu_wgmma::commit(); }
template <int PENDING>
inline void wgmma_wait_group() {
  emu_wgmma::wait<PENDING>();
}

// Registers are no matter here.
template <int HELD, int COUNT>
inline void change_registers() {}

struct EmulatedMatrix {
  u32 address, words[4];
};
// Lane 4g + c has, of matrix i, elements 2c and 2c + 1 of row g; transposed, row j in memory has column j.
template <int COUNT>
inline void emulated_stmatrix_trans(u32 address, u32 a, u32 b, u32 c, u32 d) {
  EmulatedMatrix own = {address, {a, b, c, d}};
  if (static_cast<int>(emu_current->lane) < 8 * COUNT) {
    emu_shared(address, 16, 16, "stmatrix");
    emu_generic_write(address, 16);
  }
  emu_collective(~0u, "stmatrix", true, &own, [](void** lanes, emu_u32) {
    const auto lane = [&](int i) { return static_cast<EmulatedMatrix*>(lanes[i]); };
    for (int matrix = 0; matrix < COUNT; matrix++) {
      for (int row = 0; row < 8; row++) {
        u16 elements[8];
        for (int i = 0; i < 8; i++) {
          const u32 word = lane(4 * i + row / 2)->words[matrix];
          elements[i] = static_cast<u16>(row % 2 == 0 ? word : word >> 16);
        }
        __builtin_memcpy(emu_shared(lane(8 * matrix + row)->address, 16, 16, "stmatrix"), elements, 16);
      }
    }
  });
}
inline void stmatrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  EmulatedMatrix own = {address, {a, b, c, d}};
  emu_shared(address, 16, 16, "stmatrix");
  emu_generic_write(address, 16);
  emu_collective(~0u, "stmatrix", true, &own, [](void** lanes, emu_u32) {
    const auto lane = [&](int i) { return static_cast<EmulatedMatrix*>(lanes[i]); };
    for (int matrix = 0; matrix < 4; matrix++)
      for (int row = 0; row < 8; row++)
        for (int pair = 0; pair < 4; pair++)
          __builtin_memcpy(emu_shared(lane(8 * matrix + row)->address, 16, 16, "stmatrix") + pair * 4,
                           &lane(4 * row + pair)->words[matrix], 4);
  });
}
inline void stmatrix_trans_x4(u32 shared, u32 a, u32 b, u32 c, u32 d) { emulated_stmatrix_trans<4>(shared, a, b, c, d); }
inline void stmatrix_trans_x1(u32 shared, u32 a) { emulated_stmatrix_trans<1>(shared, a, 0, 0, 0); }

inline u32 movmatrix_trans(u32 a) {
  EmulatedMatrix own = {0, {a, 0, 0, 0}};
  emu_collective(~0u, "movmatrix", true, &own, [](void** lanes, emu_u32) {
    const auto lane = [&](int i) { return static_cast<EmulatedMatrix*>(lanes[i]); };
    for (int row = 0; row < 8; row++) {
      for (int pair = 0; pair < 4; pair++) {
        u32 result = 0;
        for (int half = 0; half < 2; half++) {
          const u32 word = lane(4 * (2 * pair + half) + row / 2)->words[0];
          result |= (row % 2 == 0 ? word & 0xFFFF : word >> 16) << (16 * half);
        }
        lane(4 * row + pair)->words[1] = result;
      }
    }
  });
  return own.words[1];
}

inline u32 max_u16x2(u32 a, u32 b) {
  const u32 low = (a & 0xFFFF) > (b & 0xFFFF) ? a : b, high = a >> 16 > b >> 16 ? a : b;
  return (low & 0xFFFF) | (high & 0xFFFF0000u);
}
inline int of_unknown_value(int number) { return number; }
inline u32 mov_shared_memory(const void* variable) { return emu_shared_address(variable); }

}  // namespace ws

#define WS_DECLARE_SUMS(COUNT, NAMES) \
  inline void declare_sums() { emu_wgmma::declare(COUNT); }

#define WS_CLEAR_SUMS(WIDTH, MOVES) \
  template <>                       \
  inline void clear_sums<WIDTH>() { \
    emu_wgmma::clear(WIDTH, 0);     \
  }

#define WS_GET_SUMS(WIDTH, MOVES, ...)                  \
  template <>                                           \
  inline void get_sums<WIDTH>(float(&sums)[ACCUMULATORS]) { \
    emu_wgmma::get(sums, WIDTH, false);                   \
  }

#define WS_KIND_bf16 emu_wgmma::BF16
#define WS_KIND_f16 emu_wgmma::F16
#define WS_KIND_e4m3 emu_wgmma::E4M3
#define WS_WGMMA(WIDTH, TYPE, SUMS)                                \
  template <>                                                      \
  inline void wgmma<WIDTH>(const u32(&a)[4], u64 tokens) {         \
    emu_wgmma::mma_async(WIDTH, WS_KIND_##TYPE, true, a, 0, tokens);      \
  }

#define WS_CLEAR_TOTALS(WIDTH, SUMS_WIDTH, MOVES) \
  template <>                                     \
  inline void clear_sums<WIDTH>() {               \
    emu_wgmma::clear(SUMS_WIDTH, WIDTH);          \
  }

#define WS_PROMOTE_SUMS(WIDTH, FIRST, ADDS)  \
  template <>                                \
  inline void promote_sums<WIDTH, FIRST>() { \
    emu_wgmma::promote(WIDTH, FIRST);        \
  }

#define WS_PROMOTE_SCALED_SUMS(WIDTH, FIRST, ADDS)             \
  template <>                                                  \
  inline void promote_scaled_sums<WIDTH, FIRST>(u32 factors) { \
    emu_wgmma::promote_scaled(WIDTH, FIRST, factors);          \
  }

#define WS_GET_TOTALS(WIDTH, MOVES, ...)                  \
  template <>                                             \
  inline void get_sums<WIDTH>(float(&sums)[ACCUMULATORS]) { \
    emu_wgmma::get(sums, WIDTH, true);                    \
  }

#define WS_WGMMA_K32(WIDTH, TYPE, SUMS)                                          \
  template <>                                                                    \
  inline void wgmma<WIDTH, true>(const u32(&a)[4], u64 tokens) {                 \
    emu_wgmma::mma_async(WIDTH, WS_KIND_##TYPE, false, a, 0, tokens);               \
  }                                                                              \
  template <>                                                                    \
  inline void wgmma<WIDTH, false>(const u32(&a)[4], u64 tokens) {                \
    emu_wgmma::mma_async(WIDTH, WS_KIND_##TYPE, true, a, 0, tokens);                \
  }

#define WS_WGMMA_K32_SHARED(WIDTH, TYPE, SUMS)                                    \
  template <>                                                                     \
  inline void wgmma<WIDTH, true>(u64 weights, u64 tokens) {                       \
    emu_wgmma::mma_async(WIDTH, WS_KIND_##TYPE, false, nullptr, weights, tokens); \
  }                                                                               \
  template <>                                                                     \
  inline void wgmma<WIDTH, false>(u64 weights, u64 tokens) {                      \
    emu_wgmma::mma_async(WIDTH, WS_KIND_##TYPE, true, nullptr, weights, tokens);  \
  }
