// Linear attention (ops::linear_attention), all heads at once: φ(K)ᵀ[V, 1] in one pass over the rows,
// then folded into the projection behind it, so that the outputs are one product (dense_queries_add).
// Sums have a fixed order: the same result at each run. Blocks of y = s are scene s's.
#pragma once
#include "common.cuh"

namespace linear {
const unsigned BLOCK = 256;
}

// Partial state of the block's rows of qkv [scenes, n, 3 d]: S of each head [dh, dh], then z [d].
// Dynamic shared memory: 2 · d · rows_per_block numbers.
KERNEL __launch_bounds__(256)
    linear_state(const float* qkv, unsigned n, unsigned rows_per_block, unsigned d, unsigned head_width,
                 float* partials) {
    DYNAMIC_SHARED(float, rows);
    unsigned first = blockIdx.x * rows_per_block;
    qkv += 3ull * d * n * blockIdx.y;
    unsigned count = n - first < rows_per_block ? n - first : rows_per_block;
    // Of each row [k | v].
    for (unsigned at = threadIdx.x; at < count * 2 * d; at += linear::BLOCK) {
        rows[at] = qkv[3ull * d * (first + at / (2 * d)) + d + at % (2 * d)];
    }
    __syncthreads();
    unsigned squares = d * head_width;
    float* partial = partials + static_cast<uint64_t>(squares + d) * (gridDim.x * blockIdx.y + blockIdx.x);
    for (unsigned at = threadIdx.x; at < squares + d; at += linear::BLOCK) {
        bool is_square = at < squares;
        unsigned feature = is_square ? at / head_width : at - squares;
        unsigned value = d + feature / head_width * head_width + at % head_width;
        float sum = 0.0f;
        for (unsigned row = 0; row < count; row++) {
            const float* x = rows + row * 2 * d;
            sum += is_square ? x[feature] * x[value] : x[feature];
        }
        partial[at] = sum;
    }
}

// A block a feature f: its row of S summed over the partials, times the weights of its head's values;
// folded [scenes, d, n_out], z [scenes, d]. `weight` [d, n_out]; `n_partials` of each scene.
KERNEL __launch_bounds__(256)
    linear_fold(const float* partials, unsigned n_partials, unsigned d, unsigned head_width,
                const float* weight, unsigned n_out, float* folded, float* z) {
    SHARED float sums[linear::BLOCK];
    SHARED float row[linear::BLOCK];
    unsigned feature = blockIdx.x, squares = d * head_width, len = squares + d;
    partials += static_cast<uint64_t>(len) * n_partials * blockIdx.y;
    folded += static_cast<uint64_t>(d) * n_out * blockIdx.y;
    z += d * blockIdx.y;
    // Groups of head_width threads share the partials among themselves.
    unsigned n_groups = linear::BLOCK / head_width, group = threadIdx.x / head_width;
    unsigned value = threadIdx.x % head_width;
    float sum = 0.0f;
    if (group < n_groups) {
        for (unsigned p = group; p < n_partials; p += n_groups) {
            sum += partials[static_cast<uint64_t>(len) * p + feature * head_width + value];
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < head_width) {
        for (unsigned g = 1; g < n_groups; g++) sum += sums[g * head_width + value];
        row[value] = sum;
    }
    __syncthreads();
    const float* from = weight + static_cast<uint64_t>(n_out) * (feature / head_width * head_width);
    for (unsigned column = threadIdx.x; column < n_out; column += linear::BLOCK) {
        float y = 0.0f;
        for (unsigned v = 0; v < head_width; v++) y += row[v] * from[v * n_out + column];
        folded[static_cast<uint64_t>(n_out) * feature + column] = y;
    }
    float total = 0.0f;
    for (unsigned p = threadIdx.x; p < n_partials; p += linear::BLOCK) {
        total += partials[static_cast<uint64_t>(len) * p + squares + feature];
    }
    total = warp_sum(total);
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < linear::BLOCK / WARP; warp++) total += sums[warp];
        z[feature] = total;
    }
}
