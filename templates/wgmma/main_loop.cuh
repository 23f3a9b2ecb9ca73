// The inner loop, in the width of the tile that a warpgroup multiplies.
#pragma once

namespace ws {

template <class Rows, class InlineProducer, int WIDTH, int... WIDER>
__device__ __forceinline__ void along_k_in(Widths<WIDTH, WIDER...>, float (&sums)[ACCUMULATORS], const Ring& ring,
                                           const ConsumerId& consumer, u32 first_stage, const Tile& tile, const InlineProducer& inline_producer) {
  if constexpr (sizeof...(WIDER) > 0) {
    if (tile.rows > WIDTH) {
      along_k_in<Rows>(Widths<WIDER...>(), sums, ring, consumer, first_stage, tile, inline_producer);
      return;
    }
  }
  clear_sums<WIDTH / TOKEN_PARTS>();
  MainLoop<Rows, InlineProducer, WIDTH>(ring, consumer, first_stage, tile, inline_producer).run();
  read_sums<WIDTH / TOKEN_PARTS>(sums);
}

template <class Rows, class InlineProducer>
__device__ __forceinline__ void main_loop(float (&sums)[ACCUMULATORS], const Ring& ring, const ConsumerId& consumer, u32 first_stage,
                                        const Tile& tile, const InlineProducer& inline_producer) {
  along_k_in<Rows>(TileWidths(), sums, ring, consumer, first_stage, tile, inline_producer);
}

}  // namespace ws
