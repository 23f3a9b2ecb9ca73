// The inner loop where other warpgroups decode: one warpgroup multiplies 64 rows of e4m3 weights with its part of WIDTH tokens along K,
// both from shared memory, a line of 128 of K at a time.
//
//   stage full (tokens) ─▶ line decoded ─▶ multiply, sums begin anew ─▶ wait ─▶ release what has been read ─▶ promote
//
// While a warpgroup promotes, the tensor core has another's instructions. Where there are no registers for two sums of every token, one half
// of the tokens comes after the other.
#pragma once

namespace ws {

// A warpgroup on its way along K.
template <class Rows, class InlineProducer, int WIDTH>
class MainLoop : LineFactors {
  enum : int { OWN = WIDTH / TOKEN_PARTS, PART = OWN / SUM_PARTS };
  static_assert(Rows::TILES_USED == 1 && (SUM_PARTS == 1 || SUM_PARTS == 2), "checked by Spec");

  const Ring& ring;
  const u32 weights;  // from a line to this part's rows
  const u32 tokens;   // from a line of a stage to this part's tokens
  Cursor at;          // of the stage in the ring
  DecodedCursor line;
  int index = 0;  // of the line in the stage
  int blocks;     // from the line on to the end of K

  __device__ bool is_last_of_stage() const { return index + 1 == LINES_OF_STAGE || blocks <= LINE_BLOCKS; }

  // The line is there.
  __device__ __forceinline__ void wait() const {
    if (LINES_OF_STAGE == 1 || index == 0) mbarrier_wait(ring.full(at.slot), at.parity);
    if constexpr (COPIED) fence_proxy_async();
    mbarrier_wait(ring.decoded_full(line.slot), line.parity);
  }

  __device__ __forceinline__ void multiply(int part) const {
    multiply_decoded<PART>(token_descriptor(ring.decoded(line.slot) + weights),
                           token_descriptor(ring.stage(at.slot) + index * WIDTH * 128 + tokens + part * PART * 128), blocks);
    wgmma_wait_group<0>();
  }

  // By each warp, when it has read the line; one lane speaks for all, as in `Ring::release`.
  __device__ __forceinline__ void release_line() const {
    if (lane_index() == 0) mbarrier_arrive(ring.decoded_empty(line.slot));
    // Factors are the stage's.
    if (!K_FACTORS && is_last_of_stage()) Ring::release(ring.empty(at.slot));
  }

  __device__ __forceinline__ void release_factors() const {
    if (!K_FACTORS || !is_last_of_stage()) return;
    // All lanes have read theirs.
    __syncwarp();
    Ring::release(ring.empty(at.slot));
  }

  __device__ __forceinline__ void go_on() {
    line.template advance<1>();
    blocks -= LINE_BLOCKS;
    if (LINES_OF_STAGE > 1 && ++index < LINES_OF_STAGE) return;
    index = 0;
    at.template advance<1>();
  }

 public:
  __device__ MainLoop(const Ring& ring, const ConsumerId& consumer, u32 first_stage, const Tile& tile, const InlineProducer&)
      : LineFactors(ring, ring.place(Cursor::at(first_stage).slot)),
        ring(ring),
        weights(consumer.part * DECODED_TILE_BYTES),
        tokens(consumer.token_part * OWN * 128),
        at(Cursor::at(first_stage)),
        line(DecodedCursor::at(first_stage / TILE_STAGES * TILE_LINES)),
        blocks(min(tile.k_tiles * K_BLOCKS, K_BLOCKS_ALL - tile.first_k_tile * K_BLOCKS)) {}

  __device__ void run() {
#pragma unroll 1
    for (; blocks > 0; go_on()) {
      wait();
      follow(ring, ring.place(at.slot), index);
      multiply(0);
      if constexpr (SUM_PARTS == 2) {
        promote<PART, 0>();
        multiply(1);
      }
      release_line();
      promote<PART, OWN - PART>();
      release_factors();
    }
  }
};

}  // namespace ws
