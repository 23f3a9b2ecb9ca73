#!/usr/bin/env python3
"""What m64nNk16 takes an SM, alone and beside the decoding of its weights: cycles an instruction, of one to four warpgroups.

    python3 wgmma.py > wgmma.cu && nvcc -O3 -gencode arch=compute_90a,code=sm_90a -o wgmma wgmma.cu && ./wgmma
    python3 wgmma.py more > …      (what two or four instructions more take, of each kind, beside decoding as templates/wgmma/decode/f16.cuh)

registers  products of registers that nothing writes
shared     both operands in shared memory
block      64 of K are decoded (as templates/wgmma/decode/bf16.cuh), then four products are begun
half       32 of K, two products
step       16 of K, one product; the next 16 are decoded behind it
"""

import sys

WIDTHS = [8, 16, 24, 32, 40, 48, 64, 80, 128]
WAYS = ["registers", "shared", "block", "half", "step"]
# Each has a chain of its own, four at a time.
MORE = {
    "lop3": 'asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(x) : "r"(w), "r"(y));',
    "lop3, a constant": 'asm volatile("lop3.b32 %0, %0, 0x12345678, %1, 0x96;" : "+r"(x) : "r"(w));',
    "fma.f32": 'asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(reinterpret_cast<float&>(x)) : "f"(__uint_as_float(w)), "f"(__uint_as_float(y)));',
    "fma.f16x2": 'asm volatile("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(x) : "r"(w), "r"(y));',
    "prmt": 'asm volatile("prmt.b32 %0, %0, %1, 0x5432;" : "+r"(x) : "r"(w));',
    "mad": 'asm volatile("mad.lo.u32 %0, %0, 512, %1;" : "+r"(x) : "r"(w));',
    "mul.f32": 'asm volatile("mul.f32 %0, %0, 0f12345678;" : "+f"(reinterpret_cast<float&>(x)));',
    "mul.f16x2": 'asm volatile("mul.rn.f16x2 %0, %0, %1;" : "+r"(x) : "r"(w));',
    "shf": 'asm volatile("shf.l.wrap.b32 %0, %0, %1, 8;" : "+r"(x) : "r"(w));',
}

HEAD = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
using u32 = unsigned;
using u64 = unsigned long long;
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N>
struct Sums;
"""

BODY = r"""
__device__ __forceinline__ u32 rotate_left(u32 x, int n) { return __funnelshift_l(x, x, n); }
template <int PAIR>
__device__ __forceinline__ u32 codes(u32 w) {
#ifdef F16
  constexpr u32 MASK = 0x8E008E00;
  if (PAIR == 0) return (w << 9) & MASK;
  return (w ^ (PAIR == 1 ? w >> 3 : PAIR == 2 ? w << 4 : w << 7)) & MASK;
#else
  constexpr u32 MASK = 0x81C081C0;
  if (PAIR == 0) return w & MASK;
  if (PAIR == 1) return (w << 6) & MASK;
  if (PAIR == 2) return rotate_left(w, 12) & MASK;
  return ((w << 2) ^ (w >> 6)) & MASK;
#endif
}
__device__ __forceinline__ u32 mul(u32 a, u32 b) {
  u32 y;
#ifdef F16
  asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
#else
  asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
#endif
  return y;
}
template <int KIND>
__device__ __forceinline__ void one_more(u32& x, u32 w, u32 y);
struct Packed {
  uint4 c;
  uint2 s;
  __device__ __forceinline__ void load(u32 at) {
    const u32 thread = threadIdx.x % 128;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(c.x), "=r"(c.y), "=r"(c.z), "=r"(c.w) : "r"(at + thread * 16));
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(s.x), "=r"(s.y) : "r"(at + 2048 + thread / 4 * 8));
  }
  template <int KIND, int COUNT>
  __device__ __forceinline__ void decode(u32 (&a)[4], int step, u32 (&more)[4]) const {
    const u32 w = step == 0 ? c.x : step == 1 ? c.y : step == 2 ? c.z : c.w;
    u32 scales = step < 2 ? s.x : s.y;
    scales = step % 2 == 0 ? scales : rotate_left(scales, 8);
#ifdef F16
    scales &= 0x7F807F80;
#else
    scales = (scales & 0x0FF00FF0) | 0x70007000u;
#endif
    const u32 low = __byte_perm(scales, 0, 0x1010), high = __byte_perm(scales, 0, 0x3232);
    a[0] = mul(codes<0>(w), low), a[1] = mul(codes<1>(w), high), a[2] = mul(codes<2>(w), low), a[3] = mul(codes<3>(w), high);
#pragma unroll
    for (int i = 0; i < COUNT; i++) one_more<KIND>(more[i % 4], w, i % 2 ? c.x : c.z);
  }
};
enum Way { REGISTERS, SHARED, BLOCK, HALF, STEP };
template <int N, int WAY, int KIND, int COUNT>
__global__ void __launch_bounds__(512, 1) run(u32* cycles, float* sink, int rounds) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Sums<N>::declare();
  for (int i = threadIdx.x; i < 50000 / 4; i += blockDim.x) reinterpret_cast<u32*>(memory)[i] = 0;
  __syncthreads();
  const u32 base = static_cast<u32>(__cvta_generic_to_shared(memory)), weights = base + 24576 + threadIdx.x / 128 * 2304;
  const u64 tokens = ((base >> 4) & 0x3FFF) | u64(1) << 16 | u64(64) << 32 | u64(1) << 62, rows = tokens + (8192 >> 4);
  u32 a[2][4][4] = {}, more[4] = {threadIdx.x, 1, 2, 3};
  Packed packed;
  packed.load(weights);
  __syncthreads();
  const long long begin = clock64();
  if (WAY == STEP) packed.template decode<KIND, COUNT>(a[0][0], 0, more);
  for (int round = 0; round < rounds; round++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (WAY <= BLOCK) {
#pragma unroll
        for (int step = 0; WAY == BLOCK && step < 4; step++) packed.template decode<KIND, COUNT>(a[half][step], step, more);
        fence();
#pragma unroll
        for (int step = 0; step < 4; step++)
          WAY == SHARED ? Sums<N>::shared(rows + 2 * step, tokens + 2 * step) : Sums<N>::registers(a[half][step], tokens + 2 * step);
        commit();
        if (WAY == BLOCK) packed.load(weights + half * 16);
        wait<1>();
      } else {
        constexpr int AT_ONCE = WAY == HALF ? 2 : 1;
        const Packed now = packed;
#pragma unroll
        for (int step = 0; step < 4; step += AT_ONCE) {
#pragma unroll
          for (int i = 0; WAY == HALF && i < 2; i++) now.template decode<KIND, COUNT>(a[0][step + i], step + i, more);
          fence();
#pragma unroll
          for (int i = 0; i < AT_ONCE; i++) Sums<N>::registers(a[0][step + i], tokens + 2 * (step + i));
          commit();
          if (step == 4 - AT_ONCE || WAY == STEP && step == 0) packed.load(weights + half * 16);
          wait<1>();
          if (WAY == STEP) (step < 3 ? now : packed).template decode<KIND, COUNT>(a[0][(step + 1) % 4], (step + 1) % 4, more);
        }
      }
    }
  wait<0>();
  __syncthreads();
  const long long end = clock64();
  if (const float sum = Sums<N>::get(); sum == 123.f || (more[0] ^ more[1] ^ more[2] ^ more[3]) == 0x1234567u) *sink = sum;
  if (threadIdx.x == 0) cycles[blockIdx.x] = static_cast<u32>(end - begin);
}
template <int N, int WAY, int KIND, int COUNT>
void time(const char* name, u32* cycles, float* sink) {
  printf("N %3d %-9s", N, name);
  cudaFuncSetAttribute(run<N, WAY, KIND, COUNT>, cudaFuncAttributeMaxDynamicSharedMemorySize, 51200);
  for (int warpgroups = 1; warpgroups <= 4; warpgroups++) {
    constexpr int ROUNDS = 512, SMS = 132;
    for (int turn = 0; turn < 2; turn++) run<N, WAY, KIND, COUNT><<<SMS, 128 * warpgroups, 51200>>>(cycles, sink, ROUNDS);
    u32 found[SMS], most = 0;
    if (const cudaError_t error = cudaMemcpy(found, cycles, sizeof found, cudaMemcpyDeviceToHost)) exit(printf(" %s\n", cudaGetErrorString(error)));
    for (u32 of : found) most = of > most ? of : most;
    printf("  %5.1f", double(most) / (ROUNDS * 8 * warpgroups));
  }
  printf("\n");
}
int main() {
  u32* cycles;
  float* sink;
  cudaMalloc(&cycles, 4096), cudaMalloc(&sink, 4);
"""


def sums(width):
    """The sums of a width as registers that PTX declares, and the instructions that add to them."""
    names = [f"sum_{width}_{i}" for i in range(width // 2)]
    declared = " ".join(f".reg .f32 {name}; mov.f32 {name}, 0f00000000;" for name in names)
    product = f'asm volatile("wgmma.mma_async.sync.aligned.m64n{width}k16.f32.bf16.bf16 {{{", ".join(names)}}}, '
    of_registers = product + '{%0, %1, %2, %3}, %4, 1, 1, 1, 0;" ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));'
    of_shared = product + '%0, %1, 1, 1, 1, 0, 0;" ::"l"(a), "l"(b));'
    added = " ".join(f'asm volatile("mov.f32 %0, {name};" : "=f"(one)); all += one;' for name in names)
    return f"""template <> struct Sums<{width}> {{
  static __device__ __forceinline__ void declare() {{ asm volatile("{declared}" ::); }}
  static __device__ __forceinline__ void registers(const u32* a, u64 b) {{ {of_registers} }}
  static __device__ __forceinline__ void shared(u64 a, u64 b) {{ {of_shared} }}
  static __device__ __forceinline__ float get() {{ float one, all = 0.f; {added} return all; }}
}};"""


of_more = sys.argv[1:] == ["more"]
kinds = "\n".join(
    f"template <> __device__ __forceinline__ void one_more<{kind}>(u32& x, u32 w, u32 y) {{ {text} }}"
    for kind, text in enumerate(MORE.values())
)
body = BODY.replace("struct Packed {", kinds + "\nstruct Packed {", 1)
print(("#define F16\n" if of_more else "") + HEAD + "\n".join(map(sums, WIDTHS)) + body)
if of_more:
    for width in [8, 40, 64]:
        print(f'  time<{width}, 2, 0, 0>("none", cycles, sink);')
        for kind, name in enumerate(MORE):
            for count in [2, 4]:
                print(f'  time<{width}, 2, {kind}, {count}>("{count} {name}", cycles, sink);')
else:
    for width in WIDTHS:
        for number, way in enumerate(WAYS):
            print(f'  time<{width}, {number}, 0, 0>("{way}", cycles, sink);')
print("}")
