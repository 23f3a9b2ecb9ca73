// C in NVFP4, its scales in the 128x4 layout.
#pragma once

#include "common/quantise/scales/128x4.cuh"
#include "common/output/nvfp4/block.cuh"
