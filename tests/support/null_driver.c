/* A CUDA driver without a device: what is launched is looked at and not run.
 *
 * It answers as two H200 would (or as NULL_DRIVER_DEVICE says), keeps device memory in host memory (copies and fills are
 * done at once), and fails where a real driver would do worse: a launch, or a replay of a graph, of a kernel whose module
 * is unloaded. Streams can be captured; graphs hold user objects, as CUDA's do. Only what cudarc and this crate call is
 * here.
 *
 * Compiled with NULL_COMPUTES it does the work of plain products of f16 with N = K = 64, and takes a time for each kernel
 * that its name decides: what is tuned on it is right, and has an end.
 *
 * On request it tells races: every use of memory by a stream has to be ordered with every other that conflicts with it (one
 * of them writes, or frees). Each stream has a vector clock, which events carry to other streams and to the host.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_HANDLE = 400, NOT_READY = 600, NOT_SUPPORTED = 801,
       CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906, INVALID_CLUSTER_SIZE = 912 };
enum { DEVICES = 2, PARAMS = 152, MAPS = 5, MAP = 128 };

enum { STREAMS = 32, OPERANDS = 11, USES = 15, NEXT = 16, CAPTURED = 1024, ATTRIBUTE_DEPENDENT = 6 };
typedef struct { uint32_t tick[STREAMS]; } Clock;
typedef struct { Clock clock; int recorded; double us; } Event;
typedef struct { int unloaded; int device; } Module;
typedef struct { Module *module; char name[512]; int shared, simt; } Function;
typedef struct Object { void (*destroy)(void *); void *value; struct Object *next; } Object;
/* What a launch does to memory: the address of each operand, and whether it writes it, or reads it early. */
typedef struct { uint64_t address[USES]; char writes[USES], early[USES]; int count; } Uses;
typedef struct Graph { Function *launched[CAPTURED]; Uses uses[CAPTURED]; int launches; Object *objects; int references; } Graph;
/* `before` is the clock that its last operation began with: a dependent launch may begin then. */
typedef struct { Graph *captured; uint64_t id; int waits, index; Clock clock, before; } Stream;
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
static __thread int refused;
static __thread int resident_clusters = 60;
static int loaded, unloaded, destroyed, busy, capturing, waiting_capturing, held;
static int loading[DEVICES], most_loading[DEVICES];
static uint64_t captures, events, records;
static Stream default_stream;
static __thread Stream thread_stream;
/* What the device was busy for, in microseconds. */
static double device_us;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The device, each attribute by its number in cuda.h; a fourth kind of number is the driver's own version. */
static struct { char name[64]; int version, count, sms, l2, major, minor, shared, clock, memory_clock, bus; } device = {
    "NVIDIA H200", 13000, DEVICES, 132, 62914560, 9, 0, 232448, 1980000, 3201000, 6144,
};
__attribute__((constructor)) static void configure(void) {
    const char *text = getenv("NULL_DRIVER_DEVICE");
    if (text) sscanf(text, "%63[^;];%d;%d;%d;%d;%d;%d;%d;%d;%d;%d", device.name, &device.version, &device.count,
                     &device.sms, &device.l2, &device.major, &device.minor, &device.shared, &device.clock,
                     &device.memory_clock, &device.bus);
}

/* --- Races ------------------------------------------------------------------------------------------------------- */

typedef struct { int stream, writes; uint32_t tick; const char *what; } Use;
typedef struct { uint64_t address, bytes; Use *uses; int count; } Allocation;
/* `host` is what the host has seen the end of, `latest` all that was begun. */
static struct { Allocation *all; int count, streams; Clock host, latest; int on, races; char last[256]; } tracked;

static void race(const char *what, const char *with) {
    tracked.races++;
    snprintf(tracked.last, sizeof tracked.last, "%s is not ordered with %s", what, with);
}
static void join(Clock *into, const Clock *from) {
    for (int i = 0; i < STREAMS; i++) if (into->tick[i] < from->tick[i]) into->tick[i] = from->tick[i];
}
/* The host has seen that what the clock says is done; what it asks for from now on is behind it. */
static void seen_by_host(const Clock *clock) {
    pthread_mutex_lock(&lock);
    join(&tracked.host, clock);
    pthread_mutex_unlock(&lock);
}
static Allocation *allocation_of(uint64_t address) {
    for (int i = 0; i < tracked.count; i++) {
        Allocation *at = &tracked.all[i];
        if (at->address <= address && address < at->address + at->bytes) return at;
    }
    return NULL;
}
/* Begins an operation of a stream; gives what it begins behind. */
static Clock begin(Stream *stream) {
    if (!stream->index) {
        stream->index = 1 + tracked.streams++ % (STREAMS - 1);
        stream->clock.tick[stream->index] = tracked.latest.tick[stream->index];
    }
    join(&stream->clock, &tracked.host);
    stream->before = stream->clock;
    Clock now = stream->clock;
    tracked.latest.tick[stream->index] = ++stream->clock.tick[stream->index];
    return now;
}
static void conflicts(const Allocation *at, const Clock *now, int writes, const char *what) {
    for (int i = 0; i < at->count; i++) {
        const Use *use = &at->uses[i];
        if ((writes || use->writes) && now->tick[use->stream] < use->tick) race(what, use->what);
    }
}
static void use(Stream *stream, const Clock *now, uint64_t address, int writes, const char *what) {
    Allocation *at = allocation_of(address);
    if (!at) { race(what, "the free before it"); return; }
    conflicts(at, now, writes, what);
    at->uses = realloc(at->uses, (size_t)(at->count + 1) * sizeof(Use));
    at->uses[at->count++] = (Use){stream->index, writes, stream->clock.tick[stream->index], what};
}
static void operation(Stream *stream, uint64_t address, int writes, const char *what) {
    pthread_mutex_lock(&lock);
    if (tracked.on && address) {
        Clock now = begin(stream);
        use(stream, &now, address, writes, what);
    }
    pthread_mutex_unlock(&lock);
}
static void launched(Stream *stream, const Uses *uses, int dependent) {
    pthread_mutex_lock(&lock);
    if (tracked.on) {
        Clock before = stream->before, now = begin(stream);
        /* Nothing begins before it is asked for. */
        join(&before, &tracked.host);
        for (int i = 0; i < uses->count; i++) {
            if (!uses->address[i]) continue;
            const char *what = uses->writes[i] ? "a launch's write" : "a launch's read";
            use(stream, dependent && uses->early[i] ? &before : &now, uses->address[i], uses->writes[i], what);
        }
    }
    pthread_mutex_unlock(&lock);
}

/* For tests: from now on, with what is allocated from now on. */
void null_track(int on) {
    pthread_mutex_lock(&lock);
    tracked.on = on;
    tracked.races = tracked.count = 0;
    tracked.last[0] = 0;
    pthread_mutex_unlock(&lock);
}
int null_races(void) { return tracked.races; }
const char *null_last_race(void) { return tracked.last; }
uint64_t null_events(void) { return __atomic_load_n(&events, __ATOMIC_SEQ_CST); }
uint64_t null_records(void) { return __atomic_load_n(&records, __ATOMIC_SEQ_CST); }
int null_allocations(void) { return tracked.count; }

/* ------------------------------------------------------------------------------------------------------------------ */

/* For tests. */
void null_watch(int on) { is_watched = on; }
void null_seen(Seen *out) { *out = seen; }
uint64_t null_launches(void) { return launches; }
uint64_t null_encodes(void) { return encodes; }
int null_loaded(void) { return __atomic_load_n(&loaded, __ATOMIC_SEQ_CST); }
int null_unloaded(void) { return __atomic_load_n(&unloaded, __ATOMIC_SEQ_CST); }
/* Contexts that were destroyed. */
int null_destroyed(void) { return __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST); }
/* Which of this thread's launches from now on is refused, counted from 1; none, if it is 0. */
void null_refuse(int launch) { refused = launch; }
/* Clusters of any kernel that run at a time, as this thread is told; below 0, none can be so large. */
void null_clusters(int resident) { resident_clusters = resident; }
/* Whether everything launched so far is to count as still running. */
void null_busy(int on) { __atomic_store_n(&busy, on, __ATOMIC_SEQ_CST); }

/* Loads into the first device do not end before they are let go. */
void null_hold(int on) { __atomic_store_n(&held, on, __ATOMIC_SEQ_CST); }
/* Loads that the first device was busy with at a time, at most. */
int null_most_loading(void) { return __atomic_load_n(&most_loading[0], __ATOMIC_SEQ_CST); }

Result cuInit(unsigned flags) { return OK; }
Result cuDriverGetVersion(int *version) { *version = device.version; return OK; }
Result cuGetErrorName(Result error, const char **name) { *name = "CUDA_ERROR"; return OK; }
Result cuGetErrorString(Result error, const char **text) { *text = "an error of the null driver"; return OK; }
Result cuDeviceGetCount(int *count) { *count = device.count; return OK; }
Result cuDeviceGet(int *out, int ordinal) { *out = ordinal; return ordinal < device.count ? OK : INVALID_VALUE; }
Result cuDeviceGetName(char *name, int length, int of) { strncpy(name, device.name, (size_t)length); return OK; }
Result cuDeviceGetAttribute(int *value, int attribute, int of) {
    switch (attribute) {
    case 13: *value = device.clock; break;
    case 16: *value = device.sms; break;
    case 36: *value = device.memory_clock; break;
    case 37: *value = device.bus; break;
    case 38: *value = device.l2; break;
    case 39: *value = device.shared > 200000 || device.sms == 108 ? 2048 : 1536; break;  /* threads of an SM */
    case 75: *value = device.major; break;
    case 76: *value = device.minor; break;
    case 81: *value = device.shared + 1024; break;  /* shared memory of an SM */
    case 97: *value = device.shared; break;         /* of a block */
    case 115: *value = 1; break;                    /* memory pools */
    default: *value = 0;
    }
    return OK;
}

Result cuDevicePrimaryCtxRetain(intptr_t *context, int device) { *context = 0x1000 + device; return OK; }
Result cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
Result cuCtxGetCurrent(intptr_t *context) { *context = current; return OK; }
Result cuCtxSetCurrent(intptr_t context) { current = context; return OK; }
Result cuCtxDestroy_v2(intptr_t context) {
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST);
    return OK;
}
Result cuCtxSynchronize(void) {
    seen_by_host(&tracked.latest);
    return OK;
}
Result cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return OK; }

static Stream *of(Stream *stream) {
    return stream == (Stream *)2 ? &thread_stream : (uintptr_t)stream < 2 ? &default_stream : stream;
}
static Result allocate(uint64_t *address, size_t bytes, Stream *stream) {
    void *memory = NULL;
    if (posix_memalign(&memory, 256, bytes ? bytes : 1)) return OUT_OF_MEMORY;
    *address = (uint64_t)(uintptr_t)memory;
    pthread_mutex_lock(&lock);
    if (tracked.on) {
        tracked.all = realloc(tracked.all, (size_t)(tracked.count + 1) * sizeof(Allocation));
        tracked.all[tracked.count++] = (Allocation){*address, bytes ? bytes : 1, NULL, 0};
    }
    pthread_mutex_unlock(&lock);
    /* Nobody may use it before it is there. */
    if (stream) operation(stream, *address, 1, "an allocation");
    return OK;
}
static Result release_memory(uint64_t address, Stream *stream) {
    pthread_mutex_lock(&lock);
    Allocation *at = tracked.on ? allocation_of(address) : NULL;
    if (at) {
        Clock now = stream ? begin(stream) : tracked.host;
        conflicts(at, &now, 1, "a free");
        free(at->uses);
        *at = tracked.all[--tracked.count];
    }
    pthread_mutex_unlock(&lock);
    free((void *)(uintptr_t)address);
    return OK;
}
Result cuMemAlloc_v2(uint64_t *address, size_t bytes) { return allocate(address, bytes, NULL); }
Result cuMemAllocAsync(uint64_t *address, size_t bytes, Stream *stream) { return allocate(address, bytes, of(stream)); }
Result cuMemFree_v2(uint64_t address) { return release_memory(address, NULL); }
Result cuMemFreeAsync(uint64_t address, Stream *stream) { return release_memory(address, of(stream)); }
Result cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    *memory = malloc(bytes);
    return *memory ? OK : OUT_OF_MEMORY;
}
Result cuMemFreeHost(void *memory) { free(memory); return OK; }
Result cuMemsetD8_v2(uint64_t to, unsigned char byte, size_t bytes) {
    memset((void *)(uintptr_t)to, byte, bytes);
    return OK;
}
Result cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream *stream) {
    operation(of(stream), to, 1, "a fill");
    return cuMemsetD8_v2(to, byte, bytes);
}
Result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
    operation(of(stream), to, 1, "a copy to the device");
    return cuMemcpyHtoD_v2(to, from, bytes);
}
Result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return OK;
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
    operation(of(stream), from, 0, "a copy to the host");
    return cuMemcpyDtoH_v2(to, from, bytes);
}
#ifndef NULL_WITHOUT_COPIES
/* As cuda.h has it. */
typedef struct {
    size_t from_x, from_y;
    int from_kind;
    const void *from_host;
    uint64_t from;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_kind;
    void *to_host;
    uint64_t to;
    void *to_array;
    size_t to_pitch, width, height;
} Copy2D;
Result cuMemcpy2DAsync_v2(const Copy2D *copy, Stream *stream) {
    operation(of(stream), copy->from, 0, "a copy's source");
    operation(of(stream), copy->to, 1, "a copy's destination");
    for (size_t row = 0; row < copy->height; row++)
        memcpy((char *)copy->to + row * copy->to_pitch, (char *)copy->from + row * copy->from_pitch, copy->width);
    return OK;
}
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *stream) {
    operation(of(stream), from, 0, "a copy's source");
    operation(of(stream), to, 1, "a copy's destination");
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return OK;
}
#endif

Result cuEventCreate(Event **event, unsigned flags) {
    __atomic_add_fetch(&events, 1, __ATOMIC_SEQ_CST);
    *event = calloc(1, sizeof(Event));
    return OK;
}
Result cuEventDestroy_v2(Event *event) { free(event); return OK; }
Result cuEventRecord(Event *event, Stream *stream) {
    __atomic_add_fetch(&records, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock);
    event->clock = of(stream)->clock;
    event->recorded = 1;
    event->us = device_us;
    pthread_mutex_unlock(&lock);
    return OK;
}
/* An event that was never recorded has come. */
Result cuEventQuery(Event *event) {
    if (event->recorded && __atomic_load_n(&busy, __ATOMIC_SEQ_CST)) return NOT_READY;
    seen_by_host(&event->clock);
    return OK;
}
Result cuEventSynchronize(Event *event) { seen_by_host(&event->clock); return OK; }
Result cuEventElapsedTime(float *ms, Event *start, Event *end) {
#ifdef NULL_COMPUTES
    *ms = (float)((end->us - start->us) / 1000.0);
#else
    *ms = 0.01f;
#endif
    return OK;
}
Result cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    pthread_mutex_lock(&lock);
    join(&of(stream)->clock, &event->clock);
    pthread_mutex_unlock(&lock);
    return OK;
}
#ifndef NULL_WITHOUT_RECORD_CONTEXT
Result cuCtxRecordEvent(intptr_t context, Event *event) {
    if (__atomic_load_n(&capturing, __ATOMIC_SEQ_CST)) return CAPTURE_UNSUPPORTED;
    event->clock = tracked.latest;
    event->recorded = 1;
    return OK;
}
#endif

/* Without the flag it waits for the default stream. */
Result cuStreamCreate(Stream **stream, unsigned flags) {
    *stream = calloc(1, sizeof(Stream));
    (*stream)->waits = !(flags & 1);
    return OK;
}
Result cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) { return cuStreamCreate(stream, flags); }
Result cuStreamDestroy_v2(Stream *stream) { free(stream); return OK; }
Result cuStreamSynchronize(Stream *stream) { seen_by_host(&of(stream)->clock); return OK; }
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
Result cuStreamGetCaptureInfo_v2(Stream *stream, int *status, uint64_t *id, Graph **graph, const void **nodes,
                                 size_t *count) {
    stream = of(stream);
    *status = stream->captured != NULL;
    if (id) *id = stream->id;
    if (graph) *graph = stream->captured;
    return OK;
}

#ifdef NULL_COMPUTES
/* 10 to 20 microseconds. */
static void run_on_device(const Function *function) {
    uint32_t hash = 2166136261u;
    for (const char *at = function->name; *at; at++) hash = (hash ^ (uint8_t)*at) * 16777619u;
    pthread_mutex_lock(&lock);
    device_us += 10.0 + hash % 1000 / 100.0;
    pthread_mutex_unlock(&lock);
}
/* C = alpha A B^T, from the first words of a kernel's parameters (src/operand.rs). */
static void compute(const Function *function, void **arguments) {
    enum { N = 64, K = 64 };
    if (!arguments || !strstr(function->name, "gemm")) return;
    const uint64_t *words = arguments[0];
    const _Float16 *a = (const _Float16 *)words[0], *b = (const _Float16 *)words[2];
    _Float16 *c = (_Float16 *)words[9];
    int m;
    float alpha;
    memcpy(&m, (const char *)arguments[0] + 112, sizeof m);
    memcpy(&alpha, words[6] ? (const void *)words[6] : (const void *)&words[12], sizeof alpha);
    static __thread float columns[N][K];
    for (int n = 0; n < N; n++) for (int k = 0; k < K; k++) columns[n][k] = (float)b[n * K + k];
    for (int row = 0; row < m; row++) {
        float values[K];
        for (int k = 0; k < K; k++) values[k] = (float)a[row * K + k];
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += (double)values[k] * columns[n][k];
            c[row * N + n] = (_Float16)(alpha * sum);
        }
    }
}
#endif

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
        launched(of(stream), &graph->uses[i], 0);
#ifdef NULL_COMPUTES
        run_on_device(graph->launched[i]);
#endif
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
    int device = current - 0x1000 < DEVICES ? (int)(current - 0x1000) : 0;
    int now = __atomic_add_fetch(&loading[device], 1, __ATOMIC_SEQ_CST);
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
/* Kernels without matrix instructions: they have one parameter, and are neither watched nor refused. */
static int is_simt(const char *name) {
    static const char *const simt[] = {"prepare_", "route_", "combine_", "quantise_", "experts_"};
    for (unsigned i = 0; i < sizeof simt / sizeof *simt; i++) if (!strncmp(name, simt[i], strlen(simt[i]))) return 1;
    return 0;
}
Result cuModuleGetFunction(Function **function, Module *module, const char *name) {
    *function = calloc(1, sizeof(Function));
    (*function)->module = module;
    strncpy((*function)->name, name, sizeof (*function)->name - 1);
    (*function)->simt = is_simt(name);
    return OK;
}
Result cuFuncGetAttribute(int *value, int attribute, Function *function) {
    *value = attribute == 4 ? 128 /* registers */ : 1024;
    return OK;
}
Result cuFuncSetAttribute(Function *function, int attribute, int value) {
    if (attribute == 8) function->shared = value;
    return OK;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, Function *function, int threads, size_t shared,
                                                            unsigned flags) {
    *blocks = 1;
    return OK;
}
Result cuOccupancyMaxActiveClusters(int *clusters, Function *function, const Config *config) {
    if (resident_clusters < 0) return INVALID_CLUSTER_SIZE;
    *clusters = resident_clusters;
    return OK;
}

/* The words of a map that tests look at: address, extents, box. */
#ifndef NULL_WITHOUT_TENSOR_MAPS
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
#endif

/* What the parameters of this crate's kernels say of memory (src/operand.rs, src/run/{prepare,route,combine,experts,quantise}.rs): kernels that
   multiply read weights early where a launch is dependent. */
static Uses uses_of(const Function *function, void **arguments) {
    Uses uses = {{0}, {0}, {0}, 0};
    if (!arguments || !arguments[0]) return uses;
    const uint64_t *words = arguments[0];
    if (!strncmp(function->name, "prepare_", 8)) {
        memcpy(uses.address, words, 5 * sizeof *words);
        uses.writes[4] = 1;
        uses.count = 5;
    } else if (!strncmp(function->name, "route_", 6)) {
        uses.count = 12;
        memcpy(uses.address, words, uses.count * sizeof *words);
        for (int i = strncmp(function->name, "route_given", 11) ? 2 : 3; i < uses.count; i++) uses.writes[i] = 1;
    } else if (!strncmp(function->name, "experts_", 8)) {
        /* Launches at a time count in memory that they share, each in its own part of it. */
        uses.count = 15;
        memcpy(uses.address, words, uses.count * sizeof *words);
        uses.address[10] = 0;
        uses.writes[11] = uses.writes[14] = 1;
    } else if (!strncmp(function->name, "combine_", 8)) {
        memcpy(uses.address, words, 6 * sizeof *words);
        uses.writes[5] = 1;
        uses.count = 6;
    } else if (!strncmp(function->name, "quantise_", 9)) {
        /* x, codes and scales, a given factor and an own one; of e4m3 x, values and factors. */
        const int is_maximum = !!strstr(function->name, "_maximum");
        uses.count = strstr(function->name, "_e4m3") ? 3 : 5;
        memcpy(uses.address, words, uses.count * sizeof *words);
        uses.writes[1] = uses.writes[2] = !is_maximum;
        uses.writes[4] = is_maximum;
        if (is_maximum) uses.address[1] = uses.address[2] = 0;
    } else if (strstr(function->name, "gemm")) {
        memcpy(uses.address, words, OPERANDS * sizeof *words);
        uses.writes[9] = uses.writes[10] = 1;
        uses.early[2] = uses.early[3] = 1;
        /* What the launch behind it reads first: asked for when this one likes. */
        uses.address[OPERANDS] = words[NEXT];
        uses.early[OPERANDS] = 1;
        uses.count = OPERANDS + 1;
    }
    return uses;
}
static int is_dependent(const Config *config) {
    const struct { int id, pad; char value[64]; } *attribute = config->attributes;
    for (unsigned i = 0; i < config->count; i++) if (attribute[i].id == ATTRIBUTE_DEPENDENT) return 1;
    return 0;
}

static Result launch(const Config *config, Function *function, void **arguments) {
    Stream *stream = of(config->stream);
    const int simt = function->simt;
    if (function->module->unloaded || function->module->device != current) return INVALID_HANDLE;
    /* Kernels have up to two parameters; a bare launch of a benchmark gives none. */
    if (arguments && !(arguments[0] && (simt || arguments[1]))) return INVALID_VALUE;
    if (function->shared < (int)config->shared && config->shared > 49152) return INVALID_VALUE;
    if (!simt && refused && !--refused) return OUT_OF_MEMORY;
    launches++;
    if (stream->captured) {
        Graph *graph = stream->captured;
        if (graph->launches == CAPTURED) return INVALID_VALUE;
        graph->uses[graph->launches] = uses_of(function, arguments);
        graph->launched[graph->launches++] = function;
    } else if (tracked.on) {
        Uses uses = uses_of(function, arguments);
        launched(stream, &uses, is_dependent(config));
    }
#ifdef NULL_COMPUTES
    /* What a graph writes was written by the same launches before. */
    if (!stream->captured) {
        compute(function, arguments);
        run_on_device(function);
    }
#endif
    if (is_watched && !simt) {
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
    if (tracked.on) {
        Uses uses = uses_of(function, arguments);
        launched(of(stream), &uses, 0);
    }
    return function->module->unloaded || function->module->device != current ? INVALID_HANDLE : OK;
}

#define X(name) Result name(void) { return NOT_SUPPORTED; }
#include "null_driver_others.h"
