// Which tiles are taken in bands.
#pragma once

#include "common/bands.cuh"

namespace ws {

enum : int { TALL = 128 };
// Where blocks that run at once have one column tile after the other of one token tile or two, all weights are read for each.
enum : bool { IN_BANDS = TOKENS >= TALL && COLUMN_TILES > 64 && MULTICAST == 1 };

// Token tiles of a band at most: 16 MB of tokens where these are long.
enum : int {
  TOKEN_TILE_BYTES = TOKENS * (K / LINE_K) * 128,
  BAND_FITS = (16 << 20) / (TOKEN_TILE_BYTES + 1),
  BAND = BAND_FITS < 4 ? 4 : BAND_FITS > 8 ? 8 : BAND_FITS
};

__device__ __forceinline__ TilePlace in_bands(int ordinal, int token_tiles) {
  return in_bands<BAND, COLUMN_TILES>(ordinal, token_tiles);
}

}  // namespace ws
