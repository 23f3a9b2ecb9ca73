// Rows of C are where rows of the product are.
#pragma once

namespace ws {

struct Destination {
  __device__ static int row(const Params&, int row) { return row; }
  __device__ static bool is_there(const Params&, int) { return true; }
  __device__ static float scaled(const Params&, int, float value) { return value; }
};

}  // namespace ws
