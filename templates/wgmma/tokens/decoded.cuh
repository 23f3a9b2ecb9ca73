// NVFP4 tokens: some warps bring codes and scales into a stage and decode them there, as TMA would have written 16-bit
// values: in the 128-byte swizzle.
//
//   stage empty ─▶ cp.async: a piece's codes and scales, to where its values will be ─▶ … AHEAD stages later …
//   ─▶ the same thread reads them, writes its values over them ─▶ stage full
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = TOKEN_WARPS, THREADS = 32 * WARPS;
  // Bytes that count at `full`: the warps arrive instead.
  __device__ static u32 bytes(const Tile&) { return 0; }

  // A stage has so many lines, a row's K block each. A thread decodes a whole or half of one at a time, 16 codes and a
  // scale in a quarter, whichever has less to do in all; of either, about as much as a quarter is not decoding.
  static constexpr int LINES = K_BLOCKS * TOKENS;
  static constexpr bool WHOLE = ceil_div(LINES, THREADS) * 5 <= ceil_div(2 * LINES, THREADS) * 3;
  static constexpr int QUARTERS = WHOLE ? 4 : 2, PIECES = LINES * 4 / QUARTERS, ROUNDS = ceil_div(PIECES, THREADS);

  // Stages that are on their way from global memory. A warpgroup may hold the stage that it multiplies until it has the
  // next: neither may have to wait for what is asked for here.
  static constexpr int SPARE = STAGES / TILE_GROUPS - 1 - K_GROUPS;
  static constexpr int AHEAD = SPARE < 1 ? 0 : (SPARE + 1) / 2;

  // Calls body(row, block, quarter, line) for each piece of a stage that this thread has.
  template <class Body>
  __device__ static void for_each_piece(const Tile& tile, const Place& place, int k_tile, int thread, Body body) {
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
      // Neighbours have neighbouring rows: the swizzle keeps them out of each other's banks.
      const int piece = round * THREADS + thread, line = piece % LINES;
      const int row = line % TOKENS, block = line / TOKENS;
      if ((PIECES % THREADS == 0 || piece < PIECES) && row < tile.rows && block < blocks_of(k_tile))
        body(row, block, piece / LINES * QUARTERS, place.stage + line * 128);
    }
  }

  // Chunk `index` of 16 bytes of a line.
  __device__ static u32 chunk(u32 line, int row, int index) { return line + ((index ^ (row % 8)) * 16); }

  // Asks for a stage's codes and scales. They lie in the chunks of the piece's own values: codes first, then scales.
  __device__ static void ask(const Params& params, const Tile& tile, const Place& place, int k_tile, int thread) {
    const u8* codes = params.a + static_cast<long long>(tile.first_row) * (K / 2) + k_tile * (TILE_K / 2);
    const u8* scales = params.a_scales + scale_begin(tile.first_row);
    for_each_piece(tile, place, k_tile, thread, [&](int row, int block, int quarter, u32 line) {
      const u8* from = codes + row * (K / 2) + block * (K_BLOCK / 2) + quarter * 8;
#pragma unroll
      for (int i = 0; i < QUARTERS / 2; i++) cp_async_16(chunk(line, row, 2 * quarter + i), from + i * 16, true);
      const int offset = scale_offset(scale_row(tile.first_row) + row, k_tile * K_BLOCKS + block);
      cp_async_4(chunk(line, row, 2 * quarter + QUARTERS / 2), scales + offset, true);
    });
  }

  // Decodes a stage that has come.
  __device__ static void decode(const Tile& tile, const Place& place, int k_tile, int thread) {
    for_each_piece(tile, place, k_tile, thread, [&](int row, int, int quarter, u32 line) {
      const u32 scales = ld_shared_4(chunk(line, row, 2 * quarter + QUARTERS / 2));
      u32 codes[2 * QUARTERS];
#pragma unroll
      for (int i = 0; i < QUARTERS / 2; i++) {
        const uint4 four = ld_shared_16(chunk(line, row, 2 * quarter + i));
        codes[4 * i] = four.x, codes[4 * i + 1] = four.y, codes[4 * i + 2] = four.z, codes[4 * i + 3] = four.w;
      }
#pragma unroll
      for (int i = 0; i < 2 * QUARTERS; i++) {
        const u32 scale = e4m3_pair(scales >> (8 * (quarter + i / 2)) & 0xFF);
        u32 values[4];
        e2m1x8(codes[i], scale, values);
        st_shared_16(chunk(line, row, 2 * quarter + i), values[0], values[1], values[2], values[3]);
      }
    });
  }

  // All stages of a tile, by warp `warp` of WARPS.
  __device__ static void load(const Params& params, const TensorMaps&, Producer& producer, const Tile& tile, int warp) {
    const int lane = lane_index(), thread = warp * 32 + lane, stages = PASSES * tile.k_tiles;
    const auto k_tile_of = [&](int stage) { return tile.first_k_tile + (PASSES == 1 ? stage : stage % tile.k_tiles); };
    Producer asked = producer;
#pragma unroll 1
    for (int stage = 0; stage < stages + AHEAD; stage++) {
      if (stage < stages) {
        asked.wait();
        ask(params, tile, asked.at(), k_tile_of(stage), thread);
        asked.next();
      }
      cp_async_commit_group();
      if (stage < AHEAD) continue;
      cp_async_wait_group<AHEAD>();
      decode(tile, producer.at(), k_tile_of(stage - AHEAD), thread);
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(producer.at().full);
      producer.next();
    }
  }
};

}  // namespace ws
