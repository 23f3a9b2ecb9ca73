// A ring of STAGES stages in shared memory, filled by cp.async STAGES − 1 tiles ahead of the multiplying.
//
//   one stage:   wait until all have read │ load │ wait for it │ multiply
//   more:        wait for the oldest load │ all see it, and have read the one before │ load into that one │ multiply
#pragma once

namespace ws {

// `Load` starts the copies of tile `index` (0, 1, …) into the stage at an offset.
template <class Load>
struct Pipeline {
  const Load& load;
  const int tiles;
  int loaded = 0;
  int load_offset = 0;
  int read_offset = 0;

  __device__ Pipeline(const Load& load, int tiles) : load(load), tiles(tiles) {
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) load_next();
  }

  // The offset of the next tile, ready to read. The one before may be overwritten from here on.
  __device__ int next() {
    if constexpr (STAGES == 1) {
      __syncthreads();
      load_next();
      cp_async_wait_group<0>();
      __syncthreads();
    } else {
      cp_async_wait_group<STAGES - 2>();
      __syncthreads();
      load_next();
    }
    return advance(read_offset);
  }

  // Starts the next tile's copies; a group is committed also when there is none left, so that counting groups works.
  __device__ void load_next() {
    if (loaded < tiles) load(advance(load_offset), loaded);
    loaded++;
    cp_async_commit_group();
  }

  __device__ static int advance(int& offset) {
    const int here = offset;
    offset = here == (STAGES - 1) * STAGE_BYTES ? 0 : here + STAGE_BYTES;
    return here;
  }
};

}  // namespace ws
