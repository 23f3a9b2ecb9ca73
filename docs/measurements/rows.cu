// What it takes an SM to bring rows of 128 bytes, by their numbers, into a ring of stages: by one box for all rows (which takes
// rows that follow each other), by a box or a bulk copy of each row, and by cp.async.
//
//     nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o rows rows.cu && ./rows        (as it was run; laid out since)
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

using u32 = unsigned;
using u64 = unsigned long long;

enum Mode { BOX, ROWS_BY_LANES, ROWS_BY_ONE, BULK_128, BULK_256, CP_ASYNC };
constexpr const char* NAMES[] = {"box of all rows", "boxes of one row, 32 lanes", "boxes of one row, one lane", "bulk 128", "bulk 256", "cp.async"};
constexpr int ROWS = 8192, PITCH = 2048, SMS = 132, LISTED = 4096, ITERATIONS = 400;

__device__ __forceinline__ u32 shared(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra D;\nbra W;\nD:\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}

__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void box(u32 to, const CUtensorMap& map, int x, int y, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(&map), "r"(x), "r"(y), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
               "r"(barrier)
               : "memory");
}

extern __shared__ __align__(1024) unsigned char ring[];

// Each warp has its part of a stage's rows, and waits for it when its place comes round.
template <Mode MODE>
__global__ void bring(const __grid_constant__ CUtensorMap all, const __grid_constant__ CUtensorMap row, const unsigned char* a,
                      const int* rows, int of_stage, int stages, int warps, long long* cycles) {
  __shared__ __align__(8) u64 barriers[4][16];
  __shared__ int list[LISTED];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < LISTED; i += blockDim.x) list[i] = rows[(i + blockIdx.x * 977) % ROWS];
  if (threadIdx.x == 0)
    for (int i = 0; i < 4; i++)
      for (int s = 0; s < stages; s++)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared(&barriers[i][s])), "r"(MODE == CP_ASYNC ? 32 : 1));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  const u32 base = (shared(ring) + 1023) / 1024 * 1024;
  const int mine = of_stage / warps, lines = PITCH / 128;
  const long long begin = clock64();
  for (int at = 0; at < ITERATIONS + stages; at++) {
    const int stage = at % stages, line = at % lines, first = at / lines * of_stage % LISTED + warp * mine;
    const u32 barrier = shared(&barriers[warp][stage]), to = base + (stage * of_stage + warp * mine) * 128;
    if (at >= stages) wait(barrier, (at / stages - 1) & 1);
    if (at >= ITERATIONS) continue;
    const auto number = [&](int r) { return list[(first + r) & (LISTED - 1)]; };
    const auto address = [&](int r) { return a + static_cast<size_t>(number(r)) * PITCH; };
    if (MODE != CP_ASYNC && lane == 0) expect(barrier, mine * 128);
    __syncwarp();
    if (MODE == BOX && lane == 0) box(to, all, line * 64, number(0) & ~255, barrier);
    if (MODE == ROWS_BY_LANES)
      for (int r = lane; r < mine; r += 32) box(to + r * 128, row, line * 64, number(r), barrier);
    if (MODE == ROWS_BY_ONE && lane == 0)
      for (int r = 0; r < mine; r++) box(to + r * 128, row, line * 64, number(r), barrier);
    if (MODE == BULK_128)
      for (int r = lane; r < mine; r += 32) bulk(to + r * 128, address(r) + line * 128, 128, barrier);
    if (MODE == BULK_256)
      for (int r = lane; r < mine / 2; r += 32) bulk(to + r * 256, address(r) + line / 2 * 256, 256, barrier);
    if (MODE == CP_ASYNC) {
      for (int r = lane / 8; r < mine; r += 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + r * 128 + ((lane % 8) ^ (r % 8)) * 16),
                     "l"(address(r) + line * 128 + lane % 8 * 16)
                     : "memory");
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
}

int main() {
  void* found;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  unsigned char* a;
  int* rows;
  long long* cycles;
  cudaMalloc(&a, static_cast<size_t>(ROWS) * PITCH);
  cudaMalloc(&rows, ROWS * sizeof(int));
  cudaMalloc(&cycles, SMS * sizeof(long long));
  cudaMemset(a, 1, static_cast<size_t>(ROWS) * PITCH);
  std::vector<int> drawn(ROWS);
  for (int i = 0; i < ROWS; i++) drawn[i] = (i * 2654435761u >> 7) % ROWS;
  cudaMemcpy(rows, drawn.data(), ROWS * sizeof(int), cudaMemcpyHostToDevice);
  const auto map_of = [&](u32 height) {
    CUtensorMap map;
    const cuuint64_t extents[] = {PITCH / 2, ROWS}, strides[] = {PITCH};
    const cuuint32_t sides[] = {64, height}, steps[] = {1, 1};
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a, extents, strides, sides, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
  };
  const CUtensorMap row = map_of(1);
  using Kernel = decltype(&bring<BOX>);
  const Kernel kernels[] = {bring<BOX>, bring<ROWS_BY_LANES>, bring<ROWS_BY_ONE>, bring<BULK_128>, bring<BULK_256>, bring<CP_ASYNC>};
  constexpr int BYTES = 180 * 1024;
  for (int of_stage : {64, 128, 256})
    for (int warps : {1, 2, 4})
      for (int mode = BOX; mode <= CP_ASYNC; mode++) {
        const int most = 160 * 1024 / (of_stage * 128), stages = most < 8 ? most : 8;
        cudaFuncSetAttribute(kernels[mode], cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
        for (int i = 0; i < 3; i++)
          kernels[mode]<<<SMS, warps * 32, BYTES>>>(map_of(of_stage / warps), row, a, rows, of_stage, stages, warps, cycles);
        if (const cudaError_t error = cudaDeviceSynchronize()) return std::printf("%s: %s\n", NAMES[mode], cudaGetErrorString(error)), 1;
        std::vector<long long> of_block(SMS);
        cudaMemcpy(of_block.data(), cycles, SMS * sizeof(long long), cudaMemcpyDeviceToHost);
        double sum = 0;
        for (long long of : of_block) sum += of;
        const double mean = sum / SMS / (static_cast<double>(of_stage) * ITERATIONS);
        std::printf("rows %3d stages %d warps %d %-28s %8.2f cycles a row of 128 bytes\n", of_stage, stages, warps, NAMES[mode], mean);
      }
}
