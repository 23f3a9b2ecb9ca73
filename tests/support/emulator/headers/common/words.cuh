// What templates/common/words.cuh has, on the CPU.
#pragma once

#include "common/ptx.cuh"

namespace ws {

template <class T>
inline T emulated_ld_shared(u32 shared) {
  T value;
  __builtin_memcpy(&value, emu_shared(shared, sizeof(T), sizeof(T), "ld.shared"), sizeof(T));
  return value;
}
inline uint4 ld_shared_16(u32 shared) { return emulated_ld_shared<uint4>(shared); }
inline uint2 ld_shared_8(u32 shared) { return emulated_ld_shared<uint2>(shared); }
inline u32 ld_shared_4(u32 shared) { return emulated_ld_shared<u32>(shared); }
inline u32 ld_shared_2(u32 shared) { return emulated_ld_shared<u16>(shared); }
inline u32 ld_shared_1(u32 shared) { return emulated_ld_shared<u8>(shared); }
inline void st_shared_4(u32 shared, u32 a) {
  __builtin_memcpy(emu_shared(shared, 4, 4, "st.shared"), &a, 4);
  emu_generic_write(shared, 4);
}
inline void st_shared_8(u32 shared, u32 a, u32 b) {
  const u32 words[2] = {a, b};
  __builtin_memcpy(emu_shared(shared, 8, 8, "st.shared"), words, 8);
  emu_generic_write(shared, 8);
}
inline void st_shared_16(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  const u32 words[4] = {a, b, c, d};
  __builtin_memcpy(emu_shared(shared, 16, 16, "st.shared"), words, 16);
  emu_generic_write(shared, 16);
}

template <int BITS>
inline u32 rotate_left(u32 word) {
  return __funnelshift_l(word, word, BITS);
}

template <u32 MASK>
inline u32 and_or(u32 a, u32 b) {
  return (a & MASK) | b;
}
template <int HALF>
inline u32 both(u32 word) {
  return (HALF == 0 ? word & 0xFFFF : word >> 16) * 0x10001u;
}
inline u32 mul_rn_bf16x2(u32 a, u32 b) { return mul_bf16x2(a, b); }

}  // namespace ws
