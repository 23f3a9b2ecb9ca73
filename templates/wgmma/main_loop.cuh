// The inner loop, in the width of the tile that a warpgroup multiplies, and what is done with its sums.
#pragma once

namespace ws {

// then.finish<WIDTH>() reads the sums.
template <class Rows, class InlineProducer, class Then, int WIDTH, int... WIDER>
__device__ __forceinline__ void along_k_in(Widths<WIDTH, WIDER...>, const Ring& ring, const ConsumerId& consumer, u32 first_stage,
                                           const Tile& tile, const InlineProducer& inline_producer, const Then& then) {
  if constexpr (sizeof...(WIDER) > 0) {
    if (tile.rows > WIDTH) {
      along_k_in<Rows>(Widths<WIDER...>(), ring, consumer, first_stage, tile, inline_producer, then);
      return;
    }
  }
  clear_sums<WIDTH / TOKEN_PARTS>();
  MainLoop<Rows, InlineProducer, WIDTH>(ring, consumer, first_stage, tile, inline_producer).run();
  then.template finish<WIDTH>();
}

struct Read {
  float (&sums)[ACCUMULATORS];

  template <int WIDTH>
  __device__ __forceinline__ void finish() const {
    read_sums<WIDTH / TOKEN_PARTS>(sums);
  }
};

template <class Rows, class InlineProducer>
__device__ __forceinline__ void main_loop(float (&sums)[ACCUMULATORS], const Ring& ring, const ConsumerId& consumer, u32 first_stage,
                                        const Tile& tile, const InlineProducer& inline_producer) {
  along_k_in<Rows>(TileWidths(), ring, consumer, first_stage, tile, inline_producer, Read{sums});
}

}  // namespace ws
