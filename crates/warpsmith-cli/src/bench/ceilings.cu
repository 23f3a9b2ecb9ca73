// What the device can do at most, in six kernels: `fill` makes data, `read` and `copy` move it, `empty` does nothing, `product`
// multiplies values of f16, `product_e4m3` those of e4m3.
//
// read, copy: every block takes PER_BLOCK vectors of 16 bytes, eight a thread, all loads before the first use. `read`
//   adds up all words, so that nothing can be left out unseen, and each warp writes its sum.
//
// product, product_e4m3 (sm_90a): one block an SM, two warpgroups, nothing but wgmma m64n256k16 (k32) on operands that stay in
//   shared memory. Warpgroup w multiplies rows 64·w … of A with all of B, along K in slabs of 128 bytes, taken in turn:
//
//     slab  | A: 128 rows of 128 bytes | B: 256 rows of 128 bytes |    K-major, 128-byte swizzle; SLABS of them
//
//   A tile is `k_slabs` of these and begins with sums of zero, as in a real product; `tiles` tiles follow each other. The first block
//   says how many cycles it took.
//   The data are random with all bits of f16 in use: what they are decides the power, and so the clock. Those of e4m3 are such that all
//   sums are exact, whatever few bits the tensor core keeps.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int THREADS = 256, VECTORS = 8, PER_BLOCK = THREADS * VECTORS;

// Bits that look random: the end of murmur3 (Appleby). The host has the same function.
__device__ __forceinline__ u32 mix(u32 index) {
  index = (index ^ index >> 16) * 0x85EBCA6B;
  index = (index ^ index >> 13) * 0xC2B2AE35;
  return index ^ index >> 16;
}

// Word i is mix(i).
extern "C" __global__ void __launch_bounds__(THREADS) fill(uint4* to) {
  const u64 first = u64(blockIdx.x) * PER_BLOCK + threadIdx.x;
  for (int i = 0; i < VECTORS; i++) {
    const u32 word = u32(4 * (first + i * THREADS));
    to[first + i * THREADS] = make_uint4(mix(word), mix(word + 1), mix(word + 2), mix(word + 3));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) read(const uint4* from, u32* sums) {
  const u64 first = u64(blockIdx.x) * PER_BLOCK + threadIdx.x;
  uint4 vectors[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) vectors[i] = __ldcs(from + first + i * THREADS);
  u32 sum = 0;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) sum += vectors[i].x + vectors[i].y + vectors[i].z + vectors[i].w;
  sum = __reduce_add_sync(0xffffffff, sum);
  if (threadIdx.x % 32 == 0) sums[blockIdx.x * (THREADS / 32) + threadIdx.x / 32] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) empty() {}

extern "C" __global__ void __launch_bounds__(THREADS) copy(const uint4* from, uint4* to) {
  const u64 first = u64(blockIdx.x) * PER_BLOCK + threadIdx.x;
  uint4 vectors[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) vectors[i] = __ldcs(from + first + i * THREADS);
#pragma unroll
  for (int i = 0; i < VECTORS; i++) __stcs(to + first + i * THREADS, vectors[i]);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int A_ROWS = 128, SLAB_ROWS = A_ROWS + 256, LINE = 128, SLAB_BYTES = SLAB_ROWS * LINE, SLABS = 4;

// Element `index` of the operands, and the instruction for them.
struct F16 {
  using Bits = u16;

  // A multiple of 1/1024 in [-2, 2), which f16 holds exactly.
  static __device__ __forceinline__ u16 element(u32 index) {
    const float value = (int(mix(index) >> 20) - 2048) * (1.0f / 1024);
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }

  static __device__ __forceinline__ void multiply(float (&d)[128], u64 a, u64 b, u32 add);
};

struct E4m3 {
  using Bits = unsigned char;

  // An integer in [-4, 4).
  static __device__ __forceinline__ unsigned char element(u32 index) {
    const float value = int(mix(index) >> 29) - 4;
    u16 bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(value));
    return static_cast<unsigned char>(bits);
  }

  static __device__ __forceinline__ void multiply(float (&d)[128], u64 a, u64 b, u32 add);
};

// PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", matrix descriptor: rows of 128 bytes, 8 of them
// 1024 bytes apart from the next 8, in the 128-byte swizzle (bit 62). The leading offset (bit 16) means nothing here.
__device__ __forceinline__ u64 descriptor(u32 shared) {
  return u64(shared >> 4 & 0x3FFF) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// "wgmma.mma_async": d = a·bᵀ, plus d if `add`. Both K-major in shared memory; f16 alone says that neither is transposed.
#define D8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define WGMMA(SHAPE, TRANSPOSED) \
  asm volatile("{ .reg .pred add; setp.ne.u32 add, %130, 0; " \
               "wgmma.mma_async.sync.aligned." SHAPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
               "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
               "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
               "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
               "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127" \
               "}, %128, %129, add, 1, 1" TRANSPOSED "; }" \
               : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), \
                 D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120) \
               : "l"(a), "l"(b), "r"(add))

__device__ __forceinline__ void F16::multiply(float (&d)[128], u64 a, u64 b, u32 add) { WGMMA("m64n256k16.f32.f16.f16", ", 0, 0"); }
__device__ __forceinline__ void E4m3::multiply(float (&d)[128], u64 a, u64 b, u32 add) { WGMMA("m64n256k32.f32.e4m3.e4m3", ""); }

#undef WGMMA
#undef D8

template <class Format>
__device__ __forceinline__ void multiply_tiles(float* sums, long long* cycles, int tiles, int k_slabs) {
  const long long begin = clock64();
  using Bits = typename Format::Bits;
  constexpr int SLAB_K = LINE / sizeof(Bits), PIECE = 16 / sizeof(Bits);
  extern __shared__ char raw[];
  const u32 raw_address = u32(__cvta_generic_to_shared(raw));
  const u32 base = (raw_address + 1023) / 1024 * 1024;  // the swizzle counts from multiples of 1024
  char* const operands = raw + (base - raw_address);
  for (u32 i = threadIdx.x; i < SLABS * SLAB_ROWS * SLAB_K; i += THREADS) {
    const u32 row = i / SLAB_K, k = i % SLAB_K;
    *(Bits*)(operands + row * LINE + (k / PIECE ^ row % 8) * 16 + k % PIECE * sizeof(Bits)) = Format::element(i);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  const u64 a = descriptor(base + threadIdx.x / 128 * 64 * LINE), b = descriptor(base + A_ROWS * LINE);
  float d[128] = {};
  for (int tile = 0; tile < tiles; tile++) {
    for (int slab = 0; slab < k_slabs; slab++) {
      const u64 offset = slab % SLABS * (SLAB_BYTES >> 4);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < LINE / 32; step++) {
        const u64 at = offset + step * (32 >> 4);  // an instruction takes 32 bytes along K
        Format::multiply(d, a + at, b + at, slab + step > 0);
      }
      wgmma_commit_group();
      wgmma_wait_group<1>();
    }
  }
  wgmma_wait_group<0>();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; i++) {
    asm volatile("" : "+f"(d[i])::"memory");  // not read before the wait
    sum += d[i];
  }
  sums[blockIdx.x * THREADS + threadIdx.x] = sum;
  if (blockIdx.x == 0 && threadIdx.x == 0) *cycles = clock64() - begin;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) product(float* sums, long long* cycles, int tiles, int k_slabs) {
  multiply_tiles<F16>(sums, cycles, tiles, k_slabs);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) product_e4m3(float* sums, long long* cycles, int tiles, int k_slabs) {
  multiply_tiles<E4m3>(sums, cycles, tiles, k_slabs);
}

#endif
