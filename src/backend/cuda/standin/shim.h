// CUDA's language on one CPU thread, for tests: kernels compile unchanged with a C++ compiler.
//
// Each thread of a block is a fibre. A warp runs on, lane by lane, until all of its lanes wait at
// __syncthreads() or have ended; only then comes the next warp. So whatever one warp wrote is there
// before another one starts, or long after it read: a missing barrier gives wrong numbers instead of
// luck. Even blocks start with the first warp, odd ones with the last. Shared memory starts as NaNs in
// each block. Divergent barriers and incomplete masks of shuffles end the launch with a message.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <ucontext.h>
#include <vector>

#define __device__
#define __launch_bounds__(...)
#define KERNEL static void
// Cleared before each block by `run_block`, which finds all of it between two symbols of the linker.
#define SHARED static __attribute__((section("shared_memory")))
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(shim::dynamic_shared)

extern char __start_shared_memory[], __stop_shared_memory[];

namespace shim {

struct Index {
    unsigned x, y, z;
};

// What a lane waits for.
enum class Wait { NOTHING, WARP, BLOCK, END };
enum class Exchange { SYNC, SHUFFLE, BALLOT, MMA };

struct Fragments {
    float* d;
    const unsigned *a, *b;
};

struct Lane {
    ucontext_t context;
    Index thread;
    Wait wait;
    int line;         // of the barrier
    Exchange what;    // in the warp
    unsigned mask, source;
    uint64_t value;   // to the others, then from them
    Fragments fragments;
};

const unsigned WARP_SIZE = 32, MAX_THREADS = 1024;
const size_t STACK_BYTES = 256 << 10;

inline std::vector<Lane> lanes(MAX_THREADS);
inline std::vector<char> stacks;
inline Lane* current;
inline ucontext_t scheduler;
inline Index block_index, block_size, grid_size;
inline char* dynamic_shared;
inline const std::function<void()>* kernel;
inline std::string problem;

inline void wait(Wait what) {
    current->wait = what;
    swapcontext(&current->context, &scheduler);
}

inline void barrier(int line) {
    current->line = line;
    wait(Wait::BLOCK);
}

inline uint64_t exchange(Exchange what, unsigned mask, uint64_t value, unsigned source) {
    current->what = what;
    current->mask = mask;
    current->value = value;
    current->source = source;
    wait(Wait::WARP);
    return current->value;
}

inline float half_to_float(unsigned half) {
    float sign = half & 0x8000u ? -1.0f : 1.0f;
    int exponent = static_cast<int>(half >> 10 & 31u);
    float fraction = static_cast<float>(half & 0x3ffu);
    if (exponent == 31) return fraction != 0.0f ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    return sign * std::ldexp(fraction + 1024.0f, exponent - 25);
}

// Rounded to nearest, ties to even.
inline unsigned float_to_half(float x) {
    unsigned sign = std::signbit(x) ? 0x8000u : 0u;
    float magnitude = std::fabs(x);
    if (std::isnan(x)) return 0x7fffu;
    if (magnitude >= 65520.0f) return sign | 0x7c00u;
    int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
    // Steps of the half's last place; a carry runs on into the exponent.
    unsigned steps = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
    return sign | (magnitude < 0x1p-14f ? steps : (static_cast<unsigned>(exponent + 15) << 10) + steps - 1024u);
}

// d += a·b, 16 x 8, each number in the lane and place that PTX says (m16n8k16, f16 and f32).
inline void multiply(Lane* warp) {
    auto half = [](unsigned packed, unsigned i) { return half_to_float(i ? packed >> 16 : packed & 0xffffu); };
    for (unsigned row = 0; row < 16; row++) {
        for (unsigned column = 0; column < 8; column++) {
            float sum = 0.0f;
            for (unsigned k = 0; k < 16; k++) {
                unsigned a = warp[row % 8 * 4 + k % 8 / 2].fragments.a[row / 8 + k / 8 * 2];
                unsigned b = warp[column * 4 + k % 8 / 2].fragments.b[k / 8];
                sum += half(a, k % 2) * half(b, k % 2);
            }
            warp[row % 8 * 4 + column / 2].fragments.d[row / 8 * 2 + column % 2] += sum;
        }
    }
}

// Carries out what the lanes of `mask` wait for.
inline void carry_out(Lane* warp, unsigned mask) {
    Exchange what = warp[__builtin_ctz(mask)].what;
    uint64_t given[WARP_SIZE], ballot = 0;
    for (unsigned i = 0; i < WARP_SIZE; i++) {
        given[i] = warp[i].value;
        if ((mask >> i & 1u) && given[i]) ballot |= 1ull << i;
    }
    if (what == Exchange::MMA) multiply(warp);
    for (unsigned i = 0; i < WARP_SIZE; i++) {
        if (!(mask >> i & 1u)) continue;
        if (what == Exchange::SHUFFLE) warp[i].value = given[warp[i].source % WARP_SIZE];
        if (what == Exchange::BALLOT) warp[i].value = ballot;
        warp[i].wait = Wait::NOTHING;
    }
}

// Carries out one exchange that is complete; false if none is.
inline bool exchange_one(Lane* warp, unsigned n_lanes) {
    for (unsigned i = 0; i < n_lanes; i++) {
        if (warp[i].wait != Wait::WARP) continue;
        bool complete = warp[i].mask >> i & 1u;
        for (unsigned j = 0; j < WARP_SIZE && complete; j++) {
            if (!(warp[i].mask >> j & 1u)) continue;
            complete = j < n_lanes && warp[j].wait == Wait::WARP && warp[j].mask == warp[i].mask &&
                       warp[j].what == warp[i].what;
        }
        if (complete) {
            carry_out(warp, warp[i].mask);
            return true;
        }
    }
    return false;
}

// Runs a warp until all of its lanes wait for the block or have ended.
inline bool run_warp(Lane* warp, unsigned n_lanes) {
    while (true) {
        unsigned n_waiting = 0;
        for (unsigned i = 0; i < n_lanes; i++) {
            if (warp[i].wait == Wait::NOTHING) {
                current = &warp[i];
                swapcontext(&scheduler, &current->context);
            }
            n_waiting += warp[i].wait == Wait::WARP;
        }
        if (n_waiting == 0) return true;
        if (!exchange_one(warp, n_lanes)) {
            problem = "lanes of a warp wait for others that do not come: a mask is incomplete, or a "
                      "shuffle stands in divergent code";
            return false;
        }
    }
}

inline void lane_main() {
    (*kernel)();
    wait(Wait::END);
}

inline void start(unsigned n_threads) {
    stacks.resize(STACK_BYTES * MAX_THREADS);
    for (unsigned t = 0; t < n_threads; t++) {
        Lane& lane = lanes[t];
        getcontext(&lane.context);
        lane.context.uc_stack.ss_sp = stacks.data() + STACK_BYTES * t;
        lane.context.uc_stack.ss_size = STACK_BYTES;
        lane.context.uc_link = nullptr;
        makecontext(&lane.context, lane_main, 0);
        lane.thread = {t % block_size.x, t / block_size.x % block_size.y, t / block_size.x / block_size.y};
        lane.wait = Wait::NOTHING;
    }
}

inline bool run_block(unsigned n_threads, bool is_reversed) {
    memset(__start_shared_memory, 0xff, static_cast<size_t>(__stop_shared_memory - __start_shared_memory));
    start(n_threads);
    unsigned n_warps = (n_threads + WARP_SIZE - 1) / WARP_SIZE;
    while (true) {
        for (unsigned i = 0; i < n_warps; i++) {
            unsigned first = (is_reversed ? n_warps - 1 - i : i) * WARP_SIZE;
            unsigned n_lanes = n_threads - first < WARP_SIZE ? n_threads - first : WARP_SIZE;
            if (!run_warp(&lanes[first], n_lanes)) return false;
        }
        int line = 0;
        for (unsigned t = 0; t < n_threads; t++) {
            if (lanes[t].wait != Wait::BLOCK) continue;
            if (line != 0 && lanes[t].line != line) {
                problem = "threads of a block wait at different barriers: lines " + std::to_string(line) +
                          " and " + std::to_string(lanes[t].line);
                return false;
            }
            line = lanes[t].line;
            lanes[t].wait = Wait::NOTHING;
        }
        if (line == 0) return true;
    }
}

// Runs all blocks, one after the other; false, with a `problem`, if one can't go on.
inline bool run(const std::function<void()>& body, Index grid, Index block, size_t dynamic_bytes) {
    std::vector<char> dynamic(dynamic_bytes);
    dynamic_shared = dynamic.data();
    kernel = &body;
    block_size = block;
    grid_size = grid;
    unsigned n = 0;
    for (unsigned z = 0; z < grid.z; z++) {
        for (unsigned y = 0; y < grid.y; y++) {
            for (unsigned x = 0; x < grid.x; x++) {
                block_index = {x, y, z};
                if (dynamic_bytes) memset(dynamic_shared, 0xff, dynamic_bytes);
                if (!run_block(block.x * block.y * block.z, n++ % 2 == 1)) return false;
            }
        }
    }
    return true;
}

template <class T> T shuffle(unsigned mask, T value, unsigned source) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = exchange(Exchange::SHUFFLE, mask, bits, source);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

inline unsigned lane_number() { return static_cast<unsigned>(current - lanes.data()) % WARP_SIZE; }

}  // namespace shim

#define threadIdx (shim::current->thread)
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size
#define __syncthreads() shim::barrier(__LINE__)

inline void __syncwarp(unsigned mask = 0xffffffffu) { shim::exchange(shim::Exchange::SYNC, mask, 0, 0); }
template <class T> T __shfl_sync(unsigned mask, T value, unsigned lane) {
    return shim::shuffle(mask, value, lane);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, unsigned bits) {
    return shim::shuffle(mask, value, shim::lane_number() ^ bits);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate) {
    return static_cast<unsigned>(shim::exchange(shim::Exchange::BALLOT, mask, predicate, 0));
}
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned atomicOr(unsigned* at, unsigned bits) {
    unsigned old = *at;
    *at |= bits;
    return old;
}
inline unsigned atomicAdd(unsigned* at, unsigned x) {
    unsigned old = *at;
    *at += x;
    return old;
}
// Compiled without contraction: never fused.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline void sincospif(float x, float* sine, float* cosine) {
    *sine = static_cast<float>(std::sin(M_PI * static_cast<double>(x)));
    *cosine = static_cast<float>(std::cos(M_PI * static_cast<double>(x)));
}
inline float infinity() { return INFINITY; }
inline unsigned pack_halves(float low, float high) {
    return shim::float_to_half(high) << 16 | shim::float_to_half(low);
}
inline void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    shim::current->fragments = {d, a, b};
    shim::exchange(shim::Exchange::MMA, 0xffffffffu, 0, 0);
}
