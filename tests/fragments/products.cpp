// Products of one element as the emulator computes them. Of each line of stdin: c, the 64 codes of a and of b as hexadecimal
// digits, and four scales of each.
#include <cstdio>

#include "mxf4nvf4.h"

static int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

int main() {
  unsigned c, scale[8];
  char a[80], b[80];
  while (scanf("%u %70s %70s", &c, a, b) == 3) {
    for (unsigned& one : scale) if (scanf("%u", &one) != 1) return 1;
    int sums[4];
    EmuScale of_a[4], of_b[4];
    for (int block = 0; block < 4; block++) {
      sums[block] = 0;
      for (int i = 16 * block; i < 16 * block + 16; i++) sums[block] += emu_e2m1_doubled(digit(a[i])) * emu_e2m1_doubled(digit(b[i]));
      of_a[block] = emu_e4m3_scale(scale[block]);
      of_b[block] = emu_e4m3_scale(scale[4 + block]);
    }
    printf("%u\n", emu_bits(emu_mxf4nvf4(emu_float(c), sums, of_a, of_b)));
  }
}
