// A libcuda of our own, for tests: the unmodified host code loads modules, launches kernels, copies
// and replays graphs, and the kernels run on the CPU. Device memory is the host's, so that
// AddressSanitizer sees every access.
//
// Its devices differ in what goes wrong (`devices` below). The environment variable
// FORECLOUD_STANDIN makes a machine without one: no_device, old_driver, stub.
#define FORECLOUD_STANDIN
#include "../kernels/forecloud.cu"

#include <atomic>
#include <mutex>

namespace {

typedef int Result;
const Result SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, STUB_LIBRARY = 34, NO_DEVICE = 100,
             INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY_FOR_GPU = 209, NOT_FOUND = 500,
             LAUNCH_FAILED = 719, STREAM_CAPTURE_UNSUPPORTED = 900;

struct Device {
    const char* name;
    int major, minor;
    size_t memory_bytes;
    unsigned n_launches;  // after which it is lost
};

const unsigned NEVER = 0xffffffffu;
const Device devices[] = {
    {"Stand-in of Orin", 8, 7, 1u << 30, NEVER},
    {"Stand-in of Hopper", 9, 0, 1u << 30, NEVER},
    {"Stand-in of a desktop card", 8, 6, 1u << 30, NEVER},
    {"Stand-in of an old card", 7, 5, 1u << 30, NEVER},
    {"Stand-in of a small memory", 8, 7, 4u << 20, NEVER},
    // One for each test that loses it.
    {"Stand-in that gets lost", 8, 7, 1u << 30, 60},
    {"Stand-in that gets lost", 8, 7, 1u << 30, 60},
    {"Stand-in that gets lost", 8, 7, 1u << 30, 60},
    {"Stand-in that gets lost", 8, 7, 1u << 30, 60},
    {"Stand-in that gets lost", 8, 7, 1u << 30, 60},
    {"Stand-in that gets lost", 8, 7, 1u << 30, 60},
};
const int N_DEVICES = sizeof(devices) / sizeof(devices[0]);

struct Context {
    const Device* device;
    size_t used_bytes;
    unsigned n_launches;
    bool is_lost;
};
Context contexts[N_DEVICES];

struct Kernel {
    const char* name;
    std::function<void()> (*bind)(void** arguments);
};

// A copy of the arguments, as a launch makes one.
template <auto FUNCTION> struct Binder;
template <class... Arguments, void (*FUNCTION)(Arguments...)> struct Binder<FUNCTION> {
    template <size_t... I> static std::function<void()> bind(void** given, std::index_sequence<I...>) {
        auto copy = std::make_tuple(*static_cast<Arguments*>(given[I])...);
        return [copy] { std::apply(FUNCTION, copy); };
    }
    static std::function<void()> bind(void** given) {
        return bind(given, std::index_sequence_for<Arguments...>());
    }
};

#define ENTRY(name) \
    { #name, Binder<name>::bind }
const Kernel kernels[] = {
    ENTRY(nearest_robot),   ENTRY(follow_links),       ENTRY(bound_still),       ENTRY(raise_heights),
    ENTRY(raise_second_heights), ENTRY(fly),           ENTRY(propose),           ENTRY(strike),
    ENTRY(encode),          ENTRY(move_particles),     ENTRY(end_pass),          ENTRY(knn_4),
    ENTRY(knn_8),           ENTRY(knn_32),             ENTRY(enumerate_walks),   ENTRY(dense_plain),
    ENTRY(dense_add),       ENTRY(dense_norm),         ENTRY(dense_queries_add), ENTRY(linear_state),
    ENTRY(linear_fold),     ENTRY(grf_attention_64),   ENTRY(grf_attention_128), ENTRY(grf_attention_256),
    ENTRY(half_plain),      ENTRY(half_add),           ENTRY(half_split),        ENTRY(split_weights),
    ENTRY(split_rows),      ENTRY(split_norm),
    ENTRY(morton_keys),     ENTRY(sort_blocks),        ENTRY(merge_pairs),       ENTRY(merge_blocks),
    ENTRY(make_tiles),      ENTRY(knn_tiles_4),        ENTRY(knn_tiles_8),       ENTRY(knn_tiles_32),
    ENTRY(unproject_pixels), ENTRY(count_heights),     ENTRY(sum_heights),       ENTRY(draw_keys),
    ENTRY(count_digits),    ENTRY(collect_drawn),      ENTRY(gather_drawn),
};

struct Graph {
    std::vector<std::function<Result()>> nodes;
};
struct Stream {
    Context* context;
    Graph* capture;
};
struct Block {
    size_t bytes;
    Context* context;
};

std::mutex guard;
thread_local Context* bound;
std::vector<std::pair<char*, Block>> blocks;

bool env_is(const char* value) {
    const char* set = getenv("FORECLOUD_STANDIN");
    return set && !strcmp(set, value);
}

Result run_or_record(Stream* stream, std::function<Result()> work) {
    if (stream->context->is_lost) return LAUNCH_FAILED;
    if (!stream->capture) return work();
    stream->capture->nodes.push_back(std::move(work));
    return SUCCESS;
}

Result execute(Context* context, const Kernel* kernel, const std::function<void()>& body, shim::Index grid,
               shim::Index block, size_t shared_bytes) {
    if (context->is_lost || context->n_launches++ >= context->device->n_launches) {
        context->is_lost = true;
        return LAUNCH_FAILED;
    }
    if (shim::run(body, grid, block, shared_bytes)) return SUCCESS;
    fprintf(stderr, "stand-in: kernel %s: %s\n", kernel->name, shim::problem.c_str());
    context->is_lost = true;
    return LAUNCH_FAILED;
}

bool is_inside(const void* at, size_t bytes) {
    const char* from = static_cast<const char*>(at);
    for (auto& [start, block] : blocks) {
        if (from >= start && from + bytes <= start + block.bytes) return true;
    }
    return false;
}

Result copy(Stream* stream, void* to, const void* from, const void* device_side, size_t bytes) {
    if (!is_inside(device_side, bytes)) return INVALID_VALUE;
    return run_or_record(stream, [=] {
        memcpy(to, from, bytes);
        return SUCCESS;
    });
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) Result
#define LOCKED std::lock_guard<std::mutex> lock(guard)

API cuInit(unsigned) {
    if (env_is("no_device")) return NO_DEVICE;
    if (env_is("stub")) return STUB_LIBRARY;
    return SUCCESS;
}
API cuDriverGetVersion(int* version) {
    *version = env_is("old_driver") ? 11040 : 12020;
    return SUCCESS;
}
API cuDeviceGetCount(int* count) {
    *count = N_DEVICES;
    return SUCCESS;
}
API cuDeviceGet(int* device, int ordinal) {
    if (ordinal < 0 || ordinal >= N_DEVICES) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}
API cuDeviceGetName(char* name, int len, int device) {
    snprintf(name, static_cast<size_t>(len), "%s", devices[device].name);
    return SUCCESS;
}
API cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = attribute == 75 ? devices[device].major : attribute == 76 ? devices[device].minor : 0;
    return SUCCESS;
}
API cuDevicePrimaryCtxRetain(Context** context, int device) {
    LOCKED;
    contexts[device].device = &devices[device];
    *context = &contexts[device];
    return SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API cuCtxGetCurrent(Context** context) {
    *context = bound;
    return SUCCESS;
}
API cuCtxSetCurrent(Context* context) {
    bound = context;
    return SUCCESS;
}
API cuCtxSynchronize() { return bound->is_lost ? LAUNCH_FAILED : SUCCESS; }

API cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    *total_bytes = bound->device->memory_bytes;
    *free_bytes = *total_bytes - bound->used_bytes;
    return SUCCESS;
}
API cuMemAlloc_v2(void** at, size_t bytes) {
    LOCKED;
    if (bound->is_lost) return LAUNCH_FAILED;
    if (bound->used_bytes + bytes > bound->device->memory_bytes) return OUT_OF_MEMORY;
    bound->used_bytes += bytes;
    void* allocated = nullptr;
    if (posix_memalign(&allocated, 256, bytes)) return OUT_OF_MEMORY;
    char* memory = static_cast<char*>(allocated);
    // Nobody may count on zeros.
    memset(memory, 0xff, bytes);
    blocks.push_back({memory, {bytes, bound}});
    *at = memory;
    return SUCCESS;
}
API cuMemFree_v2(void* at) {
    LOCKED;
    for (size_t i = 0; i < blocks.size(); i++) {
        if (blocks[i].first != at) continue;
        blocks[i].second.context->used_bytes -= blocks[i].second.bytes;
        blocks.erase(blocks.begin() + static_cast<long>(i));
        free(at);
        return SUCCESS;
    }
    return INVALID_VALUE;
}
API cuMemHostAlloc(void** at, size_t bytes, unsigned) {
    *at = malloc(bytes);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
API cuMemFreeHost(void* at) {
    free(at);
    return SUCCESS;
}
API cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
    LOCKED;
    return copy(stream, to, from, to, bytes);
}
API cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
    LOCKED;
    return copy(stream, to, from, from, bytes);
}
API cuMemsetD8Async(void* to, unsigned char value, size_t bytes, Stream* stream) {
    LOCKED;
    if (!is_inside(to, bytes)) return INVALID_VALUE;
    return run_or_record(stream, [=] {
        memset(to, value, bytes);
        return SUCCESS;
    });
}

API cuStreamCreate(Stream** stream, unsigned) {
    *stream = new Stream{bound, nullptr};
    return SUCCESS;
}
API cuStreamDestroy_v2(Stream* stream) {
    delete stream;
    return SUCCESS;
}
API cuStreamSynchronize(Stream* stream) {
    if (stream->capture) return STREAM_CAPTURE_UNSUPPORTED;
    return stream->context->is_lost ? LAUNCH_FAILED : SUCCESS;
}
API cuStreamBeginCapture_v2(Stream* stream, int) {
    if (stream->capture) return INVALID_VALUE;
    stream->capture = new Graph;
    return SUCCESS;
}
API cuStreamEndCapture(Stream* stream, Graph** graph) {
    *graph = stream->capture;
    stream->capture = nullptr;
    return *graph ? SUCCESS : INVALID_VALUE;
}
API cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
    *executable = new Graph(*graph);
    return SUCCESS;
}
API cuGraphLaunch(Graph* graph, Stream* stream) {
    LOCKED;
    for (auto& node : graph->nodes) {
        if (Result result = stream->context->is_lost ? LAUNCH_FAILED : node()) return result;
    }
    return SUCCESS;
}
API cuGraphExecDestroy(Graph* graph) {
    delete graph;
    return SUCCESS;
}
API cuGraphDestroy(Graph* graph) {
    delete graph;
    return SUCCESS;
}

// As a driver does: a cubin is for cards of one major version, PTX for all from its own on.
API cuModuleLoadData(void** module, const void* image) {
    const unsigned char* bytes = static_cast<const unsigned char*>(image);
    const Device* device = bound->device;
    if (!memcmp(bytes, "\x7f" "ELF", 4)) {
        // The lowest byte of the header's flags is the architecture, as 87.
        int architecture = bytes[48];
        if (architecture / 10 != device->major || architecture % 10 > device->minor) return NO_BINARY_FOR_GPU;
    } else if (!strstr(static_cast<const char*>(image), ".target sm_80")) {
        return INVALID_IMAGE;
    } else if (device->major < 8) {
        return NO_BINARY_FOR_GPU;
    }
    *module = const_cast<void*>(image);
    return SUCCESS;
}
API cuModuleUnload(void*) { return SUCCESS; }
API cuModuleGetFunction(const Kernel** function, void*, const char* name) {
    for (const Kernel& kernel : kernels) {
        if (strcmp(kernel.name, name)) continue;
        *function = &kernel;
        return SUCCESS;
    }
    return NOT_FOUND;
}
API cuLaunchKernel(const Kernel* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, Stream* stream, void** arguments, void**) {
    LOCKED;
    size_t n_blocks = size_t{gx} * gy * gz, n_threads = size_t{bx} * by * bz;
    bool is_possible = n_blocks > 0 && gy < 65536 && gz < 65536 && n_threads > 0 &&
                       n_threads <= shim::MAX_THREADS && shared_bytes <= 48u << 10;
    if (!is_possible) return INVALID_VALUE;
    Context* context = stream->context;
    std::function<void()> body = kernel->bind(arguments);
    return run_or_record(stream, [=] {
        return execute(context, kernel, body, {gx, gy, gz}, {bx, by, bz}, shared_bytes);
    });
}

API cuGetErrorName(Result, const char** name) {
    *name = "CUDA_ERROR";
    return SUCCESS;
}
API cuGetErrorString(Result error, const char** text) {
    switch (error) {
        case OUT_OF_MEMORY: *text = "out of memory"; break;
        case STUB_LIBRARY: *text = "stub library"; break;
        case NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
        case LAUNCH_FAILED: *text = "unspecified launch failure"; break;
        default: *text = "error of the stand-in";
    }
    return SUCCESS;
}
