// What templates/common/ptx.cuh has, on the CPU.
#pragma once

namespace ws {

template <u32 BYTES>
inline void emulated_cp_async(u32 shared, const void* global, bool valid) {
  emu_shared(shared, BYTES, BYTES, "cp.async");
  if (valid) emu_global(global, BYTES, BYTES, "cp.async");
  emu_queue(EMU_CP_ASYNC, [=] {
    u8* to = emu_shared(shared, BYTES, BYTES, "cp.async");
    if (valid)
      __builtin_memcpy(to, global, BYTES);
    else
      __builtin_memset(to, 0, BYTES);
    emu_generic_write(shared, BYTES);
  });
}

inline void cp_async_16(u32 shared, const void* global, bool valid) { emulated_cp_async<16>(shared, global, valid); }
inline void cp_async_16_if(bool wanted, u32 shared, const void* global, u32 zeros) {
  if (wanted) emulated_cp_async<16>(shared, global, zeros == 0);
}
inline void cp_async_4(u32 shared, const void* global, bool valid) { emulated_cp_async<4>(shared, global, valid); }

inline void prefetch_line(const void* global) { emu_global(global, 1, 1, "prefetch"); }
inline int ld_relaxed_gpu(const int* global) { return *reinterpret_cast<const int*>(emu_global(global, 4, 4, "ld.relaxed")); }
inline uint4 ld_relaxed_gpu_16(const void* global) { return *reinterpret_cast<const uint4*>(emu_global(global, 16, 16, "ld.relaxed")); }
inline void st_relaxed_gpu(u32* global, u32 value) { *reinterpret_cast<u32*>(emu_global(global, 4, 4, "st.relaxed")) = value; }

inline int ld_acquire_gpu(const int* global) { return *reinterpret_cast<const int*>(emu_global(global, 4, 4, "ld.acquire")); }
inline void add_release_gpu(int* global, int value) { *reinterpret_cast<int*>(emu_global(global, 4, 4, "red.release")) += value; }

inline void cp_async_commit_group() { emu_commit(EMU_CP_ASYNC); }
template <int PENDING>
inline void cp_async_wait_group() {
  emu_wait_group(EMU_CP_ASYNC, PENDING);
}

template <int THREADS>
inline void named_barrier_sync(int id) {
  emu_block_barrier(id, THREADS, "bar.sync");
}

template <int THREADS>
inline void named_barrier_arrive(int id) {
  emu_block_arrive(id, THREADS);
}

inline u32 prmt(u32 low, u32 high, u32 selector) {
  const u64 both = static_cast<u64>(high) << 32 | low;
  u32 result = 0;
  for (int i = 0; i < 4; i++) {
    const u32 nibble = selector >> (4 * i) & 15, byte = static_cast<u32>(both >> (8 * (nibble & 7))) & 0xFF;
    result |= ((nibble & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xFFu : 0u) << (8 * i);
  }
  return result;
}

inline u32 mul_f16x2(u32 a, u32 b) {
  // The product of two f16 numbers is a number of f32: rounded once.
  const auto of = [&](int shift) {
    return static_cast<u32>(emu_to_f16(emu_from_f16(static_cast<u16>(a >> shift)) * emu_from_f16(static_cast<u16>(b >> shift))))
           << shift;
  };
  return of(0) | of(16);
}
enum : bool { HAS_MAX_ABS = __CUDA_ARCH__ >= 860 };
// Of a number and NaN the number.
template <u32 INFINITY_BITS>
inline u32 emulated_max_abs(u32 a, u32 b) {
  const auto of = [&](int shift) {
    const u32 first = a >> shift & 0x7FFF, second = b >> shift & 0x7FFF;
    if (first > INFINITY_BITS) return second << shift;
    return (second > INFINITY_BITS ? first : max(first, second)) << shift;
  };
  return of(0) | of(16);
}
inline u32 max_abs_f16x2(u32 a, u32 b) { return emulated_max_abs<0x7C00>(a, b); }
inline u32 max_abs_bf16x2(u32 a, u32 b) { return emulated_max_abs<0x7F80>(a, b); }
inline u32 mul_bf16x2(u32 a, u32 b) {
  const auto of = [&](int shift) {
    const double x = emu_from_bf16(static_cast<u16>(a >> shift)), y = emu_from_bf16(static_cast<u16>(b >> shift));
    return static_cast<u32>(emu_to_bf16(x * y)) << shift;
  };
  return of(0) | of(16);
}

inline u32 cvt_f16x2(float low, float high) { return emu_to_f16(low) | static_cast<u32>(emu_to_f16(high)) << 16; }
inline u32 cvt_bf16x2(float low, float high) { return emu_to_bf16(low) | static_cast<u32>(emu_to_bf16(high)) << 16; }
inline float cvt_f32_f16(u16 half) { return emu_from_f16(half); }

// Subnormal numbers are 0 for `.ftz`, going in and coming out.
inline float emulated_flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.f, x) : x; }
inline float ex2_approx(float x) { return emulated_flushed(emu_exp2(emulated_flushed(x))); }
inline float div_approx(float a, float b) {
  const float x = emulated_flushed(a), y = emulated_flushed(b);
  if (__builtin_fabsf(y) > 0x1p126f && __builtin_isfinite(y)) return __builtin_isinf(x) ? x - x : __builtin_copysignf(0.f, x) * __builtin_copysignf(1.f, y);
  return emulated_flushed(x / y);
}
inline float rcp_approx(float x) { return emulated_flushed(1.f / emulated_flushed(x)); }

inline float min_nan(float a, float b) { return a != a || b != b ? emu_float(0x7FFFFFFFu) : fminf(a, b); }
inline float max_nan(float a, float b) { return a != a || b != b ? emu_float(0x7FFFFFFFu) : fmaxf(a, b); }

inline void mma_m16n8k16_f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  emu_mma_m16n8k16(d, a, b, false);
}
inline void mma_m16n8k16_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  emu_mma_m16n8k16(d, a, b, true);
}

enum : bool { HAS_CVT_E4M3 = true };

// The nearest value of e4m3, ties to even, at most ±448.
inline u32 emulated_e4m3(float value) {
  const u32 sign = emu_bits(value) >> 24 & 0x80;
  const float magnitude = __builtin_fabsf(value);
  if (value != value) return 0x7F;
  if (magnitude >= 448.f) return sign | 0x7E;
  const int field = emu_bits(magnitude) >> 23, exponent = field < 127 - 6 ? -6 : field - 127;
  // A carry moves to the next power of two.
  const u32 eighths = static_cast<u32>(__builtin_rintf(magnitude * emu_float(static_cast<u32>(127 + 3 - exponent) << 23)));
  return sign | (eighths + (static_cast<u32>(exponent + 6) << 3));
}
inline u32 cvt_e4m3x2(float low, float high) { return emulated_e4m3(low) | emulated_e4m3(high) << 8; }

// A value of e4m3 as f16, exactly: 2^-6 is its smallest normal number, which has the exponent 9 there.
inline u32 f16_of_emulated_e4m3(u32 byte) {
  const u32 sign = (byte & 0x80) << 8;
  u32 exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (exponent == 15 && mantissa == 7) return sign | 0x7FFF;
  if (exponent == 0 && mantissa == 0) return sign;
  exponent += 8;
  if (exponent == 8) {
    exponent = 9;
    while (mantissa < 8) mantissa *= 2, exponent--;
  }
  return sign | exponent << 10 | (mantissa & 7) << 7;
}
template <int HALF>
inline u32 cvt_f16x2_e4m3x2(u32 word) {
  const u32 two = HALF == 0 ? word : word >> 16;
  return f16_of_emulated_e4m3(two & 0xFF) | f16_of_emulated_e4m3(two >> 8 & 0xFF) << 16;
}

}  // namespace ws
