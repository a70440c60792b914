// Dense layers y = x·W + b (ops::linear) with what stands before and behind them: LayerNorm or the
// denominators of linear attention; ReLU or the residual stream. f32 throughout.
#pragma once
#include "common.cuh"

// Of each scene x [rows, n_in], rows `x_stride` apart, the next scene's `x_rows` rows on; W [n_in, n_out];
// y [rows, n_out].
struct Dense {
    const float* x;
    const float* weight;
    const float* bias;
    float* y;
    const float* norm_weight;  // of a LayerNorm before it: [n_in]
    const float* norm_bias;
    const float* z;  // of linear attention: sums of the keys, [n_in]
    unsigned rows, n_in, n_out, x_stride;
    unsigned n_relu;   // ReLU on so many first columns of y
    unsigned n_heads;  // of linear attention
    unsigned x_rows;
    unsigned own_weights;  // whether each scene has its W, and its z
};

namespace dense {
const unsigned BLOCK = 256, TILE = 64, DEPTH = 16, PADDED = TILE + 4, MAX_HEADS = 16;
const float NORM_EPSILON = 1e-5f, ATTENTION_EPSILON = 1e-6f;

enum class Before { NOTHING, NORM, QUERIES };

struct alignas(16) Quad {
    float at[4];
};

struct alignas(16) Shared {
    float x[DEPTH][PADDED];  // transposed
    float w[DEPTH][PADDED];
    // Of each row: mean and inverse deviation, or the heads' inverse denominators.
    float factors[TILE][MAX_HEADS];
};

// Mean and inverse deviation of a row, by a warp.
__device__ inline void moments(const float* x, unsigned n, float* factors) {
    unsigned lane = threadIdx.x % WARP;
    float sum = 0.0f, squares = 0.0f;
    for (unsigned c = lane; c < n; c += WARP) sum += x[c];
    float mean = warp_sum(sum) / static_cast<float>(n);
    for (unsigned c = lane; c < n; c += WARP) squares += (x[c] - mean) * (x[c] - mean);
    float variance = warp_sum(squares) / static_cast<float>(n);
    if (lane == 0) {
        factors[0] = mean;
        factors[1] = 1.0f / sqrtf(variance + NORM_EPSILON);
    }
}

// Inverse denominators 1 / (q·z + ε) of a row's heads, by a warp.
__device__ inline void denominators(const float* x, const Dense& layer, float* factors) {
    unsigned lane = threadIdx.x % WARP, width = layer.n_in / layer.n_heads;
    for (unsigned head = 0; head < layer.n_heads; head++) {
        float sum = 0.0f;
        for (unsigned c = head * width + lane; c < (head + 1) * width; c += WARP) sum += x[c] * layer.z[c];
        sum = warp_sum(sum);
        if (lane == 0) factors[head] = 1.0f / (sum + ATTENTION_EPSILON);
    }
}

// Columns' tile of a block; behind those of the first scene come the next one's.
__device__ inline unsigned column_tile(const Dense& layer) { return blockIdx.y % ceil_div(layer.n_out, TILE); }

// The layer of the block's scene.
__device__ inline Dense of_scene(Dense layer) {
    uint64_t scene = blockIdx.y / ceil_div(layer.n_out, TILE);
    layer.x += scene * layer.x_stride * layer.x_rows;
    layer.y += scene * layer.n_out * layer.rows;
    if (layer.own_weights != 0) {
        layer.weight += scene * layer.n_in * layer.n_out;
        layer.z += scene * layer.n_in;
    }
    return layer;
}

// What the rows of a tile have in common.
template <Before BEFORE>
__device__ void prepare(const Dense& layer, unsigned first_row, float (*factors)[MAX_HEADS]) {
    for (unsigned row = threadIdx.x / WARP; row < TILE; row += blockDim.x / WARP) {
        if (first_row + row >= layer.rows) break;
        const float* x = layer.x + static_cast<uint64_t>(layer.x_stride) * (first_row + row);
        if (BEFORE == Before::NORM) moments(x, layer.n_in, factors[row]);
        if (BEFORE == Before::QUERIES) denominators(x, layer, factors[row]);
    }
}

// Column `c` of the layer's input, as it goes into the product.
template <Before BEFORE>
__device__ inline float input(const Dense& layer, float x, unsigned c, const float* factors) {
    if (BEFORE == Before::NORM) {
        return (x - factors[0]) * factors[1] * layer.norm_weight[c] + layer.norm_bias[c];
    }
    if (BEFORE == Before::QUERIES) return x * factors[c / (layer.n_in / layer.n_heads)];
    return x;
}

// DEPTH columns of the block's rows and DEPTH rows of its columns; zeros beyond the matrices.
template <Before BEFORE>
__device__ void load(const Dense& layer, unsigned first_row, unsigned first_column, unsigned depth,
                     Shared& shared) {
    for (unsigned at = threadIdx.x; at < TILE * DEPTH; at += BLOCK) {
        unsigned row = at / DEPTH, c = at % DEPTH;
        bool is_inside = first_row + row < layer.rows && depth + c < layer.n_in;
        float x = 0.0f;
        if (is_inside) {
            x = layer.x[static_cast<uint64_t>(layer.x_stride) * (first_row + row) + depth + c];
            x = input<BEFORE>(layer, x, depth + c, shared.factors[row]);
        }
        shared.x[c][row] = x;
    }
    for (unsigned at = threadIdx.x; at < TILE * DEPTH; at += BLOCK) {
        unsigned r = at / TILE, column = at % TILE;
        bool is_inside = depth + r < layer.n_in && first_column + column < layer.n_out;
        uint64_t from = static_cast<uint64_t>(layer.n_out) * (depth + r) + first_column + column;
        shared.w[r][column] = is_inside ? layer.weight[from] : 0.0f;
    }
}

// One number of y, where it lies within.
template <bool ADD>
__device__ inline void store(const Dense& layer, unsigned row, unsigned column, float product) {
    if (row >= layer.rows || column >= layer.n_out) return;
    float* y = layer.y + static_cast<uint64_t>(layer.n_out) * row + column;
    float value = product + layer.bias[column];
    if (column < layer.n_relu) value = fmaxf(value, 0.0f);
    *y = ADD ? *y + value : value;
}

// A block TILE x TILE of y, a thread 4 x 4 of it.
template <Before BEFORE, bool ADD> __device__ void layer(const Dense& batch, Shared& shared) {
    const Dense layer = of_scene(batch);
    unsigned first_row = blockIdx.x * TILE, first_column = column_tile(batch) * TILE;
    unsigned row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    if (BEFORE != Before::NOTHING) {
        prepare<BEFORE>(layer, first_row, shared.factors);
        __syncthreads();
    }
    float sums[4][4] = {};
    for (unsigned depth = 0; depth < layer.n_in; depth += DEPTH) {
        load<BEFORE>(layer, first_row, first_column, depth, shared);
        __syncthreads();
#pragma unroll
        for (unsigned d = 0; d < DEPTH; d++) {
            Quad x = *reinterpret_cast<const Quad*>(&shared.x[d][row]);
            Quad w = *reinterpret_cast<const Quad*>(&shared.w[d][column]);
#pragma unroll
            for (unsigned r = 0; r < 4; r++) {
#pragma unroll
                for (unsigned c = 0; c < 4; c++) sums[r][c] += x.at[r] * w.at[c];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (unsigned r = 0; r < 4; r++) {
#pragma unroll
        for (unsigned c = 0; c < 4; c++) {
            store<ADD>(layer, first_row + row + r, first_column + column + c, sums[r][c]);
        }
    }
}
}  // namespace dense

// y = x·W + b.
KERNEL __launch_bounds__(256) dense_plain(Dense layer) {
    SHARED dense::Shared shared;
    dense::layer<dense::Before::NOTHING, false>(layer, shared);
}
// y += x·W + b.
KERNEL __launch_bounds__(256) dense_add(Dense layer) {
    SHARED dense::Shared shared;
    dense::layer<dense::Before::NOTHING, true>(layer, shared);
}
// y = LayerNorm(x)·W + b.
KERNEL __launch_bounds__(256) dense_norm(Dense layer) {
    SHARED dense::Shared shared;
    dense::layer<dense::Before::NORM, false>(layer, shared);
}
// y += (x over its heads' denominators)·W + b.
KERNEL __launch_bounds__(256) dense_queries_add(Dense layer) {
    SHARED dense::Shared shared;
    dense::layer<dense::Before::QUERIES, true>(layer, shared);
}
