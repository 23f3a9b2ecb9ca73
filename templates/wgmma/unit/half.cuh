// What makes true sums of those of decoded 16-bit weights (weights/).
#pragma once

namespace ws {

// What makes true weights of decoded ones.
inline constexpr float WEIGHT_UNIT = WeightFormat::unit();

// Tokens have none.
enum : bool { HAS_FACTORS = false };
__device__ __forceinline__ void ask_for_factors(const Params&, const Ring&, const Tile&, const ConsumerId&) {}
__device__ __forceinline__ void wait_for_factors() {}

// Of a tile's group, read before it is multiplied.
class TileAlphas {
  const Alphas alphas;

  // A kernel before may have written them: whoever loads tokens has waited for it; here nobody has.
  __device__ static Alphas read(const Params& params, const Tile& tile) {
    wait_for_dependencies();
    return Alphas(params, tile.group);
  }

 public:
  __device__ TileAlphas(const Params& params, const Tile& tile) : alphas(read(params, tile)) {}
  __device__ const Alphas& of(const ConsumerId&) const { return alphas; }
};

// Of COUNT products from `first_product` on, for the columns and tokens that a thread holds.
template <int COUNT>
struct Units {
  __device__ Units(const Params&, const Tile&, const ConsumerId&, int, int) {}

  __device__ float applied(float sum, int, int, int, int) const { return WEIGHT_UNIT * sum; }
};

}  // namespace ws
