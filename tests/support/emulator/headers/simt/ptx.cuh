// What templates/simt/ptx.cuh has, on the CPU.
#pragma once

#include "common/ptx.cuh"

#if __CUDA_ARCH__ >= 900
#include "common/stuck/trap.cuh"

#include "common/async.cuh"
#endif

namespace ws {

inline int lane_index() { return threadIdx.x % 32; }
inline int warp_index() { return threadIdx.x / 32; }

struct EmulatedRedux {
  u32 value, result;
};
template <class Op>
inline u32 emulated_redux(u32 value, const char* name) {
  EmulatedRedux own = {value, 0};
  emu_collective(~0u, name, true, &own, [](void** lanes, emu_u32) {
    u32 result = static_cast<EmulatedRedux*>(lanes[0])->value;
    for (int lane = 1; lane < 32; lane++) result = Op()(result, static_cast<EmulatedRedux*>(lanes[lane])->value);
    for (int lane = 0; lane < 32; lane++) static_cast<EmulatedRedux*>(lanes[lane])->result = result;
  });
  return own.result;
}
struct EmulatedMax {
  u32 operator()(u32 a, u32 b) const { return max(a, b); }
};
struct EmulatedMin {
  u32 operator()(u32 a, u32 b) const { return min(a, b); }
};
struct EmulatedSum {
  u32 operator()(u32 a, u32 b) const { return a + b; }
};
inline u32 redux_max(u32 value) { return emulated_redux<EmulatedMax>(value, "redux.sync.max"); }
inline u32 redux_min(u32 value) { return emulated_redux<EmulatedMin>(value, "redux.sync.min"); }
inline int redux_add(int value) { return emulated_redux<EmulatedSum>(value, "redux.sync.add"); }

#if __CUDA_ARCH__ < 900
inline void launch_dependents() {}
inline void wait_for_dependencies() {}
inline u32 cluster_rank() { return 0; }
#endif

}  // namespace ws
