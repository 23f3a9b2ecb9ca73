// tcgen05 on the CPU, stricter than the hardware. What the documents do not allow, what is not there yet and what nobody has
// been told of fails the launch; it never works by luck.
//
// Tensor memory is 128 lanes × 512 columns of words for each block. Copies and products of a thread are queued and run in their
// order, as early or as late as the schedule says; of copies also before products that were asked for earlier, since nothing
// orders these. Each column remembers:
//
//   who has it        allocated columns only are touched; all of them are given back before the block ends
//   what it holds     nothing, scales or sums of so many lanes: what is read was written
//   by what           the number of the last operation that wrote it, and of the last that read it. A thread knows that an
//                     operation is done if it has waited for a barrier that was committed to behind it, or at which one
//                     arrived who knew; it may load what that wrote behind a fence::after_thread_sync. Nobody copies scales
//                     over what is not known to be read.
//   who reads it      loads that were not followed by fence::before_thread_sync, and by the writer's fence::after_thread_sync
#pragma once

#include "common/async.cuh"
#include "mxf4nvf4.h"

namespace emu_tcgen05 {

using emu_u8 = ::emu_u8;
using emu_u16 = ::emu_u16;
using emu_u32 = ::emu_u32;
using emu_u64 = ::emu_u64;

enum { COLUMNS = 512, LANES = 128, WARPS = 64, TOLD = 16, BARRIERS = 128, READERS = 8, TENSOR_SLOT = 6, PAIR_SLOT = 7 };
constexpr emu_u32 POISON = 0x7FFFDEAD;

// A load that a thread has not waited for.
struct Load {
  emu_u32* registers;
  emu_u32 lane, column, count;
};
struct Thread {
  emu_u64 seen;         // time of its last fence::after_thread_sync
  emu_u64 told[TOLD];   // times of its last fences::before_thread_sync
  emu_u32 tellings;
  emu_u64 known;        // the last operation that it knows to be done
  emu_u64 loads[READERS];  // up to when it knows each warp that loads to have done so
  emu_u64 learnt;       // when it learnt any of that
  emu_u64 loaded_last;  // time of its last load
  Load under_way[16];
  emu_u32 pending;
};
struct Column {
  bool is_allocated;
  emu_u8 kind[4];           // of each quarter of the lanes: 0 nothing, 1 scales, 2 sums
  emu_u32 under_way;        // products that are still to write it
  emu_u64 written, read;    // operations that write and read it: the last ones that were asked for
  bool is_loaded;           // since the sums were begun
  emu_u32 readers[4];       // threads + 1 that loaded it last, of each quarter
  emu_u64 loaded[4];        // and when
};
struct Tensor {
  emu_u32 cells[COLUMNS][LANES];
  Column columns[COLUMNS];
  Thread threads[32 * WARPS];
  emu_u32 allocated, least, pending_operations;
  bool relinquished;
};
// Of all blocks of a cluster.
struct Shared {
  emu_u64 time;
  emu_u64 operations;
  int group;  // 1 or 2, once it is known
  // Up to which operation a barrier has told of.
  emu_u32 barriers[BARRIERS];
  emu_u64 committed[BARRIERS];
  emu_u64 loads[BARRIERS][READERS];
};

inline Shared& shared() { return *static_cast<Shared*>(emu_cluster_data(PAIR_SLOT, sizeof(Shared))); }
inline Tensor*& tensor_of_rank(emu_u32 rank) {
  struct All {
    Tensor* of[EMU_CLUSTER_MAX];
  };
  return static_cast<All*>(emu_cluster_data(TENSOR_SLOT, sizeof(All)))->of[rank];
}
inline void learn(emu_u32 barrier);
inline void tell(emu_u32 barrier);
inline Tensor& tensor() {
  Tensor*& known = tensor_of_rank(emu_current->block->rank);
  if (!known) {
    known = static_cast<Tensor*>(emu_block_data(TENSOR_SLOT, sizeof(Tensor)));
    known->least = COLUMNS;
    ws::emu_after_wait = learn;
    ws::emu_before_arrive = tell;
    emu_when_ended([] {
      if (tensor().allocated) emu_fail("the block ended with %u columns of tensor memory", tensor().allocated);
      for (const emu_u32 barrier : shared().barriers)
        if (barrier && barrier >> EMU_RANK_SHIFT == emu_current->block->rank && !emu_mbarrier_is_at_rest(barrier))
          emu_fail("the block ended in the middle of a phase of the mbarrier at 0x%x", barrier);
    });
  }
  return *known;
}
inline Tensor& tensor(emu_u32 rank) {
  Tensor* known = tensor_of_rank(rank);
  if (!known || !known->allocated) emu_fail("block %u of the pair has no tensor memory", rank);
  return *known;
}
inline Thread& self() { return tensor().threads[emu_current->number]; }

inline int place_of(emu_u32 barrier) {
  Shared& all = shared();
  for (int i = 0; i < BARRIERS; i++) {
    if (all.barriers[i] == 0) all.barriers[i] = barrier;
    if (all.barriers[i] == barrier) return i;
  }
  emu_fail("more than %d barriers", int(BARRIERS));
}
inline emu_u64& committed_to(emu_u32 barrier) { return shared().committed[place_of(barrier)]; }
// One of the four warps that load, of either block of a pair.
inline int reader_of(emu_u32 rank, emu_u32 warp) { return int(rank % 2 * 4 + warp % 4); }

inline bool raise(emu_u64& value, emu_u64 to) {
  const bool is_more = to > value;
  if (is_more) value = to;
  return is_more;
}
inline void learn(emu_u32 barrier) {
  Thread& thread = self();
  const Shared& all = shared();
  const int place = place_of(barrier);
  bool is_new = raise(thread.known, all.committed[place]);
  for (int reader = 0; reader < READERS; reader++) is_new |= raise(thread.loads[reader], all.loads[place][reader]);
  if (is_new) thread.learnt = ++shared().time;
}
inline void tell(emu_u32 barrier) {
  const Thread& thread = self();
  Shared& all = shared();
  const int place = place_of(barrier);
  raise(all.committed[place], thread.known);
  for (int reader = 0; reader < READERS; reader++) raise(all.loads[place][reader], thread.loads[reader]);
}
// When a thread first told others after a time; 0 if it did not.
inline emu_u64 told_after(const Thread& thread, emu_u64 time) {
  emu_u64 first = 0;
  for (const emu_u64 told : thread.told)
    if (told >= time && (first == 0 || told < first)) first = told;
  return first;
}

inline void use_group(bool pair, const char* helper) {
  Shared& all = shared();
  const int group = pair ? 2 : 1;
  if (all.group && all.group != group) emu_fail("%s: cta_group::%d after cta_group::%d in one kernel", helper, group, all.group);
  all.group = group;
  if (pair && emu_current->block->cluster->blocks % 2) emu_fail("%s: cta_group::2 without a pair", helper);
}
// The ranks that an operation of this block is of.
inline emu_u32 first_rank(bool pair) { return pair ? emu_current->block->rank & ~1u : emu_current->block->rank; }

// Columns that an operation touches, of each of its blocks: all of them allocated.
inline void check_columns(Tensor& tensor, emu_u32 address, emu_u32 count, const char* helper, const char* what) {
  if (address >> 16) emu_fail("%s: %s at lane %u, not 0", helper, what, address >> 16);
  for (emu_u32 column = address; column < address + count; column++)
    if (column >= COLUMNS || !tensor.columns[column].is_allocated)
      emu_fail("%s: %s in column %u, which is not allocated", helper, what, column);
}

inline void allocate(bool pair, emu_u32 to, emu_u32 columns) {
  use_group(pair, "tcgen05.alloc");
  if (columns < 32 || columns > COLUMNS || columns & (columns - 1)) emu_fail("tcgen05.alloc: %u columns", columns);
  struct Own {
    emu_u32 to, columns;
    bool pair;
  } own = {to, columns, pair};
  emu_collective(~0u, "tcgen05.alloc", true, &own, [](void** lanes, emu_u32) {
    const Own& own = *static_cast<Own*>(lanes[0]);
    Tensor& memory = tensor();
    if (memory.relinquished) emu_fail("tcgen05.alloc after relinquish_alloc_permit");
    if (own.columns > memory.least) emu_fail("tcgen05.alloc: %u columns after fewer, %u", own.columns, memory.least);
    memory.least = own.columns;
    emu_u32 begin = 0;
    for (emu_u32 column = 0; column < begin + own.columns; column++) {
      if (column >= COLUMNS) emu_fail("tcgen05.alloc: %u columns are not free, and nobody gives them back", own.columns);
      if (memory.columns[column].is_allocated) begin = (column / 32 + 1) * 32;
    }
    for (emu_u32 column = begin; column < begin + own.columns; column++) {
      Column& fresh = memory.columns[column];
      fresh = Column{};
      fresh.is_allocated = true;
      for (emu_u32& cell : memory.cells[column]) cell = POISON;
    }
    memory.allocated += own.columns;
    unsigned char* place = emu_shared(own.to, 4, 4, "tcgen05.alloc");
    __builtin_memcpy(place, &begin, 4);
  });
}

inline void relinquish(bool pair) {
  use_group(pair, "tcgen05.relinquish_alloc_permit");
  emu_collective(~0u, "tcgen05.relinquish_alloc_permit", true, nullptr,
                 [](void**, emu_u32) { tensor().relinquished = true; });
}

inline void free_columns(bool pair, emu_u32 address, emu_u32 columns) {
  use_group(pair, "tcgen05.dealloc");
  struct Own {
    emu_u32 address, columns;
    bool pair;
  } own = {address, columns, pair};
  emu_collective(~0u, "tcgen05.dealloc", true, &own, [](void** lanes, emu_u32) {
    const Own& own = *static_cast<Own*>(lanes[0]);
    Tensor& memory = tensor();
    check_columns(memory, own.address, own.columns, "tcgen05.dealloc", "memory");
    if (memory.pending_operations) emu_fail("tcgen05.dealloc while %u operations are under way", memory.pending_operations);
    const emu_u64 seen = self().seen;
    if (own.pair) {
      // The other block may still be reading.
      const Tensor* other = tensor_of_rank(emu_current->block->rank ^ 1);
      for (const Thread& reader : other->threads) {
        const emu_u64 told = reader.loaded_last ? told_after(reader, reader.loaded_last) : seen;
        if (told == 0 || seen < told) emu_fail("tcgen05.dealloc before the other block of the pair is known to have loaded its sums");
      }
    }
    for (emu_u32 column = own.address; column < own.address + own.columns; column++) {
      for (int quarter = 0; quarter < 4; quarter++) {
        const emu_u32 reader = memory.columns[column].readers[quarter];
        const emu_u64 loaded = memory.columns[column].loaded[quarter];
        const emu_u64 told = loaded ? told_after(memory.threads[reader - 1], loaded) : 0;
        if (loaded && (told == 0 || seen < told))
          emu_fail("tcgen05.dealloc: thread %u loaded column %u, and this one has not been told that it is done", reader - 1, column);
      }
      memory.columns[column].is_allocated = false;
    }
    memory.allocated -= own.columns;
  });
}

struct Descriptor {
  emu_u32 start;
};
// What a matrix descriptor in shared memory may be here.
inline Descriptor described(emu_u64 bits, bool is_scales, const char* helper) {
  const emu_u32 start = emu_u32(bits & 0x3FFF) << 4, leading = emu_u32(bits >> 16 & 0x3FFF), stride = emu_u32(bits >> 32 & 0x3FFF);
  if (bits >> 14 & 3 || bits >> 30 & 3) emu_fail("%s: reserved bits of descriptor 0x%llx", helper, bits);
  if ((bits >> 46 & 7) != 1) emu_fail("%s: bits 46 to 48 of descriptor 0x%llx are not 001", helper, bits);
  if (bits >> 49 & 0xFFF) emu_fail("%s: base offset, mode or reserved bits of descriptor 0x%llx", helper, bits);
  if (leading > 1) emu_fail("%s: leading offset %u", helper, leading * 16);
  if (bits >> 61 != (is_scales ? 0 : 2)) emu_fail("%s: layout %llu of descriptor 0x%llx", helper, bits >> 61, bits);
  if (stride != (is_scales ? 8 : 64)) emu_fail("%s: groups of eight rows are %u bytes apart", helper, stride * 16);
  if (is_scales ? start % 16 : (start & 1023) % 32 || (start & 1023) > 96) emu_fail("%s: begins at 0x%x", helper, start);
  return {start};
}

inline const emu_u8* bytes_of(emu_u32 rank, emu_u32 start, emu_u32 bytes, const char* helper) {
  return emu_cluster_shared(start | rank << EMU_RANK_SHIFT, bytes, 16, helper);
}
inline void reads(emu_u32 rank, emu_u32 start, emu_u32 bytes, const char* helper) {
  emu_async_read(start | rank << EMU_RANK_SHIFT, bytes, helper);
}

inline void copy_scales(bool pair, emu_u32 to, emu_u64 descriptor) {
  const char* helper = "tcgen05.cp";
  use_group(pair, helper);
  const emu_u32 first = first_rank(pair), count = pair ? 2 : 1;
  if (emu_current->block->rank != first) emu_fail("%s by the second block of a pair", helper);
  const emu_u32 start = described(descriptor, true, helper).start;
  Thread& thread = self();
  for (emu_u32 rank = first; rank < first + count; rank++) {
    Tensor& memory = tensor(rank);
    check_columns(memory, to, 4, helper, "scales");
    reads(rank, start, 512, helper);
    bytes_of(rank, start, 512, helper);
    for (emu_u32 column = to; column < to + 4; column++) {
      // Nothing orders a copy behind products that read the same columns: they have to be known to be done.
      const Column& before = memory.columns[column];
      if (before.read > thread.known) emu_fail("%s into column %u: products that read it are not known to be done", helper, column);
    }
  }
  const auto run = [to, start, first, count] {
    for (emu_u32 rank = first; rank < first + count; rank++) {
      Tensor& memory = tensor(rank);
      const emu_u8* from = bytes_of(rank, start, 512, "tcgen05.cp");
      for (emu_u32 row = 0; row < 32; row++)
        for (emu_u32 word = 0; word < 4; word++) {
          emu_u32 value;
          __builtin_memcpy(&value, from + row * 16 + word * 4, 4);
          for (emu_u32 quarter = 0; quarter < 4; quarter++) memory.cells[to + word][row + 32 * quarter] = value;
        }
      for (emu_u32 column = to; column < to + 4; column++)
        for (emu_u8& kind : memory.columns[column].kind) kind = 1;
    }
  };
  // It may overtake products.
  if (emu_schedule() == EMU_SEEDED && emu_random() % 2) {
    run();
    return;
  }
  for (emu_u32 rank = first; rank < first + count; rank++) tensor(rank).pending_operations++;
  emu_queue(EMU_MATRIX, [run, first, count] {
    run();
    for (emu_u32 rank = first; rank < first + count; rank++) tensor(rank).pending_operations--;
  });
}

struct Instruction {
  emu_u32 rows, columns;
};
inline Instruction instruction_of(emu_u32 bits, bool pair) {
  const char* helper = "tcgen05.mma";
  const Instruction instruction = {(bits >> 27 & 3) * 128, (bits >> 17 & 63) * 8};
  if ((bits >> 7 & 7) != 1 || (bits >> 10 & 3) != 1) emu_fail("%s: operands of descriptor 0x%x are not e2m1", helper, bits);
  if (bits & 0x0701F07F) emu_fail("%s: reserved, transposing or negating bits of descriptor 0x%x", helper, bits);
  if (bits >> 23 & 1) emu_fail("%s: scales of descriptor 0x%x are not e4m3", helper, bits);
  if (bits >> 29) emu_fail("%s: ids of scales, or K, of descriptor 0x%x", helper, bits);
  if (instruction.rows != (pair ? 256u : 128u)) emu_fail("%s: %u rows", helper, instruction.rows);
  const emu_u32 step = pair ? 32 : 16;
  if (instruction.columns < step || instruction.columns > 256 || instruction.columns % step)
    emu_fail("%s: %u columns, which no kernel that is known to run has", helper, instruction.columns);
  return instruction;
}

struct Product {
  emu_u32 d, a, b, scales_a, scales_b, columns, first, count;
  bool accumulate;

  emu_u32 here() const { return columns / count; }
  emu_u32 scale_columns() const { return (columns + 31) / 32; }
};

// A row of 64 codes, doubled, through the 128-byte swizzle.
inline void decode(signed char (&codes)[64], emu_u32 rank, emu_u32 start, emu_u32 row) {
  for (emu_u32 half = 0; half < 2; half++) {
    emu_u32 address = start + row / 8 * 1024 + row % 8 * 128 + half * 16;
    address ^= (address >> 7 & 7) << 4;
    const emu_u8* from = bytes_of(rank, address, 16, "tcgen05.mma");
    for (emu_u32 i = 0; i < 16; i++) {
      codes[half * 32 + 2 * i] = emu_e2m1_doubled(from[i] & 15);
      codes[half * 32 + 2 * i + 1] = emu_e2m1_doubled(from[i] >> 4);
    }
  }
}
inline void decode_scales(EmuScale (&scales)[4], const Tensor& memory, emu_u32 column, emu_u32 row) {
  const auto& words = memory.cells[column + row / 32];
  const emu_u32 word = words[row % 32];
  for (emu_u32 quarter = 0; quarter < 4; quarter++) {
    if (memory.columns[column + row / 32].kind[quarter] != 1)
      emu_fail("tcgen05.mma: there are no scales in column %u", column + row / 32);
    if (words[row % 32 + 32 * quarter] != word)
      emu_fail("tcgen05.mma: quarters of the lanes differ in the scales of column %u", column + row / 32);
  }
  for (int block = 0; block < 4; block++) scales[block] = emu_e4m3_scale(word >> (8 * block));
}

inline void multiply(const Product& p) {
  struct Side {
    signed char codes[256][64];
    EmuScale scales[256][4];
  };
  static Side wide;
  for (emu_u32 column = 0; column < p.columns; column++) decode(wide.codes[column], p.first + column / p.here(), p.b, column % p.here());
  for (emu_u32 rank = p.first; rank < p.first + p.count; rank++) {
    Tensor& memory = tensor(rank);
    for (emu_u32 column = 0; column < p.columns; column++) decode_scales(wide.scales[column], memory, p.scales_b, column);
    for (emu_u32 row = 0; row < LANES; row++) {
      signed char codes[64];
      EmuScale scales[4];
      decode(codes, rank, p.a, row);
      decode_scales(scales, memory, p.scales_a, row);
      for (emu_u32 column = 0; column < p.columns; column++) {
        int sums[4];
        for (int block = 0; block < 4; block++) {
          int sum = 0;
          for (int i = 0; i < 16; i++) sum += int(codes[16 * block + i]) * wide.codes[column][16 * block + i];
          sums[block] = sum;
        }
        emu_u32& cell = memory.cells[p.d + column][row];
        const float addend = p.accumulate ? emu_float(cell) : 0.0f;
        cell = emu_bits(emu_mxf4nvf4(addend, sums, scales, wide.scales[column]));
      }
    }
    for (emu_u32 column = p.d; column < p.d + p.columns; column++)
      for (emu_u8& kind : memory.columns[column].kind) kind = 2;
  }
}

// Counts a product at the columns that it reads and writes, in all its blocks.
inline void count(const Product& p, int by) {
  for (emu_u32 rank = p.first; rank < p.first + p.count; rank++) {
    Tensor& memory = tensor(rank);
    memory.pending_operations += by;
    for (emu_u32 i = 0; i < p.columns; i++) memory.columns[p.d + i].under_way += by;
    for (emu_u32 i = 0; i < 4; i++) memory.columns[p.scales_a + i].under_way += by;
    for (emu_u32 i = 0; i < p.scale_columns(); i++) memory.columns[p.scales_b + i].under_way += by;
  }
}

inline void mma(bool pair, emu_u32 d, emu_u64 a, emu_u64 b, emu_u32 instruction_bits, emu_u32 scales_a, emu_u32 scales_b,
                bool accumulate) {
  const char* helper = "tcgen05.mma";
  use_group(pair, helper);
  const Instruction instruction = instruction_of(instruction_bits, pair);
  const emu_u32 first = first_rank(pair), blocks = pair ? 2 : 1;
  if (emu_current->block->rank != first) emu_fail("%s by the second block of a pair", helper);
  const Product p = {d,        described(a, false, helper).start, described(b, false, helper).start, scales_a, scales_b,
                     instruction.columns, first, blocks, accumulate};
  if (scales_a % 2 || scales_b % 2) emu_fail("%s: scales in columns %u and %u, an odd one", helper, scales_a, scales_b);
  const auto overlap = [](emu_u32 one, emu_u32 columns, emu_u32 other, emu_u32 more) { return one < other + more && other < one + columns; };
  if (overlap(d, p.columns, scales_a, 4) || overlap(d, p.columns, scales_b, p.scale_columns()) ||
      overlap(scales_a, 4, scales_b, p.scale_columns()))
    emu_fail("%s: sums in column %u and scales in %u and %u overlap", helper, d, scales_a, scales_b);
  Thread& thread = self();
  for (emu_u32 rank = first; rank < first + blocks; rank++) {
    Tensor& memory = tensor(rank);
    check_columns(memory, d, p.columns, helper, "sums");
    check_columns(memory, scales_a, 4, helper, "scales of a");
    check_columns(memory, scales_b, p.scale_columns(), helper, "scales of b");
    reads(rank, p.a & ~1023u, 128 * 128, helper);
    reads(rank, p.b & ~1023u, p.here() * 128, helper);
    for (emu_u32 column = d; column < d + p.columns; column++) {
      Column& sums = memory.columns[column];
      for (int quarter = 0; quarter < 4; quarter++) {
        if (sums.loaded[quarter] == 0) continue;
        const emu_u64 told = told_after(memory.threads[sums.readers[quarter] - 1], sums.loaded[quarter]);
        if (told == 0)
          emu_fail("%s into column %u, which thread %u loaded without a fence::before_thread_sync since", helper, column,
                   sums.readers[quarter] - 1);
        if (thread.loads[reader_of(rank, quarter)] < told)
          emu_fail("%s into column %u, which thread %u is not known to have loaded", helper, column, sums.readers[quarter] - 1);
        if (thread.learnt > thread.seen)
          emu_fail("%s into column %u without a fence::after_thread_sync since thread %u was known to have loaded it", helper, column,
                   sums.readers[quarter] - 1);
        sums.loaded[quarter] = 0;
      }
      if (accumulate && !sums.under_way && sums.kind[0] != 2) emu_fail("%s adds to column %u, which holds no sums", helper, column);
      // Of every tile somebody wants the first column.
      if (!accumulate && column == d && sums.written && !sums.is_loaded)
        emu_fail("%s into column %u, whose sums nobody has loaded", helper, column);
    }
    const emu_u64 operation = shared().operations + 1;
    for (emu_u32 column = d; column < d + p.columns; column++) {
      memory.columns[column].written = memory.columns[column].read = operation;
      if (!accumulate) memory.columns[column].is_loaded = false;
    }
    for (emu_u32 i = 0; i < 4; i++) memory.columns[scales_a + i].read = operation;
    for (emu_u32 i = 0; i < p.scale_columns(); i++) memory.columns[scales_b + i].read = operation;
  }
  shared().operations++;
  count(p, 1);
  emu_queue(EMU_MATRIX, [p] {
    multiply(p);
    count(p, -1);
  });
}

inline void commit(bool pair, emu_u32 barrier) {
  use_group(pair, "tcgen05.commit");
  const emu_u32 first = first_rank(pair);
  if (emu_current->block->rank != first) emu_fail("tcgen05.commit by the second block of a pair");
  const emu_u64 operations = shared().operations;
  for (emu_u32 rank = first; rank < first + (pair ? 2 : 1); rank++) {
    const emu_u32 at = (barrier & EMU_OFFSET_MASK) | rank << EMU_RANK_SHIFT;
    emu_queue(EMU_MATRIX, [at, operations] {
      emu_u64& committed = committed_to(at);
      if (operations > committed) committed = operations;
    });
    emu_queue_arrive(EMU_MATRIX, at);
  }
}

inline void fetch(const Load& load) {
  const Tensor& memory = tensor();
  for (emu_u32 i = 0; i < load.count; i++) load.registers[i] = memory.cells[load.column + i][load.lane];
}

inline void load(emu_u32* registers, emu_u32 from, emu_u32 columns) {
  const char* helper = "tcgen05.ld";
  struct Own {
    emu_u32 from;
  } own = {from};
  emu_collective(~0u, helper, true, &own, [](void** lanes, emu_u32) {
    for (int lane = 1; lane < 32; lane++)
      if (static_cast<Own*>(lanes[lane])->from != static_cast<Own*>(lanes[0])->from) emu_fail("tcgen05.ld: lanes differ in the address");
  });
  Tensor& memory = tensor();
  Thread& thread = self();
  const emu_u32 quarter = emu_current->warp % 4, column = from & 0xFFFF;
  if (from >> 16 != 32 * quarter) emu_fail("%s: warp %u reads from lane %u", helper, emu_current->warp, from >> 16);
  check_columns(memory, column, columns, helper, "sums");
  for (emu_u32 i = column; i < column + columns; i++) {
    Column& sums = memory.columns[i];
    if (sums.under_way) emu_fail("%s: products of column %u are under way", helper, i);
    if (sums.kind[quarter] != 2) emu_fail("%s: there are no sums in column %u", helper, i);
    if (sums.written > thread.known) emu_fail("%s: the sums of column %u are not known to be there", helper, i);
    if (thread.learnt > thread.seen) emu_fail("%s: no fence::after_thread_sync since column %u was known to be written", helper, i);
    sums.is_loaded = true;
    sums.readers[quarter] = emu_current->number + 1;
    sums.loaded[quarter] = ++shared().time;
  }
  thread.loaded_last = shared().time;
  if (thread.pending == sizeof thread.under_way / sizeof *thread.under_way) emu_fail("%s: too many loads without a wait", helper);
  thread.under_way[thread.pending++] = {registers, 32 * quarter + emu_current->lane, column, columns};
  for (emu_u32 i = 0; i < columns; i++) registers[i] = POISON;
  if (emu_schedule() == EMU_EAGER) fetch(thread.under_way[thread.pending - 1]);
}

inline void wait_loads() {
  emu_collective(~0u, "tcgen05.wait::ld", true, nullptr, [](void**, emu_u32) {});
  Thread& thread = self();
  for (emu_u32 i = 0; i < thread.pending; i++) fetch(thread.under_way[i]);
  thread.pending = 0;
}

inline void fence_before() {
  Thread& thread = self();
  if (thread.pending) emu_fail("tcgen05.fence::before_thread_sync before a wait for %u loads", thread.pending);
  const emu_u64 now = ++shared().time;
  thread.told[thread.tellings++ % TOLD] = now;
  // What one lane tells, it tells for its warp, which has come together.
  if (thread.loaded_last) {
    const int reader = reader_of(emu_current->block->rank, emu_current->warp);
    Thread* first = &tensor().threads[emu_current->number / 32 * 32];
    for (int lane = 0; lane < 32; lane++) raise(first[lane].loads[reader], now);
  }
}
inline void fence_after() { self().seen = ++shared().time; }

}  // namespace emu_tcgen05

namespace ws {

template <bool PAIR>
inline void tcgen05_alloc(u32 shared, u32 columns) { emu_tcgen05::allocate(PAIR, shared, columns); }
template <bool PAIR>
inline void tcgen05_relinquish_alloc_permit() { emu_tcgen05::relinquish(PAIR); }
template <bool PAIR>
inline void tcgen05_dealloc(u32 address, u32 columns) { emu_tcgen05::free_columns(PAIR, address, columns); }
template <bool PAIR>
inline void tcgen05_cp_32x128b_warpx4(u32 to, u64 descriptor) { emu_tcgen05::copy_scales(PAIR, to, descriptor); }

enum class Collector { DISCARD, FILL, LAST_USE };

template <bool PAIR, Collector>
inline void tcgen05_mma_mxf4nvf4(u32 d, u64 a, u64 b, u32 instruction, u32 scales_a, u32 scales_b, bool accumulate) {
  emu_tcgen05::mma(PAIR, d, a, b, instruction, scales_a, scales_b, accumulate);
}
template <bool PAIR>
inline void tcgen05_commit(u32 barrier) { emu_tcgen05::commit(PAIR, barrier); }

inline void tcgen05_ld_32x32b_x16(u32 (&r)[16], u32 from) { emu_tcgen05::load(r, from, 16); }
template <int COUNT>
inline void tcgen05_wait_ld(u32 (&)[COUNT][16]) { emu_tcgen05::wait_loads(); }
inline void tcgen05_fence_before_thread_sync() { emu_tcgen05::fence_before(); }
inline void tcgen05_fence_after_thread_sync() { emu_tcgen05::fence_after(); }

inline void tensor_load_2d_pair(u32 shared, const TensorMap& map, int x, int y, u32 remote) {
  const int at[2] = {x, y};
  emu_tcgen05::use_group(true, "cp.async.bulk.tensor");
  emu_tensor_load_pair(shared, &map, 2, at, remote, 1u << (shared >> EMU_RANK_SHIFT));
}
inline void tensor_load_2d_pair_multicast(u32 shared, const TensorMap& map, int x, int y, u32 remote, u16 ranks) {
  const int at[2] = {x, y};
  emu_tcgen05::use_group(true, "cp.async.bulk.tensor");
  emu_tensor_load_pair(shared, &map, 2, at, remote, ranks);
}

}  // namespace ws
