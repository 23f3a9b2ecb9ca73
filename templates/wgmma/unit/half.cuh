// What makes true sums of those of decoded 16-bit weights (weights/).
#pragma once

namespace ws {

// What makes true weights of decoded ones.
inline constexpr float WEIGHT_UNIT = WeightFormat::unit();

// Of COUNT products from `first_product` on, for the columns and tokens that a thread holds.
template <int COUNT>
struct Units {
  __device__ Units(const Params&, const Tile&, const ConsumerId&, int, int) {}

  __device__ float applied(float sum, int, int, int, int) const { return WEIGHT_UNIT * sum; }
};

}  // namespace ws
