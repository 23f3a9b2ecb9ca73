// Factors of a tile's group: asked for before it is multiplied. Where tokens and rows of weights have factors, too, there are no registers
// to keep them in, and they are asked for behind it.
#pragma once

namespace ws {

template <bool HAS_REGISTERS>
struct AlphasBefore {
  Alphas alphas;

  __device__ AlphasBefore(const Params& params, const Tile& tile) : alphas(params, tile.group) {}
  __device__ Alphas behind(const Params&, const Tile&) const { return alphas; }
};

template <>
struct AlphasBefore<false> {
  __device__ AlphasBefore(const Params&, const Tile&) {}
  __device__ Alphas behind(const Params& params, const Tile& tile) const { return Alphas(params, tile.group); }
};

using TileAlphas = AlphasBefore<!HAS_FACTORS>;

}  // namespace ws
