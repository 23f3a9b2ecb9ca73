// Tokens in a 16-bit format or in e4m3, by the numbers of their rows: some warps copy them into a stage as TMA would have put them, in
// the 128-byte swizzle.
//
//   stage empty ─▶ cp.async, 16 bytes each ─▶ each thread's have come ─▶ stage full
//
// cp.async is not of the async proxy, by which wgmma reads: who multiplies fences between the two (COPIED).
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = TOKEN_WARPS, THREADS = 32 * WARPS;
  // Bytes that count at `full`: the warps arrive instead.
  __device__ static u32 bytes(const Tile&) { return 0; }

  // Lines of 128 bytes of a row in a stage: K blocks, of e4m3 values two each, of which the last may have one.
  static constexpr int LINES = TILE_K / LINE_K, LINE_BLOCKS = LINE_K / K_BLOCK;
  static constexpr long long ROW_BYTES = static_cast<long long>(K) * (128 / LINE_K);

  // Eight threads have a row: each has one chunk of 16 bytes of each of its lines. Rows of a thread are a multiple of 4
  // apart, so that its chunk has one of two places in them.
  static constexpr int STEP = THREADS / 8, ROUNDS = ceil_div(TOKENS, STEP);
  // Stages between two steps of the addresses. One that a single copy reads before it is written again ptxas keeps where no copy can read it, and
  // moves it, once the copy before has read its own.
  static constexpr int AT_ONCE = LINES > 1 ? 1 : K_TILES_PER_SPLIT < 8 ? K_TILES_PER_SPLIT : 8;
  static_assert(ROUNDS <= 32, "a bit for each row");
  static_assert(STEP % 4 == 0, "two places in the swizzle");

  // The part of a tile that a thread copies. Each row has an address register of its own: a copy holds the one that it reads
  // for some hundred cycles, and whoever writes to it waits.
  struct Share {
    const u8* from[ROUNDS];  // the rows of A, at the thread's chunk of the next line
    u32 zeros = 0;           // a bit for each row that A has not
    u32 to;                  // from the stage to the chunk's place in the thread's first row
    int line;                // bytes from a line of the stage to the next
    int block;               // of a line's, which the chunk is in
    int rounds;              // rows

    __device__ Share(const Params& launch, const Tile& tile, int thread) {
      const MovedParams& params = static_cast<const MovedParams&>(launch);
      const int first = thread / 8, chunk = thread % 8;
      const u8* column = params.a + tile.first_k_tile * (LINES * 128) + chunk * 16;
      to = first * 128 + (chunk ^ (first % 8)) * 16;
      line = width_of(tile).tokens * 128;
      block = chunk * LINE_BLOCKS / 8;
      const int count = min(tile.rows, TOKENS);
      rounds = count > first ? ceil_div(count - first, STEP) : 0;
#pragma unroll
      for (int round = 0; round < ROUNDS; round++) {
        const int row = round < rounds ? params.rows[tile.first_row + first + round * STEP] : 0;
        const bool is_there = u32(row) < u32(params.a_rows);
        from[round] = column + (is_there ? row : 0) * ROW_BYTES;
        zeros |= u32(!is_there) << round;
      }
    }

    // Asks for one stage, `later` tiles along K behind where the addresses are. Four rows at a time have no branch between them: in front of
    // the first copy behind one ptxas puts three loads that do nothing.
    __device__ void ask(u32 stage, int k_tile, int later) const {
#pragma unroll
      for (int begin = 0; begin < ROUNDS; begin += 4) {
        if (begin >= rounds) break;
#pragma unroll
        for (int round = begin; round < begin + 4 && round < ROUNDS; round++)
#pragma unroll
          for (int i = 0; i < LINES; i++)
            cp_async_16_if(round < rounds && i * LINE_BLOCKS + block < blocks_of(k_tile),
                           stage + (to ^ (round * STEP % 8 * 16)) + i * line + round * STEP * 128,
                           from[round] + (later * LINES + i) * 128, zeros & (1u << round));
      }
    }

    // So many tiles along K further.
    __device__ void advance(int k_tiles) {
#pragma unroll
      for (int round = 0; round < ROUNDS; round++) from[round] += k_tiles * (LINES * 128);
    }
  };

  // All stages of a tile, by warp `warp` of WARPS.
  __device__ static void load(const Params& params, const TensorMaps&, Producer& producer, const Tile& tile, int warp) {
    Share share(params, tile, warp * 32 + lane_index());
    const FactorShare<THREADS> factors(params, tile, warp * 32 + lane_index());
    const auto ask = [&](int k_tile, int later) {
      producer.wait();
      share.ask(producer.at().stage, k_tile, later);
      factors.ask(producer.at(), k_tile);
      cp_async_arrive(producer.at().full);
      producer.next();
    };
#pragma unroll 1
    for (int pass = 0; pass < PASSES; pass++) {
#pragma unroll 1
      for (int first = 0; first < tile.k_tiles; first += AT_ONCE) {
        // Of the first the loop has said so, which compilers do not see.
#pragma unroll
        for (int later = 0; later < AT_ONCE; later++)
          if (later == 0 || first + later < tile.k_tiles) ask(tile.first_k_tile + first + later, later);
        share.advance(AT_ONCE);
      }
      if (PASSES > 1) share.advance(-ceil_div(tile.k_tiles, AT_ONCE) * AT_ONCE);
    }
  }
};

}  // namespace ws
