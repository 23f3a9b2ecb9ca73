// Registers → global memory: 4 bytes a lane, 16 (f32: 32) consecutive bytes of a row at a time.
#pragma once

namespace ws {

// Of the first 8·N8 of the tokens that the thread holds: value(held, n8, token) is the element of the thread's column `held` and token
// 8·n8 + 2·(lane % 4) + token.
template <int N8, class Out = Output, class Value>
__device__ __forceinline__ void store_tile(const Params& params, const Ring&, const Tile& tile, const ConsumerId& consumer,
                                           int first_token, Value value) {
  if (consumer.k_group == 0 && consumer.product == 0) {
    const int lane = lane_index(), columns = tile.columns();
#pragma unroll
    for (int held = 0; held < Fusion::HELD_COLUMNS; held++) {
      const int column = Fusion::column(consumer, held);
      if (column >= columns) continue;
#pragma unroll
      for (int n8 = 0; n8 < N8; n8++) {
        if constexpr (Out::BYTES == 2) {
          const u32 pair = movmatrix_trans(Out::round(value(held, n8, 0), value(held, n8, 1)));
          const int row = first_token + 8 * n8 + lane / 4;
          if (row < tile.rows) {
            const int to = Destination::row(params, tile.first_row + row);
            const long long at = static_cast<long long>(to) * N + tile.first_column() + column + lane % 4 * 2;
            if (Destination::is_there(params, to)) *reinterpret_cast<u32*>(params.c + at * 2) = pair;
          }
        } else {
#pragma unroll
          for (int token = 0; token < 2; token++) {
            const int row = first_token + 8 * n8 + lane % 4 * 2 + token;
            if (row < tile.rows) {
              const int to = Destination::row(params, tile.first_row + row);
              const long long at = static_cast<long long>(to) * N + tile.first_column() + column + lane / 4;
              if (Destination::is_there(params, to)) *reinterpret_cast<float*>(params.c + at * 4) = value(held, n8, token);
            }
          }
        }
      }
    }
  }
}

// Before scratch memory is used for a further tile: sums of the one before may still be read there, or its factors.
__device__ __forceinline__ void reuse_scratch(const ConsumerId& consumer) {
  if constexpr (K_GROUPS > 1 || HAS_FACTORS) group_sync(consumer);
}
__device__ __forceinline__ void finish_stores() {}

}  // namespace ws
