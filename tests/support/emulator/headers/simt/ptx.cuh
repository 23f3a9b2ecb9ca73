// What templates/simt/ptx.cuh has, on the CPU.
#pragma once

namespace ws {

inline int lane_index() { return threadIdx.x % 32; }
inline int warp_index() { return threadIdx.x / 32; }

struct EmulatedRedux {
  u32 value, result;
};
template <bool IS_MAX>
inline u32 emulated_redux(u32 value, const char* name) {
  EmulatedRedux own = {value, 0};
  emu_collective(~0u, name, true, &own, [](void** lanes, emu_u32) {
    u32 result = static_cast<EmulatedRedux*>(lanes[0])->value;
    for (int lane = 1; lane < 32; lane++) {
      const u32 other = static_cast<EmulatedRedux*>(lanes[lane])->value;
      result = IS_MAX ? max(result, other) : min(result, other);
    }
    for (int lane = 0; lane < 32; lane++) static_cast<EmulatedRedux*>(lanes[lane])->result = result;
  });
  return own.result;
}
inline u32 redux_max(u32 value) { return emulated_redux<true>(value, "redux.sync.max"); }
inline u32 redux_min(u32 value) { return emulated_redux<false>(value, "redux.sync.min"); }

inline float widened_f16(u16 half) { return emu_from_f16(half); }

inline void launch_dependents() {}
inline void wait_for_dependencies() {}
#if __CUDA_ARCH__ >= 900
inline u32 cluster_rank() { return emu_current->block->rank; }
inline u32 cluster_blocks() { return emu_current->block->cluster->blocks; }
inline void cluster_arrive() { emu_cluster_arrive(); }
inline void cluster_wait() { emu_cluster_wait(); }
inline u32 cluster_load(const u32* shared, u32 rank) {
  const u32 address = (emu_shared_address(shared) & EMU_OFFSET_MASK) | rank << EMU_RANK_SHIFT;
  return *reinterpret_cast<const u32*>(emu_cluster_shared(address, 4, 4, "ld.shared::cluster"));
}
#else
inline u32 cluster_rank() { return 0; }
inline u32 cluster_blocks() { return 1; }
inline void cluster_arrive() { __syncthreads(); }
inline void cluster_wait() {}
inline u32 cluster_load(const u32* shared, u32) { return *shared; }
#endif

}  // namespace ws
