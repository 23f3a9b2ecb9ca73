// Factors of a tile's group: asked for before it is multiplied. Where tokens and rows of weights have factors, too, there are no registers
// to keep them in, and they are asked for behind it.
#pragma once

namespace ws {

template <bool HAS_REGISTERS>
struct AlphasBefore {
  Alphas alphas;

  __device__ AlphasBefore(const Params& params, const Tile& tile) : alphas(read(params, tile)) {}
  __device__ Alphas behind(const Params&, const Tile&) const { return alphas; }

  // A kernel before may have written them: whoever loads tokens has waited for it; here nobody has.
  __device__ static Alphas read(const Params& params, const Tile& tile) {
    wait_for_dependencies();
    return Alphas(params, tile.group);
  }
};

template <>
struct AlphasBefore<false> {
  __device__ AlphasBefore(const Params&, const Tile&) {}
  __device__ Alphas behind(const Params& params, const Tile& tile) const { return Alphas(params, tile.group); }
};

using TileAlphas = AlphasBefore<!HAS_FACTORS>;

}  // namespace ws
