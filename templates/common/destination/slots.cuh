// Rows of C are put by their numbers, each times a factor of its own. A number that is no row of C puts nothing.
#pragma once

namespace ws {

struct Destination {
  __device__ static const MovedParams& of(const Params& launch) { return static_cast<const MovedParams&>(launch); }

  __device__ static int row(const Params& launch, int row) { return of(launch).slots[row]; }
  __device__ static bool is_there(const Params& launch, int to) { return u32(to) < u32(of(launch).c_rows); }
  // `row` is the product's. Never contracted, so that all variants give the same bits.
  __device__ static float scaled(const Params& launch, int row, float value) {
    const float* factors = of(launch).slot_factors;
    return factors == nullptr ? value : __fmul_rn(value, factors[row]);
  }
};

}  // namespace ws
