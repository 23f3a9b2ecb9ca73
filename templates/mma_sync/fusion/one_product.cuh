// One product along K: what `single` and each launch of `two_pass` do.
#pragma once

namespace ws {

template <class TokenTile, class WeightTile>
struct OneProduct {
  static constexpr int COUNT = 1;
  static_assert(STAGE_BYTES == TokenTile::BYTES + WeightTile::BYTES, "host and device agree on a stage");

  Accumulators sums[1];

  __device__ void multiply(const Params& params, const Block& block, int product) {
    const auto tokens = token_rows<TokenTile>(params, block);
    const Rows weights = weight_rows<WeightTile>(params, block, product);
    const auto load = [&](int offset, int index) {
      TokenTile::load(offset, tokens, block.first_k_tile + index);
      WeightTile::load(offset + TokenTile::BYTES, weights, block.first_k_tile + index);
    };
    Pipeline pipeline(load, block.k_tiles);
    clear(sums[0]);
#pragma unroll 1
    for (int index = 0; index < block.k_tiles; index++) {
      const int stage = pipeline.next();
      const int weights_tile = WeightTile::loaded(stage + TokenTile::BYTES, block.first_k_tile + index);
      multiply_stage<TokenTile, WeightTile>(sums, stage, {weights_tile});
    }
  }
};

}  // namespace ws
