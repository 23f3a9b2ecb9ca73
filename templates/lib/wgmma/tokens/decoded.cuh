// NVFP4 tokens: four warps decode the tile of a stage and write it as TMA would, 16-bit values in the 128-byte swizzle.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 4;
  // Bytes that count at `full`: the warps arrive instead.
  __device__ static u32 bytes(const Tile&) { return 0; }

  // A K block of a row: 64 codes, four scales.
  struct Piece {
    uint4 codes[2];
    u32 scales;
  };
  static constexpr int PIECES = TOKENS * K_BLOCKS;              // of a stage
  static constexpr int ROUNDS = ceil_div(PIECES, 32 * WARPS);   // a piece for every thread
  static constexpr int AHEAD = 4;                               // rounds on their way from global memory

  // The piece of round `round`, counted from the tile's first; zeros where there is none.
  __device__ static Piece fetch(const Params& params, const Tile& tile, int round, int thread) {
    const int which = round % ROUNDS * (32 * WARPS) + thread, row = which / K_BLOCKS, block = which % K_BLOCKS;
    const int stage = round / ROUNDS, k_tile = tile.first_k_tile + (PASSES == 1 ? stage : stage % tile.k_tiles);
    Piece piece = {};
    if (stage < PASSES * tile.k_tiles && which < PIECES && row < tile.rows && block < blocks_of(k_tile)) {
      const int k_block = k_tile * K_BLOCKS + block;
      const u8* codes = params.a + static_cast<long long>(tile.first_row + row) * (K / 2) + k_block * 32;
      const u8* scales = params.a_scales + scale_begin(tile.first_row);
      piece.codes[0] = reinterpret_cast<const uint4*>(codes)[0];
      piece.codes[1] = reinterpret_cast<const uint4*>(codes)[1];
      piece.scales = *reinterpret_cast<const u32*>(scales + scale_offset(scale_row(tile.first_row) + row, k_block));
    }
    return piece;
  }

  // All stages of a tile, by warp `warp` of WARPS.
  __device__ static void load(const Params& params, const TensorMaps&, Filling& filling, const Tile& tile, int warp) {
    const int lane = lane_index(), thread = warp * 32 + lane;
    Piece ahead[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) ahead[i] = fetch(params, tile, i, thread);
    int round = 0;
    filling.fill<UNPACED>(tile, [&](const Place& place, int) {
#pragma unroll 1
      for (int part = 0; part < ROUNDS; part++, round++) {
        const int which = part * (32 * WARPS) + thread, row = which / K_BLOCKS, block = which % K_BLOCKS;
        if (which < PIECES) store(place.stage + block * TOKENS * 128 + row * 128, row, ahead[0]);
#pragma unroll
        for (int i = 1; i < AHEAD; i++) ahead[i - 1] = ahead[i];
        ahead[AHEAD - 1] = fetch(params, tile, round + AHEAD, thread);
      }
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(place.full);
    });
  }

  __device__ static void store(u32 to, int row, const Piece& piece) {
#pragma unroll
    for (int step = 0; step < 4; step++) {
      const uint4& both = piece.codes[step / 2];
      const u32 scale = e4m3_pair(piece.scales >> (8 * step) & 0xFF);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        u32 values[4];
        e2m1x8(step % 2 == 0 ? (half == 0 ? both.x : both.y) : (half == 0 ? both.z : both.w), values);
#pragma unroll
        for (u32& pair : values) pair = Compute::mul(pair, scale);
        const int chunk = 2 * step + half;
        st_shared_16(to + ((chunk ^ (row % 8)) * 16), values[0], values[1], values[2], values[3]);
      }
    }
  }
};

}  // namespace ws
