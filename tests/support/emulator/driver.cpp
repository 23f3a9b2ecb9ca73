// A CUDA driver that runs kernels on the CPU (runtime.cpp). Modules are cubins with a shared object behind them (nvrtc.cpp).
//
// Everything is done when it is asked for: a launch has run when it returns, and returns what went wrong (719), with the
// reason on stderr. Streams can be captured; what they are then given runs at each launch of the graph. There is one device,
// by default an H200 (WARPSMITH_EMULATED_DEVICE). Only what cudarc and this crate call is here.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"
#define EMU_WITHOUT_WORDS
#include "runtime.h"

using std::size_t;

typedef int Result;
enum {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, INVALID_HANDLE = 400, NOT_FOUND = 500,
  LAUNCH_FAILED = 719, NOT_SUPPORTED = 801,
};

namespace {

struct Module;
struct Function {
  Module* module;
  const EmuEntry* entry;
  int shared;
  bool has_wide_clusters;
};
struct Module {
  void* object;
  bool is_unloaded;
};
struct Object {
  void (*destroy)(void*);
  void* value;
};
struct Graph {
  std::vector<std::function<Result()>> nodes;
  std::vector<Object*> objects;
  int references = 1;
};
struct Stream {
  Graph* captured = nullptr;
  uint64_t id = 0;
};
struct Event {
  double us = 0;
};
struct Config {
  unsigned grid[3], block[3], shared;
  Stream* stream;
  const void* attributes;
  unsigned count;
};

thread_local intptr_t current_context;
thread_local Stream thread_stream;
Stream default_stream;
uint64_t captures;

Stream* of(Stream* stream) {
  return stream == reinterpret_cast<Stream*>(2) ? &thread_stream : reinterpret_cast<uintptr_t>(stream) < 2 ? &default_stream : stream;
}

// Each attribute by its number in cuda.h; the driver's own version, and how many threads and bytes an SM has.
struct {
  char name[64];
  int version, sms, l2, major, minor, shared, clock, memory_clock, bus, threads, shared_per_sm;
} device = {"NVIDIA H200", 13000, 132, 62914560, 9, 0, 232448, 1980000, 3201000, 6144, 2048, 233472};

__attribute__((constructor)) void configure() {
  const char* text = getenv("WARPSMITH_EMULATED_DEVICE");
  if (text && *text &&
      sscanf(text, "%63[^;];%d;%d;%d;%d;%d;%d;%d;%d;%d;%d;%d", device.name, &device.version, &device.sms, &device.l2,
             &device.major, &device.minor, &device.shared, &device.clock, &device.memory_clock, &device.bus, &device.threads,
             &device.shared_per_sm) != 12) {
    fprintf(stderr, "emulator: WARPSMITH_EMULATED_DEVICE is `%s`, which has not 12 parts\n", text);
    abort();
  }
}

double now_us() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) * 1e6 + double(time.tv_nsec) / 1e3;
}

// Now, or in the graph that the stream is captured into.
Result put(Stream* stream, std::function<Result()> work) {
  stream = of(stream);
  if (!stream->captured) return work();
  stream->captured->nodes.push_back(std::move(work));
  return OK;
}

// The host's memory may be asked for, too: what is not the device's is not looked at further.
Result copy(void* to, const void* from, size_t bytes) {
  memmove(to, from, bytes);
  return OK;
}
void* at(uint64_t address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

Result outside(const char* what, uint64_t address, size_t bytes) {
  fprintf(stderr, "emulator: %s: %zu bytes at 0x%llx are not inside of an allocation\n", what, bytes, (unsigned long long)address);
  return INVALID_VALUE;
}

void release(Graph* graph) {
  if (__atomic_sub_fetch(&graph->references, 1, __ATOMIC_SEQ_CST)) return;
  for (Object* object : graph->objects) {
    if (object->destroy) object->destroy(object->value);
    delete object;
  }
  delete graph;
}

// Where an ELF image ends: behind the last of its parts.
size_t end_of(const unsigned char* image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  size_t end = header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
  const size_t segments = header.e_phoff + size_t(header.e_phnum) * header.e_phentsize;
  if (segments > end) end = segments;
  for (unsigned i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr section;
    memcpy(&section, image + header.e_shoff + size_t(i) * header.e_shentsize, sizeof section);
    if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end) end = section.sh_offset + section.sh_size;
  }
  for (unsigned i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, image + header.e_phoff + size_t(i) * header.e_phentsize, sizeof segment);
    if (segment.p_offset + segment.p_filesz > end) end = segment.p_offset + segment.p_filesz;
  }
  return end;
}

Result launch(const Config& config, Function* function, void** arguments) {
  if (function->module->is_unloaded) return INVALID_HANDLE;
  const EmuEntry* entry = function->entry;
  engine::Launch launch = {entry, nullptr, {}, {}, {1, 1, 1}, config.shared};
  struct Attribute {
    int id, pad;
    union {
      unsigned cluster[3];
      char bytes[64];
    } value;
  };
  const Attribute* attributes = static_cast<const Attribute*>(config.attributes);
  for (unsigned i = 0; i < config.count; i++)
    if (attributes[i].id == 4) memcpy(launch.cluster, attributes[i].value.cluster, sizeof launch.cluster);
  unsigned threads = 1, cluster = 1;
  for (int i = 0; i < 3; i++) {
    launch.grid[i] = config.grid[i];
    launch.block[i] = config.block[i];
    if (!launch.grid[i] || !launch.block[i] || !launch.cluster[i] || launch.grid[i] % launch.cluster[i]) {
      fprintf(stderr, "emulator: %s: a grid of %u, blocks of %u and clusters of %u in dimension %d\n", entry->name, launch.grid[i],
              launch.block[i], launch.cluster[i], i);
      return INVALID_VALUE;
    }
    threads *= launch.block[i];
    cluster *= launch.cluster[i];
  }
  const bool is_too_large = config.shared > 49152 && int(config.shared) > function->shared;
  if (threads > 1024 || cluster > (function->has_wide_clusters ? 16 : 8) || is_too_large || int(config.shared) > device.shared) {
    fprintf(stderr, "emulator: %s: %u threads, %u blocks in a cluster, %u bytes of shared memory, of which it may have %d\n",
            entry->name, threads, cluster, config.shared, function->shared);
    return INVALID_VALUE;
  }
  if (entry->arguments && !arguments) return INVALID_VALUE;
  // Copied, aligned as tensor maps have to be: they are read when a graph is launched, too.
  size_t bytes = 0;
  for (int i = 0; i < entry->arguments; i++) bytes += (size_t(entry->bytes[i]) + 63) / 64 * 64;
  std::shared_ptr<unsigned char> memory(static_cast<unsigned char*>(aligned_alloc(64, bytes ? bytes : 64)), free);
  size_t place = 0;
  for (int i = 0; i < entry->arguments; i++) {
    memcpy(memory.get() + place, arguments[i], size_t(entry->bytes[i]));
    place += (size_t(entry->bytes[i]) + 63) / 64 * 64;
  }
  return put(config.stream, [launch, function, memory]() mutable {
    if (function->module->is_unloaded) return Result(INVALID_HANDLE);
    void* pointers[8];
    size_t place = 0;
    for (int i = 0; i < launch.entry->arguments; i++) {
      pointers[i] = memory.get() + place;
      place += (size_t(launch.entry->bytes[i]) + 63) / 64 * 64;
    }
    launch.arguments = pointers;
    return engine::run(launch).empty() ? Result(OK) : Result(LAUNCH_FAILED);
  });
}

}  // namespace

extern "C" {

Result cuInit(unsigned) { return OK; }
Result cuDriverGetVersion(int* version) { *version = device.version; return OK; }
Result cuGetErrorName(Result error, const char** name) {
  *name = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR";
  return OK;
}
Result cuGetErrorString(Result error, const char** text) {
  *text = error == LAUNCH_FAILED ? "the emulator refused what a kernel did (stderr says what)" : "an error of the emulator";
  return OK;
}
Result cuDeviceGetCount(int* count) { *count = 1; return OK; }
Result cuDeviceGet(int* out, int ordinal) { *out = ordinal; return ordinal == 0 ? OK : INVALID_VALUE; }
Result cuDeviceGetName(char* name, int length, int) {
  snprintf(name, size_t(length), "%s", device.name);
  return OK;
}
Result cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;
    case 10: *value = 32; break;
    case 13: *value = device.clock; break;
    case 16: *value = device.sms; break;
    case 36: *value = device.memory_clock; break;
    case 37: *value = device.bus; break;
    case 38: *value = device.l2; break;
    case 39: *value = device.threads; break;
    case 75: *value = device.major; break;
    case 76: *value = device.minor; break;
    case 81: *value = device.shared_per_sm; break;
    case 97: *value = device.shared; break;
    case 115: *value = 1; break;  // memory pools
    default: *value = 0;
  }
  return OK;
}

Result cuDevicePrimaryCtxRetain(intptr_t* context, int ordinal) { *context = 0x1000 + ordinal; return OK; }
Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
Result cuCtxGetCurrent(intptr_t* context) { *context = current_context; return OK; }
Result cuCtxSetCurrent(intptr_t context) { current_context = context; return OK; }
Result cuCtxDestroy_v2(intptr_t) { return OK; }
Result cuCtxSynchronize(void) { return OK; }
Result cuThreadExchangeStreamCaptureMode(int* mode) { *mode = 0; return OK; }

Result cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  void* memory = engine::allocate(bytes);
  *address = reinterpret_cast<uintptr_t>(memory);
  return memory ? OK : OUT_OF_MEMORY;
}
Result cuMemAllocAsync(uint64_t* address, size_t bytes, Stream*) { return cuMemAlloc_v2(address, bytes); }
Result cuMemFree_v2(uint64_t address) { return !address || engine::release(at(address)) ? OK : INVALID_VALUE; }
Result cuMemFreeAsync(uint64_t address, Stream*) { return cuMemFree_v2(address); }
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) { *memory = malloc(bytes); return *memory ? OK : OUT_OF_MEMORY; }
Result cuMemFreeHost(void* memory) { free(memory); return OK; }

Result cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream* stream) {
  return put(stream, [=] {
    if (!engine::is_device_memory(at(to), bytes)) return outside("a fill", to, bytes);
    memset(at(to), byte, bytes);
    return Result(OK);
  });
}
Result cuMemsetD8_v2(uint64_t to, unsigned char byte, size_t bytes) { return cuMemsetD8Async(to, byte, bytes, nullptr); }
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, Stream* stream) {
  return put(stream, [=] { return engine::is_device_memory(at(to), bytes) ? copy(at(to), from, bytes) : outside("a copy to the device", to, bytes); });
}
Result cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) { return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr); }
Result cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, Stream* stream) {
  return put(stream, [=] { return engine::is_device_memory(at(from), bytes) ? copy(to, at(from), bytes) : outside("a copy to the host", from, bytes); });
}
Result cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); }
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
  return put(stream, [=] {
    if (!engine::is_device_memory(at(from), bytes)) return outside("a copy's source", from, bytes);
    if (!engine::is_device_memory(at(to), bytes)) return outside("a copy's destination", to, bytes);
    return copy(at(to), at(from), bytes);
  });
}
// As cuda.h has it.
struct Copy2D {
  size_t from_x, from_y;
  int from_kind;
  const void* from_host;
  uint64_t from;
  void* from_array;
  size_t from_pitch, to_x, to_y;
  int to_kind;
  void* to_host;
  uint64_t to;
  void* to_array;
  size_t to_pitch, width, height;
};
Result cuMemcpy2DAsync_v2(const Copy2D* asked, Stream* stream) {
  const Copy2D known = *asked;
  return put(stream, [known] {
    // Kinds: 1 is the host, 2 the device.
    const char* from = known.from_kind == 1 ? static_cast<const char*>(known.from_host) : static_cast<const char*>(at(known.from));
    char* to = known.to_kind == 1 ? static_cast<char*>(known.to_host) : static_cast<char*>(at(known.to));
    for (size_t row = 0; row < known.height; row++)
      memmove(to + (row + known.to_y) * known.to_pitch + known.to_x, from + (row + known.from_y) * known.from_pitch + known.from_x,
              known.width);
    return Result(OK);
  });
}

Result cuEventCreate(Event** event, unsigned) { *event = new Event(); return OK; }
Result cuEventDestroy_v2(Event* event) { delete event; return OK; }
Result cuEventRecord(Event* event, Stream* stream) {
  return put(stream, [event] {
    event->us = now_us();
    return Result(OK);
  });
}
Result cuEventQuery(Event*) { return OK; }
Result cuEventSynchronize(Event*) { return OK; }
// Never nothing: who divides by a time finds one.
Result cuEventElapsedTime(float* ms, Event* start, Event* end) {
  const double us = end->us - start->us;
  *ms = float((us > 1 ? us : 1) / 1000);
  return OK;
}
Result cuStreamWaitEvent(Stream*, Event*, unsigned) { return OK; }
Result cuCtxRecordEvent(intptr_t, Event* event) { event->us = now_us(); return OK; }

Result cuStreamCreate(Stream** stream, unsigned) { *stream = new Stream(); return OK; }
Result cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
Result cuStreamDestroy_v2(Stream* stream) { delete stream; return OK; }
Result cuStreamSynchronize(Stream*) { return OK; }
Result cuStreamBeginCapture_v2(Stream* stream, int) {
  stream = of(stream);
  stream->captured = new Graph();
  stream->id = __atomic_add_fetch(&captures, 1, __ATOMIC_SEQ_CST);
  return OK;
}
Result cuStreamEndCapture(Stream* stream, Graph** graph) {
  *graph = of(stream)->captured;
  of(stream)->captured = nullptr;
  return OK;
}
Result cuStreamIsCapturing(Stream* stream, int* status) { *status = of(stream)->captured != nullptr; return OK; }
Result cuStreamGetCaptureInfo_v2(Stream* stream, int* status, uint64_t* id, Graph** graph, const void**, size_t*) {
  stream = of(stream);
  *status = stream->captured != nullptr;
  if (id) *id = stream->id;
  if (graph) *graph = stream->captured;
  return OK;
}

// An executable graph is the graph itself, held once more.
Result cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
  __atomic_add_fetch(&graph->references, 1, __ATOMIC_SEQ_CST);
  *executable = graph;
  return OK;
}
Result cuGraphDestroy(Graph* graph) { release(graph); return OK; }
Result cuGraphExecDestroy(Graph* graph) { release(graph); return OK; }
Result cuGraphLaunch(Graph* graph, Stream*) {
  for (auto& node : graph->nodes)
    if (Result result = node()) return result;
  return OK;
}
Result cuUserObjectCreate(Object** object, void* value, void (*destroy)(void*), unsigned, unsigned) {
  *object = new Object{destroy, value};
  return OK;
}
Result cuUserObjectRelease(Object* object, unsigned) {
  object->destroy(object->value);
  delete object;
  return OK;
}
// The caller's reference moves to the graph.
Result cuGraphRetainUserObject(Graph* graph, Object* object, unsigned, unsigned flags) {
  graph->objects.push_back(object);
  return flags == 1 ? OK : INVALID_VALUE;
}

Result cuModuleLoadData(Module** module, const void* image) {
  const unsigned char* bytes = static_cast<const unsigned char*>(image);
  const size_t end = end_of(bytes);
  // Behind a cubin: 8 letters, how long the object is, the object (nvrtc.cpp).
  uint64_t length;
  if (!end || memcmp(bytes + end, "EMULATED", 8) != 0) {
    fprintf(stderr, "emulator: a module without a part for the CPU: was it compiled without the emulator's NVRTC?\n");
    return INVALID_IMAGE;
  }
  memcpy(&length, bytes + end + 8, 8);
  // Each under a name of its own: the loader takes what has the name of what is loaded for the same.
  std::string path = P_tmpdir "/emulated-XXXXXX";
  const int file = mkostemp(&path[0], O_CLOEXEC);
  if (file < 0) {
    fprintf(stderr, "emulator: %s cannot be written\n", path.c_str());
    return OUT_OF_MEMORY;
  }
  for (size_t written = 0; written < length;) {
    const ssize_t some = write(file, bytes + end + 16 + written, length - written);
    if (some <= 0) {
      close(file);
      unlink(path.c_str());
      return OUT_OF_MEMORY;
    }
    written += size_t(some);
  }
  close(file);
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  if (!object) {
    fprintf(stderr, "emulator: %s\n", dlerror());
    return INVALID_IMAGE;
  }
  *module = new Module{object, false};
  return OK;
}
// Functions are never given back, so that their use after the unload is seen.
Result cuModuleUnload(Module* module) {
  module->is_unloaded = true;
  dlclose(module->object);
  return OK;
}
Result cuModuleGetFunction(Function** function, Module* module, const char* name) {
  const EmuEntry* entry = static_cast<const EmuEntry*>(dlsym(module->object, (std::string("emu_entry_") + name).c_str()));
  if (!entry) return NOT_FOUND;
  *function = new Function{module, entry, 49152, false};
  return OK;
}
Result cuFuncGetAttribute(int* value, int attribute, Function*) {
  *value = attribute == 4 ? 128 /* registers */ : attribute == 0 ? 1024 : 0;
  return OK;
}
Result cuFuncSetAttribute(Function* function, int attribute, int value) {
  if (attribute == 14) function->has_wide_clusters = value != 0;
  if (attribute != 8) return OK;
  if (value > device.shared) return INVALID_VALUE;
  function->shared = value;
  return OK;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Function*, int threads, size_t shared, unsigned) {
  const int by_threads = device.threads / (threads > 0 ? threads : 1), by_shared = device.shared_per_sm / int(shared + 1024);
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  return OK;
}
Result cuOccupancyMaxActiveClusters(int* clusters, Function*, const Config* config) {
  struct Attribute {
    int id, pad;
    unsigned cluster[16];
  };
  unsigned blocks = 1;
  for (unsigned i = 0; i < config->count; i++) {
    const Attribute& attribute = static_cast<const Attribute*>(config->attributes)[i];
    if (attribute.id == 4) blocks = attribute.cluster[0] * attribute.cluster[1] * attribute.cluster[2];
  }
  *clusters = device.sms / int(blocks ? blocks : 1);
  return OK;
}

// Refuses what the CUDA driver API manual says that it refuses.
Result cuTensorMapEncodeTiled(void* out, int type, unsigned rank, void* address, const uint64_t* extents, const uint64_t* strides,
                              const unsigned* box, const unsigned* steps, int interleave, int swizzle, int promotion, int fill) {
  // Bytes of an element of each type: u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32 ftz, tf32, tf32 ftz.
  static const int BYTES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  auto refused = [](const char* why, unsigned long long number) {
    fprintf(stderr, "emulator: cuTensorMapEncodeTiled: %s: %llu\n", why, number);
    return Result(INVALID_VALUE);
  };
  if (type < 0 || type > 12) return refused("a type that is not emulated", unsigned(type));
  if (rank < 1 || rank > 5) return refused("rank", rank);
  if (interleave != 0) return refused("interleaved layouts are not emulated", unsigned(interleave));
  if (swizzle < 0 || swizzle > 3) return refused("a swizzle that is not emulated", unsigned(swizzle));
  if (promotion < 0 || promotion > 3) return refused("promotion", unsigned(promotion));
  if (reinterpret_cast<uintptr_t>(out) % 64) return refused("the map's own address", reinterpret_cast<uintptr_t>(out));
  if (reinterpret_cast<uintptr_t>(address) % 16) return refused("the address", reinterpret_cast<uintptr_t>(address));
  engine::TensorMap map = {};
  map.magic = engine::MAP_MAGIC;
  map.rank = rank;
  map.address = reinterpret_cast<uintptr_t>(address);
  map.element_bytes = uint16_t(BYTES[type]);
  map.swizzle = uint16_t(swizzle);
  map.nan_fill = uint16_t(fill);
  map.data_type = uint16_t(type);
  if (fill != 0) return refused("filling with NaN is not emulated", unsigned(fill));
  for (unsigned i = 0; i < rank; i++) {
    if (extents[i] == 0 || extents[i] > 1ull << 32) return refused("an extent", extents[i]);
    if (box[i] == 0 || box[i] > 256) return refused("an extent of the box", box[i]);
    if (steps[i] != 1) return refused("a step between elements that is not emulated", steps[i]);
    map.extents[i] = uint32_t(extents[i] == 1ull << 32 ? 0xFFFFFFFF : extents[i]);
    map.box[i] = box[i];
    if (i == 0) continue;
    const uint64_t stride = strides[i - 1];
    if (stride % 16 || stride >= 1ull << 40) return refused("a stride", stride);
    map.strides[i - 1] = stride;
  }
  const uint64_t inner = uint64_t(box[0]) * map.element_bytes;
  if (inner % 16) return refused("bytes of the box's first dimension", inner);
  static const uint64_t WIDTHS[] = {~0ull, 32, 64, 128};
  if (inner > WIDTHS[swizzle]) return refused("bytes of the box's first dimension, more than the swizzle's", inner);
  map.sum = engine::sum_of(map);
  memcpy(out, &map, sizeof map);
  return OK;
}

Result cuLaunchKernelEx(const Config* config, Function* function, void** arguments, void**) {
  return launch(*config, function, arguments);
}
Result cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y, unsigned block_z,
                      unsigned shared, Stream* stream, void** arguments, void**) {
  const Config config = {{x, y, z}, {block_x, block_y, block_z}, shared, stream, nullptr, 0};
  return launch(config, function, arguments);
}

#define X(name) \
  Result name(void) { return NOT_SUPPORTED; }
#include "../null_driver_others.h"

}  // extern "C"
