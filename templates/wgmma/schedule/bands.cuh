// The order of many tall tiles. Blocks that run at once have tiles that follow each other, and what these read of tokens and
// weights should be little, and much of it be in the L2 cache from before: memory takes energy, and energy is what bounds
// tall tiles. So token tiles are taken in bands of a few, and all of a band have a column tile before the next one is begun:
// the band's tokens stay in the cache while the weights pass by.
#pragma once

namespace ws {

// Token tiles of a band at most: 16 MB of tokens where these are long.
enum : int {
  TOKEN_TILE_BYTES = TOKENS * (K / LINE_K) * 128,
  BAND_FITS = (16 << 20) / (TOKEN_TILE_BYTES + 1),
  BAND = BAND_FITS < 4 ? 4 : BAND_FITS > 8 ? 8 : BAND_FITS
};
enum : int { TALL = 128 };
// Where blocks that run at once have one column tile after the other of one token tile or two, all weights are read for each.
enum : bool { IN_BANDS = TOKENS >= TALL && COLUMN_TILES > 64 && MULTICAST == 1 };

struct TilePlace {
  int token_tile, column_tile;
};

__device__ __forceinline__ TilePlace in_bands(int ordinal, int token_tiles) {
  const int bands = ceil_div(token_tiles, BAND), height = ceil_div(token_tiles, bands);
  const int band = ordinal / (height * COLUMN_TILES), first = band * height;
  const int here = min(height, token_tiles - first), place = ordinal - first * COLUMN_TILES;
  return {first + place % here, place / here};
}

}  // namespace ws
