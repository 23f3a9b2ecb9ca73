// How the block scales of weights and of tokens come: what the loading lanes do for them, and the warps that copy.
#pragma once

#include "tcgen05/scales/copied.cuh"

namespace ws {

template <bool LOADED, class Rows>
struct ScalesOf : LoadedScales<Rows> {};
template <class Rows>
struct ScalesOf<false, Rows> : CopiedScales<Rows> {};

using WeightScales = ScalesOf<LOADED_WEIGHT_SCALES, WeightScaleRows>;

// Copies of so many stages are under way before the first of them is waited for.
inline constexpr int COPIES_AHEAD = STAGES > 2 ? 2 : STAGES - 1;

// What a warp has copied is made known, a stage at a time.
__device__ __forceinline__ void finish_copy(const Ring& ring, Cursor& done) {
  // The tensor cores read it through another proxy than cp.async writes.
  fence_proxy_async();
  __syncwarp();
  if (lane_index() == 0) ring.copied(done.slot);
  done.next();
}

// Of whichever of the two has anything to be copied.
template <class Weights, class Tokens>
__device__ __forceinline__ void copy_scales(const Params& params, const Ring& ring) {
  static_assert(Weights::COPIES || Tokens::COPIES, "who copies has something to do");
  wait_for_dependencies();
  Cursor at, done;
  Tile tile;
  int ahead = 0;
  for (int index = 0; take_tile(params, index, tile); index++) {
    const typename Weights::Share weights(params, tile, ring.rank);
    const typename Tokens::Share tokens(params, tile, ring.rank);
#pragma unroll 1
    for (int i = 0; i < tile.k_tiles; i++, at.next()) {
      ring.wait_empty(at);
      if constexpr (Weights::COPIES) Weights::copy(params, ring, at.slot, tile, tile.first_k_tile + i, weights);
      if constexpr (Tokens::COPIES) Tokens::copy(params, ring, at.slot, tile, tile.first_k_tile + i, tokens);
      cp_async_commit_group();
      if (ahead < COPIES_AHEAD) {
        ahead++;
      } else {
        cp_async_wait_group<COPIES_AHEAD>();
        finish_copy(ring, done);
      }
    }
  }
  cp_async_wait_group<0>();
  for (; ahead > 0; ahead--) finish_copy(ring, done);
  // As whoever loads tokens says where they are not copied.
  if constexpr (GATHERED) launch_dependents();
}

}  // namespace ws
