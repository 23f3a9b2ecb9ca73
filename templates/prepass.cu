
// NVFP4 tokens → 16-bit values, exactly, in the workspace: a block of 16 elements a thread. The matrix kernel may start at
// once: it streams weights and waits for this kernel before it reads tokens.
//
// That takes a microsecond, and memory would idle meanwhile. So the blocks share out what that kernel reads first: one
// stage of weights, or two where these blocks have little to read themselves. Of more, their end waits for the copies.
//
// A grid of at most EARLY_BLOCKS may begin under the kernel before it (src/run/kernel/dispatch.rs), and so does the matrix
// kernel then: with time to spare until tokens are complete, this one asks for the lines they will be in instead.
extern "C" __global__ void __launch_bounds__(256) <{ symbol }>_prepass(const __grid_constant__ ws::Params params) {
  using namespace ws;
  launch_dependents();
  constexpr int EARLY_BLOCKS = <{ early_blocks }>, FEW_BLOCKS = 128;
  const bool is_early = gridDim.x <= EARLY_BLOCKS;
  const long long index = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  const int row = static_cast<int>(index / (K / 16)), block = static_cast<int>(index % (K / 16));
  const bool has_block = row < params.m;
  const u8* codes_at = params.a + index * 8;
  const u8* scale_at = params.a_scales + scale_begin(row) + scale_offset(scale_row(row), block / 4) + block % 4;
  if (is_early && has_block) {
    prefetch_line(codes_at);
    prefetch_line(scale_at);
  }
  wait_for_dependencies();
  if (!has_block) return;

  const uint2 codes = *reinterpret_cast<const uint2*>(codes_at);
  const u32 scale_code = *scale_at;
  if (GROUPS == 1 && !is_early)
    prefetch_weights(params, blockIdx.x + threadIdx.x * gridDim.x, gridDim.x <= FEW_BLOCKS ? 2 : 1);
  const u32 scale = e4m3_pair(scale_code);
  uint4* to = reinterpret_cast<uint4*>(params.decoded + index * 32);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    u32 values[4];
    e2m1x8(half == 0 ? codes.x : codes.y, scale, values);
    to[half] = make_uint4(values[0], values[1], values[2], values[3]);
  }
}
