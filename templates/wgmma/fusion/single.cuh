// One product, and a block has one tile after the other.
#pragma once

#include "wgmma/fusion/only_product.cuh"

namespace ws {

using Fusion = OnlyProduct;

}  // namespace ws
