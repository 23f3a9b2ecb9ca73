// Not to be launched: what a machine takes to compile it is the unit of compile times. It keeps a compiler busy as our kernels
// do, with nested templates, loops that are unrolled, instructions as text and many registers. A change of it changes the unit.
typedef unsigned u32;

template <int... I>
struct Indices {};
template <int COUNT, int... I>
struct Counted : Counted<COUNT - 1, COUNT - 1, I...> {};
template <int... I>
struct Counted<0, I...> {
  using Type = Indices<I...>;
};

struct Sum {
  float at[4];
};

template <int SHIFT>
__device__ __forceinline__ u32 decode(u32 codes) {
  u32 value;
  asm("{ .reg .b32 moved; shr.b32 moved, %1, %2; lop3.b32 %0, moved, 0x81c081c0, 0x3c003c00, 0xea; }"
      : "=r"(value)
      : "r"(codes), "n"(SHIFT));
  return value ^ codes << SHIFT;
}

__device__ __forceinline__ void multiply(Sum& sum, const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sum.at[0]), "+f"(sum.at[1]), "+f"(sum.at[2]), "+f"(sum.at[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int STEP, int COLUMNS>
__device__ __forceinline__ void step(Sum (&sums)[COLUMNS], const u32* a, const u32* b, int lane) {
  u32 codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[i] = decode<STEP>(a[lane * 4 + i + STEP * 128]);
#pragma unroll
  for (int column = 0; column < COLUMNS; ++column)
    multiply(sums[column], codes, b[column * 64 + lane + STEP * 32], b[column * 64 + lane + STEP * 32 + 16]);
}

template <int COLUMNS, int... STEPS>
__device__ __forceinline__ void steps(Sum (&sums)[COLUMNS], const u32* a, const u32* b, int lane, Indices<STEPS...>) {
  (step<STEPS>(sums, a, b, lane), ...);
}

template <int COLUMNS>
__device__ __forceinline__ void tile(float* c, const u32* a, const u32* b, int k_tiles) {
  const int lane = threadIdx.x % 32;
  Sum sums[COLUMNS] = {};
  for (int k = 0; k < k_tiles; ++k, a += 4096, b += 4096) steps(sums, a, b, lane, typename Counted<4>::Type());
#pragma unroll
  for (int column = 0; column < COLUMNS; ++column)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = sums[column].at[i];
      c[(column * 32 + lane) * 4 + i] = x / (1.f + __expf(-x));
    }
}

extern "C" __global__ void __launch_bounds__(128) reference(float* c, const u32* a, const u32* b, int k_tiles) {
  tile<8>(c, a, b, k_tiles);
}
