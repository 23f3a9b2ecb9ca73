// Each A tile is loaded once and multiplied with both weights while it is there.
#pragma once

namespace ws {

template <class TokenTile, class WeightTile>
struct Fusion {
  static constexpr int COUNT = 2;
  static_assert(STAGE_BYTES == TokenTile::BYTES + 2 * WeightTile::BYTES, "host and device agree on a stage");

  Accumulators sums[2];

  __device__ void multiply(const Params& params, const Block& block) {
    const auto tokens = token_rows<TokenTile>(params, block);
    const Rows gate = weight_rows<WeightTile>(params, block, 0);
    const Rows up = weight_rows<WeightTile>(params, block, 1);
    const auto load = [&](int offset, int index) {
      const int k_tile = block.first_k_tile + index;
      TokenTile::load(offset, tokens, k_tile);
      WeightTile::load(offset + TokenTile::BYTES, gate, k_tile);
      WeightTile::load(offset + TokenTile::BYTES + WeightTile::BYTES, up, k_tile);
    };
    Pipeline pipeline(load, block.k_tiles);
    clear(sums[0]);
    clear(sums[1]);
#pragma unroll 1
    for (int index = 0; index < block.k_tiles; index++) {
      const int stage = pipeline.next();
      const int gate_tile = WeightTile::loaded(stage + TokenTile::BYTES, block.first_k_tile + index);
      multiply_stage<TokenTile, WeightTile>(sums, stage, {gate_tile, gate_tile + WeightTile::BYTES});
    }
  }

  // Which product `sums[i]` is.
  __device__ static int product(const Params&, int i) { return i; }
};

}  // namespace ws
