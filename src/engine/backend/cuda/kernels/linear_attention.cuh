// Linear attention (ops::linear_attention), all heads at once: φ(K)ᵀ[V, 1] in one pass over the rows,
// then folded into the projection behind it, so that the outputs are one product (dense_queries_add).
// Sums have a fixed order: the same result at each run. Blocks of y = s are scene s's.
#pragma once
#include "common.cuh"

namespace linear {
const unsigned BLOCK = 256;

// Numbers at to at + 3 of `len` numbers of rows' [k | v], from row `start` of qkv on.
__device__ inline void copy(const float* qkv, unsigned at, unsigned len, unsigned start, unsigned d,
                            float* rows) {
    if (d % 2 == 0) {
        // A row are a multiple of four numbers.
        unsigned row = at / (2 * d), column = at % (2 * d);
        const float* from = qkv + 3ull * d * (start + row) + d + column;
        if (reinterpret_cast<uint64_t>(from) % sizeof(Quad) == 0) {
            *reinterpret_cast<Quad*>(rows + at) = *reinterpret_cast<const Quad*>(from);
            return;
        }
    }
    for (unsigned i = at; i < at + 4 && i < len; i++) {
        rows[i] = qkv[3ull * d * (start + i / (2 * d)) + d + i % (2 * d)];
    }
}

// Four numbers of a row in shared memory, which lie `at_once`, or the last of `count` where they are fewer.
__device__ inline Quad numbers(const float* from, unsigned count, bool at_once) {
    if (at_once) return *reinterpret_cast<const Quad*>(from);
    Quad x;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) x.at[i] = from[i < count ? i : count - 1];
    return x;
}
}  // namespace linear

// Partial state of the block's rows of qkv [scenes, n, 3 d]: S of each head [dh, dh], then z [d]. A thread
// sums 4 x 4 numbers of S over the rows; where these are fewer than threads, several threads share the
// rows of each.
// Dynamic shared memory: 2 · d · rows_at_once numbers, 16 · BLOCK at least.
KERNEL __launch_bounds__(256)
    linear_state(const float* qkv, unsigned n, unsigned rows_per_block, unsigned rows_at_once, unsigned d,
                 unsigned head_width, float* partials) {
    DYNAMIC_SHARED(float, rows);
    unsigned first = blockIdx.x * rows_per_block;
    qkv += 3ull * d * n * blockIdx.y;
    unsigned end = n - first < rows_per_block ? n : first + rows_per_block;
    unsigned squares = d * head_width;
    float* partial = partials + static_cast<uint64_t>(squares + d) * (gridDim.x * blockIdx.y + blockIdx.x);
    // Tiles of 4 x 4 of a head, and of all.
    unsigned side = ceil_div(head_width, 4), n_tiles = d / head_width * side * side;
    unsigned n_groups = n_tiles < linear::BLOCK ? linear::BLOCK / n_tiles : 1;
    for (unsigned first_tile = 0; first_tile < n_tiles; first_tile += linear::BLOCK) {
        unsigned group = n_groups > 1 ? threadIdx.x / n_tiles : 0;
        unsigned tile = first_tile + threadIdx.x - group * n_tiles;
        bool has_tile = tile < n_tiles && group < n_groups;
        unsigned head = tile / (side * side), feature = tile / side % side * 4, value = tile % side * 4;
        unsigned key_at = head * head_width + feature, value_at = d + head * head_width + value;
        bool at_once = d % 2 == 0 && head_width % 4 == 0;
        float sums[4][4] = {}, z = 0.0f;
        for (unsigned start = first; start < end; start += rows_at_once) {
            unsigned count = end - start < rows_at_once ? end - start : rows_at_once;
            __syncthreads();
            // Of each row [k | v].
            for (unsigned at = 4 * threadIdx.x; at < count * 2 * d; at += 4 * linear::BLOCK) {
                linear::copy(qkv, at, count * 2 * d, start, d, rows);
            }
            __syncthreads();
            if (first_tile == 0 && threadIdx.x < d) {
                for (unsigned row = 0; row < count; row++) z += rows[row * 2 * d + threadIdx.x];
            }
            for (unsigned row = group; has_tile && row < count; row += n_groups) {
                Quad k = linear::numbers(rows + row * 2 * d + key_at, head_width - feature, at_once);
                Quad v = linear::numbers(rows + row * 2 * d + value_at, head_width - value, at_once);
#pragma unroll
                for (unsigned i = 0; i < 4; i++) {
#pragma unroll
                    for (unsigned j = 0; j < 4; j++) sums[i][j] += k.at[i] * v.at[j];
                }
            }
        }
        if (n_groups > 1) {
            __syncthreads();
#pragma unroll
            for (unsigned i = 0; i < 16; i++) rows[linear::BLOCK * i + threadIdx.x] = sums[i / 4][i % 4];
            __syncthreads();
            for (unsigned g = 1; group == 0 && g < n_groups; g++) {
#pragma unroll
                for (unsigned i = 0; i < 16; i++) {
                    sums[i / 4][i % 4] += rows[linear::BLOCK * i + g * n_tiles + threadIdx.x];
                }
            }
            has_tile = has_tile && group == 0;
        }
#pragma unroll
        for (unsigned i = 0; i < 16; i++) {
            bool is_inside = has_tile && feature + i / 4 < head_width && value + i % 4 < head_width;
            if (is_inside) partial[(key_at + i / 4) * head_width + value + i % 4] = sums[i / 4][i % 4];
        }
        if (first_tile == 0 && threadIdx.x < d) partial[squares + threadIdx.x] = z;
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
