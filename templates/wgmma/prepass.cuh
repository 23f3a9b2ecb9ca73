// NVFP4 tokens to 16-bit values in the workspace, by a kernel before the matrix kernel.
#pragma once

namespace ws {

// A thread's part of decoding, in a block of THREADS: CODES codes. Neighbouring threads have neighbouring codes and store
// their values at once, so that a warp's stores fill whole sectors. Place counts them: 32 bits, enough for few rows, take
// fewer registers.
template <int THREADS, int CODES, class Place>
class TokenShare {
  static_assert(CODES == 4 || CODES == 8, "a load of codes, of one scale");
  const Params& params;
  int row, column;
  u32 codes, scale;

  __device__ Place place() const { return static_cast<Place>(blockIdx.x) * THREADS + threadIdx.x; }
  __device__ const u8* codes_at() const { return params.a + place() * (CODES / 2); }
  __device__ const u8* scale_at() const {
    return params.a_scales + scale_begin(row) + scale_offset(scale_row(row), column / 64) + column / 16 % 4;
  }

 public:
  __device__ explicit TokenShare(const Params& params) : params(params) {
    // PER_ROW blocks have THREADS rows: counted from there, 32 bits are enough.
    constexpr u32 PER_ROW = K / CODES;
    const u32 index = blockIdx.x % PER_ROW * THREADS + threadIdx.x;
    row = blockIdx.x / PER_ROW * THREADS + index / PER_ROW;
    column = index % PER_ROW * CODES;
  }

  // Whether they are a token's; nothing else may be called if not.
  __device__ bool is_any() const { return row < params.m; }

  // Asks for the lines they are in.
  __device__ void prefetch() const {
    prefetch_line(codes_at());
    prefetch_line(scale_at());
  }

  __device__ void load() {
    if constexpr (CODES == 4) codes = *reinterpret_cast<const u16*>(codes_at());
    if constexpr (CODES == 8) codes = *reinterpret_cast<const u32*>(codes_at());
    scale = *scale_at();
  }

  __device__ void decode() const {
    u32 values[4];
    e2m1x8(codes, e4m3_pair(scale), values);
    u8* to = params.decoded + place() * (CODES * 2);
    if constexpr (CODES == 4) *reinterpret_cast<uint2*>(to) = make_uint2(values[0], values[1]);
    if constexpr (CODES == 8) *reinterpret_cast<uint4*>(to) = make_uint4(values[0], values[1], values[2], values[3]);
  }
};

// Blocks whose end would wait for copies of weights.
inline constexpr int FEW_BLOCKS = 24;

// Brings this thread's share of all tokens, a line each, into the L2 cache: by the first blocks, which have enough threads.
__device__ __forceinline__ void prefetch_tokens(const Params& params) {
  constexpr u32 BLOCKS = 128, LINE = 128;
  if (blockIdx.x >= BLOCKS) return;
  const u32 line = blockIdx.x + threadIdx.x * BLOCKS;
  const u32 code_lines = ceil_div(params.m * (K / 64), 4), scale_lines = (scale_bytes(params.m) + LINE - 1) / LINE;
  if (line < code_lines)
    prefetch_line(params.a + line * LINE);
  else if (line - code_lines < scale_lines)
    prefetch_line(params.a_scales + (line - code_lines) * LINE);
}

// Brings this thread's share of what the matrix kernel reads first into the L2 cache: the offsets, and up to `stages` stages
// of weights of all m64 tiles and splits of K, as many as memory can deliver before that kernel begins, about a
// microsecond later.
__device__ __forceinline__ void prefetch_for_matrix(const Params& params, int stages) {
  constexpr int TILES_ALL = GROUPS * TILES_PER_GROUP, SPLITS_ALL = SPLITS * CLUSTER_SPLITS;
  constexpr long long STAGE = static_cast<long long>(TILES_ALL) * SPLITS_ALL * K_BLOCKS * BLOCK_BYTES;
  constexpr int MOST = 4'000'000 / STAGE;
  if (GROUPS > 1 && blockIdx.x == 0 && threadIdx.x * 32 <= GROUPS) prefetch_line(params.offsets + threadIdx.x * 32);
  const u32 which = blockIdx.x + threadIdx.x * gridDim.x;
  const int split = which / TILES_ALL, k_block = split * K_TILES_PER_SPLIT * K_BLOCKS;
  if (MOST == 0 || split >= SPLITS_ALL) return;
  const int blocks = min(min(stages, MOST) * K_BLOCKS, K_BLOCKS_ALL - k_block);
  bulk_prefetch(weight_block(params, which % TILES_ALL, k_block), blocks * BLOCK_BYTES);
}

}  // namespace ws
