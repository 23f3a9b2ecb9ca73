// What weights are multiplied with that become e4m3: a power of two for each row of them, f32 [groups, products, N] behind the
// blocks of all groups. The factors of a tile's group come with them: there are no registers to keep those in.
#pragma once

namespace ws {

using WeightFactors = float[PRODUCTS][COLUMNS];

// Asks for those of a tile's group, to `to` in shared memory.
__device__ __forceinline__ void ask_for_alphas(const Params& params, const Tile& tile, u32 to) {
  const int i = threadIdx.x % GROUP_THREADS;
  if (i >= PRODUCTS) return;
  if (params.alpha[i])
    cp_async_4(to + i * sizeof(float), params.alpha[i] + tile.group * params.alpha_step[i], true);
  else
    st_shared_4(to + i * sizeof(float), __float_as_uint(params.alpha_value[i]));
}

// The same for those of a tile's rows of weights.
__device__ __forceinline__ void ask_for_weight_factors(const Params& launch, const Tile& tile, u32 to) {
  // They lie in the order of columns, not of tiles.
  const float* of_group = reinterpret_cast<const float*>(weight_block(launch, static_cast<long long>(GROUPS) * TILES_PER_GROUP, 0)) +
                          static_cast<long long>(tile.group) * PRODUCTS * N;
#pragma unroll 1
  for (int i = threadIdx.x % GROUP_THREADS; i < PRODUCTS * COLUMNS; i += GROUP_THREADS)
    cp_async_4(to + i * sizeof(float), of_group + i / COLUMNS * N + min(tile.first_column() + i % COLUMNS, N - 1), true);
}

// Those of COUNT products from `first_product` on, for the columns that a thread holds.
template <int COUNT>
struct WeightUnits {
  float of[Fusion::HELD_COLUMNS][COUNT];

  __device__ WeightUnits(const WeightFactors& factors, const ConsumerId& consumer, int first_product) {
#pragma unroll
    for (int held = 0; held < Fusion::HELD_COLUMNS; held++)
#pragma unroll
      for (int i = 0; i < COUNT; i++)
        of[held][i] = factors[first_product + i][Fusion::column(consumer, held) + lane_index() / 4];
  }
};

}  // namespace ws
