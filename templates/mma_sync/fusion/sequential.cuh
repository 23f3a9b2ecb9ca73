// All of B1 along K, then all of B2, in one unbroken pipeline; each A tile is loaded twice.
#pragma once

namespace ws {

template <class TokenTile, class WeightTile>
struct Fusion {
  static constexpr int COUNT = 2;
  static_assert(STAGE_BYTES == TokenTile::BYTES + WeightTile::BYTES, "host and device agree on a stage");

  Accumulators sums[2];

  __device__ void multiply(const Params& params, const Block& block) {
    const auto tokens = token_rows<TokenTile>(params, block);
    const Rows gate = weight_rows<WeightTile>(params, block, 0);
    const Rows up = weight_rows<WeightTile>(params, block, 1);
    const auto load = [&](int offset, int index) {
      const bool first = index < block.k_tiles;
      const int k_tile = block.first_k_tile + (first ? index : index - block.k_tiles);
      TokenTile::load(offset, tokens, k_tile);
      // Field by field: a choice between two structs would put them into local memory.
      Rows weights = gate;
      weights.values = first ? gate.values : up.values;
      weights.scales = first ? gate.scales : up.scales;
      WeightTile::load(offset + TokenTile::BYTES, weights, k_tile);
    };
    Pipeline pipeline(load, 2 * block.k_tiles);
    main_loop(pipeline, block, sums[0]);
    main_loop(pipeline, block, sums[1]);
  }

  template <class P>
  __device__ static void main_loop(P& pipeline, const Block& block, Accumulators& product) {
    auto& sums = reinterpret_cast<Accumulators(&)[1]>(product);
    clear(product);
#pragma unroll 1
    for (int index = 0; index < block.k_tiles; index++) {
      const int stage = pipeline.next();
      const int weights_tile = WeightTile::loaded(stage + TokenTile::BYTES, block.first_k_tile + index);
      multiply_stage<TokenTile, WeightTile>(sums, stage, {weights_tile});
    }
  }

  // Which product `sums[i]` is.
  __device__ static int product(const Params&, int i) { return i; }
};

}  // namespace ws
