
// NVFP4 tokens → 16-bit values, exactly, in the workspace: a block of 16 elements a thread. The matrix kernel may start at
// once: it streams weights and waits for this kernel before it reads tokens.
//
// It takes a microsecond to start, and memory would idle meanwhile. So each block asks for a piece of what that kernel reads
// first, behind its own loads: one stage of one m64 tile. (Of more, this kernel's end waits for the copies.)
extern "C" __global__ void __launch_bounds__(256) <{ symbol }>_prepass(const __grid_constant__ ws::Params params) {
  using namespace ws;
  launch_dependents();
  const long long index = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  const int row = static_cast<int>(index / (K / 16)), block = static_cast<int>(index % (K / 16));
  wait_for_dependencies();
  if (row >= params.m) return;

  const uint2 codes = *reinterpret_cast<const uint2*>(params.a + index * 8);
  const u32 scale_code = params.a_scales[scale_begin(row) + scale_offset(scale_row(row), block / 4) + block % 4];
  if (GROUPS == 1 && threadIdx.x == 0) prefetch_weights(params, blockIdx.x);
  const u32 scale = e4m3_pair(scale_code);
  uint4* to = reinterpret_cast<uint4*>(params.decoded + index * 32);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    u32 values[4];
    e2m1x8(half == 0 ? codes.x : codes.y, scale, values);
    to[half] = make_uint4(values[0], values[1], values[2], values[3]);
  }
}
