// What templates/common/async.cuh has, on the CPU: mbarriers, bulk and tensor copies, clusters, fences.
#pragma once

#include "common/ptx.cuh"

namespace ws {

inline void cp_async_arrive(u32 barrier) { emu_queue_arrive(EMU_CP_ASYNC, barrier); }

struct alignas(64) TensorMap {
  u64 words[16];
};

// Which lane it is is not said: another one with another schedule, but always the same.
inline bool elect_one() {
  u32 own = emu_schedule() == EMU_LATE ? 31 : 0;
  emu_collective(~0u, "elect.sync", true, nullptr, [](void**, emu_u32) {});
  return emu_current->lane == own;
}

// What matrix instructions learn from a barrier whose phase this thread has seen to be complete, and tell those that wait for
// one that it arrives at.
inline void (*emu_after_wait)(u32 barrier) = nullptr;
inline void (*emu_before_arrive)(u32 barrier) = nullptr;
inline void emu_arrive(u32 barrier, u32 bytes) {
  if (emu_before_arrive) emu_before_arrive(barrier);
  emu_mbarrier_arrive(barrier, 1, bytes);
}

inline void mbarrier_init(u32 barrier, u32 arrivals) { emu_mbarrier_init(barrier, arrivals); }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(u32 barrier) {
  emu_shared(barrier, 8, 8, "mbarrier.arrive");
  emu_arrive(barrier, 0);
}
inline void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  emu_shared(barrier, 8, 8, "mbarrier.arrive.expect_tx");
  emu_arrive(barrier, bytes);
}
inline void mbarrier_arrive_expect_tx_cluster(u32 remote, u32 bytes) { emu_arrive(remote, bytes); }
inline void mbarrier_arrive_cluster(u32 remote) { emu_arrive(remote, 0); }
inline u32 map_shared_rank(u32 shared, u32 rank) {
  emu_block(rank);
  return (shared & EMU_OFFSET_MASK) | rank << EMU_RANK_SHIFT;
}
inline void mbarrier_arrive_remote(u32 barrier, u32 rank) { emu_arrive(map_shared_rank(barrier, rank), 0); }
// A test that fails lets others run: who tests in a loop would be alone else.
inline bool mbarrier_test_wait(u32 barrier, u32 parity) { return emu_mbarrier_try_wait(barrier, parity); }
inline bool mbarrier_try_wait(u32 barrier, u32 parity) { return emu_mbarrier_try_wait(barrier, parity); }
template <class Try>
inline void spin(Try is_done) {
  for (u32 tries = 0; !is_done(); tries++)
    if (tries > 1u << 24) __trap();
}
inline void mbarrier_wait(u32 barrier, u32 parity) {
  emu_mbarrier_wait(barrier, parity);
  if (emu_after_wait) emu_after_wait(barrier);
}
inline void mbarrier_wait_relaxed_cluster(u32 barrier, u32 parity) { mbarrier_wait(barrier, parity); }
inline void mbarrier_wait_cluster(u32 barrier, u32 parity) {
  mbarrier_wait(barrier, parity);
  emu_acquire_cluster();
}

inline u32 clock() {
  emu_yield();
  return static_cast<u32>(emu_clock());
}

inline void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
  const char* helper = "cp.async.bulk to shared memory";
  if (bytes == 0 || bytes % 16 != 0) emu_fail("%s: %u bytes", helper, bytes);
  emu_cluster_shared(shared, bytes, 16, helper);
  emu_cluster_shared(barrier, 8, 8, helper);
  emu_global(global, bytes, 16, helper);
  // Whoever still reads there finds nothing of use.
  __builtin_memset(emu_cluster_shared(shared, bytes, 16, helper), 0xFF, bytes);
  emu_queue(EMU_UNORDERED, [=] {
    __builtin_memcpy(emu_cluster_shared(shared, bytes, 16, "cp.async.bulk to shared memory"), global, bytes);
    emu_mbarrier_complete_tx(barrier, bytes);
  });
}
inline void bulk_prefetch(const void* global, u32 bytes) {
  if (bytes == 0 || bytes % 16 != 0) emu_fail("cp.async.bulk.prefetch: %u bytes", bytes);
  emu_global(global, bytes, 16, "cp.async.bulk.prefetch");
}
inline void bulk_store(void* global, u32 shared, u32 bytes) {
  const char* helper = "cp.async.bulk to global memory";
  if (bytes == 0 || bytes % 16 != 0) emu_fail("%s: %u bytes", helper, bytes);
  emu_shared(shared, bytes, 16, helper);
  emu_global(global, bytes, 16, helper);
  // What is not fenced by now is not seen, however late it is read.
  emu_async_read(shared, bytes, helper);
  emu_queue(EMU_BULK_STORE, [=] {
    emu_async_read(shared, bytes, "cp.async.bulk to global memory");
    __builtin_memcpy(global, emu_shared(shared, bytes, 16, "cp.async.bulk to global memory"), bytes);
  });
}
inline void bulk_commit_group() { emu_commit(EMU_BULK_STORE); }
inline void bulk_wait_group_read() { emu_wait_group(EMU_BULK_STORE, 0); }
inline void bulk_wait_group() { emu_wait_group(EMU_BULK_STORE, 0); }

inline void tensor_load(u32 shared, const TensorMap& map, int x, int y, int z, u32 barrier) {
  const int at[3] = {x, y, z};
  emu_tensor_load(shared, &map, 3, at, barrier, 1u << (shared >> EMU_RANK_SHIFT));
}
inline void tensor_load_2d(u32 shared, const TensorMap& map, int x, int y, u32 barrier) {
  const int at[2] = {x, y};
  emu_tensor_load(shared, &map, 2, at, barrier, 1u << (shared >> EMU_RANK_SHIFT));
}
inline void tensor_load_multicast(u32 shared, const TensorMap& map, int x, int y, int z, u32 barrier, u16 ranks) {
  const int at[3] = {x, y, z};
  emu_tensor_load(shared, &map, 3, at, barrier, ranks);
}
inline void prefetch_tensor_map(const TensorMap& map) { emu_tensor_prefetch(&map); }

inline void fence_proxy_async() { emu_fence_async(); }
inline void fence_release_shared() { emu_release_cluster(); }
inline void fence_acquire_shared() { emu_acquire_cluster(); }

inline void cluster_arrive() { emu_cluster_arrive(); }
inline void cluster_wait() {
  emu_cluster_wait();
  emu_acquire_cluster();
}
inline u32 cluster_rank() { return emu_current->block->rank; }

inline void st_async(u32 remote, u32 barrier, float a, float b, float c, float d) {
  emu_cluster_shared(remote, 16, 16, "st.async");
  emu_cluster_shared(barrier, 8, 8, "st.async");
  if (remote >> EMU_RANK_SHIFT != barrier >> EMU_RANK_SHIFT) emu_fail("st.async: data and barrier are of two blocks");
  emu_queue(EMU_UNORDERED, [=] {
    const float values[4] = {a, b, c, d};
    __builtin_memcpy(emu_cluster_shared(remote, 16, 16, "st.async"), values, 16);
    emu_mbarrier_complete_tx(barrier, 16);
  });
}

inline void launch_dependents() {}
inline void wait_for_dependencies() {}

}  // namespace ws
