// What both entries take.
#pragma once

namespace ws {

// The same order and sizes as `Params` on the host side (src/run/quantise_weights.rs).
struct QuantiseWeightsParams {
  const u8* x;      // [rows, blocks * 16]
  u8* codes;        // [rows, blocks * 8]
  u8* scales;       // [rows, blocks]
  double* squares;  // [rows, 3]: sums of squares of values, of errors, of the plain rule's errors
  float* largest;   // [rows]
  float factor;     // of all scales
  float stored;     // as a reader applies it
  u32 rows;
  u32 blocks;  // of a row
};

}  // namespace ws
