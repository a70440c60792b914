// Dense layers on tensor cores. Each number is the sum of two of half precision, a rounded one and the
// rest, which leaves 22 of f32's 24 bits; of their four products the least is left out. Sums are in f32,
// and so is what stands before and behind the product, as in dense.cuh, which they are checked against.
//
// Matrices come split, into pairs of halves: rounded numbers, then what rounding left, each
// [n_in / DEPTH, rows, PAIRS], so that what a block reads of many rows at once lies together; zeros behind
// the last column. Of weights the rows are W's columns.
#pragma once
#include "dense.cuh"

namespace dense_half {
using dense::Before;
using dense::ROWS;
using dense::COLUMNS;
// A warp takes 64 x 32 of the block's ROWS x COLUMNS, in 4 x 4 tiles of the tensor cores' 16 x 8.
const unsigned BLOCK = 128, DEPTH = 16, PAIRS = DEPTH / 2, TILES = 4;
// Parts of the depth that are in shared memory or on their way to it.
const unsigned STAGES = 3;

// Pairs that are read and written at once.
struct alignas(8) TwoPairs {
    unsigned at[2];
};

// Of DEPTH columns of x, and rows of W, the rounded numbers (0) and what rounding left (1).
struct alignas(16) Stage {
    unsigned x[2][ROWS][PAIRS];
    unsigned w[2][COLUMNS][PAIRS];
};

struct Shared {
    Stage stages[STAGES];
};

// Numbers of a row of `n` with the zeros behind them.
__device__ inline unsigned filled(unsigned n) { return ceil_div(n, DEPTH) * DEPTH; }

// Where the pair from column c on of a row lies, and of all the rests the first.
__device__ inline uint64_t pair_at(unsigned rows, unsigned row, unsigned c) {
    return (static_cast<uint64_t>(rows) * (c / DEPTH) + row) * PAIRS + c % DEPTH / 2;
}
__device__ inline uint64_t rests_at(unsigned rows, unsigned n) {
    return static_cast<uint64_t>(rows) * filled(n) / 2;
}

// Two numbers as a rounded pair, and the rest.
__device__ inline void split(float low, float high, unsigned& rounded, unsigned& rest) {
    rounded = pack_halves(low, high);
    rest = pack_halves(low - lower_half(rounded), high - upper_half(rounded));
}

// The pairs from columns c and c + 2 on of a row of `n` numbers of a matrix of `rows`.
__device__ inline void store_split(unsigned* halves, unsigned rows, unsigned n, unsigned row, unsigned c, Quad x) {
    TwoPairs rounded, rest;
    split(x.at[0], x.at[1], rounded.at[0], rest.at[0]);
    split(x.at[2], x.at[3], rounded.at[1], rest.at[1]);
    unsigned* at = halves + pair_at(rows, row, c);
    *reinterpret_cast<TwoPairs*>(at) = rounded;
    *reinterpret_cast<TwoPairs*>(at + rests_at(rows, n)) = rest;
}

// Where fours of pairs lie in a row of shared memory: by turns, so that the 8 rows and 4 pairs that a warp
// reads at once lie in 32 different banks.
__device__ inline unsigned place(unsigned row, unsigned four) { return 4 * (four ^ (row / 4 % 2)); }

// Begins to copy DEPTH numbers, from `depth` on, of N rows of a matrix of `rows` from `first` on.
template <unsigned N>
__device__ inline void fetch(const unsigned* halves, unsigned rows, unsigned n, unsigned first, unsigned depth,
                             unsigned (&to)[2][N][PAIRS]) {
    halves += pair_at(rows, first, depth);
#pragma unroll
    for (unsigned i = 0; i < 4 * N / BLOCK; i++) {
        // Of a row two fours, and of N rows the rounded ones first.
        unsigned at = threadIdx.x + BLOCK * i, part = at / (2 * N), row = at / 2 % N, four = at % 2;
        const unsigned* from = part == 0 ? halves : halves + rests_at(rows, n);
        copy_async(&to[part][row][place(row, four)], from + at % (2 * N) * 4, first + row < rows);
    }
}

// Fragments of the warp's part of a stage.
__device__ inline void read_x(const unsigned (&x)[ROWS][PAIRS], unsigned first, unsigned (&a)[4]) {
    unsigned row = first + threadIdx.x % WARP / 4, member = threadIdx.x % 4;
    const unsigned *upper = x[row], *lower = x[row + 8];
    a[0] = upper[place(row, 0) + member];
    a[1] = lower[place(row, 0) + member];
    a[2] = upper[place(row, 1) + member];
    a[3] = lower[place(row, 1) + member];
}
__device__ inline void read_w(const unsigned (&w)[COLUMNS][PAIRS], unsigned first, unsigned (&b)[TILES][2]) {
#pragma unroll
    for (unsigned j = 0; j < TILES; j++) {
        unsigned column = first + 8 * j + threadIdx.x % WARP / 4, member = threadIdx.x % 4;
        b[j][0] = w[column][place(column, 0) + member];
        b[j][1] = w[column][place(column, 1) + member];
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

enum class After { STORE, ADD, SPLIT };

// Two numbers of a row of y, as far as they lie within.
template <After AFTER>
__device__ inline void store(const Dense& layer, unsigned row, unsigned column, float first, float second) {
    if (AFTER == After::SPLIT) {
        if (row >= layer.rows || column >= filled(layer.n_out)) return;
        unsigned* at = layer.y_halves + pair_at(layer.rows, row, column);
        split(first, second, at[0], at[rests_at(layer.rows, layer.n_out)]);
        return;
    }
    if (row >= layer.rows || column >= layer.n_out) return;
    float* y = layer.y + static_cast<uint64_t>(layer.n_out) * row + column;
    if (layer.n_out % 2 == 0) {
        Pair value = {first, second};
        if (AFTER == After::ADD) {
            Pair old = *reinterpret_cast<Pair*>(y);
            value.at[0] += old.at[0];
            value.at[1] += old.at[1];
        }
        *reinterpret_cast<Pair*>(y) = value;
        return;
    }
    y[0] = AFTER == After::ADD ? y[0] + first : first;
    if (column + 1 < layer.n_out) y[1] = AFTER == After::ADD ? y[1] + second : second;
}

template <After AFTER> __device__ void layer(const Dense& layer, Shared& shared) {
    unsigned top = dense::first_row(layer), left = dense::first_column(layer);
    unsigned warp = threadIdx.x / WARP, row = warp / 2 * 64, column = warp % 2 * 32;
    // A warp whose part lies outside multiplies nothing.
    bool has_part = top + row < layer.rows && left + column < layer.n_out;
    auto begin = [&](unsigned depth) {
        if (depth < layer.n_in) {
            Stage& stage = shared.stages[depth / DEPTH % STAGES];
            fetch(layer.x_halves, layer.rows, layer.n_in, top, depth, stage.x);
            fetch(layer.halves, layer.n_out, layer.n_in, left, depth, stage.w);
        }
        end_copies();
    };
#pragma unroll
    for (unsigned stage = 0; stage + 1 < STAGES; stage++) begin(DEPTH * stage);
    float sums[TILES][TILES][4] = {};
    for (unsigned depth = 0; depth < layer.n_in; depth += DEPTH) {
        wait_for_copies<STAGES - 2>();
        // This stage is there for all, and all have read the one before it, which is filled anew.
        __syncthreads();
        begin(depth + DEPTH * (STAGES - 1));
        if (has_part) multiply(shared.stages[depth / DEPTH % STAGES], row, column, sums);
    }
    unsigned group = threadIdx.x % WARP / 4, member = threadIdx.x % 4;
#pragma unroll
    for (unsigned j = 0; j < TILES; j++) {
        unsigned first = left + column + 8 * j + 2 * member;
        float bias[2];
        bool has_relu[2];
#pragma unroll
        for (unsigned c = 0; c < 2; c++) {
            // Zeros behind the last column, which others may read of what is split.
            bool is_inside = first + c < layer.n_out;
            bias[c] = is_inside ? layer.bias[first + c] : 0.0f;
            has_relu[c] = first + c < layer.n_relu;
        }
#pragma unroll
        for (unsigned i = 0; i < TILES; i++) {
#pragma unroll
            for (unsigned half = 0; half < 2; half++) {
                float value[2];
#pragma unroll
                for (unsigned c = 0; c < 2; c++) {
                    value[c] = sums[i][j][2 * half + c] + bias[c];
                    if (has_relu[c]) value[c] = fmaxf(value[c], 0.0f);
                }
                store<AFTER>(layer, top + row + 16 * i + group + 8 * half, first, value[0], value[1]);
            }
        }
    }
}

// x as it goes into the product, split; four threads a row.
template <Before BEFORE> __device__ void split_rows(const Dense& layer) {
    unsigned row = blockIdx.x * (blockDim.x / 4) + threadIdx.x / 4;
    bool aligned = dense::is_aligned(layer);
    float factors[2] = {};
    if (BEFORE == Before::NORM) dense::moments_of(layer, row, aligned, factors);
    if (row >= layer.rows) return;
    for (unsigned c = 4 * (threadIdx.x % 4); c < filled(layer.n_in); c += 16) {
        Quad x = aligned ? dense::inputs<true>(layer, row, c) : dense::inputs<false>(layer, row, c);
        x = dense::prepared<BEFORE>(layer, x, c, factors, aligned);
        store_split(layer.x_halves, layer.rows, layer.n_in, row, c, x);
    }
}
}  // namespace dense_half

// W [n_in, n_out], split: a thread a pair.
KERNEL __launch_bounds__(256) split_weights(const float* weight, unsigned n_in, unsigned n_out, unsigned* halves) {
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, column = thread % n_out, r = thread / n_out * 2;
    if (r >= dense_half::filled(n_in)) return;
    const float* from = weight + static_cast<uint64_t>(n_out) * r + column;
    float low = r < n_in ? from[0] : 0.0f, high = r + 1 < n_in ? from[n_out] : 0.0f;
    unsigned* at = halves + dense_half::pair_at(n_out, column, r);
    dense_half::split(low, high, at[0], at[dense_half::rests_at(n_out, n_in)]);
}
// x, and LayerNorm(x), to `x_halves`.
KERNEL __launch_bounds__(256) split_rows(Dense layer) {
    dense_half::split_rows<dense::Before::NOTHING>(layer);
}
KERNEL __launch_bounds__(256) split_norm(Dense layer) {
    dense_half::split_rows<dense::Before::NORM>(layer);
}

// Of one scene, from `x_halves`. y = x·W + b.
KERNEL __launch_bounds__(128, 4) half_plain(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense_half::After::STORE>(layer, shared);
}
// y += x·W + b.
KERNEL __launch_bounds__(128, 4) half_add(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense_half::After::ADD>(layer, shared);
}
// x·W + b to `y_halves`.
KERNEL __launch_bounds__(128, 4) half_split(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense_half::After::SPLIT>(layer, shared);
}
