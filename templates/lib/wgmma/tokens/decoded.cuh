// NVFP4 tokens: four warps take turns with the stages and write them as TMA would, 16-bit values in the 128-byte swizzle.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 4;
  // Bytes that count at `full`: the warp arrives instead.
  __device__ static u32 bytes(const Tile&) { return 0; }

  // A K block of a row: 64 codes, four scales.
  struct Piece {
    uint4 codes[2];
    u32 scales;
  };
  static constexpr int PIECES = TOKENS * K_BLOCKS;
  static constexpr int AT_ONCE = 2;  // of a lane, on their way from global memory

  const int warp;
  u32 stage = 0;   // the next one
  u32 waited = 0;  // stages that this warp has seen empty: all, in order, or it could be a whole round ahead of a parity

  __device__ explicit Tokens(int warp) : warp(warp) {}

  // The next stage; warps take turns. The first loads are under way while the stage is still in use.
  __device__ void load(const Params& params, const TensorMap&, const Ring& ring, const Tile& tile, int k_tile) {
    const u32 which = stage++;
    if (which % WARPS != warp) return;
    const Cursor at = Cursor::at(which);
    const int lane = lane_index(), blocks = blocks_of(k_tile);
    const u8* codes = params.a + static_cast<long long>(tile.first_row) * (K / 2);
    const u8* scales = params.a_scales + scale_begin(tile.first_row);
#pragma unroll 1
    for (int first = 0; first < PIECES; first += 32 * AT_ONCE) {
      Piece pieces[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        const int piece = first + 32 * i + lane, row = piece / K_BLOCKS, block = piece % K_BLOCKS;
        pieces[i] = {};
        if (piece < PIECES && row < tile.rows && block < blocks) {
          const int k_block = k_tile * K_BLOCKS + block;
          const uint4* from = reinterpret_cast<const uint4*>(codes + row * (K / 2) + k_block * 32);
          pieces[i].codes[0] = from[0];
          pieces[i].codes[1] = from[1];
          pieces[i].scales = *reinterpret_cast<const u32*>(scales + scale_offset(scale_row(tile.first_row) + row, k_block));
        }
      }
      if (first == 0) {
        for (; waited <= which; waited++) {
          const Cursor next = Cursor::at(waited);
          mbarrier_wait(ring.empty(next.slot), next.parity ^ 1);
        }
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        const int piece = first + 32 * i + lane, row = piece / K_BLOCKS, block = piece % K_BLOCKS;
        if (piece < PIECES) store(ring.stage(at.slot) + block * TOKENS * 128 + row * 128, row, pieces[i]);
      }
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(ring.full(at.slot));
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
