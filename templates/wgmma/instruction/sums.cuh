// The sums that the matrix instruction adds to.
//
// They are registers that PTX declares, not variables: as operands of every instruction, up to 128 of them, they would take
// the compiler 5 ms a time. What names them is text with as many names as a width has sums; src/path/wgmma/instruction.rs
// writes it behind the instruction's file, for each width that tiles are multiplied in, and wgmma/ptx.cuh has what is around it.
#pragma once

namespace ws {

// Once in a kernel, before anything else here.
__device__ __forceinline__ void declare_sums();

// Those that are kept, and those that have not been promoted to them.
template <int WIDTH>
__device__ __forceinline__ void clear_sums();

// The first WIDTH / 2 of those that are kept, which are those of WIDTH tokens.
template <int WIDTH>
__device__ __forceinline__ void get_sums(float (&sums)[ACCUMULATORS]);

// The sums of WIDTH tokens, and zeros beyond.
template <int WIDTH>
__device__ __forceinline__ void read_sums(float (&sums)[ACCUMULATORS]) {
  get_sums<WIDTH>(sums);
#pragma unroll
  for (int i = WIDTH / 2; i < ACCUMULATORS; i++) sums[i] = 0.f;
}

}  // namespace ws
