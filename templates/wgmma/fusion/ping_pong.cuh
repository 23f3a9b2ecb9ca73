// As single or interleaved, but two groups of warpgroups have every second tile each, and every second stage of the ring: what one does
// at a tile's end is under the other's multiplying.
#pragma once

#include "wgmma/fusion/both_products.cuh"
#include "wgmma/fusion/only_product.cuh"

namespace ws {

static_assert(TILE_GROUPS == 2 && PERSISTENT, "host and device agree");

template <int PRODUCTS_OF_TILE>
struct ProductsOf {
  using Is = BothProducts;
};
template <>
struct ProductsOf<1> {
  using Is = OnlyProduct;
};
using Fusion = ProductsOf<PRODUCTS>::Is;

}  // namespace ws
