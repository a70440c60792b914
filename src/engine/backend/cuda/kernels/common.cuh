// What all kernels share. Matrices are row-major f32; weights are stored [in, out].
//
// The same files are compiled for the GPU (scripts/kernels) and, by the stand-in driver of the tests,
// for the CPU: so no CUDA headers, and machine instructions only through the few functions below.
#pragma once

#ifdef FORECLOUD_STANDIN
#include "shim.h"
#else
typedef unsigned long long uint64_t;
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]

// Largest magnitude: NVRTC has no <math.h> macros.
__device__ inline float infinity() { return __int_as_float(0x7f800000); }

// Two numbers rounded to half precision, `low` in the lower bits.
__device__ inline unsigned pack_halves(float low, float high) {
    unsigned packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// The halves of `packed`.
__device__ inline float lower_half(unsigned packed) {
    float x;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }" : "=f"(x) : "r"(packed));
    return x;
}
__device__ inline float upper_half(unsigned packed) {
    float x;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }" : "=f"(x) : "r"(packed));
    return x;
}

// d += a·b of a warp: 16 x 8 f32, 16 x 16 and 16 x 8 halves, in the fragments that PTX lays down.
__device__ inline void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Begins to copy 16 bytes to shared memory, or zeros if they are not `inside`; those begun since the last
// end are a group. Waits until all but the last N groups of this thread are there.
__device__ inline void copy_async(void* shared, const void* from, bool inside) {
    asm volatile(
        "{ .reg .u64 at; .reg .u32 to; cvta.to.shared.u64 at, %0; cvt.u32.u64 to, at; "
        "cp.async.cg.shared.global [to], [%1], 16, %2; }" ::"l"(shared), "l"(from), "r"(inside ? 16 : 0)
        : "memory");
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif

const unsigned WARP = 32;
const unsigned FULL_WARP = 0xffffffffu;

// Bits of the flag word that a pass raises; src/engine/backend/cuda/rollout.rs reads them.
const unsigned FLAG_POSITION = 1u;      // a position is not finite
const unsigned FLAG_DISPLACEMENT = 2u;  // a displacement is not finite

// Numbers that are read and written at once.
struct alignas(16) Quad {
    float at[4];
};
struct alignas(8) Pair {
    float at[2];
};

__device__ inline unsigned ceil_div(unsigned a, unsigned b) { return (a + b - 1) / b; }

__device__ inline float warp_sum(float x) {
    for (unsigned offset = WARP / 2; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(FULL_WARP, x, offset);
    }
    return x;
}

// A number's bits in an order that integers have: greater for greater ones, 0 for none of them.
__device__ inline unsigned ordered(float x) {
    unsigned bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float unordered(unsigned key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

template <class T> __device__ inline T warp_max(T x) {
    for (unsigned offset = WARP / 2; offset > 0; offset /= 2) {
        T other = __shfl_xor_sync(FULL_WARP, x, offset);
        x = x < other ? other : x;
    }
    return x;
}

// Squared distance in the fixed order of operations of graph::knn::squared_distance, never fused: ties
// are the same as on the CPU.
__device__ inline float squared_distance(const float* a, const float* b) {
    float x = __fsub_rn(a[0], b[0]), y = __fsub_rn(a[1], b[1]), z = __fsub_rn(a[2], b[2]);
    return __fadd_rn(__fadd_rn(__fmul_rn(x, x), __fmul_rn(y, y)), __fmul_rn(z, z));
}

__device__ inline bool is_finite(float x) { return fabsf(x) < infinity(); }
