// Tokens have no factors for each 128 of K.
#pragma once

namespace ws {

// Adds the sums of WIDTH tokens to the totals of those from FIRST on. No instruction that adds to them is under way.
template <int WIDTH, int FIRST = 0>
__device__ __forceinline__ void promote_sums();

// Of the line of K whose sums are to be promoted.
struct LineFactors {
  __device__ LineFactors(const Ring&, const Place&) {}
  __device__ void follow(const Ring&, const Place&, int) {}

  template <int WIDTH, int FIRST = 0>
  __device__ void promote() const {
    promote_sums<WIDTH, FIRST>();
  }
};

// What THREADS threads bring of them.
template <int THREADS>
struct FactorShare {
  __device__ FactorShare(const Params&, const Tile&, int) {}
  __device__ void ask(const Place&, int) const {}
};

}  // namespace ws
