// Tokens one row after the other: a warp brings their codes as the other one brings those of weights.
#pragma once

namespace ws {

using TokenScales = ScalesOf<LOADED_TOKEN_SCALES, TokenScaleRows>;

__device__ __forceinline__ void prefetch_tokens(const Params& params, const Maps& maps) {
  prefetch_tensor_map(maps.tokens);
  TokenScales::prefetch(params, maps);
}

__device__ __forceinline__ void load_tokens(const Params& params, const Maps& maps, const Ring& ring) {
  wait_for_dependencies();
  Cursor at;
  Tile tile;
  for (int index = 0; take_tile(params, index, tile); index++) {
    const int row = tile.token_row(ring.rank);
#pragma unroll 1
    for (int i = 0; i < tile.k_tiles; i++, at.next()) {
      const int k_tile = tile.first_k_tile + i;
      ring.wait_empty(at);
      if (elect_one()) {
        ring.announce(at.slot, TOKEN_TILE_BYTES + TokenScales::bytes(params, tile, ring.rank, k_tile));
        ring.load_codes(at.slot, TOKENS_OFFSET, maps.tokens, k_tile, row);
        TokenScales::load(params, maps, ring, at.slot, tile, k_tile);
      }
      __syncwarp();
    }
  }
  // Every read of what came before is done or under way, and nothing is written before it has arrived.
  launch_dependents();
}

}  // namespace ws
