// C in NVFP4, its scales [rows, N/16], row-major.
#pragma once

#include "common/quantise/scales/linear.cuh"
#include "common/output/nvfp4/block.cuh"
