// The warps that bring codes into shared memory: one lane asks the tensor memory accelerator, a tile of rows at a time.
#pragma once

namespace ws {

inline constexpr int WEIGHTS_OFFSET = WEIGHT_ROWS ? 0 : WIDE_OFFSET;
inline constexpr int WEIGHT_TILE_BYTES = WEIGHT_ROWS ? ROW_TILE_BYTES : WIDE_TILE_BYTES;
inline constexpr int TOKENS_OFFSET = WEIGHT_ROWS ? WIDE_OFFSET : 0;
inline constexpr int TOKEN_TILE_BYTES = WEIGHT_ROWS ? WIDE_TILE_BYTES : ROW_TILE_BYTES;

// Weights do not wait for what came before: they were written long ago.
__device__ __forceinline__ void load_weights(const Params& params, const Maps& maps, const Ring& ring) {
  Cursor at;
  Tile tile;
  for (int index = 0; take_tile(params, index, tile); index++) {
    const int row = tile.group * N + tile.weight_row(ring.rank);
#pragma unroll 1
    for (int i = 0; i < tile.k_tiles; i++, at.next()) {
      const int k_tile = tile.first_k_tile + i;
      ring.wait_empty(at);
      if (elect_one()) {
        ring.announce(at.slot, BLOCK_PRODUCTS * WEIGHT_TILE_BYTES + WeightScales::bytes(params, tile, ring.rank, k_tile));
#pragma unroll
        for (int product = 0; product < BLOCK_PRODUCTS; product++)
          ring.load_codes(at.slot, WEIGHTS_OFFSET + product * WEIGHT_TILE_BYTES, maps.weights[product_of(params, product)],
                          k_tile, row);
        WeightScales::load(params, maps, ring, at.slot, tile, k_tile);
      }
      __syncwarp();
    }
  }
  // Products still arrive at barriers of the ring.
  for (int slot = 0; slot < STAGES; slot++, at.next()) ring.wait_empty(at);
}

}  // namespace ws
