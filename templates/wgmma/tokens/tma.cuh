// Tokens in a 16-bit format: one thread loads the tile of a stage as one box of a tensor map, as high as the tile is wide
// to multiply. Of fewer rows it is a box for each K block.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;

  // Bytes of a stage that count at `full`: those of whole boxes, inside of A or not.
  __device__ static u32 bytes(const Tile& tile) { return K_BLOCKS * 128 * box_of(tile).rows; }

  __device__ static void copy_whole(const TensorMaps& maps, const Place& place, const Tile& tile, int k_tile) {
    tensor_load(place.stage, maps.of[width_of(tile).index], 0, tile.first_row, k_tile * K_BLOCKS, place.full);
  }

  __device__ static void copy_few(const TensorMaps& maps, const Place& place, const Tile& tile, int k_tile) {
    const int first = k_tile * K_BLOCKS, block_bytes = width_of(tile).tokens * 128;
#pragma unroll
    for (int block = 0; block < K_BLOCKS; block++)
      tensor_load(place.stage + block * block_bytes, maps.of[FEW], 0, tile.first_row, first + block, place.full);
  }

  // One stage, by one thread, when it is empty.
  __device__ static void copy(const TensorMaps& maps, const Place& place, const Tile& tile, int k_tile) {
    if (has_few_rows(tile))
      copy_few(maps, place, tile, k_tile);
    else
      copy_whole(maps, place, tile, k_tile);
  }

  // All stages of a tile, by one thread. It knows before its loop which boxes they are: a step that asks takes longer than a
  // small stage.
  __device__ static void load(const Params&, const TensorMaps& maps, Producer& producer, const Tile& tile, int) {
    if (has_few_rows(tile))
      producer.fill<TOKEN_PACE>(tile, [&](const Place& place, int k_tile) { copy_few(maps, place, tile, k_tile); });
    else
      producer.fill<TOKEN_PACE>(tile, [&](const Place& place, int k_tile) { copy_whole(maps, place, tile, k_tile); });
  }
};

}  // namespace ws
