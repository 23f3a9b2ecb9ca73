/* A CUDA driver without a device: what is launched is looked at and not run.
 *
 * It answers as two H200 would, keeps device memory in host memory (copies and fills are done at once), and fails where a
 * real driver would do worse: a launch, or a replay of a graph, of a kernel whose module is unloaded. Streams can be
 * captured; graphs hold user objects, as CUDA's do. Only what cudarc and this crate call is here.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, INVALID_HANDLE = 400, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906 };
enum { DEVICES = 2, PARAMS = 120, MAPS = 5, MAP = 128 };

typedef struct { int unloaded; int device; } Module;
typedef struct { Module *module; char name[512]; int shared; } Function;
typedef struct Object { void (*destroy)(void *); void *value; struct Object *next; } Object;
typedef struct Graph { Function *launched[64]; int launches; Object *objects; int references; } Graph;
typedef struct { Graph *captured; uint64_t id; int waits; } Stream;
typedef struct { unsigned grid[3], block[3], shared; Stream *stream; void *attributes; unsigned count; } Config;

/* What a thread saw of its last launch, kept only if it asked to. */
typedef struct {
    unsigned grid[3], threads, shared, attributes;
    char kernel[512], params[PARAMS], maps[MAPS * MAP];
} Seen;

static __thread intptr_t current;
static __thread int is_watched;
static __thread Seen seen;
static __thread uint64_t launches, encodes;
static int loaded, unloaded, busy, capturing, waiting_capturing, held;
static int loading[DEVICES], most_loading[DEVICES];
static uint64_t captures;
static Stream default_streams;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* For tests. */
void null_watch(int on) { is_watched = on; }
void null_seen(Seen *out) { *out = seen; }
uint64_t null_launches(void) { return launches; }
uint64_t null_encodes(void) { return encodes; }
int null_loaded(void) { return __atomic_load_n(&loaded, __ATOMIC_SEQ_CST); }
int null_unloaded(void) { return __atomic_load_n(&unloaded, __ATOMIC_SEQ_CST); }
/* Whether everything launched so far is to count as still running. */
void null_busy(int on) { __atomic_store_n(&busy, on, __ATOMIC_SEQ_CST); }

/* Loads into the first device do not end before they are let go. */
void null_hold(int on) { __atomic_store_n(&held, on, __ATOMIC_SEQ_CST); }
/* Loads that the first device was busy with at a time, at most. */
int null_most_loading(void) { return __atomic_load_n(&most_loading[0], __ATOMIC_SEQ_CST); }

Result cuInit(unsigned flags) { return OK; }
Result cuDriverGetVersion(int *version) { *version = 13000; return OK; }
Result cuGetErrorName(Result error, const char **name) { *name = "CUDA_ERROR"; return OK; }
Result cuGetErrorString(Result error, const char **text) { *text = "an error of the null driver"; return OK; }
Result cuDeviceGetCount(int *count) { *count = DEVICES; return OK; }
Result cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < DEVICES ? OK : INVALID_VALUE; }
Result cuDeviceGetName(char *name, int length, int device) { strncpy(name, "NVIDIA H200", (size_t)length); return OK; }
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 16: *value = 132; break;       /* multiprocessors */
    case 38: *value = 62914560; break;  /* L2 */
    case 75: *value = 9; break;         /* compute capability */
    case 76: *value = 0; break;
    case 97: *value = 232448; break;    /* shared memory of a block */
    case 115: *value = 1; break;        /* memory pools */
    default: *value = 0;
    }
    return OK;
}

Result cuDevicePrimaryCtxRetain(intptr_t *context, int device) { *context = 0x1000 + device; return OK; }
Result cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
Result cuCtxGetCurrent(intptr_t *context) { *context = current; return OK; }
Result cuCtxSetCurrent(intptr_t context) { current = context; return OK; }
Result cuCtxSynchronize(void) { return OK; }
Result cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return OK; }

static Result allocate(uint64_t *address, size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 256, bytes ? bytes : 1)) return 2;
    *address = (uint64_t)(uintptr_t)memory;
    return OK;
}
Result cuMemAlloc_v2(uint64_t *address, size_t bytes) { return allocate(address, bytes); }
Result cuMemAllocAsync(uint64_t *address, size_t bytes, Stream *stream) { return allocate(address, bytes); }
Result cuMemFree_v2(uint64_t address) { free((void *)(uintptr_t)address); return OK; }
Result cuMemFreeAsync(uint64_t address, Stream *stream) { return cuMemFree_v2(address); }
Result cuMemsetD8_v2(uint64_t to, unsigned char byte, size_t bytes) {
    memset((void *)(uintptr_t)to, byte, bytes);
    return OK;
}
Result cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream *stream) {
    return cuMemsetD8_v2(to, byte, bytes);
}
Result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
    return cuMemcpyHtoD_v2(to, from, bytes);
}
Result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return OK;
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
    return cuMemcpyDtoH_v2(to, from, bytes);
}

Result cuEventCreate(void **event, unsigned flags) { *event = calloc(1, 8); return OK; }
Result cuEventDestroy_v2(void *event) { free(event); return OK; }
Result cuEventRecord(void *event, Stream *stream) { return OK; }
Result cuEventQuery(void *event) { return __atomic_load_n(&busy, __ATOMIC_SEQ_CST) ? NOT_READY : OK; }
Result cuEventSynchronize(void *event) { return OK; }
Result cuStreamWaitEvent(Stream *stream, void *event, unsigned flags) { return OK; }
Result cuCtxRecordEvent(intptr_t context, void *event) {
    return __atomic_load_n(&capturing, __ATOMIC_SEQ_CST) ? CAPTURE_UNSUPPORTED : OK;
}

static Stream *of(Stream *stream) { return (uintptr_t)stream < 16 ? &default_streams : stream; }
/* Without the flag it waits for the default stream. */
Result cuStreamCreate(Stream **stream, unsigned flags) {
    *stream = calloc(1, sizeof(Stream));
    (*stream)->waits = !(flags & 1);
    return OK;
}
Result cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) { return cuStreamCreate(stream, flags); }
Result cuStreamDestroy_v2(Stream *stream) { free(stream); return OK; }
Result cuStreamSynchronize(Stream *stream) { return OK; }
Result cuStreamBeginCapture_v2(Stream *stream, int mode) {
    stream = of(stream);
    stream->captured = calloc(1, sizeof(Graph));
    stream->captured->references = 1;
    stream->id = __atomic_add_fetch(&captures, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&capturing, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&waiting_capturing, stream->waits, __ATOMIC_SEQ_CST);
    return OK;
}
Result cuStreamEndCapture(Stream *stream, Graph **graph) {
    stream = of(stream);
    *graph = stream->captured;
    stream->captured = NULL;
    __atomic_sub_fetch(&capturing, 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&waiting_capturing, stream->waits, __ATOMIC_SEQ_CST);
    return OK;
}
Result cuStreamIsCapturing(Stream *stream, int *status) {
    if ((uintptr_t)stream == 1 && __atomic_load_n(&waiting_capturing, __ATOMIC_SEQ_CST)) return CAPTURE_IMPLICIT;
    *status = of(stream)->captured != NULL;
    return OK;
}
Result cuStreamGetCaptureInfo_v3(Stream *stream, int *status, uint64_t *id, Graph **graph, const void **nodes,
                                 const void **edges, size_t *count) {
    stream = of(stream);
    *status = stream->captured != NULL;
    if (id) *id = stream->id;
    if (graph) *graph = stream->captured;
    return OK;
}

/* An executable graph is the graph itself, held once more. */
static void release(Graph *graph) {
    if (__atomic_sub_fetch(&graph->references, 1, __ATOMIC_SEQ_CST)) return;
    for (Object *object = graph->objects, *next; object; object = next) {
        next = object->next;
        if (object->destroy) object->destroy(object->value);
        free(object);
    }
    free(graph);
}
Result cuGraphInstantiateWithFlags(Graph **executable, Graph *graph, unsigned long long flags) {
    __atomic_add_fetch(&graph->references, 1, __ATOMIC_SEQ_CST);
    *executable = graph;
    return OK;
}
Result cuGraphDestroy(Graph *graph) { release(graph); return OK; }
Result cuGraphExecDestroy(Graph *graph) { release(graph); return OK; }
Result cuGraphLaunch(Graph *graph, Stream *stream) {
    for (int i = 0; i < graph->launches; i++) {
        if (__atomic_load_n(&graph->launched[i]->module->unloaded, __ATOMIC_SEQ_CST)) return INVALID_HANDLE;
    }
    return OK;
}
Result cuUserObjectCreate(Object **object, void *value, void (*destroy)(void *), unsigned count, unsigned flags) {
    *object = calloc(1, sizeof(Object));
    (*object)->destroy = destroy;
    (*object)->value = value;
    return OK;
}
Result cuUserObjectRelease(Object *object, unsigned count) {
    object->destroy(object->value);
    free(object);
    return OK;
}
/* The caller's reference moves to the graph. */
Result cuGraphRetainUserObject(Graph *graph, Object *object, unsigned count, unsigned flags) {
    pthread_mutex_lock(&lock);
    object->next = graph->objects;
    graph->objects = object;
    pthread_mutex_unlock(&lock);
    return flags == 1 ? OK : INVALID_VALUE;
}

/* Handles of modules and functions are never given back, so that their use after the unload is seen. */
Result cuModuleLoadData(Module **module, const void *image) {
    int device = (int)current - 0x1000, now = __atomic_add_fetch(&loading[device], 1, __ATOMIC_SEQ_CST);
    for (int most = most_loading[device]; most < now;) {
        __atomic_compare_exchange_n(&most_loading[device], &most, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    while (device == 0 && __atomic_load_n(&held, __ATOMIC_SEQ_CST)) usleep(100);
    __atomic_sub_fetch(&loading[device], 1, __ATOMIC_SEQ_CST);
    *module = calloc(1, sizeof(Module));
    (*module)->device = (int)current;
    __atomic_add_fetch(&loaded, 1, __ATOMIC_SEQ_CST);
    return OK;
}
Result cuModuleUnload(Module *module) {
    __atomic_store_n(&module->unloaded, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&unloaded, 1, __ATOMIC_SEQ_CST);
    return OK;
}
Result cuModuleGetFunction(Function **function, Module *module, const char *name) {
    *function = calloc(1, sizeof(Function));
    (*function)->module = module;
    strncpy((*function)->name, name, sizeof (*function)->name - 1);
    return OK;
}
Result cuFuncGetAttribute(int *value, int attribute, Function *function) {
    *value = attribute == 4 ? 128 /* registers */ : 1024;
    return OK;
}
Result cuFuncSetAttribute(Function *function, int attribute, int value) { function->shared = value; return OK; }
Result cuOccupancyMaxActiveClusters(int *clusters, Function *function, const Config *config) {
    *clusters = 60;
    return OK;
}

/* The words of a map that tests look at: address, extents, box. */
Result cuTensorMapEncodeTiled(uint64_t *map, int type, unsigned rank, void *address, const uint64_t *extents,
                              const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                              int swizzle, int promotion, int fill) {
    encodes++;
    map[0] = (uint64_t)(uintptr_t)address;
    for (unsigned i = 0; i < rank; i++) {
        map[1 + i] = extents[i];
        map[6 + i] = box[i];
    }
    return OK;
}

static Result launch(const Config *config, Function *function, void **arguments) {
    Stream *stream = of(config->stream);
    if (function->module->unloaded || function->module->device != current) return INVALID_HANDLE;
    /* Kernels have up to two parameters; a bare launch of a benchmark gives none. */
    if (arguments && !(arguments[0] && arguments[1])) return INVALID_VALUE;
    if (function->shared < (int)config->shared && config->shared > 49152) return INVALID_VALUE;
    launches++;
    if (stream->captured) {
        Graph *graph = stream->captured;
        if (graph->launches == 64) return INVALID_VALUE;
        graph->launched[graph->launches++] = function;
    }
    if (is_watched) {
        memcpy(seen.grid, config->grid, sizeof seen.grid);
        seen.threads = config->block[0];
        seen.shared = config->shared;
        seen.attributes = config->count;
        memcpy(seen.kernel, function->name, sizeof seen.kernel);
        memcpy(seen.params, arguments[0], PARAMS);
        memcpy(seen.maps, arguments[1], sizeof seen.maps);
    }
    return OK;
}
Result cuLaunchKernelEx(const Config *config, Function *function, void **arguments, void **extra) {
    return launch(config, function, arguments);
}
/* Of kernels that are not watched. */
Result cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared, Stream *stream, void **arguments, void **extra) {
    launches++;
    return function->module->unloaded || function->module->device != current ? INVALID_HANDLE : OK;
}
