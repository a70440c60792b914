// CUDA's language on one CPU thread, for tests: kernels compile unchanged with a C++ compiler.
//
// Each thread of a block is a fibre. A warp runs on, lane by lane, until all of its lanes wait at
// __syncthreads() or have ended; only then comes the next warp. So whatever one warp wrote is there
// before another one starts, or long after it read: a missing barrier gives wrong numbers instead of
// luck. Even blocks start with the first warp and lane, odd ones with the last. Shared memory starts as NaNs in
// each block. Divergent barriers and incomplete masks of shuffles end the launch with a message.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

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

// A copy to shared memory that is on its way.
struct Copy {
    void* to;
    const void* from;  // null: zeros
    unsigned group;
};

struct Lane {
    void* stack;  // where it stopped
    Index thread;
    Wait wait;
    int line;         // of the barrier
    Exchange what;    // in the warp
    unsigned mask, source;
    uint64_t value;   // to the others, then from them
    Fragments fragments;
    std::vector<Copy> copies;
    unsigned n_groups;  // of copies that ended
};

const unsigned WARP_SIZE = 32, MAX_THREADS = 1024;
const size_t STACK_BYTES = 256 << 10;

inline std::vector<Lane> lanes(MAX_THREADS);
inline std::vector<char> stacks;
inline Lane* current;
inline void* scheduler;  // where it stopped
inline Index block_index, block_size, grid_size;
inline char* dynamic_shared;
inline bool copies_at_once;
inline const std::function<void()>* kernel;
inline std::string problem;

// Stops here, with the stack pointer in `from`, and goes on where `to` stopped: swapcontext without its
// system calls. Registers that a function must keep lie on the stack meanwhile.
extern "C" void shim_switch(void** from, void* to);
#if defined(__x86_64__)
asm(".text\n.globl shim_switch\n.hidden shim_switch\nshim_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
const size_t N_SAVED = 6, RETURN_AT = 6;
#elif defined(__aarch64__)
asm(".text\n.globl shim_switch\n.hidden shim_switch\nshim_switch:\n"
    "stp x29, x30, [sp, #-160]!\nstp x19, x20, [sp, #16]\nstp x21, x22, [sp, #32]\n"
    "stp x23, x24, [sp, #48]\nstp x25, x26, [sp, #64]\nstp x27, x28, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp d14, d15, [sp, #144]\nldp d12, d13, [sp, #128]\nldp d10, d11, [sp, #112]\n"
    "ldp d8, d9, [sp, #96]\nldp x27, x28, [sp, #80]\nldp x25, x26, [sp, #64]\n"
    "ldp x23, x24, [sp, #48]\nldp x21, x22, [sp, #32]\nldp x19, x20, [sp, #16]\n"
    "ldp x29, x30, [sp], #160\nret\n");
const size_t N_SAVED = 20, RETURN_AT = 1;
#else
#error "the stand-in switches stacks on x86-64 and aarch64 only"
#endif

inline void wait(Wait what) {
    current->wait = what;
    shim_switch(&current->stack, scheduler);
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
inline bool run_warp(Lane* warp, unsigned n_lanes, bool is_reversed) {
    while (true) {
        unsigned n_waiting = 0;
        for (unsigned i = 0; i < n_lanes; i++) {
            Lane& lane = warp[is_reversed ? n_lanes - 1 - i : i];
            if (lane.wait == Wait::NOTHING) {
                current = &lane;
                shim_switch(&scheduler, lane.stack);
            }
            n_waiting += lane.wait == Wait::WARP;
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
    abort();  // nobody comes back here
}

inline void start(unsigned n_threads) {
    stacks.resize(STACK_BYTES * MAX_THREADS);
#ifdef __SANITIZE_ADDRESS__
    // A launch that could not go on has left frames behind.
    __asan_unpoison_memory_region(stacks.data(), stacks.size());
#endif
    for (unsigned t = 0; t < n_threads; t++) {
        Lane& lane = lanes[t];
        // As if it had stopped right before `lane_main`, on a stack aligned as calls leave it.
        uintptr_t top = reinterpret_cast<uintptr_t>(stacks.data() + STACK_BYTES * (t + 1)) / 64 * 64 - 64;
        void** frame = reinterpret_cast<void**>(top) - N_SAVED;
        memset(frame, 0, sizeof(void*) * N_SAVED + 64);
        frame[RETURN_AT] = reinterpret_cast<void*>(lane_main);
        lane.stack = frame;
        lane.thread = {t % block_size.x, t / block_size.x % block_size.y, t / block_size.x / block_size.y};
        lane.wait = Wait::NOTHING;
        lane.copies.clear();
        lane.n_groups = 0;
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
            if (!run_warp(&lanes[first], n_lanes, is_reversed)) return false;
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
                copies_at_once = n % 2 == 1;
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
template <class T> T atomicAdd(T* at, T x) {
    T old = *at;
    *at += x;
    return old;
}
template <class T> T atomicMax(T* at, T x) {
    T old = *at;
    *at = old < x ? x : old;
    return old;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
// Compiled without contraction: never fused.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline void sincospif(float x, float* sine, float* cosine) {
    *sine = static_cast<float>(std::sin(M_PI * static_cast<double>(x)));
    *cosine = static_cast<float>(std::cos(M_PI * static_cast<double>(x)));
}
inline float infinity() { return INFINITY; }
inline unsigned pack_halves(float low, float high) {
    return shim::float_to_half(high) << 16 | shim::float_to_half(low);
}
inline float lower_half(unsigned packed) { return shim::half_to_float(packed & 0xffffu); }
inline float upper_half(unsigned packed) { return shim::half_to_float(packed >> 16); }
inline void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    shim::current->fragments = {d, a, b};
    shim::exchange(shim::Exchange::MMA, 0xffffffffu, 0, 0);
}
// In even blocks nothing is there before it is waited for, in odd ones all of it at once: too few barriers
// before the copy show as well as too few behind it.
inline void copy_async(void* shared, const void* from, bool inside) {
    if (shim::copies_at_once) {
        if (inside) memcpy(shared, from, 16);
        if (!inside) memset(shared, 0, 16);
        return;
    }
    shim::current->copies.push_back({shared, inside ? from : nullptr, shim::current->n_groups});
}
inline void end_copies() { shim::current->n_groups++; }
template <unsigned N> void wait_for_copies() {
    std::vector<shim::Copy>& copies = shim::current->copies;
    size_t n_done = 0;
    for (; n_done < copies.size() && copies[n_done].group + N < shim::current->n_groups; n_done++) {
        const shim::Copy& copy = copies[n_done];
        if (copy.from) memcpy(copy.to, copy.from, 16);
        if (!copy.from) memset(copy.to, 0, 16);
    }
    copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(n_done));
}
