// What a kernel sees when it runs on the CPU: CUDA's words and built-in functions, and under them the emulator's own
// functions, which the headers below headers/ are made of. Kernels are compiled with this file in front of them
// (nvrtc.cpp) and loaded into a process whose CUDA driver is the emulator (driver.cpp; runtime.cpp runs them).
//
// How a grid runs. Each CUDA thread is a fiber; the blocks of a cluster run at once, clusters one after the other, all on
// the CPU thread that launches. A fiber runs until it waits. Nothing here is preempted: code between two waits is atomic.
//
// The interface for instructions that are emulated:
//
//   who am I         emu_current: index, number (in the block), warp, lane, block; block->rank, block->cluster
//   failing          emu_fail(format, …) ends the launch with a reason; block, thread and helper are added to it
//   waiting          emu_wait_until([&] { return …; }, "what for"): the condition is looked at when others have run, and
//                    must be cheap and change nothing. emu_try_until: the same, but false if nobody else can go on.
//                    emu_yield(): lets others run. Whoever waits when nothing can change any more is a deadlock.
//   shared memory    addresses are u32: the rank of the block in bits 24 and up, below them the place in its window, which
//                    begins with 1 KiB that is nobody's. emu_shared(address, bytes, alignment, helper): of the own block;
//                    emu_cluster_shared: of any block of the cluster; both give a pointer and fail if it is not all inside.
//                    emu_shared_address(pointer): the way back. emu_block(rank): another block of the cluster.
//   global memory    emu_global(pointer, bytes, alignment, helper): fails if it is not all inside of one allocation
//   collectives      emu_collective(mask, "name", is_aligned, &own, run): each lane of `mask` brings a pointer; the last one
//                    calls run(lanes, mask) with those of all lanes, by lane (null: the thread has ended). It then returns
//                    in all of them. Lanes that come with another name or mask have diverged, which fails.
//   asynchronous     emu_queue(kind, [=] { … }): runs now, later, or when it has to, as the schedule says. The closure is
//                    copied as bytes (112 at most); it runs with emu_current as it is here, maybe when this thread has ended.
//                    It must not wait. Operations of a thread and a kind run in their order, but those of EMU_UNORDERED.
//                    emu_commit(kind) ends a group; emu_wait_group(kind, pending) returns when at most `pending` groups
//                    have operations left; emu_finish(kind) when nothing is left, committed or not.
//                    emu_queue_arrive(kind, barrier): arrives at an mbarrier (its address names the block) when all before
//                    it in the queue is done. An operation may queue further ones.
//   mbarriers        emu_mbarrier_init, _arrive(address, arrivals, expected bytes), _complete_tx, _wait, _try_wait. An
//                    address may be of another block of the cluster, where the instruction allows it: _arrive and
//                    _complete_tx.
//   proxies          emu_generic_write(address, bytes): this thread wrote shared memory in the generic proxy;
//                    emu_async_read(address, bytes, helper): the async proxy reads it now; fails where a write was not
//                    fenced. emu_fence_async(): this thread's fence.proxy.async. A fence covers the own writes, and those
//                    of others who have arrived somewhere after them and before this thread's last wait. What kernels
//                    write by plain C++ is not known.
//                    Of another block's shared memory the async proxy reads what has been handed over beside that: after its
//                    fence.proxy.async somebody there released it to the cluster (emu_release_cluster), and this thread waited
//                    since for something by an acquire at that scope (emu_acquire_cluster).
//   own data         emu_block_data(slot, bytes), emu_cluster_data(slot, bytes): zeros at the first call, the same memory
//                    later; gone when the cluster ends. Slots are 0 to 7.
//   chance           emu_random(): 64 bits, the same for the same seed. emu_schedule(): EMU_EAGER, EMU_LATE or EMU_SEEDED
#pragma once

using emu_u8 = unsigned char;
using emu_u16 = unsigned short;
using emu_u32 = unsigned int;
using emu_u64 = unsigned long long;
using emu_size = __SIZE_TYPE__;

enum { EMU_WINDOW_BEGIN = 1024, EMU_RANK_SHIFT = 24, EMU_OFFSET_MASK = 0xFFFFFF, EMU_CLUSTER_MAX = 16 };
enum { EMU_EAGER, EMU_LATE, EMU_SEEDED };

// Kinds of asynchronous operations.
enum {
  EMU_CP_ASYNC,    // cp.async: groups of a thread; its writes are of the generic proxy
  EMU_UNORDERED,   // bulk and tensor loads, st.async: each by itself
  EMU_BULK_STORE,  // bulk stores: groups of a thread
  EMU_MATRIX,      // matrix instructions that run by themselves
  EMU_OWN_0,       // for whatever else
  EMU_OWN_1,
  EMU_KINDS,
};

struct EmuIndex {
  unsigned x, y, z;
};
struct EmuBlock;
struct EmuCluster {
  unsigned blocks;
  EmuBlock* block[EMU_CLUSTER_MAX];
};
struct EmuBlock {
  EmuIndex index, dim, grid;
  unsigned char* window;   // where the window of shared memory begins; its first 1 KiB are not there
  unsigned char* dynamic;  // dynamic shared memory
  unsigned dynamic_bytes, threads, rank, number;
  EmuCluster* cluster;
};
struct EmuThread {
  EmuIndex index;
  unsigned number, warp, lane;
  EmuBlock* block;
};

extern "C" {
extern EmuThread* emu_current;

[[noreturn]] void emu_fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
void emu_yield();
void emu_wait(bool (*ready)(void*), void* data, const char* what);
bool emu_try(bool (*ready)(void*), void* data, const char* what);

unsigned char* emu_shared(emu_u32 address, emu_u32 bytes, emu_u32 alignment, const char* helper);
unsigned char* emu_cluster_shared(emu_u32 address, emu_u32 bytes, emu_u32 alignment, const char* helper);
emu_u32 emu_shared_address(const void* pointer);
EmuBlock* emu_block(emu_u32 rank);
// Static shared memory, by what names it: at the same place in every block of the launch.
void* emu_static_shared(emu_size bytes, emu_size alignment, const char* name);
unsigned char* emu_global(const void* pointer, emu_u64 bytes, emu_u32 alignment, const char* helper);

typedef void (*EmuTogether)(void** lanes, emu_u32 mask);
void emu_collective(emu_u32 mask, const char* name, bool is_aligned, void* own, EmuTogether run);

void emu_enqueue(unsigned kind, void (*run)(void*), const void* closure, emu_size bytes);
void emu_queue_arrive(unsigned kind, emu_u32 barrier);
void emu_commit(unsigned kind);
void emu_wait_group(unsigned kind, unsigned pending);
void emu_finish(unsigned kind);

void emu_mbarrier_init(emu_u32 address, emu_u32 arrivals);
void emu_mbarrier_arrive(emu_u32 address, emu_u32 arrivals, emu_u32 expected_bytes);
void emu_mbarrier_complete_tx(emu_u32 address, emu_u32 bytes);
void emu_mbarrier_wait(emu_u32 address, emu_u32 parity);
bool emu_mbarrier_try_wait(emu_u32 address, emu_u32 parity);
// Whether nobody has arrived in its phase, and no bytes are announced or there.
bool emu_mbarrier_is_at_rest(emu_u32 address);

void emu_block_barrier(emu_u32 id, emu_u32 threads, const char* helper);
void emu_block_arrive(emu_u32 id, emu_u32 threads);
void emu_cluster_arrive();
void emu_cluster_wait();

void emu_generic_write(emu_u32 address, emu_u32 bytes);
void emu_fence_async();
void emu_async_read(emu_u32 address, emu_u32 bytes, const char* helper);
void emu_release_cluster();
void emu_acquire_cluster();

void* emu_block_data(unsigned slot, emu_size bytes);
void* emu_cluster_data(unsigned slot, emu_size bytes);
// Calls this when the block of the current thread has ended; it may fail.
void emu_when_ended(void (*check)());
emu_u64 emu_random();
int emu_schedule();
// Counts nanoseconds.
emu_u64 emu_clock();
float emu_exp2(float x);

// mma.m16n8k16 by a whole warp.
void emu_mma_m16n8k16(float* d, const emu_u32* a, const emu_u32* b, bool is_bf16);
// d += a·b for 16 rows, `width` columns and 16 along K: a as lanes have it for mma.m16n8k16, b by columns.
void emu_multiply(float (&d)[16][256], const emu_u32 (&a)[32][4], const emu_u16 (&b)[256][16], emu_u32 width, bool is_bf16);
// As wgmma does for e4m3, 32 along K: lane 4g + t has, of rows g and g + 8, k 4t … 4t + 3, and of both 16 + 4t …; d is a·b unless `adds`.
void emu_multiply_e4m3(float (&d)[16][256], const emu_u32 (&a)[32][4], const emu_u16 (&b)[256][16], emu_u32 width, bool adds);
// A box of a tensor as cuTensorMapEncodeTiled has described it, into the blocks of `ranks`, counted at `barrier` of each.
void emu_tensor_load(emu_u32 shared, const void* map, int rank, const int* at, emu_u32 barrier, emu_u32 ranks);
// The same with cta_group::2: `barrier` is of either block of the pair that `shared` is of, and what arrives in any block counts
// at that of its pair which has the same parity.
void emu_tensor_load_pair(emu_u32 shared, const void* map, int rank, const int* at, emu_u32 barrier, emu_u32 ranks);
void emu_tensor_prefetch(const void* map);
}

template <class F>
inline void emu_wait_until(F ready, const char* what) {
  emu_wait([](void* data) -> bool { return (*static_cast<F*>(data))(); }, &ready, what);
}
template <class F>
inline bool emu_try_until(F ready, const char* what) {
  return emu_try([](void* data) -> bool { return (*static_cast<F*>(data))(); }, &ready, what);
}
template <class F>
inline void emu_queue(unsigned kind, F operation) {
  static_assert(__is_trivially_copyable(F), "closures are copied as bytes");
  static_assert(sizeof(F) <= 112, "closures are small");
  emu_enqueue(kind, [](void* data) { (*static_cast<F*>(data))(); }, &operation, sizeof operation);
}
// Calls run(lane values, mask) once for a warp; T is what each lane brings, and may be written to.
template <class T>
inline void emu_together(emu_u32 mask, const char* name, bool is_aligned, T& own, EmuTogether run) {
  emu_collective(mask, name, is_aligned, &own, run);
}

inline emu_u32 emu_bits(float value) {
  emu_u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
inline float emu_float(emu_u32 bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// 16-bit formats. A NaN is the one that GPUs make.
inline float emu_from_f16(emu_u16 bits) {
  // By hand: a compiler whose target has no f16 calls a function for what is needed as a double.
  const emu_u32 magnitude = emu_u32(bits & 0x7FFF) << 13, infinity = 0x1F << 23, quiet = 1 << 22;
  emu_u32 value = emu_bits(emu_float(magnitude) * 0x1p112f);
  if (magnitude >= infinity) value = 0x7F800000 | magnitude | (magnitude > infinity ? quiet : 0);
  return emu_float(value | emu_u32(bits & 0x8000) << 16);
}
inline emu_u16 emu_to_f16(float value) {
  if (value != value) return 0x7FFF;
  const _Float16 half = static_cast<_Float16>(value);
  emu_u16 bits;
  __builtin_memcpy(&bits, &half, 2);
  return bits;
}
inline float emu_from_bf16(emu_u16 bits) { return emu_float(emu_u32(bits) << 16); }
inline emu_u16 emu_to_bf16(float value) {
  if (value != value) return 0x7FFF;
  const emu_u32 bits = emu_bits(value);
  return emu_u16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
// Rounded once: to odd on the way through f32.
inline emu_u16 emu_to_bf16(double value) {
  float rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) != value && value - value == 0) {
    emu_u32 bits = emu_bits(rounded);
    const bool is_away = __builtin_fabs(static_cast<double>(rounded)) > __builtin_fabs(value);
    if (is_away) bits--;
    rounded = emu_float(bits | 1);
  }
  return emu_to_bf16(rounded);
}

// --- CUDA's words -----------------------------------------------------------------------------------------------------

// The emulator's own files do without them.
#ifndef EMU_WITHOUT_WORDS

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __restrict__ __restrict

#define threadIdx (emu_current->index)
#define blockIdx (emu_current->block->index)
#define blockDim (emu_current->block->dim)
#define gridDim (emu_current->block->grid)
static const int warpSize = 32;

#define EMU_VECTORS(T, name, A2, A4)                                                                  \
  struct name##1 { T x; };                                                                            \
  struct alignas(A2) name##2 { T x, y; };                                                             \
  struct name##3 { T x, y, z; };                                                                      \
  struct alignas(A4) name##4 { T x, y, z, w; };                                                       \
  inline name##1 make_##name##1(T x) { return {x}; }                                                  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                          \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                  \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS
using dim3 = EmuIndex;

inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }

inline float fabsf(float x) { return __builtin_fabsf(x); }
// NaN only where both are; +0 above -0.
inline float fminf(float a, float b) { return a != a ? b : b != b ? a : a == b ? (__builtin_signbit(a) ? a : b) : a < b ? a : b; }
inline float fmaxf(float a, float b) { return a != a ? b : b != b ? a : a == b ? (__builtin_signbit(a) ? b : a) : a > b ? a : b; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrtf(float x) { return __builtin_sqrtf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline unsigned __float_as_uint(float x) { return emu_bits(x); }
inline int __float_as_int(float x) { return int(emu_bits(x)); }
inline float __uint_as_float(unsigned x) { return emu_float(x); }
inline float __int_as_float(int x) { return emu_float(unsigned(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((emu_u64(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((emu_u64(high) << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  unsigned result = 0;
  for (int i = 0; i < 4; i++) result |= unsigned((emu_u64(high) << 32 | low) >> (8 * (selector >> 4 * i & 7)) & 0xFF) << (8 * i);
  return result;
}
template <class T>
inline T __ldg(const T* at) { return *at; }

[[noreturn]] inline void __trap() { emu_fail("__trap"); }
inline void __nanosleep(unsigned) { emu_yield(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline emu_size __cvta_generic_to_shared(const void* pointer) { return emu_shared_address(pointer); }
inline emu_size __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<emu_size>(pointer); }

inline void __syncthreads() { emu_block_barrier(0, emu_current->block->threads, "__syncthreads"); }
inline void __syncwarp(unsigned mask = ~0u) {
  emu_collective(mask, "__syncwarp", false, nullptr, [](void**, emu_u32) {});
}
// The lanes that run together are not known: this one, which is what it may say.
inline unsigned __activemask() { return 1u << emu_current->lane; }

struct EmuShuffle {
  emu_u64 value, result;
  int from;
};
inline void emu_shuffle(void** lanes, emu_u32) {
  for (int lane = 0; lane < 32; lane++) {
    EmuShuffle* own = static_cast<EmuShuffle*>(lanes[lane]);
    // What comes from a lane that takes no part is not known.
    if (own) own->result = lanes[own->from] ? static_cast<EmuShuffle*>(lanes[own->from])->value : ~0ull;
  }
}
template <class T>
inline T emu_shuffled(unsigned mask, T value, int from, const char* name) {
  static_assert(sizeof(T) <= 8, "a word or two");
  EmuShuffle own = {0, 0, from};
  __builtin_memcpy(&own.value, &value, sizeof value);
  emu_collective(mask, name, false, &own, emu_shuffle);
  __builtin_memcpy(&value, &own.result, sizeof value);
  return value;
}
template <class T>
inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = int(emu_current->lane);
  return emu_shuffled(mask, value, (lane & ~(width - 1)) | (from & (width - 1)), "__shfl_sync");
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int lane = int(emu_current->lane);
  const bool is_inside = (lane & (width - 1)) >= int(distance);
  return emu_shuffled(mask, value, is_inside ? lane - int(distance) : lane, "__shfl_up_sync");
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int lane = int(emu_current->lane);
  const bool is_inside = (lane & (width - 1)) + int(distance) < width;
  return emu_shuffled(mask, value, is_inside ? lane + int(distance) : lane, "__shfl_down_sync");
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = int(emu_current->lane), to = lane ^ distance;
  return emu_shuffled(mask, value, (to & ~(width - 1)) == (lane & ~(width - 1)) ? to : lane, "__shfl_xor_sync");
}

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }

struct EmuVote {
  emu_u64 value;
  emu_u32 result;
};
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  EmuVote own = {predicate != 0, 0};
  emu_collective(mask, "__ballot_sync", false, &own, [](void** lanes, emu_u32) {
    emu_u32 all = 0;
    for (int lane = 0; lane < 32; lane++)
      if (lanes[lane] && static_cast<EmuVote*>(lanes[lane])->value) all |= 1u << lane;
    for (int lane = 0; lane < 32; lane++)
      if (lanes[lane]) static_cast<EmuVote*>(lanes[lane])->result = all;
  });
  return own.result;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  EmuVote own = {0, 0};
  __builtin_memcpy(&own.value, &value, sizeof value);
  emu_collective(mask, "__match_any_sync", false, &own, [](void** lanes, emu_u32) {
    for (int lane = 0; lane < 32; lane++) {
      EmuVote* mine = static_cast<EmuVote*>(lanes[lane]);
      if (!mine) continue;
      mine->result = 0;
      for (int other = 0; other < 32; other++)
        if (lanes[other] && static_cast<EmuVote*>(lanes[other])->value == mine->value) mine->result |= 1u << other;
    }
  });
  return own.result;
}

template <class T, class U>
inline T atomicAdd(T* at, U value) {
  const T before = *at;
  *at = before + T(value);
  return before;
}
template <class T, class U>
inline T atomicOr(T* at, U value) {
  const T before = *at;
  *at = before | T(value);
  return before;
}
template <class T, class U>
inline T atomicMax(T* at, U value) {
  const T before = *at;
  if (T(value) > before) *at = T(value);
  return before;
}
template <class T, class U>
inline T atomicExch(T* at, U value) {
  const T before = *at;
  *at = T(value);
  return before;
}

#endif  // EMU_WITHOUT_WORDS

// --- What a module says of its kernels --------------------------------------------------------------------------------

struct EmuEntry {
  const char* name;
  void (*run)(void** arguments);
  int arguments;
  int bytes[8];
};
template <auto KERNEL>
struct EmuKernel;
template <class... Arguments, void (*KERNEL)(Arguments...)>
struct EmuKernel<KERNEL> {
  static_assert(sizeof...(Arguments) <= 8, "few arguments");
  template <unsigned long... I>
  struct Places {};
  template <unsigned long N, unsigned long... I>
  struct Count : Count<N - 1, N - 1, I...> {};
  template <unsigned long... I>
  struct Count<0, I...> {
    static void run(void** arguments) { KERNEL(*static_cast<const Arguments*>(arguments[I])...); }
  };
  static constexpr EmuEntry entry(const char* name) {
    return {name, Count<sizeof...(Arguments)>::run, int(sizeof...(Arguments)), {int(sizeof(Arguments))...}};
  }
};
