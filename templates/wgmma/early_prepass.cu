
#include "wgmma/prepass.cuh"

// What takes the place of the prepass in dependent launches of few rows: begun under the kernel before, it has time to ask
// for all that it will read. What takes long then are the stores of the few SMs that the kernel before left free, as most
// blocks have come to them: so blocks are small. It is a kernel of its own because as one with the other it needs more
// registers. Few blocks ask for one stage of weights, as their end would wait for more; many do, as more is slower there;
// some of many find room only when the kernel before ends, and have no time, so the first ask for all tokens.
extern "C" __global__ void __launch_bounds__(<{ early_prepass.threads }>)
<{ symbol }>_early_prepass(const __grid_constant__ ws::Params params) {
  using namespace ws;
  constexpr int MANY_BLOCKS = 512;
  launch_dependents();
  TokenShare<<{ early_prepass.threads }>, <{ early_prepass.codes }>, u32> share(params);
  if (gridDim.x > MANY_BLOCKS)
    prefetch_tokens(params);
  else if (share.is_any())
    share.prefetch();
  prefetch_for_matrix(params, gridDim.x <= FEW_BLOCKS || gridDim.x > MANY_BLOCKS ? 1 : 2);
  wait_for_dependencies();
  if (!share.is_any()) return;
  share.load();
  share.decode();
}
