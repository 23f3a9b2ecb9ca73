// Runs a grid on the CPU: fibers, waiting, shared and device memory, asynchronous operations. The interface is explained
// at the head of runtime.h.
#define EMU_WITHOUT_WORDS
#include "runtime.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

using std::size_t;

// --- Switching fibers -------------------------------------------------------------------------------------------------

// Saves what a function may not change on the own stack, leaves that stack's place in *save, and goes on with another.
extern "C" void emu_switch(void** save, void* load);
extern "C" void emu_begin();
#if defined(__x86_64__)
asm(R"(
.text
.globl emu_switch
.hidden emu_switch
.type emu_switch, @function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch, .-emu_switch
)");
enum { SAVED = 7 };  // words, the last is where to return to
#elif defined(__aarch64__)
asm(R"(
.text
.globl emu_switch
.hidden emu_switch
.type emu_switch, %function
emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emu_switch, .-emu_switch
)");
enum { SAVED = 20 };
#else
#error "fibers are written for x86-64 and aarch64"
#endif

namespace {

// --- Device memory ----------------------------------------------------------------------------------------------------

constexpr size_t PAGE = 4096, ALIGNMENT = 256;
constexpr unsigned char CANARY = 0xCD;

struct Allocation {
  unsigned char* mapped;
  size_t mapped_bytes;
  uint64_t bytes;
};
std::mutex memory_lock;
std::map<uintptr_t, Allocation> allocations;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The bytes around an allocation that no guard page covers: in its first page, and behind it up to the next one.
void mark_around(unsigned char* at, const Allocation& allocation) {
  unsigned char* first = allocation.mapped + PAGE;
  unsigned char* last = allocation.mapped + allocation.mapped_bytes - PAGE;
  memset(first, CANARY, size_t(at - first));
  memset(at + allocation.bytes, CANARY, size_t(last - (at + allocation.bytes)));
}
bool is_intact(uintptr_t at, const Allocation& allocation) {
  const unsigned char* begin = reinterpret_cast<unsigned char*>(at);
  const unsigned char* first = allocation.mapped + PAGE;
  if (begin - first > 64) first = begin - 64;
  for (const unsigned char* byte = first; byte < begin; byte++)
    if (*byte != CANARY) return false;
  const unsigned char* end = allocation.mapped + allocation.mapped_bytes - PAGE;
  for (const unsigned char* byte = begin + allocation.bytes; byte < end; byte++)
    if (*byte != CANARY) return false;
  return true;
}

// --- A grid that runs -------------------------------------------------------------------------------------------------

constexpr size_t STACK = 64 << 10, STATIC_AT = 0x50000, STATIC_MAX = 48 << 10, WINDOW = 0x60000;
constexpr unsigned SLOTS = 8, BARRIERS = 16;

struct Operation {
  void (*run)(void*);
  alignas(16) unsigned char closure[112];
};
struct Thread;
struct Queue {
  Thread* thread;
  unsigned kind;
  std::vector<Operation> items;
  size_t head;
  uint64_t issued, done;         // operations so far
  std::vector<uint64_t> groups;  // how many were issued when each group ended
  size_t groups_done;
  int active;                    // place among those that have operations, or -1
  bool is_empty() const { return head == items.size(); }
};

// HELD: somebody knows whom to let go on. TRYING: it may be told that nothing has come. YIELDING: until others have run.
enum State { RUNNABLE, WAITING, TRYING, YIELDING, HELD, ENDED };
struct Write {
  emu_u32 offset, bytes;
  uint64_t released;  // when its thread arrived somewhere after it; 0: not yet
};
struct Thread : EmuThread {
  void* stack;  // where it goes on
  State state;
  const char* what;
  uint64_t what_number;
  bool (*ready)(void*);
  void* ready_data;
  bool was_ready, is_in_cluster_barrier;
  uint64_t acquired;  // when it last waited for something
  uint64_t acquired_cluster;  // when it last did so at the scope of the cluster
  uint64_t cluster_phase;
  // Behind what is looked at often.
  std::vector<Write> unfenced;
  size_t unfenced_released;  // the first so many of them are
  std::vector<Write> unhanded;  // that it has fenced, and nobody has released to the cluster
  size_t unhanded_released;
  Queue queues[EMU_KINDS];
};
struct Collective {
  const char* name;
  emu_u32 mask, arrived;
  bool is_aligned;
  EmuTogether run;
  void* lanes[32];
  int number;
};
struct Warp {
  emu_u32 there, ended;
  std::vector<Collective> open;
};
struct BlockBarrier {
  unsigned arrived, threads;
  std::vector<Thread*> held;
};
struct Block : EmuBlock {
  unsigned ended;
  void (*when_ended)();
  std::vector<Warp> warps;
  BlockBarrier barriers[BARRIERS];
  std::vector<uint16_t> shadow;                   // of each word of the window: who wrote it and did not fence, plus 1
  std::vector<uint64_t> handed;                   // of each, in a cluster: when what was written was released to it, NOT_HANDED; 0
  std::map<emu_u32, uint64_t> mbarriers;          // state of each, as it was left
  void* data[SLOTS];
};
constexpr uint64_t NOT_HANDED = ~uint64_t(0);
struct Static {
  const char* name;
  emu_u32 offset;
};

struct Grid {
  const engine::Launch* launch;
  EmuCluster cluster;
  std::vector<Block> blocks;
  std::vector<Thread> threads;
  std::vector<Thread*> runnable;  // the last one is next: warps that have just come together are in the caches
  std::vector<Thread*> waiting;
  std::vector<Queue*> active;
  std::vector<Static> statics;
  emu_u32 static_bytes;
  unsigned alive;
  // What has happened, and that when waiting threads were last looked at, told that they have tried, let go on.
  uint64_t progress, seen_progress, tried_progress, yielded_progress, yields, time;
  unsigned cluster_arrived, cluster_ended;  // in this phase, and those that have ended without
  uint64_t cluster_phase;
  void* cluster_data[SLOTS];
  void* scheduler;  // its stack
  Thread* running;
  bool in_scheduler;
  sigjmp_buf failed;
  std::string why;
  const Allocation* last;
  uintptr_t last_at;
};

std::mutex device_lock;
Grid* grid;
pthread_t device_thread;
int schedule_kind = -1;
uint64_t random_state;
std::vector<unsigned char*> stacks;
unsigned char* windows[EMU_CLUSTER_MAX];
size_t window_bytes[EMU_CLUSTER_MAX];  // of dynamic shared memory that may be touched

// xorshift64*
uint64_t next_random() {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545F4914F6CDD1Dull;
}
bool one_in(unsigned n) { return next_random() % n == 0; }

void configure() {
  if (schedule_kind >= 0) return;
  const char* text = getenv("WARPSMITH_EMULATOR_SCHEDULE");
  uint64_t seed = 0;
  if (!text || !*text || !strcmp(text, "eager")) {
    schedule_kind = EMU_EAGER;
  } else if (!strcmp(text, "late")) {
    schedule_kind = EMU_LATE;
  } else {
    char* end;
    seed = strtoull(text, &end, 10);
    if (*end) {
      fprintf(stderr, "emulator: WARPSMITH_EMULATOR_SCHEDULE is `%s`, not eager, late or a number\n", text);
      abort();
    }
    schedule_kind = EMU_SEEDED;
  }
  random_state = seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
}

Thread* current() { return static_cast<Thread*>(emu_current); }
Block* block_of(EmuThread* thread) { return static_cast<Block*>(thread->block); }

std::string place_of(const EmuThread* thread) {
  char text[160];
  const EmuBlock* block = thread->block;
  snprintf(text, sizeof text, "block (%u, %u, %u)%s%s thread %u", block->index.x, block->index.y, block->index.z,
           block->cluster->blocks > 1 ? " rank " : "", block->cluster->blocks > 1 ? std::to_string(block->rank).c_str() : "",
           thread->number);
  return text;
}

// --- The scheduler ----------------------------------------------------------------------------------------------------

void leave(State state) {
  Thread* self = current();
  self->state = state;
  emu_switch(&self->stack, grid->scheduler);
}
void make_runnable(Thread* thread) {
  thread->state = RUNNABLE;
  grid->runnable.push_back(thread);
}
void advanced() { grid->progress++; }

// Everything this thread does from now on is behind what others did before they arrived somewhere.
void acquired(Thread* thread) { thread->acquired = ++grid->time; }
void released(Thread* thread) {
  const uint64_t now = ++grid->time;
  const auto mark = [now](std::vector<Write>& writes, size_t& i) {
    for (; i < writes.size(); i++) writes[i].released = now;
  };
  mark(thread->unfenced, thread->unfenced_released);
  mark(thread->unhanded, thread->unhanded_released);
}

// The words that bytes of the window are in, the last of them excluded.
struct Words {
  emu_u32 first, last;
};
Words words_of(emu_u32 offset, emu_u32 bytes) { return {offset / 4, (offset + bytes + 3) / 4}; }

// How many of a thread's writes another one knows: what was written before its thread arrived somewhere, and that before the other
// one waited for something.
size_t known_of(const std::vector<Write>& writes, size_t released, const Thread* to) {
  size_t count = 0;
  while (count < released && writes[count].released <= to->acquired) count++;
  return count;
}
void forget(std::vector<Write>& writes, size_t& released, size_t count) {
  writes.erase(writes.begin(), writes.begin() + long(count));
  released -= std::min(count, released);
}
// Calls take(thread, …) for all threads of its block, with how many of the writes in a list of each it knows.
template <class Take>
void for_known(Thread* self, std::vector<Write> Thread::* writes, size_t Thread::* released, Take take) {
  Thread* first = &grid->threads[size_t(self->block->rank) * self->block->threads];
  for (Thread* other = first; other < first + self->block->threads; other++) {
    const size_t count = other == self ? (self->*writes).size() : known_of(other->*writes, other->*released, self);
    if (count) take(other, count);
  }
}

void activate(Queue& queue) {
  if (queue.active >= 0) return;
  queue.active = int(grid->active.size());
  grid->active.push_back(&queue);
}
void deactivate(Queue& queue) {
  Queue* last = grid->active.back();
  grid->active[queue.active] = last;
  last->active = queue.active;
  grid->active.pop_back();
  queue.active = -1;
  queue.items.clear();
  queue.head = 0;
}

// Runs one operation of a queue as the thread that asked for it.
void run_one(Queue& queue) {
  if (queue.kind == EMU_UNORDERED && schedule_kind != EMU_EAGER && queue.items.size() - queue.head > 1) {
    const size_t left = queue.items.size() - queue.head;
    const size_t chosen = schedule_kind == EMU_LATE ? left - 1 : next_random() % left;
    std::swap(queue.items[queue.head], queue.items[queue.head + chosen]);
  }
  Operation operation = queue.items[queue.head++];
  queue.done++;
  if (queue.is_empty()) deactivate(queue);
  EmuThread* before = emu_current;
  emu_current = queue.thread;
  operation.run(operation.closure);
  emu_current = before;
  advanced();
}

// Lets those go on that wait for something that has come.
bool poll() {
  bool any = false;
  auto& waiting = grid->waiting;
  size_t kept = 0;
  for (size_t i = 0; i < waiting.size(); i++) {
    Thread* thread = waiting[i];
    emu_current = thread;
    if (thread->state != YIELDING && thread->ready(thread->ready_data)) {
      thread->was_ready = true;
      make_runnable(thread);
      any = true;
    } else {
      waiting[kept++] = thread;
    }
  }
  waiting.resize(kept);
  grid->seen_progress = grid->progress;
  return any;
}

std::string who_waits() {
  std::map<std::string, std::vector<const Thread*>> held;
  for (const Thread& thread : grid->threads) {
    if (thread.state == ENDED || thread.state == RUNNABLE) continue;
    char text[256];
    const EmuBlock* block = thread.block;
    snprintf(text, sizeof text, "block (%u, %u, %u) rank %u: %s", block->index.x, block->index.y, block->index.z, block->rank,
             thread.what);
    std::string key = text;
    if (thread.what_number) {
      snprintf(text, sizeof text, " at 0x%llx, parity %llu", (unsigned long long)(thread.what_number >> 1 & 0xFFFFFFFF),
               (unsigned long long)(thread.what_number & 1));
      key += text;
    }
    held[key].push_back(&thread);
  }
  std::string text;
  for (const auto& [what, threads] : held) {
    text += "\n    " + what + ": threads";
    for (size_t i = 0; i < threads.size(); i++) {
      size_t end = i;
      while (end + 1 < threads.size() && threads[end + 1]->number == threads[end]->number + 1) end++;
      text += " " + std::to_string(threads[i]->number);
      if (end > i) text += "-" + std::to_string(threads[end]->number);
      i = end;
    }
  }
  unsigned ended = 0;
  for (const Thread& thread : grid->threads) ended += thread.state == ENDED;
  if (ended) text += "\n    " + std::to_string(ended) + " threads of the cluster have ended";
  return text;
}

// Lets those go on that wait in this way, with nothing having come.
bool let_go(State state) {
  bool any = false;
  size_t kept = 0;
  for (Thread* thread : grid->waiting) {
    if (thread->state == state) {
      thread->was_ready = false;
      make_runnable(thread);
      any = true;
    } else {
      grid->waiting[kept++] = thread;
    }
  }
  grid->waiting.resize(kept);
  return any;
}

void schedule() {
  Grid& g = *grid;
  while (g.alive > 0) {
    if (schedule_kind == EMU_SEEDED) {
      if (!g.active.empty() && one_in(6)) {
        g.in_scheduler = true;
        run_one(*g.active[next_random() % g.active.size()]);
      }
      if (!g.waiting.empty() && g.seen_progress != g.progress && one_in(8)) poll();
    }
    if (g.runnable.empty()) {
      g.in_scheduler = true;
      if (!g.waiting.empty() && g.seen_progress != g.progress && poll()) continue;
      if (!g.active.empty()) {
        run_one(*(schedule_kind == EMU_SEEDED ? g.active[next_random() % g.active.size()] : g.active.front()));
        continue;
      }
      // Those that sleep go on; if they do nothing else a million times, they are as good as stuck.
      if (g.yielded_progress != g.progress) g.yields = 0;
      g.yielded_progress = g.progress;
      if (g.yields++ < 1000000 && let_go(YIELDING)) continue;
      // Those that only try are told that they have tried, unless that has changed nothing before.
      if (g.tried_progress != g.progress) {
        g.tried_progress = g.progress;
        if (let_go(TRYING)) continue;
      }
      emu_current = nullptr;
      emu_fail("deadlock: no thread can go on%s", who_waits().c_str());
    }
    if (schedule_kind == EMU_SEEDED) std::swap(g.runnable.back(), g.runnable[next_random() % g.runnable.size()]);
    Thread* thread = g.runnable.back();
    g.runnable.pop_back();
    g.in_scheduler = false;
    emu_current = thread;
    emu_switch(&g.scheduler, thread->stack);
    g.in_scheduler = true;
  }
}

void complete(Collective& collective);
void end_in_cluster(const Thread& thread);

// The function that every fiber begins with; emu_switch returns to it.
void fiber() {
  Thread* self = current();
  grid->launch->entry->run(grid->launch->arguments);
  Block* block = block_of(self);
  Warp& warp = block->warps[self->warp];
  warp.ended |= 1u << self->lane;
  block->ended++;
  grid->alive--;
  end_in_cluster(*self);
  advanced();
  released(self);
  for (size_t i = 0; i < warp.open.size(); i++) {
    Collective& open = warp.open[i];
    if (!(open.mask >> self->lane & 1)) continue;
    if (open.is_aligned) emu_fail("the thread ended, but others of its warp wait for it in %s", open.name);
    if ((open.arrived | warp.ended) == ((open.mask & warp.there) | warp.ended)) {
      complete(open);
      warp.open.erase(warp.open.begin() + long(i));
      i--;
    }
  }
  if (block->ended == block->threads) {
    if (block->when_ended) block->when_ended();
    for (Thread& thread : grid->threads) {
      if (thread.block != block) continue;
      if (!thread.queues[EMU_BULK_STORE].is_empty()) {
        emu_current = &thread;
        emu_fail("the block ended while a bulk store still reads its shared memory");
      }
    }
  }
  leave(ENDED);
  abort();
}

// Lets all of a collective go on; the one that calls this is not held.
void complete(Collective& collective) {
  collective.run(collective.lanes, collective.mask);
  advanced();
}

// A thread that has arrived at the barrier of its cluster, and ends without waiting there, has still come only once.
void end_in_cluster(const Thread& thread) {
  const bool has_arrived = thread.is_in_cluster_barrier && thread.cluster_phase == grid->cluster_phase;
  if (!has_arrived) grid->cluster_ended++;
}

// --- Setting up -------------------------------------------------------------------------------------------------------

unsigned char* stack_of(size_t which) {
  while (stacks.size() <= which) {
    void* mapped = mmap(nullptr, PAGE + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      fprintf(stderr, "emulator: no memory for the stacks of threads\n");
      abort();
    }
    mprotect(mapped, PAGE, PROT_NONE);
    stacks.push_back(static_cast<unsigned char*>(mapped) + PAGE + STACK);
  }
  return stacks[which];
}

// A window of shared memory, whose dynamic part ends where a page begins that may not be touched (but for what its
// alignment takes).
unsigned char* window_of(unsigned rank, size_t dynamic) {
  if (!windows[rank]) {
    void* mapped = mmap(nullptr, WINDOW + 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) abort();
    windows[rank] = static_cast<unsigned char*>(mapped);
    mprotect(windows[rank] + STATIC_AT + PAGE, STATIC_MAX + 2 * PAGE, PROT_READ | PROT_WRITE);
    window_bytes[rank] = ~size_t(0);
  }
  // The window begins so that EMU_WINDOW_BEGIN + dynamic is the end of a page, as far as 1 KiB of alignment allows.
  const size_t end = EMU_WINDOW_BEGIN + rounded_up(dynamic, 1024);
  const size_t begin = PAGE + (rounded_up(end, PAGE) - end) % PAGE;
  if (window_bytes[rank] != dynamic) {
    mprotect(windows[rank], STATIC_AT, PROT_NONE);
    mprotect(windows[rank] + PAGE, rounded_up(end, PAGE), PROT_READ | PROT_WRITE);
    window_bytes[rank] = dynamic;
  }
  return windows[rank] + begin;
}

void set_up_cluster(const engine::Launch& launch, const unsigned (&first)[3], unsigned number) {
  Grid& g = *grid;
  const unsigned blocks = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  const unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  g.cluster.blocks = blocks;
  g.runnable.clear();
  g.waiting.clear();
  g.active.clear();
  g.alive = blocks * threads;
  g.progress = g.seen_progress = 0;
  g.tried_progress = g.yielded_progress = ~0ull;
  g.yields = 0;
  g.cluster_arrived = g.cluster_ended = 0;
  g.cluster_phase = 0;
  for (unsigned rank = 0; rank < blocks; rank++) {
    Block& block = g.blocks[rank];
    g.cluster.block[rank] = &block;
    const unsigned x = rank % launch.cluster[0], y = rank / launch.cluster[0] % launch.cluster[1],
                   z = rank / launch.cluster[0] / launch.cluster[1];
    block.index = {first[0] + x, first[1] + y, first[2] + z};
    block.dim = {launch.block[0], launch.block[1], launch.block[2]};
    block.grid = {launch.grid[0], launch.grid[1], launch.grid[2]};
    block.window = window_of(rank, launch.shared_bytes);
    block.dynamic = block.window + EMU_WINDOW_BEGIN;
    block.dynamic_bytes = launch.shared_bytes;
    block.threads = threads;
    block.rank = rank;
    block.number = number * blocks + rank;
    block.cluster = &g.cluster;
    block.ended = 0;
    block.when_ended = nullptr;
    block.warps.resize((threads + 31) / 32);
    for (size_t i = 0; i < block.warps.size(); i++) {
      const unsigned left = threads - unsigned(i) * 32;
      block.warps[i].there = left >= 32 ? ~0u : (1u << left) - 1;
      block.warps[i].ended = 0;
      block.warps[i].open.clear();
    }
    for (BlockBarrier& barrier : block.barriers) {
      barrier.arrived = barrier.threads = 0;
      barrier.held.clear();
    }
    std::fill(block.shadow.begin(), block.shadow.end(), 0);
    std::fill(block.handed.begin(), block.handed.end(), 0);
    block.mbarriers.clear();
    memset(block.dynamic, 0xFF, rounded_up(launch.shared_bytes, 1024));
    memset(block.window + STATIC_AT, 0xFF, rounded_up(g.static_bytes, 1024) + 1024);
    for (unsigned i = 0; i < threads; i++) {
      Thread& thread = g.threads[rank * threads + i];
      thread.index = {i % launch.block[0], i / launch.block[0] % launch.block[1], i / launch.block[0] / launch.block[1]};
      thread.number = i;
      thread.warp = i / 32;
      thread.lane = i % 32;
      thread.block = &block;
      thread.what = "";
      thread.what_number = 0;
      for (unsigned kind = 0; kind < EMU_KINDS; kind++) {
        Queue& queue = thread.queues[kind];
        queue.thread = &thread;
        queue.kind = kind;
        queue.items.clear();
        queue.groups.clear();
        queue.head = queue.groups_done = 0;
        queue.issued = queue.done = 0;
        queue.active = -1;
      }
      thread.unfenced.clear();
      thread.unhanded.clear();
      thread.unfenced_released = thread.unhanded_released = 0;
      thread.acquired = thread.acquired_cluster = 0;
      thread.cluster_phase = 0;
      thread.is_in_cluster_barrier = false;
      // Not all at the same place in a page, which would be the same place in the caches.
      void** top = reinterpret_cast<void**>(stack_of(rank * threads + i) - i % 61 * 128);
#if defined(__x86_64__)
      // Where a call would have left its return address: 8 below a multiple of 16.
      *--top = nullptr;
      top -= SAVED;
      memset(top, 0, SAVED * sizeof *top);
      top[SAVED - 1] = reinterpret_cast<void*>(fiber);
#else
      top -= SAVED;
      memset(top, 0, SAVED * sizeof *top);
      top[11] = reinterpret_cast<void*>(fiber);  // x30
#endif
      thread.stack = top;
      make_runnable(&thread);
    }
  }
  // The first thread begins, or with what comes late the last one.
  if (schedule_kind == EMU_EAGER) std::reverse(g.runnable.begin(), g.runnable.end());
}

void tear_down_cluster() {
  for (Block& block : grid->blocks)
    for (void*& data : block.data) free(data), data = nullptr;
  for (void*& data : grid->cluster_data) free(data), data = nullptr;
}

// --- Faults -----------------------------------------------------------------------------------------------------------

// Signals that tell of a fault, and what was done at them before.
struct Caught {
  int signal;
  struct sigaction old;
} caught[] = {{SIGSEGV, {}}, {SIGBUS, {}}, {SIGILL, {}}};

void on_fault(int signal, siginfo_t* info, void*) {
  if (!grid || !pthread_equal(pthread_self(), device_thread)) {
    // Somebody else's: as it would have been without this.
    for (const Caught& one : caught)
      if (one.signal == signal) sigaction(signal, &one.old, nullptr);
    return;
  }
  if (signal == SIGILL) {
    // What the compiler puts where a pointer is no multiple of what its type needs (nvrtc.cpp).
    grid->why = "an access through a pointer that is not aligned";
    siglongjmp(grid->failed, 2);
  }
  char text[200];
  const unsigned char* at = static_cast<unsigned char*>(info->si_addr);
  const char* where = "outside of every allocation";
  for (unsigned rank = 0; rank < EMU_CLUSTER_MAX; rank++)
    if (windows[rank] && at >= windows[rank] && at < windows[rank] + WINDOW + 3 * PAGE) where = "outside of the block's shared memory";
  for (const unsigned char* stack : stacks)
    if (at < stack - STACK && at >= stack - STACK - PAGE) where = "below the thread's stack of 64 KiB";
  snprintf(text, sizeof text, "an access at %p, %s", info->si_addr, where);
  grid->why = text;
  siglongjmp(grid->failed, 2);
}

struct Faults {
  stack_t old_stack;
  Faults() {
    static thread_local char* memory = static_cast<char*>(malloc(64 << 10));
    stack_t own = {};
    own.ss_sp = memory;
    own.ss_size = 64 << 10;
    sigaltstack(&own, &old_stack);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (Caught& one : caught) sigaction(one.signal, &action, &one.old);
  }
  ~Faults() {
    for (const Caught& one : caught) sigaction(one.signal, &one.old, nullptr);
    sigaltstack(&old_stack, nullptr);
  }
};

void run_grid(Grid& g, const engine::Launch& launch) {
  const unsigned clusters[3] = {launch.grid[0] / launch.cluster[0], launch.grid[1] / launch.cluster[1],
                                launch.grid[2] / launch.cluster[2]};
  const uint64_t count = uint64_t(clusters[0]) * clusters[1] * clusters[2];
  // In another order with a seed: a walk through all of them by a step that has no divisor in common with their number.
  uint64_t step = 1, at = 0;
  if (schedule_kind == EMU_SEEDED && count > 1) {
    at = next_random() % count;
    for (step = next_random() % count | 1;; step += 2) {
      uint64_t a = step, b = count;
      while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
      }
      if (a == 1) break;
    }
  }
  for (uint64_t i = 0; i < count; i++, at = (at + step) % count) {
    const unsigned first[3] = {unsigned(at % clusters[0]) * launch.cluster[0],
                               unsigned(at / clusters[0] % clusters[1]) * launch.cluster[1],
                               unsigned(at / clusters[0] / clusters[1]) * launch.cluster[2]};
    set_up_cluster(launch, first, unsigned(at));
    schedule();
    // What is still under way has no one to wait for it, but is done.
    while (!g.active.empty()) {
      Queue& queue = *g.active.front();
      if (queue.kind == EMU_UNORDERED) {
        emu_current = queue.thread;
        emu_fail("the cluster ended while copies into its shared memory were under way");
      }
      run_one(queue);
    }
    tear_down_cluster();
  }
}

}  // namespace

// --- Launching --------------------------------------------------------------------------------------------------------

EmuThread* emu_current;

namespace engine {

std::string run(const Launch& launch) {
  std::lock_guard<std::mutex> alone(device_lock);
  configure();
  static Grid* known = new Grid();
  Grid& g = *known;
  grid = known;
  device_thread = pthread_self();
  g.launch = &launch;
  const unsigned blocks = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  g.blocks.resize(blocks);
  g.threads.resize(size_t(blocks) * launch.block[0] * launch.block[1] * launch.block[2]);
  for (Block& block : g.blocks) {
    block.shadow.resize(WINDOW / 4);
    block.handed.resize(blocks > 1 ? WINDOW / 4 : 0);
  }
  g.statics.clear();
  g.static_bytes = 0;
  g.last = nullptr;
  g.why.clear();
  {
    Faults faults;
    // Back here from wherever it fails.
    if (sigsetjmp(g.failed, 1) == 0) {
      run_grid(g, launch);
    } else {
      std::string where = emu_current ? place_of(emu_current) + ": " : "";
      g.why = std::string(launch.entry->name) + ": " + where + g.why;
      tear_down_cluster();
    }
  }
  emu_current = nullptr;
  grid = nullptr;
  std::string why = g.why;
  if (why.empty()) {
    std::lock_guard<std::mutex> guard(memory_lock);
    for (auto& [at, allocation] : allocations) {
      if (is_intact(at, allocation)) continue;
      char text[200];
      snprintf(text, sizeof text, ": wrote around the allocation of %llu bytes at 0x%llx", (unsigned long long)allocation.bytes,
               (unsigned long long)at);
      why = launch.entry->name + std::string(text);
      mark_around(reinterpret_cast<unsigned char*>(at), allocation);
    }
  }
  if (!why.empty()) fprintf(stderr, "emulator: %s\n", why.c_str());
  return why;
}

void* allocate(uint64_t bytes) {
  const size_t size = rounded_up(bytes ? bytes : 1, ALIGNMENT), mapped_bytes = rounded_up(size, PAGE) + 2 * PAGE;
  void* mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  unsigned char* begin = static_cast<unsigned char*>(mapped);
  mprotect(begin, PAGE, PROT_NONE);
  mprotect(begin + mapped_bytes - PAGE, PAGE, PROT_NONE);
  unsigned char* at = begin + mapped_bytes - PAGE - size;
  const Allocation made = {begin, mapped_bytes, bytes};
  memset(at, 0xFF, bytes);
  mark_around(at, made);
  std::lock_guard<std::mutex> guard(memory_lock);
  allocations[reinterpret_cast<uintptr_t>(at)] = made;
  return at;
}

bool release(void* memory) {
  std::lock_guard<std::mutex> guard(memory_lock);
  auto found = allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == allocations.end()) return false;
  munmap(found->second.mapped, found->second.mapped_bytes);
  allocations.erase(found);
  return true;
}

bool is_device_memory(const void* memory, uint64_t bytes) {
  std::lock_guard<std::mutex> guard(memory_lock);
  const uintptr_t at = reinterpret_cast<uintptr_t>(memory);
  auto found = allocations.upper_bound(at);
  if (found == allocations.begin()) return false;
  --found;
  return at - found->first <= found->second.bytes && bytes <= found->second.bytes - (at - found->first);
}

uint32_t sum_of(const TensorMap& map) {
  TensorMap copy = map;
  copy.sum = 0;
  uint32_t sum = 2166136261u;
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&copy);
  for (size_t i = 0; i < sizeof copy; i++) sum = (sum ^ bytes[i]) * 16777619u;
  return sum;
}

}  // namespace engine

// --- The interface ----------------------------------------------------------------------------------------------------

extern "C" {

void emu_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char* text = nullptr;
  if (vasprintf(&text, format, arguments) < 0) abort();
  va_end(arguments);
  grid->why = text;
  free(text);
  siglongjmp(grid->failed, 1);
}

void emu_yield() {
  Thread* self = current();
  self->what = "a pause";
  self->what_number = 0;
  grid->waiting.push_back(self);
  leave(YIELDING);
}

static bool wait_for(bool (*ready)(void*), void* data, const char* what, State state, uint64_t number) {
  if (grid->in_scheduler) emu_fail("an asynchronous operation waits: %s", what);
  Thread* self = current();
  if (!ready(data)) {
    self->ready = ready;
    self->ready_data = data;
    self->what = what;
    self->what_number = number;
    grid->waiting.push_back(self);
    // It has to be looked at again, even if nothing has happened since the others were.
    grid->seen_progress = ~0ull;
    leave(state);
    if (!self->was_ready) return false;
  }
  acquired(self);
  return true;
}

void emu_wait(bool (*ready)(void*), void* data, const char* what) { wait_for(ready, data, what, WAITING, 0); }
bool emu_try(bool (*ready)(void*), void* data, const char* what) {
  return wait_for(ready, data, what, TRYING, 0);
}

static unsigned char* shared_of(Block* block, emu_u32 address, emu_u32 bytes, emu_u32 alignment, const char* helper) {
  const emu_u32 offset = address & EMU_OFFSET_MASK;
  if (offset % alignment) emu_fail("%s: shared address 0x%x is no multiple of %u", helper, address, alignment);
  const bool is_dynamic = offset >= EMU_WINDOW_BEGIN && offset - EMU_WINDOW_BEGIN <= block->dynamic_bytes &&
                          bytes <= block->dynamic_bytes - (offset - EMU_WINDOW_BEGIN);
  const bool is_static = offset >= STATIC_AT && offset - STATIC_AT <= grid->static_bytes &&
                         bytes <= grid->static_bytes - (offset - STATIC_AT);
  if (!is_dynamic && !is_static)
    emu_fail("%s: %u bytes at shared address 0x%x are outside of the block's %u bytes, which begin at 0x%x", helper, bytes,
             address, block->dynamic_bytes, unsigned(EMU_WINDOW_BEGIN));
  return block->window + offset;
}

unsigned char* emu_shared(emu_u32 address, emu_u32 bytes, emu_u32 alignment, const char* helper) {
  Block* block = block_of(emu_current);
  if (address >> EMU_RANK_SHIFT != block->rank)
    emu_fail("%s: shared address 0x%x is of block %u of the cluster, not of the own one, %u", helper, address,
             address >> EMU_RANK_SHIFT, block->rank);
  return shared_of(block, address, bytes, alignment, helper);
}

unsigned char* emu_cluster_shared(emu_u32 address, emu_u32 bytes, emu_u32 alignment, const char* helper) {
  const emu_u32 rank = address >> EMU_RANK_SHIFT;
  if (rank >= grid->cluster.blocks)
    emu_fail("%s: shared address 0x%x is of block %u of a cluster of %u", helper, address, rank, grid->cluster.blocks);
  Block* block = &grid->blocks[rank];
  if (block->ended == block->threads) emu_fail("%s: block %u of the cluster has ended", helper, rank);
  return shared_of(block, address, bytes, alignment, helper);
}

emu_u32 emu_shared_address(const void* pointer) {
  const Block* block = block_of(emu_current);
  const auto offset = static_cast<const unsigned char*>(pointer) - block->window;
  if (offset < 0 || size_t(offset) > WINDOW) emu_fail("%p is no address of the block's shared memory", pointer);
  return emu_u32(offset) | block->rank << EMU_RANK_SHIFT;
}

EmuBlock* emu_block(emu_u32 rank) {
  if (rank >= grid->cluster.blocks) emu_fail("block %u of a cluster of %u", rank, grid->cluster.blocks);
  return &grid->blocks[rank];
}

void* emu_static_shared(size_t bytes, size_t alignment, const char* name) {
  Block* block = block_of(emu_current);
  for (const Static& known : grid->statics)
    if (known.name == name || !strcmp(known.name, name)) return block->window + known.offset;
  const size_t at = rounded_up(STATIC_AT + grid->static_bytes, alignment < 16 ? 16 : alignment);
  if (at + bytes > STATIC_AT + STATIC_MAX) emu_fail("more than %zu bytes of static shared memory", STATIC_MAX);
  for (Block& other : grid->blocks) memset(other.window + at, 0xFF, bytes);
  grid->static_bytes = emu_u32(at + bytes - STATIC_AT);
  grid->statics.push_back({name, emu_u32(at)});
  return block->window + at;
}

unsigned char* emu_global(const void* pointer, emu_u64 bytes, emu_u32 alignment, const char* helper) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
  if (at % alignment) emu_fail("%s: global address %p is no multiple of %u", helper, pointer, alignment);
  Grid& g = *grid;
  if (!g.last || at < g.last_at || at - g.last_at > g.last->bytes || bytes > g.last->bytes - (at - g.last_at)) {
    // Not held where this fails, which no destructor sees.
    memory_lock.lock();
    auto found = allocations.upper_bound(at);
    const bool is_first = found == allocations.begin();
    if (!is_first) --found;
    memory_lock.unlock();
    if (is_first) emu_fail("%s: global address %p is in no allocation", helper, pointer);
    if (at - found->first > found->second.bytes || bytes > found->second.bytes - (at - found->first))
      emu_fail("%s: %llu bytes at global address %p are not inside of an allocation; the one before is of %llu bytes at 0x%llx",
               helper, bytes, pointer, (unsigned long long)found->second.bytes, (unsigned long long)found->first);
    g.last = &found->second;
    g.last_at = found->first;
  }
  return static_cast<unsigned char*>(const_cast<void*>(pointer));
}

// --- Collectives ------------------------------------------------------------------------------------------------------

void emu_collective(emu_u32 mask, const char* name, bool is_aligned, void* own, EmuTogether run) {
  Thread* self = current();
  Warp& warp = block_of(self)->warps[self->warp];
  const emu_u32 bit = 1u << self->lane;
  if (!(mask & bit)) emu_fail("%s: lane %u is not in its mask 0x%08x", name, self->lane, mask);
  if (is_aligned && ((mask & warp.ended) || (mask & ~warp.there)))
    emu_fail("%s: not all lanes of the warp are there (0x%08x have ended)", name, warp.ended);
  static int numbers;
  size_t at = 0;
  for (; at < warp.open.size(); at++) {
    Collective& open = warp.open[at];
    if (!(open.mask & mask)) continue;
    if (open.mask != mask || (open.name != name && strcmp(open.name, name) != 0))
      emu_fail("diverged: lane %u comes to %s of mask 0x%08x, lanes 0x%08x wait in %s of mask 0x%08x", self->lane, name, mask,
               open.arrived, open.name, open.mask);
    break;
  }
  if (at == warp.open.size()) {
    warp.open.emplace_back();
    Collective& open = warp.open.back();
    open.name = name;
    open.mask = mask;
    open.arrived = 0;
    open.is_aligned = is_aligned;
    open.run = run;
    open.number = numbers++;
    memset(open.lanes, 0, sizeof open.lanes);
  }
  Collective& open = warp.open[at];
  open.arrived |= bit;
  // Lanes may bring nothing, but are told from those that are not there.
  open.lanes[self->lane] = own ? own : self;
  released(self);
  const emu_u32 wanted = mask & warp.there & ~warp.ended;
  if (open.arrived == wanted || (open.arrived & wanted) == wanted) {
    Collective done = open;
    warp.open.erase(warp.open.begin() + long(at));
    complete(done);
    Thread* first = &grid->threads[size_t(self->block->rank) * self->block->threads + self->warp * 32];
    for (unsigned lane = 0; lane < 32; lane++)
      if ((done.arrived & ~bit) >> lane & 1) make_runnable(first + lane);
    acquired(self);
    return;
  }
  self->what = name;
  self->what_number = 0;
  leave(HELD);
  acquired(self);
}

// --- Barriers of a block and of a cluster -----------------------------------------------------------------------------

// Whether all have come.
static bool arrive_at_block_barrier(Thread* self, emu_u32 id, emu_u32 threads, const char* helper) {
  Block* block = block_of(self);
  if (id >= BARRIERS) emu_fail("%s: there is no barrier %u", helper, id);
  if (threads == 0 || threads > block->threads || (threads % 32 && threads != block->threads))
    emu_fail("%s: barrier %u is of %u threads, in a block of %u", helper, id, threads, block->threads);
  BlockBarrier& barrier = block->barriers[id];
  if (barrier.arrived == 0) barrier.threads = threads;
  if (barrier.threads != threads)
    emu_fail("%s: barrier %u is of %u threads here, and of %u for those who wait", helper, id, threads, barrier.threads);
  barrier.arrived++;
  released(self);
  if (barrier.arrived == threads) {
    barrier.arrived = 0;
    for (Thread* thread : barrier.held) make_runnable(thread);
    barrier.held.clear();
    advanced();
    return true;
  }
  return false;
}

void emu_block_arrive(emu_u32 id, emu_u32 threads) { arrive_at_block_barrier(current(), id, threads, "bar.arrive"); }

void emu_block_barrier(emu_u32 id, emu_u32 threads, const char* helper) {
  Thread* self = current();
  if (arrive_at_block_barrier(self, id, threads, helper)) {
    acquired(self);
    return;
  }
  block_of(self)->barriers[id].held.push_back(self);
  self->what = helper;
  self->what_number = 0;
  leave(HELD);
  acquired(self);
}

static bool is_cluster_done(void* data) {
  const Thread* self = static_cast<Thread*>(data);
  // It waits for all that have not ended.
  if (grid->cluster_phase == self->cluster_phase && grid->cluster_arrived + grid->cluster_ended == unsigned(grid->threads.size())) {
    grid->cluster_phase++;
    grid->cluster_arrived = 0;
    grid->cluster_ended = 0;
    for (const Block& block : grid->blocks) grid->cluster_ended += block.ended;
    advanced();
  }
  return grid->cluster_phase != self->cluster_phase;
}

void emu_cluster_arrive() {
  Thread* self = current();
  if (self->is_in_cluster_barrier) emu_fail("barrier.cluster.arrive twice without a wait");
  self->is_in_cluster_barrier = true;
  self->cluster_phase = grid->cluster_phase;
  grid->cluster_arrived++;
  released(self);
  is_cluster_done(self);
  advanced();
}

void emu_cluster_wait() {
  Thread* self = current();
  if (!self->is_in_cluster_barrier) emu_fail("barrier.cluster.wait without an arrive");
  wait_for(is_cluster_done, self, "barrier.cluster.wait", WAITING, 0);
  self->is_in_cluster_barrier = false;
}

// --- Asynchronous operations ------------------------------------------------------------------------------------------

void emu_enqueue(unsigned kind, void (*run)(void*), const void* closure, size_t bytes) {
  Queue& queue = current()->queues[kind];
  queue.issued++;
  const bool is_next = queue.is_empty();
  Operation operation;
  operation.run = run;
  memcpy(operation.closure, closure, bytes);
  if (is_next && (schedule_kind == EMU_EAGER || (schedule_kind == EMU_SEEDED && one_in(4)))) {
    queue.done++;
    advanced();
    run(operation.closure);
    return;
  }
  queue.items.push_back(operation);
  activate(queue);
}

void emu_queue_arrive(unsigned kind, emu_u32 barrier) {
  emu_queue(kind, [kind, barrier] {
    // The copies before it are the thread's own writes, wherever this runs.
    if (kind == EMU_CP_ASYNC) released(current());
    emu_mbarrier_arrive(barrier, 1, 0);
  });
}

void emu_commit(unsigned kind) {
  Queue& queue = current()->queues[kind];
  queue.groups.push_back(queue.issued);
}

static void run_until(Queue& queue, uint64_t done) {
  // Operations that were issued later may have been done before, where they have no order: then all are.
  while (queue.done < done) run_one(queue);
}

void emu_wait_group(unsigned kind, unsigned pending) {
  Queue& queue = current()->queues[kind];
  if (queue.groups.size() > pending) {
    const size_t last = queue.groups.size() - pending;
    run_until(queue, queue.groups[last - 1]);
    queue.groups.erase(queue.groups.begin(), queue.groups.begin() + long(last));
  }
  acquired(current());
}

void emu_finish(unsigned kind) {
  Queue& queue = current()->queues[kind];
  run_until(queue, queue.issued);
  queue.groups.clear();
  acquired(current());
}

// --- mbarriers --------------------------------------------------------------------------------------------------------

// The 8 bytes: 2 bits that say that it is one, the phase, 20 bits each of the arrivals of a phase and of those that are
// missing, 21 bits of bytes that are missing (less than none where they came before they were announced).
struct Barrier {
  emu_u32 phase, count, pending;
  int tx;
};
static const uint64_t BARRIER_MARK = 2;
static uint64_t packed(const Barrier& barrier) {
  return BARRIER_MARK << 62 | uint64_t(barrier.phase & 1) << 61 | uint64_t(barrier.count) << 41 | uint64_t(barrier.pending) << 21 |
         (uint64_t(barrier.tx) & 0x1FFFFF);
}

static Barrier barrier_at(emu_u32 address, const char* helper, Block** of, unsigned char** where) {
  *where = emu_cluster_shared(address, 8, 8, helper);
  *of = &grid->blocks[address >> EMU_RANK_SHIFT];
  uint64_t state;
  memcpy(&state, *where, 8);
  auto known = (*of)->mbarriers.find(address & EMU_OFFSET_MASK);
  if (known == (*of)->mbarriers.end()) emu_fail("%s: there is no mbarrier at 0x%x", helper, address);
  if (known->second != state) emu_fail("%s: the mbarrier at 0x%x has been overwritten", helper, address);
  Barrier barrier;
  barrier.phase = state >> 61 & 1;
  barrier.count = state >> 41 & 0xFFFFF;
  barrier.pending = state >> 21 & 0xFFFFF;
  barrier.tx = int(int64_t(state << 43) >> 43);
  return barrier;
}

static void leave_barrier(Block* block, emu_u32 address, unsigned char* where, Barrier barrier, const char* helper) {
  if (barrier.tx > 0xFFFFF || barrier.tx < -0xFFFFF) emu_fail("%s: %d bytes are missing at the mbarrier at 0x%x", helper, barrier.tx, address);
  if (barrier.pending == 0 && barrier.tx == 0) {
    barrier.phase ^= 1;
    barrier.pending = barrier.count;
  }
  const uint64_t state = packed(barrier);
  memcpy(where, &state, 8);
  block->mbarriers[address & EMU_OFFSET_MASK] = state;
  advanced();
}

void emu_mbarrier_init(emu_u32 address, emu_u32 arrivals) {
  unsigned char* where = emu_shared(address, 8, 8, "mbarrier.init");
  if (arrivals == 0 || arrivals > 0xFFFFF) emu_fail("mbarrier.init: %u arrivals", arrivals);
  const uint64_t state = packed({0, arrivals, arrivals, 0});
  memcpy(where, &state, 8);
  block_of(emu_current)->mbarriers[address & EMU_OFFSET_MASK] = state;
}

void emu_mbarrier_arrive(emu_u32 address, emu_u32 arrivals, emu_u32 expected_bytes) {
  const char* helper = "mbarrier.arrive";
  Block* block;
  unsigned char* where;
  Barrier barrier = barrier_at(address, helper, &block, &where);
  if (arrivals > barrier.pending)
    emu_fail("%s: %u more arrivals at the mbarrier at 0x%x, of which %u of %u are missing (and %d bytes)", helper, arrivals,
             address, barrier.pending, barrier.count, barrier.tx);
  barrier.tx += int(expected_bytes);
  barrier.pending -= arrivals;
  if (!grid->in_scheduler) released(current());
  leave_barrier(block, address, where, barrier, helper);
}

void emu_mbarrier_complete_tx(emu_u32 address, emu_u32 bytes) {
  const char* helper = "mbarrier complete_tx";
  Block* block;
  unsigned char* where;
  Barrier barrier = barrier_at(address, helper, &block, &where);
  barrier.tx -= int(bytes);
  leave_barrier(block, address, where, barrier, helper);
}

struct Waited {
  emu_u32 address, parity;
};
static bool is_phase_over(void* data) {
  const Waited* waited = static_cast<Waited*>(data);
  Block* block;
  unsigned char* where;
  const Barrier barrier = barrier_at(waited->address, "mbarrier.try_wait", &block, &where);
  return barrier.phase != waited->parity;
}

bool emu_mbarrier_is_at_rest(emu_u32 address) {
  const Block& block = grid->blocks[address >> EMU_RANK_SHIFT];
  const auto known = block.mbarriers.find(address & EMU_OFFSET_MASK);
  if (known == block.mbarriers.end()) return true;
  const uint64_t state = known->second;
  return (state >> 21 & 0xFFFFF) == (state >> 41 & 0xFFFFF) && (state & 0x1FFFFF) == 0;
}
bool emu_mbarrier_try_wait(emu_u32 address, emu_u32 parity) {
  if (parity > 1) emu_fail("mbarrier.try_wait: parity %u", parity);
  emu_shared(address, 8, 8, "mbarrier.try_wait");
  Waited waited = {address, parity};
  return wait_for(is_phase_over, &waited, "mbarrier.try_wait", TRYING, uint64_t(1) << 33 | uint64_t(address) << 1 | parity);
}
void emu_mbarrier_wait(emu_u32 address, emu_u32 parity) {
  if (parity > 1) emu_fail("mbarrier.try_wait: parity %u", parity);
  emu_shared(address, 8, 8, "mbarrier.try_wait");
  Waited waited = {address, parity};
  wait_for(is_phase_over, &waited, "mbarrier.try_wait", WAITING, uint64_t(1) << 33 | uint64_t(address) << 1 | parity);
}

// --- Proxies ----------------------------------------------------------------------------------------------------------

void emu_generic_write(emu_u32 address, emu_u32 bytes) {
  Thread* self = current();
  Block* block = block_of(self);
  const emu_u32 offset = address & EMU_OFFSET_MASK;
  const Words words = words_of(offset, bytes);
  for (emu_u32 word = words.first; word < words.last; word++) block->shadow[word] = uint16_t(self->number + 1);
  if (!block->handed.empty()) std::fill(&block->handed[words.first], &block->handed[words.last], NOT_HANDED);
  if (self->unfenced.size() > self->unfenced_released) {
    Write& last = self->unfenced.back();
    if (last.offset + last.bytes == offset) {
      last.bytes += bytes;
      return;
    }
  }
  self->unfenced.push_back({offset, bytes, 0});
}

void emu_fence_async() {
  Thread* self = current();
  Block* block = block_of(self);
  std::vector<Write> fenced;
  for_known(self, &Thread::unfenced, &Thread::unfenced_released, [&](Thread* writer, size_t count) {
    for (size_t i = 0; i < count; i++) {
      const Write& write = writer->unfenced[i];
      const Words words = words_of(write.offset, write.bytes);
      for (emu_u32 word = words.first; word < words.last; word++)
        if (block->shadow[word] == writer->number + 1) block->shadow[word] = 0;
      if (!block->handed.empty()) fenced.push_back({write.offset, write.bytes, 0});
    }
    forget(writer->unfenced, writer->unfenced_released, count);
  });
  self->unhanded.insert(self->unhanded.end(), fenced.begin(), fenced.end());
}

void emu_release_cluster() {
  Thread* self = current();
  Block* block = block_of(self);
  const uint64_t now = ++grid->time;
  for_known(self, &Thread::unhanded, &Thread::unhanded_released, [&](Thread* fencer, size_t count) {
    for (size_t i = 0; i < count; i++) {
      const Words words = words_of(fencer->unhanded[i].offset, fencer->unhanded[i].bytes);
      // What has been written since is not fenced.
      for (emu_u32 word = words.first; word < words.last; word++)
        if (block->shadow[word] == 0 && block->handed[word] == NOT_HANDED) block->handed[word] = now;
    }
    forget(fencer->unhanded, fencer->unhanded_released, count);
  });
}

void emu_acquire_cluster() { current()->acquired_cluster = ++grid->time; }

void emu_async_read(emu_u32 address, emu_u32 bytes, const char* helper) {
  const emu_u32 rank = address >> EMU_RANK_SHIFT;
  const Words words = words_of(address & EMU_OFFSET_MASK, bytes);
  Block* block = &grid->blocks[rank];
  const bool is_other = rank != emu_current->block->rank;
  for (emu_u32 word = words.first; word < words.last; word++) {
    const emu_u32 at = word * 4 | rank << EMU_RANK_SHIFT;
    if (block->shadow[word])
      emu_fail("%s reads shared address 0x%x, which thread %u wrote without a fence.proxy.async since", helper, at,
               block->shadow[word] - 1u);
    if (!is_other) continue;
    if (block->handed[word] == NOT_HANDED)
      emu_fail("%s reads shared address 0x%x of another block, where what was written is not released to the cluster", helper, at);
    if (block->handed[word] > current()->acquired_cluster)
      emu_fail("%s reads shared address 0x%x of another block, and did not acquire at the scope of the cluster what was written", helper, at);
  }
}

// --- Own data, chance -------------------------------------------------------------------------------------------------

void* emu_block_data(unsigned slot, size_t bytes) {
  void*& data = block_of(emu_current)->data[slot];
  if (!data) data = calloc(1, bytes);
  return data;
}
void emu_when_ended(void (*check)()) { block_of(emu_current)->when_ended = check; }
void* emu_cluster_data(unsigned slot, size_t bytes) {
  void*& data = grid->cluster_data[slot];
  if (!data) data = calloc(1, bytes);
  return data;
}
emu_u64 emu_random() { return next_random(); }
int emu_schedule() { return schedule_kind; }
emu_u64 emu_clock() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return emu_u64(time.tv_sec) * 1000000000ull + emu_u64(time.tv_nsec);
}
float emu_exp2(float x) { return float(exp2(double(x))); }

// --- Instructions that take long --------------------------------------------------------------------------------------

struct MmaLane {
  float* d;
  const emu_u32 *a, *b;
  bool is_bf16;
};
static float widened(emu_u32 word, unsigned half, bool is_bf16) {
  const emu_u16 bits = emu_u16(half ? word >> 16 : word);
  return is_bf16 ? emu_from_bf16(bits) : emu_from_f16(bits);
}
static void mma_together(void** lanes, emu_u32) {
  float a[16][16], b[16][8];
  const bool is_bf16 = static_cast<MmaLane*>(lanes[0])->is_bf16;
  for (unsigned lane = 0; lane < 32; lane++) {
    const MmaLane& own = *static_cast<MmaLane*>(lanes[lane]);
    const unsigned g = lane / 4, c = lane % 4 * 2;
    for (unsigned half = 0; half < 2; half++) {
      a[g][c + half] = widened(own.a[0], half, is_bf16);
      a[g + 8][c + half] = widened(own.a[1], half, is_bf16);
      a[g][c + 8 + half] = widened(own.a[2], half, is_bf16);
      a[g + 8][c + 8 + half] = widened(own.a[3], half, is_bf16);
      b[c + half][g] = widened(own.b[0], half, is_bf16);
      b[c + 8 + half][g] = widened(own.b[1], half, is_bf16);
    }
  }
  double d[16][8];
  for (unsigned m = 0; m < 16; m++) {
    double sums[8] = {};
    for (unsigned k = 0; k < 16; k++)
      for (unsigned n = 0; n < 8; n++) sums[n] += double(a[m][k]) * double(b[k][n]);
    memcpy(d[m], sums, sizeof sums);
  }
  for (unsigned lane = 0; lane < 32; lane++) {
    const MmaLane& own = *static_cast<MmaLane*>(lanes[lane]);
    const unsigned g = lane / 4, c = lane % 4 * 2;
    for (unsigned i = 0; i < 4; i++) own.d[i] = float(double(own.d[i]) + d[g + i / 2 * 8][c + i % 2]);
  }
}
void emu_mma_m16n8k16(float* d, const emu_u32* a, const emu_u32* b, bool is_bf16) {
  MmaLane own = {d, a, b, is_bf16};
  emu_collective(~0u, is_bf16 ? "mma.m16n8k16 of bf16" : "mma.m16n8k16 of f16", true, &own, mma_together);
}

void emu_multiply(float (&d)[16][256], const emu_u32 (&a)[32][4], const emu_u16 (&b)[256][16], emu_u32 width, bool is_bf16) {
  double rows[16][16];
  for (unsigned lane = 0; lane < 32; lane++) {
    const unsigned g = lane / 4, c = lane % 4 * 2;
    for (unsigned half = 0; half < 2; half++) {
      rows[g][c + half] = widened(a[lane][0], half, is_bf16);
      rows[g + 8][c + half] = widened(a[lane][1], half, is_bf16);
      rows[g][c + 8 + half] = widened(a[lane][2], half, is_bf16);
      rows[g + 8][c + 8 + half] = widened(a[lane][3], half, is_bf16);
    }
  }
  for (emu_u32 n8 = 0; n8 < width; n8 += 8) {
    double columns[16][8];
    for (unsigned n = 0; n < 8; n++)
      for (unsigned k = 0; k < 16; k++) columns[k][n] = widened(b[n8 + n][k], 0, is_bf16);
    for (unsigned m = 0; m < 16; m++) {
      double sums[8] = {};
      for (unsigned k = 0; k < 16; k++)
        for (unsigned n = 0; n < 8; n++) sums[n] += rows[m][k] * columns[k][n];
      for (unsigned n = 0; n < 8; n++) d[m][n8 + n] = float(double(d[m][n8 + n]) + sums[n]);
    }
  }
}

// An e4m3 number is its significand times 2^(exponent - 10).
struct Small {
  int significand, exponent;
  bool is_nan;
};
static Small small(emu_u32 byte) {
  const int field = byte >> 3 & 15, mantissa = byte & 7, magnitude = field == 0 ? mantissa : 8 + mantissa;
  return {byte & 0x80 ? -magnitude : magnitude, field == 0 ? 1 : field, (byte & 0x7F) == 0x7F};
}

// Eight columns at a time.
typedef int Eight __attribute__((vector_size(32)));
static Eight chosen(Eight condition, Eight then, Eight otherwise) { return (condition & then) | (~condition & otherwise); }
static Eight at_least(Eight value, int least) { return chosen(value > least, value, Eight{} + least); }

// As measured on Hopper (MMA-Sim, arXiv 2511.10909): the products and what they are added to are aligned to the greatest of
// their exponents (of a product, the sum of its factors'), what is below 13 bits of it is cut off, and so is it of the sum.
void emu_multiply_e4m3(float (&d)[16][256], const emu_u32 (&a)[32][4], const emu_u16 (&b)[256][16], emu_u32 width, bool adds) {
  constexpr int FRACTION = 13, NOTHING = -1000;
  Small rows[16][32];
  for (unsigned lane = 0; lane < 32; lane++)
    for (unsigned i = 0; i < 16; i++)
      rows[lane / 4 + i / 4 % 2 * 8][i / 8 * 16 + lane % 4 * 4 + i % 4] = small(a[lane][i / 4] >> (8 * (i % 4)) & 0xFF);
  for (emu_u32 n8 = 0; n8 < width; n8 += 8) {
    Eight significands[32], exponents[32];
    bool is_nan[8] = {};
    for (unsigned n = 0; n < 8; n++)
      for (unsigned k = 0; k < 32; k++) {
        const Small column = small(b[n8 + n][k / 2] >> (8 * (k % 2)) & 0xFF);
        significands[k][n] = column.significand;
        exponents[k][n] = column.exponent;
        is_nan[n] |= column.is_nan;
      }
    for (unsigned m = 0; m < 16; m++) {
      float* sums = &d[m][n8];
      Eight greatest, exponent, significand;
      for (unsigned n = 0; n < 8; n++) {
        const emu_u32 bits = emu_bits(adds ? sums[n] : 0.f);
        const int field = bits >> 23 & 0xFF, mantissa = bits & 0x7FFFFF, magnitude = field == 0 ? mantissa : 1 << 23 | mantissa;
        greatest[n] = magnitude == 0 ? NOTHING : field - 127;
        exponent[n] = (field == 0 ? 1 : field) - 150;
        significand[n] = bits >> 31 ? -magnitude : magnitude;
      }
      Eight products[32];
      bool is_row_nan = false;
      for (unsigned k = 0; k < 32; k++) {
        const Small& row = rows[m][k];
        is_row_nan |= row.is_nan;
        products[k] = significands[k] * row.significand;
        const Eight of_product = exponents[k] + (row.exponent - 14);
        greatest = chosen((products[k] != 0) & (of_product > greatest), of_product, greatest);
      }
      greatest = chosen(greatest == NOTHING, Eight{}, greatest);
      // In units of the last bit that is kept; whatever is less is cut off.
      const auto units = [&](Eight significand, Eight exponent) {
        const Eight left = exponent - greatest + FRACTION, up = at_least(left, 0), down = -at_least(chosen(left < 0, left, Eight{}), -31);
        const Eight magnitude = chosen(significand < 0, -significand, significand) << up >> down;
        return chosen(significand < 0, -magnitude, magnitude);
      };
      Eight total = units(significand, exponent);
      for (unsigned k = 0; k < 32; k++)
        total += units(products[k], exponents[k] + (rows[m][k].exponent - 20));
      for (unsigned n = 0; n < 8; n++) {
        if (is_row_nan || is_nan[n]) {
          sums[n] = emu_float(0x7FFFFFFF);
          continue;
        }
        if (adds && sums[n] != sums[n]) continue;
        const int magnitude = total[n] < 0 ? -total[n] : total[n];
        int over = 0;
        while (magnitude >> over >= 2 << FRACTION) over++;
        const int kept = magnitude >> over << over;
        sums[n] = float(ldexp(total[n] < 0 ? -kept : kept, greatest[n] - FRACTION));
      }
    }
  }
}

static const engine::TensorMap* map_at(const void* map, const char* helper) {
  const auto* known = static_cast<const engine::TensorMap*>(map);
  if (reinterpret_cast<uintptr_t>(map) % 64) emu_fail("%s: a tensor map at %p, which is no multiple of 64", helper, map);
  if (known->magic != engine::MAP_MAGIC || engine::sum_of(*known) != known->sum)
    emu_fail("%s: what is at %p is no tensor map that cuTensorMapEncodeTiled made", helper, map);
  return known;
}

void emu_tensor_prefetch(const void* map) { map_at(map, "prefetch.tensormap"); }

// What arrives in a block counts at its own barrier, or at that of its pair's block of a parity.
enum { OWN = -1 };
static void load_box(emu_u32 shared, const void* map, int rank, const int* at, emu_u32 barrier, emu_u32 ranks, int parity) {
  const char* helper = "cp.async.bulk.tensor";
  const engine::TensorMap* known = map_at(map, helper);
  if (int(known->rank) != rank) emu_fail("%s of %d dimensions with a tensor map of %u", helper, rank, known->rank);
  if (!ranks || ranks >> grid->cluster.blocks) emu_fail("%s: blocks 0x%x of a cluster of %u", helper, ranks, grid->cluster.blocks);
  struct Box {
    const engine::TensorMap* map;
    int at[5];
    emu_u32 shared, barrier, rank;
  } box = {known, {}, shared, 0, 0};
  uint64_t bytes = known->element_bytes;
  for (int i = 0; i < rank; i++) {
    box.at[i] = at[i];
    bytes *= known->box[i];
  }
  for (emu_u32 to = 0; to < grid->cluster.blocks; to++) {
    if (!(ranks >> to & 1)) continue;
    box.rank = to;
    box.barrier = (barrier & EMU_OFFSET_MASK) | (parity == OWN ? to : to / 2 * 2 + parity) << EMU_RANK_SHIFT;
    emu_cluster_shared(box.barrier, 8, 8, helper);
    // Whoever still reads there finds nothing of use.
    memset(emu_cluster_shared((shared & EMU_OFFSET_MASK) | to << EMU_RANK_SHIFT, emu_u32(bytes), 128, helper), 0xFF, bytes);
    emu_queue(EMU_UNORDERED, [box, bytes] {
      const engine::TensorMap& map = *box.map;
      const emu_u32 rank_bits = box.rank << EMU_RANK_SHIFT;
      unsigned char* window = grid->blocks[box.rank].window;
      emu_cluster_shared((box.shared & EMU_OFFSET_MASK) | rank_bits, emu_u32(bytes), 128, "cp.async.bulk.tensor");
      const emu_u32 row_bytes = map.box[0] * map.element_bytes;
      emu_u32 rows = 1;
      for (unsigned i = 1; i < map.rank; i++) rows *= map.box[i];
      const emu_u32 bits = map.swizzle;  // 1: 32 bytes, 2: 64, 3: 128
      for (emu_u32 row = 0; row < rows; row++) {
        bool is_inside = true;
        uint64_t from = map.address;
        emu_u32 rest = row;
        for (unsigned i = 1; i < map.rank; i++) {
          const long long place = (long long)box.at[i] + rest % map.box[i];
          rest /= map.box[i];
          is_inside = is_inside && place >= 0 && place < (long long)map.extents[i];
          from += uint64_t(place) * map.strides[i - 1];
        }
        for (emu_u32 byte = 0; byte < row_bytes; byte += map.element_bytes) {
          emu_u32 to = (box.shared & EMU_OFFSET_MASK) + row * row_bytes + byte;
          if (bits) to ^= (to >> 7 & ((1u << bits) - 1)) << 4;
          const long long x = (long long)box.at[0] + byte / map.element_bytes;
          if (is_inside && x >= 0 && x < (long long)map.extents[0]) {
            const void* element = reinterpret_cast<const void*>(from + uint64_t(x) * map.element_bytes);
            memcpy(window + to, emu_global(element, map.element_bytes, 1, "cp.async.bulk.tensor"), map.element_bytes);
          } else {
            memset(window + to, 0, map.element_bytes);
          }
        }
      }
      emu_mbarrier_complete_tx(box.barrier, emu_u32(bytes));
    });
  }
}
void emu_tensor_load(emu_u32 shared, const void* map, int rank, const int* at, emu_u32 barrier, emu_u32 ranks) {
  load_box(shared, map, rank, at, barrier, ranks, OWN);
}
void emu_tensor_load_pair(emu_u32 shared, const void* map, int rank, const int* at, emu_u32 barrier, emu_u32 ranks) {
  const char* helper = "cp.async.bulk.tensor of a pair";
  const emu_u32 here = shared >> EMU_RANK_SHIFT, counts = barrier >> EMU_RANK_SHIFT;
  if (grid->cluster.blocks % 2) emu_fail("%s: a cluster of %u", helper, grid->cluster.blocks);
  if (here / 2 != counts / 2) emu_fail("%s: data of block %u and the barrier of block %u, of another pair", helper, here, counts);
  load_box(shared, map, rank, at, barrier, ranks, int(counts % 2));
}

}  // extern "C"
