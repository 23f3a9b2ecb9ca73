// What decoders do: prepared weights of a stage become lines of 64 rows × 128 bytes along K, as wgmma reads them from shared memory.
//
//   stage full ─▶ codes and scales to registers ─▶ line empty ─▶ decoded, stored in the 128-byte swizzle ─▶ fence ─▶ line full
//
// An m64 tile's line is a task, which one warp does: the others are at the next ones meanwhile, as most of the time is waiting. A lane has
// of 16 rows what it would have of the instruction's operand in registers; stmatrix puts that where the instruction finds it.
#pragma once

namespace ws {

// Blocks of 64 along K in a line of 128 bytes; lines of a stage, and of all of K, which a persistent block goes through.
enum : int { LINE_BLOCKS = LINE_K / K_BLOCK, LINES_OF_STAGE = K_BLOCKS / LINE_BLOCKS, TILE_LINES = ceil_div(K_BLOCKS_ALL, LINE_BLOCKS) };
static_assert(K_BLOCKS % LINE_BLOCKS == 0 && K_GROUPS == 1 && PASSES == 1 && TILE_GROUPS == 1 && MULTICAST == 1, "checked by Spec");

template <class Rows>
class Decoder {
  enum : int { WARPS = 4 * DECODERS, QUARTERS = 4, BLOCK_STEPS = 4 / LINE_BLOCKS };
  // Who waits for a line to be empty has done the task that is WARPS before (so none is left out), and seen, as lines are released in their
  // order, that what was there before the last is gone: a parity tells the rest.
  static_assert(DECODED_SLOTS * TILES >= WARPS, "host and device agree");

  const Ring& ring;
  const u32 place;  // of the row whose address this lane gives, in the first step of the first rows
  int next;         // task of this warp, from the first of the stage on
  Cursor at = Cursor::at(0);
  DecodedCursor line = DecodedCursor::at(0);  // the first of the stage

  // Lane 8i + j gives the address of row j of matrix i: of rows 8 (i % 2) … and bytes 16 (i / 2) … of a step.
  __device__ static u32 place_of(int lane) { return (lane % 16) * 128 + (lane / 16 ^ lane % 8) * 16; }

  // 16 rows of a line from K block `weights` on.
  struct Sixteenth {
    Rows blocks[LINE_BLOCKS];

    __device__ void load(u32 weights, u32 base, int quarter) {
#pragma unroll
      for (int i = 0; i < LINE_BLOCKS; i++) blocks[i].load(weights + i * BLOCK_BYTES, base, quarter * 32 + lane_index());
    }

    __device__ void store(u32 to) const {
#pragma unroll
      for (int step = 0; step < 4; step++) {
        u32 a[4];
        blocks[step / BLOCK_STEPS].decode(a, step % BLOCK_STEPS);
        stmatrix_x4(to ^ step * 32, a[0], a[1], a[2], a[3]);
      }
    }
  };

  // Of a line of one block, where there may be two, the other's is what the stage has there: decoded, but not multiplied.
  __device__ __forceinline__ void decode(int index, int tile) {
    DecodedCursor own = line;
    for (int i = 0; i < index; i++) own.template advance<1>();
    const u32 weights = ring.stage(at.slot) + TOKEN_BYTES + (tile * K_BLOCKS + index * LINE_BLOCKS) * BLOCK_BYTES;
    const u32 to = ring.decoded(own.slot) + tile * DECODED_TILE_BYTES + place;
    Sixteenth rows[2];
    rows[0].load(weights, ring.base, 0);
    mbarrier_wait(ring.decoded_empty(own.slot), own.parity ^ 1);
#pragma unroll
    for (int quarter = 0; quarter < QUARTERS; quarter++) {
      if (quarter + 1 < QUARTERS) rows[(quarter + 1) % 2].load(weights, ring.base, quarter + 1);
      rows[quarter % 2].store(to + quarter * 16 * 128);
    }
    fence_proxy_async();
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(ring.decoded_full(own.slot));
  }

 public:
  __device__ Decoder(const Ring& ring, int warp) : ring(ring), place(place_of(lane_index())), next(warp) {}

  // All lines of a tile.
  __device__ void decode(const Tile& tile) {
#pragma unroll 1
    for (int k_tile = tile.first_k_tile; k_tile < tile.first_k_tile + tile.k_tiles; k_tile++) {
      const int lines = K_TAIL ? ceil_div(blocks_of(k_tile), LINE_BLOCKS) : LINES_OF_STAGE, tasks = TILES * lines;
      // Also a stage of which this warp decodes nothing, and each warp says so: a parity does not tell phases of two rounds apart.
      mbarrier_wait(ring.weights_full(at.slot), at.parity);
#pragma unroll 1
      for (; next < tasks; next += WARPS) decode(next / TILES, next % TILES);
      next -= tasks;
      __syncwarp();
      if (lane_index() == 0) mbarrier_arrive(ring.weights_empty(at.slot));
      at.template advance<1>();
      for (int i = 0; i < lines; i++) line.template advance<1>();
    }
  }
};

// By all threads of the decoders' warps.
template <class Rows>
__device__ __forceinline__ void decode_weights(const Params& params, const Ring& ring, const Schedule& schedule, int warp) {
  Decoder<Rows> decoder(ring, warp);
  for_each_tile(params, schedule, 0, [&](const Tile& tile, u32) { decoder.decode(tile); });
}

}  // namespace ws
