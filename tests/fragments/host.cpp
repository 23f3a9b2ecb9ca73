// What lanes hold of a stage when the instruction is issued: the kernel's own text, run lane by lane on the host. Codes
// and scales are numbers of their places, some bits at a time, so that what arrives tells where it came from.
//
//   A|B call lane value row k      a nibble of a register: of which row of the operand, and where along k
//   SFA|SFB call lane byte row block, only of lanes that are looked at
//   D call lane register n8 m16    where its sum is
//   C lane n8 m16 register row column
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct Index {
  unsigned x, y, z;
};
static Index threadIdx, blockIdx;
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static int min(int a, int b) { return a < b ? a : b; }
static unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}
static unsigned __ballot_sync(unsigned, bool) { return 0; }
static void __syncthreads() {}
static size_t __cvta_generic_to_shared(const void*) { return 0; }

namespace ws {
extern unsigned char shared_memory[];
}

// What the instructions see of a lane.
struct Call {
  unsigned a[4], b[2], scales_a, scales_b;
  int a_thread, b_thread;
  const float* sum;
};
static std::vector<Call> calls[32];
static unsigned addresses[64][32];
static int loads;
static bool is_second;

// In place of the headers of PTX: addresses are noted in a first run, and what is there is given in a second.
namespace ws {
static void cp_async_16(unsigned shared, const void* global, bool valid) {
  valid ? memcpy(shared_memory + shared, global, 16) : memset(shared_memory + shared, 0, 16);
}
static void cp_async_4(unsigned shared, const void* global, bool valid) {
  valid ? memcpy(shared_memory + shared, global, 4) : memset(shared_memory + shared, 0, 4);
}
static void cp_async_commit_group() {}
template <int PENDING>
void cp_async_wait_group() {}

static void ldmatrix_x4(unsigned shared, unsigned (&r)[4]) {
  const int lane = threadIdx.x % 32;
  if (!is_second) addresses[loads][lane] = shared;
  for (int i = 0; i < 4; i++) memcpy(&r[i], shared_memory + (is_second ? addresses[loads][8 * i + lane / 4] + 4 * (lane % 4) : 0), 4);
  loads++;
}

template <int A_THREAD, int B_THREAD>
void mma_m16n8k64_mxf4nvf4(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1,
                           unsigned scales_a, unsigned scales_b) {
  if (is_second) calls[threadIdx.x % 32].push_back({{a0, a1, a2, a3}, {b0, b1}, scales_a, scales_b, A_THREAD, B_THREAD, d});
}
}  // namespace ws

#include "kernel.cu"

namespace ws {
alignas(1024) unsigned char shared_memory[SHARED_BYTES];
}
using namespace ws;
using TokenTile = Nvfp4Tile<TOKENS, NaturalOrder>;
using WeightTile = Nvfp4Tile<COLUMNS, FragmentOrder>;

static Accumulators sums[1];

// Numbers of places: of an element 16 bits, of a scale 12.
static unsigned element(int row, int k) { return row * TILE_K + k; }
static unsigned scale(int row, int block) { return row * (TILE_K / 16) + block; }

template <class Tile>
static void load(int offset, int rows, int part) {
  std::vector<u8> codes(rows * TILE_K / 2), scales(rows * TILE_K / 16);
  for (int row = 0; row < rows; row++) {
    for (int k = 0; k < TILE_K; k++) {
      const unsigned nibble = element(row, k) >> (4 * part) & 15;
      codes[(row * TILE_K + k) / 2] |= nibble << (4 * (k % 2));
    }
    for (int block = 0; block < TILE_K / 16; block++) scales[row * (TILE_K / 16) + block] = scale(row, block) >> (4 * part) & 15;
  }
  for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++)
    Tile::load(offset, Tile::rows(codes.data(), scales.data(), 0, rows), 0);
}

int main() {
  static_assert(K == TILE_K, "one stage");
  for (int warp = 0; warp < WARPS; warp++) {
    std::vector<Call> parts[4][32];
    for (int part = 0; part < 4; part++) {
      load<TokenTile>(0, TOKENS, part);
      load<WeightTile>(TokenTile::BYTES, COLUMNS, part);
      for (auto& of_lane : calls) of_lane.clear();
      for (int run = 0; run < 2; run++) {
        is_second = run == 1;
        for (int lane = 0; lane < 32; lane++) {
          threadIdx.x = 32 * warp + lane;
          loads = 0;
          multiply_stage<TokenTile, WeightTile>(sums, 0, {TokenTile::BYTES});
        }
      }
      for (int lane = 0; lane < 32; lane++) parts[part][lane] = calls[lane];
    }
    for (int lane = 0; lane < 32; lane++) {
      for (size_t at = 0; at < calls[lane].size(); at++) {
        const Call& call = calls[lane][at];
        auto number = [&](auto bits) {
          unsigned whole = 0;
          for (int part = 0; part < 4; part++) whole |= bits(parts[part][lane][at]) << (4 * part);
          return whole;
        };
        for (int value = 0; value < 32; value++) {
          const unsigned a = number([&](const Call& of) { return of.a[value / 8] >> (4 * (value % 8)) & 15; });
          printf("A %d.%zu %d %d %d %d\n", warp, at, lane, value, a / TILE_K, a % TILE_K);
          if (value >= 16) continue;
          const unsigned b = number([&](const Call& of) { return of.b[value / 8] >> (4 * (value % 8)) & 15; });
          printf("B %d.%zu %d %d %d %d\n", warp, at, lane, value, b / TILE_K, b % TILE_K);
        }
        for (int byte = 0; byte < 4; byte++) {
          const unsigned a = number([&](const Call& of) { return of.scales_a >> (8 * byte) & 15; });
          const unsigned b = number([&](const Call& of) { return of.scales_b >> (8 * byte) & 15; });
          if (lane % 4 / 2 == call.a_thread) printf("SFA %d.%zu %d %d %d %d\n", warp, at, lane, byte, a / (TILE_K / 16), a % (TILE_K / 16));
          if (lane % 4 == call.b_thread) printf("SFB %d.%zu %d %d %d %d\n", warp, at, lane, byte, b / (TILE_K / 16), b % (TILE_K / 16));
        }
        const int to = (call.sum - &sums[0][0][0][0]) / 4;
        printf("D %d.%zu %d 0 %d %d\n", warp, at, lane, to / WARP_M16, to % WARP_M16);
      }
      threadIdx.x = 32 * warp + lane;
      Block block = {};
      block.rows = TOKENS;
      block.columns = COLUMNS;
      for_each_run(block, [&](int row, int column, int n8, int token) {
        for (int i = 0; i < RUN; i++)
          printf("C %d.%d.%d %d %d %d %d\n", warp, n8, i / 2, lane, 2 * (i % 2) + token, row, column + i);
      });
    }
  }
}
