// Programmatic dependent launch (PTX ISA, "Parallel Synchronization: griddepcontrol"): sm_90 and later.
#pragma once

namespace ws {

// Kernels that depend on this one may start as soon as every block has said so, or ended.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until the kernels this one depends on are done and their writes are visible. Nothing, if it was launched plainly.
__device__ __forceinline__ void wait_for_dependencies() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace ws
