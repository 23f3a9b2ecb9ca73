// Between the driver (driver.cpp) and what runs kernels (runtime.cpp).
#pragma once

#include <cstdint>
#include <string>

struct EmuEntry;

namespace engine {

struct Launch {
  const EmuEntry* entry;
  void** arguments;
  unsigned grid[3], block[3], cluster[3], shared_bytes;
};

// Runs the whole grid. What went wrong, or nothing.
std::string run(const Launch& launch);

// Device memory: with guard pages around it, filled with 0xFF.
void* allocate(uint64_t bytes);
bool release(void* memory);
// Whether that many bytes there are of one allocation.
bool is_device_memory(const void* memory, uint64_t bytes);

enum { MAP_MAGIC = 0x454D5531 };
// A tensor map, as the driver writes it.
struct alignas(64) TensorMap {
  uint32_t magic, rank;
  uint64_t address;
  uint64_t strides[4];  // bytes, from the second dimension on
  uint32_t extents[5], box[5];
  uint16_t element_bytes, swizzle, nan_fill, data_type;
  uint32_t sum;
};
static_assert(sizeof(TensorMap) == 128, "as CUtensorMap");

uint32_t sum_of(const TensorMap& map);

}  // namespace engine
