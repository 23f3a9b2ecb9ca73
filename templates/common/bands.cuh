// The order of many tiles. Blocks that run at once have tiles that follow each other, and what these read of tokens and
// weights should be little, and much of it be in the L2 cache from before: memory takes energy, and energy bounds tall tiles.
// So token tiles are taken in bands of a few, and all of a band have a column tile before the next one is begun: the band's
// tokens stay in the cache while the weights pass by.
#pragma once

namespace ws {

struct TilePlace {
  int token_tile, column_tile;
};

// The `ordinal`th of token_tiles × COLUMN_TILES, of which there is one at least. Bands are of BAND token tiles at most, alike
// but for the last.
template <int BAND, int COLUMN_TILES>
__device__ __forceinline__ TilePlace in_bands(int ordinal, int token_tiles) {
  const int bands = ceil_div(token_tiles, BAND), height = ceil_div(token_tiles, bands);
  const int band = ordinal / (height * COLUMN_TILES), first = band * height;
  const int here = min(height, token_tiles - first), place = ordinal - first * COLUMN_TILES;
  return {first + place % here, place / here};
}

}  // namespace ws
