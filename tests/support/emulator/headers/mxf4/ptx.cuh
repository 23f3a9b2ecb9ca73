// What templates/mxf4/ptx.cuh has, on the CPU.
#pragma once

#include "common/ptx.cuh"
#include "mxf4nvf4.h"

namespace ws {

struct EmulatedRows {
  u32 address;
  u32* r;
};

inline void ldmatrix_x4(u32 shared, u32 (&r)[4]) {
  emu_shared(shared, 16, 16, "ldmatrix");
  EmulatedRows own = {shared, r};
  emu_collective(~0u, "ldmatrix", true, &own, [](void** lanes, emu_u32) {
    const auto lane = [&](int i) { return static_cast<EmulatedRows*>(lanes[i]); };
    for (int matrix = 0; matrix < 4; matrix++) {
      for (int row = 0; row < 8; row++) {
        const unsigned char* from = emu_shared(lane(8 * matrix + row)->address, 16, 16, "ldmatrix");
        for (int c = 0; c < 4; c++) __builtin_memcpy(&lane(4 * row + c)->r[matrix], from + 4 * c, 4);
      }
    }
  });
}

struct EmulatedProduct {
  float* d;
  u32 a[4], b[2], scales_a, scales_b;
  int a_thread, b_thread;
};

inline void emulated_mxf4nvf4(void** lanes, emu_u32) {
  const auto lane = [&](int i) { return static_cast<EmulatedProduct*>(lanes[i]); };
  const int a_thread = lane(0)->a_thread, b_thread = lane(0)->b_thread;
  signed char rows[16][64], columns[8][64];
  EmuScale of_rows[16][4], of_columns[8][4];
  for (int i = 0; i < 32; i++) {
    const EmulatedProduct& own = *lane(i);
    const int g = i / 4, c = i % 4;
    for (int word = 0; word < 4; word++)
      for (int e = 0; e < 8; e++)
        rows[g + 8 * (word & 1)][8 * c + e + 32 * (word >> 1)] = emu_e2m1_doubled(own.a[word] >> (4 * e));
    for (int word = 0; word < 2; word++)
      for (int e = 0; e < 8; e++) columns[g][8 * c + e + 32 * word] = emu_e2m1_doubled(own.b[word] >> (4 * e));
    for (int block = 0; block < 4; block++) {
      if (c / 2 == a_thread) of_rows[g + 8 * (c & 1)][block] = emu_e4m3_scale(own.scales_a >> (8 * block));
      if (c == b_thread) of_columns[g][block] = emu_e4m3_scale(own.scales_b >> (8 * block));
    }
  }
  for (int i = 0; i < 32; i++) {
    for (int j = 0; j < 4; j++) {
      const int row = i / 4 + 8 * (j >> 1), column = 2 * (i % 4) + (j & 1);
      int sums[4];
      for (int block = 0; block < 4; block++) {
        sums[block] = 0;
        for (int k = 16 * block; k < 16 * block + 16; k++) sums[block] += int(rows[row][k]) * columns[column][k];
      }
      float& d = lane(i)->d[j];
      d = emu_mxf4nvf4(d, sums, of_rows[row], of_columns[column]);
    }
  }
}

template <int A_THREAD, int B_THREAD>
inline void mma_m16n8k64_mxf4nvf4(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, u32 scales_a, u32 scales_b) {
  static_assert(A_THREAD < 2 && B_THREAD < 4, "lanes that have scales");
  EmulatedProduct own = {d, {a0, a1, a2, a3}, {b0, b1}, scales_a, scales_b, A_THREAD, B_THREAD};
  emu_collective(~0u, "mma.m16n8k64 with block scaling", true, &own, emulated_mxf4nvf4);
}

}  // namespace ws
