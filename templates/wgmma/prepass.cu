
#include "wgmma/prepass.cuh"

// NVFP4 tokens → 16-bit values, exactly, in the workspace. The matrix kernel may start at once: it streams weights and
// waits for this kernel before it reads tokens. Until it begins memory would idle: so weights are asked for, but no more of
// them, and not by few blocks, whose end would wait for the copies.
extern "C" __global__ void __launch_bounds__(<{ prepass.threads }>)
<{ symbol }>_prepass(const __grid_constant__ ws::Params params) {
  using namespace ws;
  constexpr int SOME_BLOCKS = 128;
  launch_dependents();
  TokenShare<<{ prepass.threads }>, <{ prepass.codes }>, u64> share(params);
  if (!share.is_any()) return;
  share.load();
  if (gridDim.x > FEW_BLOCKS) prefetch_for_matrix(params, gridDim.x <= SOME_BLOCKS ? 2 : 1);
  share.decode();
}
