// Dense layers on tensor cores. Each number is the sum of two of half precision, a rounded one and the
// rest, which leaves 22 of f32's 24 bits; of their four products the least is left out. Sums are in f32,
// and so is what stands before and behind the product, as in dense.cuh, which they are checked against.
#pragma once
#include "dense.cuh"

namespace dense_half {
using dense::Before;
using dense::ROWS;
using dense::COLUMNS;
// A warp takes 64 x 32 of the block's ROWS x COLUMNS, in 4 x 4 tiles of the tensor cores' 16 x 8.
const unsigned BLOCK = 128, DEPTH = 16, PAIRS = DEPTH / 2, TILES = 4;
// Pairs of halves a row of shared memory: at 12 words a row, the 8 rows and 4 pairs that a warp reads
// at once lie in 32 different banks.
const unsigned PADDED = PAIRS + 4;

// Pairs that are read and written at once.
struct alignas(16) FourPairs {
    unsigned at[4];
};
struct alignas(8) TwoPairs {
    unsigned at[2];
};

// Of DEPTH columns of x, and rows of W, the rounded numbers (0) and what rounding left (1); W transposed.
struct alignas(16) Stage {
    unsigned x[2][ROWS][PADDED];
    unsigned w[2][COLUMNS][PADDED];
};

struct Shared {
    Stage stages[2];
    float factors[ROWS][2];
};

// Pairs of a column of W, to the next multiple of the depth.
__device__ inline unsigned n_pairs(const Dense& layer) { return ceil_div(layer.n_in, DEPTH) * PAIRS; }

// Two numbers as a rounded pair, and the rest.
__device__ inline void split(float low, float high, unsigned& rounded, unsigned& rest) {
    rounded = pack_halves(low, high);
    rest = pack_halves(low - lower_half(rounded), high - upper_half(rounded));
}

// What a thread brings of a stage, as it lies in memory.
struct Chunk {
    Quad x[4];
    FourPairs w[2];
};

template <bool ALIGNED>
__device__ inline void fetch_x(const Dense& layer, unsigned first_row, unsigned depth, Chunk& chunk) {
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        unsigned at = threadIdx.x + BLOCK * i;
        chunk.x[i] = dense::inputs<ALIGNED>(layer, first_row + at / 4, depth + at % 4 * 4);
    }
}

__device__ inline void fetch(const Dense& layer, unsigned first_row, unsigned first_column, unsigned depth,
                             bool aligned, Chunk& chunk) {
    if (aligned) {
        fetch_x<true>(layer, first_row, depth, chunk);
    } else {
        fetch_x<false>(layer, first_row, depth, chunk);
    }
    unsigned column = first_column + threadIdx.x / 2;
    uint64_t pairs = n_pairs(layer), from = pairs * column + depth / 2 + threadIdx.x % 2 * 4;
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        chunk.w[i] = FourPairs{};
        if (column < layer.n_out) {
            chunk.w[i] = *reinterpret_cast<const FourPairs*>(layer.halves + pairs * layer.n_out * i + from);
        }
    }
}

template <Before BEFORE>
__device__ void put(const Dense& layer, const Chunk& chunk, unsigned depth, const float (*factors)[2],
                    bool aligned, Stage& stage) {
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        unsigned at = threadIdx.x + BLOCK * i, row = at / 4, pair = at % 4 * 2;
        Quad x = dense::prepared<BEFORE>(layer, chunk.x[i], depth + 2 * pair, factors[row], aligned);
        TwoPairs rounded, rest;
        split(x.at[0], x.at[1], rounded.at[0], rest.at[0]);
        split(x.at[2], x.at[3], rounded.at[1], rest.at[1]);
        *reinterpret_cast<TwoPairs*>(&stage.x[0][row][pair]) = rounded;
        *reinterpret_cast<TwoPairs*>(&stage.x[1][row][pair]) = rest;
    }
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        *reinterpret_cast<FourPairs*>(&stage.w[i][threadIdx.x / 2][threadIdx.x % 2 * 4]) = chunk.w[i];
    }
}

// Fragments of the warp's part of a stage.
__device__ inline void read_x(const unsigned (&x)[ROWS][PADDED], unsigned row, unsigned (&a)[4]) {
    const unsigned* upper = &x[row + threadIdx.x % WARP / 4][threadIdx.x % 4];
    const unsigned* lower = upper + 8 * PADDED;
    a[0] = upper[0];
    a[1] = lower[0];
    a[2] = upper[4];
    a[3] = lower[4];
}
__device__ inline void read_w(const unsigned (&w)[COLUMNS][PADDED], unsigned column, unsigned (&b)[TILES][2]) {
#pragma unroll
    for (unsigned j = 0; j < TILES; j++) {
        const unsigned* from = &w[column + 8 * j + threadIdx.x % WARP / 4][threadIdx.x % 4];
        b[j][0] = from[0];
        b[j][1] = from[4];
    }
}

__device__ inline void multiply(const Stage& stage, unsigned row, unsigned column,
                                float (&sums)[TILES][TILES][4]) {
    unsigned b[TILES][2], b_rest[TILES][2];
    read_w(stage.w[0], column, b);
    read_w(stage.w[1], column, b_rest);
#pragma unroll
    for (unsigned i = 0; i < TILES; i++) {
        unsigned a[4], a_rest[4];
        read_x(stage.x[1], row + 16 * i, a_rest);
        read_x(stage.x[0], row + 16 * i, a);
#pragma unroll
        for (unsigned j = 0; j < TILES; j++) mma_16x8x16(sums[i][j], a_rest, b[j]);
#pragma unroll
        for (unsigned j = 0; j < TILES; j++) mma_16x8x16(sums[i][j], a, b_rest[j]);
#pragma unroll
        for (unsigned j = 0; j < TILES; j++) mma_16x8x16(sums[i][j], a, b[j]);
    }
}

// Two numbers of a row of y, as far as they lie within.
template <bool ADD>
__device__ inline void store(const Dense& layer, unsigned row, unsigned column, float first, float second) {
    if (row >= layer.rows || column >= layer.n_out) return;
    float* y = layer.y + static_cast<uint64_t>(layer.n_out) * row + column;
    if (layer.n_out % 2 == 0) {
        Pair value = ADD ? *reinterpret_cast<Pair*>(y) : Pair{};
        value.at[0] = dense::output<ADD>(layer, value.at[0], column, first);
        value.at[1] = dense::output<ADD>(layer, value.at[1], column + 1, second);
        *reinterpret_cast<Pair*>(y) = value;
        return;
    }
    y[0] = dense::output<ADD>(layer, ADD ? y[0] : 0.0f, column, first);
    if (column + 1 < layer.n_out) y[1] = dense::output<ADD>(layer, ADD ? y[1] : 0.0f, column + 1, second);
}

template <Before BEFORE, bool ADD> __device__ void layer(const Dense& layer, Shared& shared) {
    bool aligned = dense::is_aligned(layer);
    unsigned top = dense::first_row(layer), left = dense::first_column(layer);
    unsigned warp = threadIdx.x / WARP, row = warp / 2 * 64, column = warp % 2 * 32;
    // A warp whose part lies outside multiplies nothing.
    bool has_part = top + row < layer.rows && left + column < layer.n_out;
    Chunk chunk;
    fetch(layer, top, left, 0, aligned, chunk);
    if (BEFORE == Before::NORM) {
        dense::moments(layer, top, shared.factors, aligned);
        __syncthreads();
    }
    put<BEFORE>(layer, chunk, 0, shared.factors, aligned, shared.stages[0]);
    __syncthreads();
    float sums[TILES][TILES][4] = {};
    for (unsigned depth = 0; depth < layer.n_in; depth += DEPTH) {
        const Stage& stage = shared.stages[depth / DEPTH % 2];
        bool goes_on = depth + DEPTH < layer.n_in;
        // The next numbers are on their way while these are multiplied.
        if (goes_on) fetch(layer, top, left, depth + DEPTH, aligned, chunk);
        if (has_part) multiply(stage, row, column, sums);
        // All have read this one before the last barrier.
        Stage& other = shared.stages[(depth / DEPTH + 1) % 2];
        if (goes_on) put<BEFORE>(layer, chunk, depth + DEPTH, shared.factors, aligned, other);
        __syncthreads();
    }
    unsigned group = threadIdx.x % WARP / 4, member = threadIdx.x % 4;
#pragma unroll
    for (unsigned i = 0; i < TILES; i++) {
#pragma unroll
        for (unsigned j = 0; j < TILES; j++) {
            unsigned y_row = top + row + 16 * i + group, y_column = left + column + 8 * j + 2 * member;
            store<ADD>(layer, y_row, y_column, sums[i][j][0], sums[i][j][1]);
            store<ADD>(layer, y_row + 8, y_column, sums[i][j][2], sums[i][j][3]);
        }
    }
}
}  // namespace dense_half

// W as the kernels below take it: rounded numbers, then what rounding left, each [n_out, n_pairs] of two
// rows of W, zeros beyond the last one. A thread a pair.
KERNEL __launch_bounds__(256) split_weights(const float* weight, unsigned n_in, unsigned n_out, unsigned* halves) {
    unsigned pairs = ceil_div(n_in, dense_half::DEPTH) * dense_half::PAIRS;
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= pairs * n_out) return;
    unsigned r = at % pairs * 2, column = at / pairs;
    const float* from = weight + static_cast<uint64_t>(n_out) * r + column;
    float low = r < n_in ? from[0] : 0.0f, high = r + 1 < n_in ? from[n_out] : 0.0f;
    dense_half::split(low, high, halves[at], halves[pairs * n_out + at]);
}

// As the kernels of the same names in dense.cuh, of one scene.
KERNEL __launch_bounds__(128, 3) half_plain(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense::Before::NOTHING, false>(layer, shared);
}
KERNEL __launch_bounds__(128, 3) half_add(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense::Before::NOTHING, true>(layer, shared);
}
KERNEL __launch_bounds__(128, 3) half_norm(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense::Before::NORM, false>(layer, shared);
}
