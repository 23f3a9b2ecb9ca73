// How long a launch takes on the host while the same process does something else: CUDA's driver API and nothing more.
// Four threads launch in a stream each, replay a graph of two kernels every 16 launches (where it says so), and synchronise
// every so many launches; a fifth loads, unloads or allocates.
//
//   cc -O2 -pthread tail.c -o tail -ldl && ./tail KERNEL.cubin …
//
// The file names of the cubins are their kernels' names (`run_shapes --dump DIR`).
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, CALLS = 1 << 21, IMAGES = 64, KEPT = 4000, SHARED_MEMORY_ATTRIBUTE = 8, REGISTERS_ATTRIBUTE = 4 };

typedef int Result;
typedef void *Handle;
typedef unsigned long long Address;

#define FUNCTIONS(F)                                                                                                       \
    F(cuInit, (unsigned))                                                                                                  \
    F(cuDriverGetVersion, (int *))                                                                                         \
    F(cuDevicePrimaryCtxRetain, (Handle *, int))                                                                           \
    F(cuCtxSetCurrent, (Handle))                                                                                           \
    F(cuCtxSynchronize, (void))                                                                                            \
    F(cuStreamCreate, (Handle *, unsigned))                                                                                \
    F(cuStreamSynchronize, (Handle))                                                                                       \
    F(cuStreamBeginCapture_v2, (Handle, int))                                                                              \
    F(cuStreamEndCapture, (Handle, Handle *))                                                                              \
    F(cuGraphInstantiateWithFlags, (Handle *, Handle, unsigned long long))                                                 \
    F(cuGraphLaunch, (Handle, Handle))                                                                                     \
    F(cuModuleLoadData, (Handle *, const void *))                                                                          \
    F(cuModuleGetFunction, (Handle *, Handle, const char *))                                                               \
    F(cuModuleUnload, (Handle))                                                                                            \
    F(cuFuncGetAttribute, (int *, int, Handle))                                                                            \
    F(cuFuncSetAttribute, (Handle, int, int))                                                                              \
    F(cuMemAlloc_v2, (Address *, size_t))                                                                                  \
    F(cuMemFree_v2, (Address))                                                                                             \
    F(cuLaunchKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **))

#define DECLARE(name, arguments) static Result(*name) arguments;
FUNCTIONS(DECLARE)

// Runs for so many nanoseconds.
static const char *const SPIN =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 time) {\n"
    "  .reg .u64 %begin, %now, %time; .reg .pred %more;\n"
    "  ld.param.u64 %time, [time];\n"
    "  mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %more, %now, %time;\n"
    "  @%more bra again;\n"
    "  ret;\n"
    "}\n";

struct Calls {
    float *times;
    size_t count;
};

struct Launcher {
    Handle stream, graph;
    struct Calls first, others; // after a synchronise, and all others
};

struct Image {
    void *bytes;
    char name[600];
};

static Handle context, spin;
static atomic_int over;
static unsigned blocks, ahead, replays;
static unsigned long long kernel_ns;
static struct Image images[IMAGES];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static void must(Result result, const char *what) {
    if (result) {
        printf("%s: error %d\n", what, result);
        exit(1);
    }
}

static void note(struct Calls *calls, double took) {
    if (calls->count < CALLS) calls->times[calls->count++] = took;
}

static void *launches(void *argument) {
    struct Launcher *own = argument;
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    void *arguments[] = {&kernel_ns};
    for (unsigned call = 0; !over; call++) {
        double begin = now();
        must(cuLaunchKernel(spin, blocks, 1, 1, 128, 1, 1, 0, own->stream, arguments, 0), "cuLaunchKernel");
        double end = now();
        note(call % ahead ? &own->others : &own->first, end - begin);
        if (replays && call % 16 == 15) must(cuGraphLaunch(own->graph, own->stream), "cuGraphLaunch");
        if (call % ahead == ahead - 1) must(cuStreamSynchronize(own->stream), "cuStreamSynchronize");
        while (now() - end < 5) {}
    }
    return 0;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report(const char *kind, struct Calls *each[THREADS]) {
    size_t count = 0;
    for (int i = 0; i < THREADS; i++) count += each[i]->count;
    float *all = malloc((count + 1) * sizeof *all);
    count = 0;
    for (int i = 0; i < THREADS; i++) {
        memcpy(all + count, each[i]->times, each[i]->count * sizeof *all);
        count += each[i]->count;
        each[i]->count = 0;
    }
    qsort(all, count, sizeof *all, ascending);
    printf("  %-22s %8zu  p50 %6.2f  p99 %7.2f  p99.9 %7.2f  max %8.2f us\n", kind, count, all[count / 2],
           all[(size_t)(count * .99)], all[(size_t)(count * .999)], all[count - 1]);
    free(all);
}

static Handle load(const struct Image *image) {
    Handle module, function;
    int registers;
    must(cuModuleLoadData(&module, image->bytes), image->name);
    must(cuModuleGetFunction(&function, module, image->name), image->name);
    must(cuFuncGetAttribute(&registers, REGISTERS_ATTRIBUTE, function), image->name);
    must(cuFuncSetAttribute(function, SHARED_MEMORY_ATTRIBUTE, 100000), image->name);
    return module;
}

int main(int count, char **paths) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
#define FIND(name, arguments) name = (Result(*) arguments)dlsym(library, #name);
    FUNCTIONS(FIND)
    int version;
    must(cuInit(0), "cuInit");
    must(cuDriverGetVersion(&version), "cuDriverGetVersion");
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    Handle module;
    must(cuModuleLoadData(&module, SPIN), "spin");
    must(cuModuleGetFunction(&spin, module, "spin"), "spin");
    int loaded = 0;
    for (; loaded < count - 1 && loaded < IMAGES; loaded++) {
        FILE *file = fopen(paths[loaded + 1], "rb");
        if (!file) return perror(paths[loaded + 1]), 1;
        fseek(file, 0, SEEK_END);
        size_t length = ftell(file);
        rewind(file);
        struct Image *image = &images[loaded];
        image->bytes = malloc(length);
        if (fread(image->bytes, 1, length, file) != length) return 1;
        fclose(file);
        const char *slash = strrchr(paths[loaded + 1], '/');
        snprintf(image->name, sizeof image->name, "%s", slash ? slash + 1 : paths[loaded + 1]);
        *strrchr(image->name, '.') = 0;
    }
    printf("driver %d, %d images\n", version, loaded);

    static struct Launcher launchers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        must(cuStreamCreate(&launchers[i].stream, 1), "cuStreamCreate");
        Handle stream = launchers[i].stream, graph;
        unsigned long long time = 4000;
        void *arguments[] = {&time};
        must(cuStreamBeginCapture_v2(stream, 1), "cuStreamBeginCapture");
        for (int j = 0; j < 2; j++) must(cuLaunchKernel(spin, 132, 1, 1, 128, 1, 1, 0, stream, arguments, 0), "spin");
        must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
        must(cuGraphInstantiateWithFlags(&launchers[i].graph, graph, 0), "cuGraphInstantiate");
        struct Calls *each[] = {&launchers[i].first, &launchers[i].others};
        for (int j = 0; j < 2; j++) {
            each[j]->times = malloc(CALLS * sizeof(float));
            // Its pages are there before anything is timed.
            memset(each[j]->times, 1, CALLS * sizeof(float));
        }
    }
    enum { NOTHING, LOAD, LOAD_UNLOAD, ALLOCATE };
    static const struct {
        const char *name;
        int beside;
        unsigned blocks, nanoseconds, ahead, replays;
    } phases[] = {
        {"nothing beside, short kernels", NOTHING, 1, 1000, 64, 0},
        {"nothing beside, kernels that fill the device", NOTHING, 132 * 8, 8000, 16, 0},
        {"nothing beside, kernels that fill the device", NOTHING, 132 * 8, 8000, 144, 0},
        {"nothing beside, kernels that fill the device, graphs", NOTHING, 132 * 8, 8000, 16, 1},
        {"nothing beside, kernels that fill the device, graphs", NOTHING, 132 * 8, 8000, 144, 1},
        {"nothing beside, kernels of an eighth of the device, graphs", NOTHING, 132, 20000, 16, 1},
        {"nothing beside, kernels of an eighth of the device, graphs", NOTHING, 132, 20000, 144, 1},
        {"loading, short kernels", LOAD, 1, 1000, 64, 0},
        {"loading, kernels that fill the device, graphs", LOAD, 132 * 8, 8000, 16, 1},
        {"loading and unloading, short kernels", LOAD_UNLOAD, 1, 1000, 64, 0},
        {"cuMemAlloc and cuMemFree, short kernels", ALLOCATE, 1, 1000, 64, 0},
        {"nothing beside, kernels that fill the device, graphs, again", NOTHING, 132 * 8, 8000, 16, 1},
        {"nothing beside, short kernels, again", NOTHING, 1, 1000, 64, 0},
    };
    for (size_t phase = 0; phase < sizeof phases / sizeof *phases; phase++) {
        if (!loaded && (phases[phase].beside == LOAD || phases[phase].beside == LOAD_UNLOAD)) continue;
        blocks = phases[phase].blocks;
        kernel_ns = phases[phase].nanoseconds;
        ahead = phases[phase].ahead;
        replays = phases[phase].replays;
        over = 0;
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, launches, &launchers[i]);
        static Handle kept[KEPT];
        int done = 0, keeps = 0;
        double most = 0, end = now() + 3e6;
        while (now() < end && keeps < KEPT) {
            double begin = now();
            Address memory;
            switch (phases[phase].beside) {
            case LOAD: kept[keeps++] = load(&images[done % loaded]); break;
            case LOAD_UNLOAD: must(cuModuleUnload(load(&images[done % loaded])), "cuModuleUnload"); break;
            case ALLOCATE: must(cuMemAlloc_v2(&memory, 8 << 20), "cuMemAlloc"), must(cuMemFree_v2(memory), "cuMemFree");
            }
            double took = now() - begin;
            if (took > most) most = took;
            done++;
            usleep(10000);
        }
        over = 1;
        struct Calls *first[THREADS], *others[THREADS];
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], 0);
            first[i] = &launchers[i].first;
            others[i] = &launchers[i].others;
        }
        printf("%s, %u launches ahead", phases[phase].name, ahead);
        if (phases[phase].beside != NOTHING) printf(" (%d times, %.0f us at most)", done, most);
        puts("");
        report("after a synchronise", first);
        report("others", others);
        fflush(stdout);
        must(cuCtxSynchronize(), "cuCtxSynchronize");
        while (keeps) must(cuModuleUnload(kept[--keeps]), "cuModuleUnload");
    }
}
