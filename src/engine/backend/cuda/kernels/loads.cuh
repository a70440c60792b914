// Walks enumerated and merged, c(i, j, t) = (W^t)_ij with weights 1/k (graph::loads): the same entries
// in the same order, and the same sums, as on the CPU.
#pragma once
#include "common.cuh"

// Merged loads in device memory: row i has lens[i] entries from place i·cap on.
struct Loads {
    unsigned* lens;
    unsigned* nodes;  // [n, cap]
    float* loads;     // [n, cap, n_hops + 1]
    unsigned n, cap, n_hops;
};

// Place of `node` among the first `count` of `nodes`, or `count`; asked by a whole warp.
__device__ inline unsigned find(const unsigned* nodes, unsigned count, unsigned node) {
    for (unsigned first = 0; first < count; first += WARP) {
        unsigned at = first + threadIdx.x % WARP;
        unsigned found = __ballot_sync(FULL_WARP, at < count && nodes[at] == node);
        if (found != 0) return first + __ffs(found) - 1;
    }
    return count;
}

// A warp a row. Dynamic shared memory: (n_hops + 2) · cap numbers a warp.
KERNEL enumerate_walks(const unsigned* neighbors, unsigned k, Loads out) {
    DYNAMIC_SHARED(unsigned, memory);
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned row = blockIdx.x * (blockDim.x / WARP) + warp, stride = out.n_hops + 1;
    if (row >= out.n) return;
    unsigned* nodes = memory + warp * (stride + 1) * out.cap;
    float* loads = reinterpret_cast<float*>(nodes + out.cap);
    for (unsigned at = lane; at < out.cap * stride; at += WARP) loads[at] = 0.0f;
    __syncwarp();
    if (lane == 0) {
        nodes[0] = row;
        loads[0] = 1.0f;
    }
    __syncwarp();
    float weight = 1.0f / static_cast<float>(k);
    unsigned count = 1;
    for (unsigned hop = 0; hop < out.n_hops; hop++) {
        // Each hop's loads times W give the next one's; what this hop adds takes no part in it.
        for (unsigned place = 0, places = count; place < places; place++) {
            float load = loads[place * stride + hop];
            if (load == 0.0f) continue;  // not reached in so many hops
            unsigned edge = lane < k ? neighbors[static_cast<uint64_t>(k) * nodes[place] + lane] : 0;
            for (unsigned e = 0; e < k; e++) {
                unsigned node = __shfl_sync(FULL_WARP, edge, e), found = find(nodes, count, node);
                // All have looked before one of them writes.
                __syncwarp();
                if (lane == 0) {
                    nodes[found] = node;
                    float* to = loads + found * stride + hop + 1;
                    *to = __fadd_rn(*to, __fmul_rn(load, weight));
                }
                count = found == count ? count + 1 : count;
                __syncwarp();
            }
        }
    }
    uint64_t start = static_cast<uint64_t>(row) * out.cap;
    if (lane == 0) out.lens[row] = count;
    for (unsigned at = lane; at < count; at += WARP) out.nodes[start + at] = nodes[at];
    for (unsigned at = lane; at < count * stride; at += WARP) out.loads[start * stride + at] = loads[at];
}
