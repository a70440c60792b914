// Exact k nearest neighbours, all against all: what is quickest for a few thousand points, and the
// oracle of any other search. Ties go to the lower index, as in graph::knn. Each scene of a batch is
// searched for itself.
#pragma once
#include "common.cuh"

namespace knn {
const unsigned BLOCK = 128;

// The K nearest so far, nearest first.
template <unsigned K> struct Nearest {
    float distances[K];
    unsigned indices[K];

    __device__ Nearest() {
#pragma unroll
        for (unsigned place = 0; place < K; place++) {
            distances[place] = infinity();
            indices[place] = 0xffffffffu;
        }
    }

    __device__ static bool is_before(float distance, unsigned index, float other, unsigned other_index) {
        return distance < other || (distance == other && index < other_index);
    }

    __device__ void offer(float distance, unsigned index) {
        if (!is_before(distance, index, distances[K - 1], indices[K - 1])) return;
        distances[K - 1] = distance;
        indices[K - 1] = index;
        // One pass of insertion, without indices known only at run time: all stays in registers.
#pragma unroll
        for (unsigned place = K - 1; place > 0; place--) {
            if (is_before(distances[place], indices[place], distances[place - 1], indices[place - 1])) {
                float distance = distances[place];
                distances[place] = distances[place - 1];
                distances[place - 1] = distance;
                unsigned index = indices[place];
                indices[place] = indices[place - 1];
                indices[place - 1] = index;
            }
        }
    }
};

// A thread a query; candidates pass through `tile`, [3 * BLOCK]. Blocks of y = s are scene s's.
template <unsigned K>
__device__ void search(const float* positions, unsigned n, unsigned k, unsigned* neighbors, float* tile) {
    unsigned first_of_scene = n * blockIdx.y;
    positions += 3ull * first_of_scene;
    neighbors += static_cast<uint64_t>(k) * first_of_scene;
    unsigned query = blockIdx.x * BLOCK + threadIdx.x;
    float p[3] = {0.0f, 0.0f, 0.0f};
    if (query < n) {
        for (unsigned axis = 0; axis < 3; axis++) p[axis] = positions[3ull * query + axis];
    }
    Nearest<K> nearest;
    for (unsigned first = 0; first < n; first += BLOCK) {
        unsigned count = n - first < BLOCK ? n - first : BLOCK;
        for (unsigned c = threadIdx.x; c < 3 * count; c += BLOCK) tile[c] = positions[3ull * first + c];
        __syncthreads();
        for (unsigned c = 0; c < count; c++) {
            if (first + c != query) nearest.offer(squared_distance(p, tile + 3 * c), first + c);
        }
        __syncthreads();
    }
    if (query >= n) return;
#pragma unroll
    for (unsigned place = 0; place < K; place++) {
        // Positions that are not numbers are near nothing: the step is flagged, but must stay within
        // its memory until the host looks.
        unsigned index = nearest.indices[place];
        if (place < k) {
            neighbors[static_cast<uint64_t>(k) * query + place] = first_of_scene + (index < n ? index : 0);
        }
    }
}
}  // namespace knn

// neighbors [scenes, n, k], numbered over all scenes, of positions [scenes, n, 3]; n > k, and k at most
// what the name says.
KERNEL __launch_bounds__(128) knn_4(const float* positions, unsigned n, unsigned k, unsigned* neighbors) {
    SHARED float tile[3 * knn::BLOCK];
    knn::search<4>(positions, n, k, neighbors, tile);
}
KERNEL __launch_bounds__(128) knn_8(const float* positions, unsigned n, unsigned k, unsigned* neighbors) {
    SHARED float tile[3 * knn::BLOCK];
    knn::search<8>(positions, n, k, neighbors, tile);
}
KERNEL __launch_bounds__(128) knn_32(const float* positions, unsigned n, unsigned k, unsigned* neighbors) {
    SHARED float tile[3 * knn::BLOCK];
    knn::search<32>(positions, n, k, neighbors, tile);
}
