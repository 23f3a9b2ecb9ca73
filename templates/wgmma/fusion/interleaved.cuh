// One multiplication gives both products, and a block has one tile after the other.
#pragma once

#include "wgmma/fusion/both_products.cuh"

namespace ws {

using Fusion = BothProducts;

}  // namespace ws
