// Dense layers y = x·W + b (ops::linear) with what stands before and behind them: LayerNorm or the
// denominators of linear attention; ReLU or the residual stream. f32 throughout.
#pragma once
#include "common.cuh"

// Of each scene x [rows, n_in], rows `x_stride` apart, the next scene's `x_rows` rows on; W [n_in, n_out];
// y [rows, n_out].
struct Dense {
    const float* x;
    const float* weight;
    // W, x and y as dense_half.cuh has them.
    const unsigned* halves;
    unsigned *x_halves, *y_halves;
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
// A block takes ROWS x COLUMNS of y, a thread 8 x 4 of it, DEPTH columns of x after the others.
const unsigned BLOCK = 256, ROWS = 128, COLUMNS = 64, DEPTH = 16, PADDED = ROWS + 4, MAX_HEADS = 16;
const unsigned MAX_NORMED = 256;  // numbers of a row that a LayerNorm takes
const float NORM_EPSILON = 1e-5f, ATTENTION_EPSILON = 1e-6f;

enum class Before { NOTHING, NORM, QUERIES };

struct alignas(16) Shared {
    float x[DEPTH][PADDED];  // transposed
    float w[DEPTH][COLUMNS];
    // Of each row: mean and inverse deviation, or the heads' inverse denominators.
    float factors[ROWS][MAX_HEADS];
};

// Where the block's part of y begins. Blocks of the same rows follow one another, so that these are read
// from the cache.
__device__ inline unsigned first_row(const Dense& layer) {
    return blockIdx.x / ceil_div(layer.n_out, COLUMNS) * ROWS;
}
__device__ inline unsigned first_column(const Dense& layer) {
    return blockIdx.x % ceil_div(layer.n_out, COLUMNS) * COLUMNS;
}

// The layer of the block's scene.
__device__ inline Dense of_scene(Dense layer) {
    uint64_t scene = blockIdx.y;
    layer.x += scene * layer.x_stride * layer.x_rows;
    layer.y += scene * layer.n_out * layer.rows;
    if (layer.own_weights != 0) {
        layer.weight += scene * layer.n_in * layer.n_out;
        layer.z += scene * layer.n_in;
    }
    return layer;
}

// Whether all that is read of a layer's matrices lies in whole quads.
__device__ inline bool is_aligned(const Dense& layer) {
    uint64_t all = reinterpret_cast<uint64_t>(layer.x) | reinterpret_cast<uint64_t>(layer.weight) |
                   reinterpret_cast<uint64_t>(layer.norm_weight) |
                   reinterpret_cast<uint64_t>(layer.norm_bias) | reinterpret_cast<uint64_t>(layer.z);
    unsigned sizes = layer.n_in | layer.n_out | layer.x_stride;
    bool has_whole_heads = layer.n_heads == 0 || layer.n_in / layer.n_heads % 4 == 0;
    return all % sizeof(Quad) == 0 && sizes % 4 == 0 && has_whole_heads;
}

// Columns c to c + 3 of a row of `len`; zeros beyond it.
template <bool ALIGNED> __device__ inline Quad quad(const float* row, unsigned c, unsigned len) {
    Quad x = {};
    if (ALIGNED) {
        if (c < len) x = *reinterpret_cast<const Quad*>(row + c);
    } else {
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            if (c + i < len) x.at[i] = row[c + i];
        }
    }
    return x;
}

__device__ inline Quad quad(const float* row, unsigned c, unsigned len, bool aligned) {
    return aligned ? quad<true>(row, c, len) : quad<false>(row, c, len);
}

// The same of row `row` of x; zeros beyond the matrix.
template <bool ALIGNED>
__device__ inline Quad inputs(const Dense& layer, unsigned row, unsigned c) {
    if (row >= layer.rows) return Quad{};
    const float* x = layer.x + static_cast<uint64_t>(layer.x_stride) * row;
    return quad<ALIGNED>(x, c, layer.n_in);
}

// The sum over the four threads of a row.
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(FULL_WARP, x, 1);
    return x + __shfl_xor_sync(FULL_WARP, x, 2);
}

// Sum over a row's numbers, and over the squares of what they are off `mean`, by four threads.
template <bool ALIGNED> struct Row;
template <> struct Row<true> {
    // All of it in registers, so that it is read once.
    Quad x[MAX_NORMED / 16];

    __device__ inline Row(const Dense& layer, unsigned row) {
#pragma unroll
        for (unsigned i = 0; i < MAX_NORMED / 16; i++) {
            x[i] = inputs<true>(layer, row, 16 * i + 4 * (threadIdx.x % 4));
        }
    }
    __device__ inline float sum(const Dense& layer) const {
        float sum = 0.0f;
#pragma unroll
        for (unsigned i = 0; i < MAX_NORMED / 16; i++) {
            if (16 * i < layer.n_in) sum += (x[i].at[0] + x[i].at[1]) + (x[i].at[2] + x[i].at[3]);
        }
        return sum;
    }
    __device__ inline float squares(const Dense& layer, float mean) const {
        float sum = 0.0f;
#pragma unroll
        for (unsigned i = 0; i < MAX_NORMED / 16; i++) {
            if (16 * i + 4 * (threadIdx.x % 4) >= layer.n_in) continue;
#pragma unroll
            for (unsigned j = 0; j < 4; j++) sum += (x[i].at[j] - mean) * (x[i].at[j] - mean);
        }
        return sum;
    }
};
template <> struct Row<false> {
    const float* x;

    __device__ inline Row(const Dense& layer, unsigned row)
        : x(layer.x + static_cast<uint64_t>(layer.x_stride) * (row < layer.rows ? row : 0)) {}
    __device__ inline float sum(const Dense& layer) const {
        float sum = 0.0f;
        for (unsigned c = threadIdx.x % 4; c < layer.n_in; c += 4) sum += x[c];
        return sum;
    }
    __device__ inline float squares(const Dense& layer, float mean) const {
        float sum = 0.0f;
        for (unsigned c = threadIdx.x % 4; c < layer.n_in; c += 4) sum += (x[c] - mean) * (x[c] - mean);
        return sum;
    }
};

// Mean and inverse deviation of a row, to all four threads.
template <bool ALIGNED> __device__ inline void moments_of(const Dense& layer, unsigned at, float* factors) {
    float n = static_cast<float>(layer.n_in);
    const Row<ALIGNED> row(layer, at);
    factors[0] = row_sum(row.sum(layer)) / n;
    factors[1] = 1.0f / sqrtf(row_sum(row.squares(layer, factors[0])) / n + NORM_EPSILON);
}
__device__ inline void moments_of(const Dense& layer, unsigned at, bool aligned, float* factors) {
    if (aligned) {
        moments_of<true>(layer, at, factors);
    } else {
        moments_of<false>(layer, at, factors);
    }
}

// Those of the block's rows.
__device__ inline void moments(const Dense& layer, unsigned first_row, bool aligned, float (*factors)[MAX_HEADS]) {
    for (unsigned row = threadIdx.x / 4; row < ROWS; row += BLOCK / 4) {
        float of_row[2];
        moments_of(layer, first_row + row, aligned, of_row);
        if (threadIdx.x % 4 < 2) factors[row][threadIdx.x % 4] = of_row[threadIdx.x % 4 == 0 ? 0 : 1];
    }
}

// Inverse denominators 1 / (q·z + ε) of the heads of the block's rows, by four threads each.
__device__ inline void denominators(const Dense& layer, unsigned first_row, bool aligned,
                                    float (*factors)[MAX_HEADS]) {
    unsigned member = threadIdx.x % 4, width = layer.n_in / layer.n_heads;
    for (unsigned row = threadIdx.x / 4; row < ROWS; row += BLOCK / 4) {
        bool is_inside = first_row + row < layer.rows;
        const float* x = layer.x + static_cast<uint64_t>(layer.x_stride) * (first_row + row);
        for (unsigned head = 0; head < layer.n_heads; head++) {
            float sum = 0.0f;
            for (unsigned c = 4 * member; is_inside && c < width; c += 16) {
                Quad q = quad(x + head * width, c, width, aligned);
                Quad z = quad(layer.z + head * width, c, width, aligned);
#pragma unroll
                for (unsigned i = 0; i < 4; i++) sum += q.at[i] * z.at[i];
            }
            sum = row_sum(sum);
            if (member == 0) factors[row][head] = 1.0f / (sum + ATTENTION_EPSILON);
        }
    }
}

// Columns c to c + 3 as they go into the product; zeros beyond the matrix.
template <Before BEFORE>
__device__ inline Quad prepared(const Dense& layer, Quad x, unsigned c, const float* factors, bool aligned) {
    if (BEFORE == Before::NORM) {
        Quad weight = quad(layer.norm_weight, c, layer.n_in, aligned);
        Quad bias = quad(layer.norm_bias, c, layer.n_in, aligned);
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            // Weight and bias are zero there.
            x.at[i] = (x.at[i] - factors[0]) * factors[1] * weight.at[i] + bias.at[i];
        }
    }
    if (BEFORE == Before::QUERIES) {
        unsigned width = layer.n_in / layer.n_heads;
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            if (c + i < layer.n_in) x.at[i] *= factors[(c + i) / width];
        }
    }
    return x;
}

// What a thread brings of DEPTH columns of the block's rows, and of as many rows of its columns.
struct Chunk {
    Quad x[2];
    Quad w;
};

template <bool ALIGNED>
__device__ inline void fetch(const Dense& layer, unsigned first_row, unsigned first_column, unsigned depth,
                             Chunk& chunk) {
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        unsigned at = threadIdx.x + BLOCK * i;
        chunk.x[i] = inputs<ALIGNED>(layer, first_row + at / 4, depth + at % 4 * 4);
    }
    unsigned r = depth + threadIdx.x / 16, column = first_column + threadIdx.x % 16 * 4;
    const float* row = layer.weight + static_cast<uint64_t>(layer.n_out) * r;
    chunk.w = r < layer.n_in ? quad<ALIGNED>(row, column, layer.n_out) : Quad{};
}

__device__ inline void fetch(const Dense& layer, unsigned first_row, unsigned first_column, unsigned depth,
                             bool aligned, Chunk& chunk) {
    if (aligned) {
        fetch<true>(layer, first_row, first_column, depth, chunk);
    } else {
        fetch<false>(layer, first_row, first_column, depth, chunk);
    }
}

template <Before BEFORE>
__device__ void put(const Dense& layer, const Chunk& chunk, unsigned depth, bool aligned, Shared& shared) {
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        unsigned at = threadIdx.x + BLOCK * i, row = at / 4, c = at % 4 * 4;
        Quad x = prepared<BEFORE>(layer, chunk.x[i], depth + c, shared.factors[row], aligned);
#pragma unroll
        for (unsigned j = 0; j < 4; j++) shared.x[c + j][row] = x.at[j];
    }
    *reinterpret_cast<Quad*>(&shared.w[threadIdx.x / 16][threadIdx.x % 16 * 4]) = chunk.w;
}

// One number of y.
template <bool ADD> __device__ inline float output(const Dense& layer, float old, unsigned column, float product) {
    float value = product + layer.bias[column];
    if (column < layer.n_relu) value = fmaxf(value, 0.0f);
    return ADD ? old + value : value;
}

// Four numbers of a row of y, as far as they lie within.
template <bool ADD>
__device__ inline void store(const Dense& layer, unsigned row, unsigned column, const float (&products)[4]) {
    if (row >= layer.rows) return;
    float* y = layer.y + static_cast<uint64_t>(layer.n_out) * row;
    if (layer.n_out % 4 == 0 && column < layer.n_out) {
        Quad* at = reinterpret_cast<Quad*>(y + column);
        Quad value = ADD ? *at : Quad{};
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            value.at[i] = output<ADD>(layer, value.at[i], column + i, products[i]);
        }
        *at = value;
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        if (column + i >= layer.n_out) return;
        y[column + i] = output<ADD>(layer, ADD ? y[column + i] : 0.0f, column + i, products[i]);
    }
}

template <Before BEFORE, bool ADD> __device__ void layer(const Dense& batch, Shared& shared) {
    const Dense layer = of_scene(batch);
    bool aligned = is_aligned(layer);
    unsigned top = first_row(layer), left = first_column(layer);
    unsigned row = threadIdx.x / 16 * 8, column = threadIdx.x % 16 * 4;
    if (BEFORE == Before::NORM) moments(layer, top, aligned, shared.factors);
    if (BEFORE == Before::QUERIES) denominators(layer, top, aligned, shared.factors);
    float sums[8][4] = {};
    Chunk chunk;
    fetch(layer, top, left, 0, aligned, chunk);
    for (unsigned depth = 0; depth < layer.n_in; depth += DEPTH) {
        // What was there has been read, and the factors are written.
        __syncthreads();
        put<BEFORE>(layer, chunk, depth, aligned, shared);
        __syncthreads();
        // The next numbers are on their way while these are multiplied.
        if (depth + DEPTH < layer.n_in) fetch(layer, top, left, depth + DEPTH, aligned, chunk);
#pragma unroll
        for (unsigned d = 0; d < DEPTH; d++) {
            Quad upper = *reinterpret_cast<const Quad*>(&shared.x[d][row]);
            Quad lower = *reinterpret_cast<const Quad*>(&shared.x[d][row + 4]);
            Quad w = *reinterpret_cast<const Quad*>(&shared.w[d][column]);
#pragma unroll
            for (unsigned r = 0; r < 8; r++) {
                float x = r < 4 ? upper.at[r % 4] : lower.at[r % 4];
#pragma unroll
                for (unsigned c = 0; c < 4; c++) sums[r][c] += x * w.at[c];
            }
        }
    }
#pragma unroll
    for (unsigned r = 0; r < 8; r++) store<ADD>(layer, top + row + r, left + column, sums[r]);
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
