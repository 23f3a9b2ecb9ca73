// C in f16, rounded to nearest even.
#pragma once

#include "common/output/vector.cuh"

namespace ws {

using Output = HalfOutput<cvt_f16x2>;

}  // namespace ws
