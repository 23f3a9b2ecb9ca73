// What a thread of the path tcgen05 asks for, word by word: the kernel's own text, run on the host; and the arithmetic of the
// emulator.
//
//   word rows columns bits            the instruction's descriptor
//   rows|wide block bits              descriptors of a stage whose tile begins at 0x8400, 0xC400
//   row_scales|wide_scales at column bits   copies of a stage's scales whose image begins at 0x2000, columns from its own on
//   mma block row_column wide_column  columns of the scales that products take
//   product bits                      of each line of stdin: c, then a, b, and the scales of both
#include "runtime.h"

#include <cstdio>

#define __shared__
#undef __global__
#define __global__ inline
#undef __align__
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace ws {
using u32 = unsigned int;
struct Asked {
  u32 d, scales_a, scales_b;
  unsigned long long a, b;
};
static Asked asked;
static int copies;
static u32 copied_to[64];
static unsigned long long copied_from[64];
}  // namespace ws

#include "kernel.cu"

using namespace ws;

int main() {
  for (int rows = 128; rows <= 256; rows += 128)
    for (int columns = 8; columns <= 256; columns += 8) printf("word %d %d %u\n", rows, columns, instruction_descriptor(rows, columns));
  const StageAt rows{0x8400, 0}, wide{0xC400 - WIDE_OFFSET, 0};
  for (int block = 0; block < K_BLOCKS; block++) {
    printf("rows %d %llu\n", block, rows.rows(0, block));
    printf("wide %d %llu\n", block, wide.wide(0, block));
  }
  constexpr int WIDE_BEGIN = ROW_TILES * ROW_SCALE_COLUMNS;
  for (int block = 0; block < K_BLOCKS; block++) {
    copies = 0;
    StageAt{u32(0x2000 - ROW_SCALES_OFFSET), 0}.copy_scales(block);
    for (int i = 0; i < copies; i++)
      if (copied_to[i] < WIDE_BEGIN) printf("row_scales %d %u %llu\n", block, copied_to[i], copied_from[i]);
    copies = 0;
    StageAt{u32(0x2000 - WIDE_SCALES_OFFSET), 0}.copy_scales(block);
    for (int i = 0; i < copies; i++)
      if (copied_to[i] >= WIDE_BEGIN) printf("wide_scales %d %u %llu\n", block, copied_to[i] - WIDE_BEGIN, copied_from[i]);
    StageAt{0x8400, 0}.multiply(0, 0, 0, block, true);
    printf("mma %d %u %u\n", block, asked.scales_a, asked.scales_b - WIDE_BEGIN);
  }
}
