// The order of many tall tiles. Blocks that run at once have tiles that follow each other, and what these read of tokens and
// weights should come from the L2 cache: memory takes energy, and energy is what bounds tall tiles. Where all tokens, or all
// weights of a group, are too many for it, token tiles are taken in bands of a few, and all of a band have a column tile before
// the next one is begun: the band's tokens stay in the cache while the weights pass by.
#pragma once

namespace ws {

enum : int {
  TALL = 128,
  CACHED = 24 << 20,  // what stays in the cache beside what passes by
  TOKEN_LINES = ceil_div(K, LINE_K),
  CACHED_TILES = CACHED / (TOKENS * 128) / TOKEN_LINES,
  // Token tiles of a band at most: 16 MB where these are long.
  BAND_FITS = (16 << 20) / (TOKENS * 128) / TOKEN_LINES,
  BAND = BAND_FITS < 4 ? 4 : BAND_FITS > 8 ? 8 : BAND_FITS
};
// Without bands column tiles of groups follow each other, so that blocks which run at once have one token tile or two of them.
enum : bool {
  GROUPS_IN_BANDS =
      TOKENS >= TALL && COLUMN_TILES > 64 && MULTICAST == 1 && u64{TILES_PER_GROUP} * K_BLOCKS_ALL * BLOCK_BYTES > CACHED
};

struct TilePlace {
  int token_tile, column_tile;
};

// The `ordinal`th of token_tiles × COLUMN_TILES, in bands or not. One division by what is not known to the compiler: registers
// are scarce.
__device__ __forceinline__ TilePlace tile_place(int ordinal, int token_tiles, bool in_bands) {
  const int first = in_bands ? ordinal / (BAND * COLUMN_TILES) * BAND : 0;
  const int here = in_bands ? min(BAND, token_tiles - first) : token_tiles, place = ordinal - first * COLUMN_TILES;
  return {first + place % here, place / here};
}

}  // namespace ws
