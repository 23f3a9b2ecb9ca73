// wgmma on the CPU, stricter than the hardware. What the documents do not allow fails the launch; it never works by luck.
//
// Each warp multiplies its 16 rows by itself, with what shared memory has at some time between the instruction and the
// wait for its group, as the schedule says. For each warp is known:
//
//   sums        what clear_sums has put there; read, promoted or cleared only when nothing is under way, widths not mixed
//   A           a product's registers are what they were when it was asked for until it has been waited for; a register
//               that has been A before has at the product what it had at the last wgmma.fence
//               Or it is read as B is
//   B           read in the async proxy, by a descriptor that says what the kernels' tokens are
//   a sequence  all four warps of a warpgroup ask for the same
#pragma once

#include "common/async.cuh"

namespace emu_wgmma {

using emu_u16 = ::emu_u16;
using emu_u32 = ::emu_u32;
using emu_u64 = ::emu_u64;

enum { SLOT = 5, LANES = 32, UNDER_WAY = 32, KNOWN = 32 };

// Four registers of a thread that have been A since the sums were cleared.
struct Known {
  const emu_u32* at;
  emu_u32 at_fence[4];
};
struct Lane {
  Known known[KNOWN];
  emu_u32 count;
};
// What is multiplied.
enum Kind { F16, BF16, E4M3 };

struct Product {
  const emu_u32* a[LANES];  // none, if they are read from shared memory
  emu_u32 values[LANES][4];
  emu_u64 weights, tokens;
  emu_u32 width;
  Kind kind;
  bool adds;  // scale-d
};
struct Warp {
  float sums[16][256];
  float totals[16][256];
  Lane lanes[LANES];
  Product products[UNDER_WAY];
  emu_u64 asked, waited;          // products so far
  emu_u64 groups[UNDER_WAY];      // how many were asked for when each group ended that has not been waited for
  emu_u32 group_count;
  emu_u64 sequence;               // a hash of all of them
  emu_u32 declared, width;        // width of the sums
  bool is_fenced;
};

inline bool same(const emu_u32* a, const emu_u32* b) { return __builtin_memcmp(a, b, 16) == 0; }

inline emu_u32 warps() { return (emu_current->block->threads + 31) / 32; }
inline Warp* all() { return static_cast<Warp*>(emu_block_data(SLOT, warps() * sizeof(Warp))); }
inline Warp& warp() { return all()[emu_current->warp]; }

// For threads of the warp that come together: as the first one of them, whose queue has the products of the warp.
struct Own {
  EmuThread* thread;
  const emu_u32* a;
  emu_u64 weights, tokens;
  emu_u32 width;
  Kind kind;
  bool adds;
};
inline Own& of(void** lanes, int lane) { return *static_cast<Own*>(lanes[lane]); }
struct AsFirst {
  EmuThread* before = emu_current;
  explicit AsFirst(void** lanes) { emu_current = of(lanes, 0).thread; }
  ~AsFirst() { emu_current = before; }
};
inline void together(const char* name, Own own, EmuTogether run) {
  if (warps() < (emu_current->warp | 3) + 1)
    emu_fail("%s: warp %u is in no whole warpgroup", name, emu_current->warp);
  own.thread = emu_current;
  emu_collective(~0u, name, true, &own, run);
}

inline void ended() {
  const Warp* const of = all();
  for (emu_u32 number = 0; number < warps(); number++) {
    const Warp& warp = of[number];
    if (warp.asked != warp.waited) emu_fail("the block ended before products of warp %u were waited for", number);
    const Warp& first = of[number & ~3u];
    if (warp.asked != first.asked || warp.sequence != first.sequence)
      emu_fail("wgmma.mma_async: warps %u and %u of a warpgroup asked for other products", number & ~3u, number);
  }
}

// Where element i of a lane's fragment of sums is.
inline float& sum_of(float (&sums)[16][256], emu_u32 lane, emu_u32 i) {
  return sums[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

// A lane's sums of so many tokens are 0, and what is beside them is nothing of use.
inline void begin(float (&sums)[16][256], emu_u32 width) {
  for (emu_u32 i = 0; i < 128; i++) sum_of(sums, emu_current->lane, i) = i < width / 2 ? 0.f : emu_float(0x7FFFDEAD);
}

inline void declare(emu_u32 count) {
  Warp& own = warp();
  own.declared = count;
  begin(own.sums, 0);
  emu_when_ended(ended);
}

// And the totals of so many tokens.
inline void clear(emu_u32 width, emu_u32 totals) {
  Warp& own = warp();
  if (own.asked != own.waited) emu_fail("the sums of wgmma are cleared while products are under way");
  if (width > own.declared) emu_fail("%u registers for sums of m64n%u are not declared", own.declared / 2, width);
  own.width = width;
  own.is_fenced = false;
  own.lanes[emu_current->lane].count = 0;
  begin(own.sums, width);
  begin(own.totals, totals);
}

inline void get(float* sums, emu_u32 width, bool totals) {
  Warp& own = warp();
  if (own.asked != own.waited) emu_fail("the sums of wgmma are read while products are under way");
  for (emu_u32 i = 0; i < width / 2; i++) sums[i] = sum_of(totals ? own.totals : own.sums, emu_current->lane, i);
}

// To the totals from token `first` on.
inline void promote(emu_u32 width, emu_u32 first) {
  Warp& own = warp();
  if (own.asked != own.waited) emu_fail("the sums of wgmma are promoted while products are under way");
  if (width != own.width) emu_fail("sums of m64n%u are promoted, and they are of m64n%u", width, own.width);
  for (emu_u32 i = 0; i < width / 2; i++) sum_of(own.totals, emu_current->lane, first / 2 + i) += sum_of(own.sums, emu_current->lane, i);
}

// The same of sums times factors, of which a thread has its first at `factors`: two of each eight tokens, and those of sixteen
// tokens together.
inline void promote_scaled(emu_u32 width, emu_u32 first, emu_u32 factors) {
  Warp& own = warp();
  if (own.asked != own.waited) emu_fail("the sums of wgmma are promoted while products are under way");
  if (width != own.width) emu_fail("sums of m64n%u are promoted, and they are of m64n%u", width, own.width);
  for (emu_u32 i = 0; i < width / 2; i++) {
    const emu_u32 eight = first / 8 + i / 4;
    float factor;
    __builtin_memcpy(&factor, emu_shared(factors + eight / 2 * 64 + eight % 2 * 8 + i % 2 * 4, 4, 4, "ld.shared"), 4);
    float& total = sum_of(own.totals, emu_current->lane, first / 2 + i);
    total = __builtin_fmaf(sum_of(own.sums, emu_current->lane, i), factor, total);
  }
}

inline void fence() {
  together("wgmma.fence", {}, [](void** lanes, emu_u32) {
    Warp& own = warp();
    for (int lane = 0; lane < LANES; lane++)
      for (emu_u32 i = 0; i < own.lanes[lane].count; i++) {
        Known& known = own.lanes[lane].known[i];
        __builtin_memcpy(known.at_fence, known.at, 16);
      }
    own.is_fenced = true;
  });
}

inline void commit() {
  together("wgmma.commit_group", {}, [](void** lanes, emu_u32) {
    Warp& own = warp();
    if (own.group_count == UNDER_WAY) emu_fail("wgmma.commit_group: %u groups that nobody has waited for", own.group_count);
    own.groups[own.group_count++] = own.asked;
    AsFirst first(lanes);
    emu_commit(EMU_MATRIX);
  });
}

template <emu_u32 PENDING>
inline void wait() {
  together("wgmma.wait_group", {}, [](void** lanes, emu_u32) {
    AsFirst first(lanes);
    emu_wait_group(EMU_MATRIX, PENDING);
    Warp& own = warp();
    if (own.group_count <= PENDING) return;
    const emu_u32 done = own.group_count - PENDING;
    for (const emu_u64 end = own.groups[done - 1]; own.waited < end; own.waited++) {
      const Product& product = own.products[own.waited % UNDER_WAY];
      for (emu_u32 lane = 0; lane < LANES; lane++)
        if (product.a[lane] && !same(product.a[lane], product.values[lane]))
          emu_fail("lane %u wrote registers that are A of a product under way", lane);
    }
    for (emu_u32 i = 0; i < PENDING; i++) own.groups[i] = own.groups[done + i];
    own.group_count = PENDING;
  });
}

// 16 bytes of row `row` of the operand at a descriptor, through the 128-byte swizzle.
inline emu_u32 place(emu_u64 descriptor, emu_u32 row, emu_u32 half) {
  const emu_u32 at = (emu_u32(descriptor & 0x3FFF) << 4) + row / 8 * 1024 + row % 8 * 128 + half * 16;
  return (at ^ (at >> 7 & 7) << 4) | emu_current->block->rank << EMU_RANK_SHIFT;
}

inline void check_descriptor(emu_u64 bits) {
  const char* helper = "wgmma.mma_async";
  const emu_u32 start = emu_u32(bits & 0x3FFF) << 4, leading = emu_u32(bits >> 16 & 0x3FFF), stride = emu_u32(bits >> 32 & 0x3FFF);
  if (bits >> 14 & 3 || bits >> 30 & 3 || bits >> 46 & 7 || bits >> 52 & 0x3FF)
    emu_fail("%s: reserved bits of descriptor 0x%llx", helper, bits);
  if (bits >> 62 != 1) emu_fail("%s: descriptor 0x%llx is not of the 128-byte swizzle", helper, bits);
  if (bits >> 49 & 7) emu_fail("%s: base offset of descriptor 0x%llx", helper, bits);
  if (leading > 1) emu_fail("%s: leading offset %u", helper, leading * 16);
  if (stride != 64) emu_fail("%s: groups of eight rows are %u bytes apart", helper, stride * 16);
  // Rows of 128 bytes: a product begins with 16 elements of the first.
  if ((start & 1023) > 96 || start % 32) emu_fail("%s: begins at 0x%x", helper, start);
}

// COUNT rows from `first` on.
inline void read_rows(emu_u64 descriptor, emu_u32 first, emu_u32 count) {
  for (emu_u32 row = first; row < first + count; row++)
    for (emu_u32 half = 0; half < 2; half++) {
      emu_shared(place(descriptor, row, half), 16, 16, "wgmma.mma_async");
      emu_async_read(place(descriptor, row, half), 16, "wgmma.mma_async");
    }
}

// The rows of A that a warp multiplies, which others of its warpgroup do not.
inline emu_u32 first_row(const Product& product, emu_u32 warp) { return product.a[0] ? 0 : warp % 4 * 16; }
inline void read_operands(const Product& product, emu_u32 warp) {
  if (!product.a[0]) read_rows(product.weights, first_row(product, warp), 16);
  read_rows(product.tokens, 0, product.width);
}

// As registers would have them: lane 4g + c has, of rows g and g + 8, bytes 4c … of the first half, and of both those of the second.
inline void take_weights(Product& product, emu_u32 warp) {
  for (emu_u32 lane = 0; lane < LANES; lane++)
    for (emu_u32 i = 0; i < 4; i++) {
      const emu_u32 at = place(product.weights, first_row(product, warp) + lane / 4 + i % 2 * 8, i / 2) + lane % 4 * 4;
      __builtin_memcpy(&product.values[lane][i], emu_shared(at, 4, 4, "wgmma.mma_async"), 4);
    }
}

inline void multiply(Warp& warp, emu_u32 number, Product& product) {
  // What was written without a fence since it was asked for is not there for it, or is too early.
  read_operands(product, number);
  if (!product.a[0]) take_weights(product, number);
  emu_u16 tokens[256][16];
  for (emu_u32 row = 0; row < product.width; row++)
    for (emu_u32 half = 0; half < 2; half++)
      __builtin_memcpy(tokens[row] + half * 8, emu_shared(place(product.tokens, row, half), 16, 16, "wgmma.mma_async"), 16);
  if (product.kind == E4M3)
    emu_multiply_e4m3(warp.sums, product.values, tokens, product.width, product.adds);
  else
    emu_multiply(warp.sums, product.values, tokens, product.width, product.kind == BF16);
}

// Of A in registers, or else at the descriptor `weights`.
inline void mma_async(emu_u32 width, Kind kind, bool adds, const emu_u32* a, emu_u64 weights, emu_u64 tokens) {
  together("wgmma.mma_async", {nullptr, a, weights, tokens, width, kind, adds}, [](void** lanes, emu_u32) {
    const char* helper = "wgmma.mma_async";
    AsFirst first(lanes);
    Warp& own = warp();
    const Own& asked = of(lanes, 0);
    if (asked.width != own.width) emu_fail("%s: m64n%u, and the sums are of m64n%u", helper, asked.width, own.width);
    if (!own.is_fenced) emu_fail("%s: its sums were written, and no wgmma.fence followed", helper);
    if (own.asked - own.waited == UNDER_WAY) emu_fail("%s: %u products that nobody has waited for", helper, UNDER_WAY);
    check_descriptor(asked.tokens);
    if (!asked.a) check_descriptor(asked.weights);
    Product& product = own.products[own.asked++ % UNDER_WAY];
    product.weights = asked.weights;
    product.tokens = asked.tokens;
    product.width = asked.width;
    product.kind = asked.kind;
    product.adds = asked.adds;
    for (int lane = 0; lane < LANES; lane++) {
      const Own& other = of(lanes, lane);
      if (other.weights != asked.weights || other.tokens != asked.tokens || other.width != asked.width || other.kind != asked.kind ||
          other.adds != asked.adds)
        emu_fail("%s: lanes 0 and %d ask for other products", helper, lane);
      product.a[lane] = other.a;
      if (!other.a) continue;
      __builtin_memcpy(product.values[lane], other.a, 16);
      Lane& registers = own.lanes[lane];
      emu_u32 i = 0;
      while (i < registers.count && registers.known[i].at != other.a) i++;
      if (i < registers.count) {
        if (!same(registers.known[i].at_fence, other.a))
          emu_fail("%s: lane %d wrote registers of A after the last wgmma.fence", helper, lane);
      } else if (i < KNOWN) {
        registers.known[i].at = other.a;
        __builtin_memcpy(registers.known[i].at_fence, other.a, 16);
        registers.count++;
      }
    }
    const emu_u32 number = emu_current->warp;
    read_operands(product, number);
    own.sequence = (own.sequence ^ asked.weights ^ asked.tokens ^ asked.width ^ static_cast<emu_u64>(asked.adds) << 40) * 0x100000001B3ull + 1;
    Warp* of_it = &own;
    Product* what = &product;
    emu_queue(EMU_MATRIX, [of_it, what, number] { multiply(*of_it, number, *what); });
  });
}

}  // namespace emu_wgmma
