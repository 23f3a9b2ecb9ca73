// <{ name }>: does <{ does }>. What a matrix path has at least, for a test.

#include "common/base.cuh"

<% include "common/constants.cu" %>
extern "C" __global__ void <{ symbol }>(const __grid_constant__ ws::Params) {}
