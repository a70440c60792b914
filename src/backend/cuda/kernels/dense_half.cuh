// Dense layers on tensor cores. Each number is the sum of two of half precision, a rounded one and the
// rest, which leaves 22 of f32's 24 bits; of their four products the least is left out. Sums are in f32,
// and so is what stands before and behind the product, as in dense.cuh, which they are checked against.
#pragma once
#include "dense.cuh"

namespace dense_half {
using dense::Before;
using dense::TILE;
// A warp takes 32 x 32 of the block's TILE x TILE, in 2 x 4 tiles of the tensor cores' 16 x 8.
const unsigned BLOCK = 128, DEPTH = 32, PAIRS = DEPTH / 2, ROWS = 2, COLUMNS = 4;
// Pairs of halves a row of shared memory: at 20 words a row, the 8 rows and 4 pairs that a warp reads
// at once lie in 32 different banks.
const unsigned PADDED = PAIRS + 4;

// Rows of pairs along the depth, of rounded numbers (0) and of what rounding left (1).
typedef unsigned Halves[2][TILE][PADDED];

struct Shared {
    Halves x;
    Halves w;  // transposed
    float factors[TILE][dense::MAX_HEADS];
};

__device__ inline void split(float low, float high, Halves& to, unsigned row, unsigned pair) {
    unsigned rounded = pack_halves(low, high);
    to[0][row][pair] = rounded;
    to[1][row][pair] = pack_halves(low - lower_half(rounded), high - upper_half(rounded));
}

// Column `c` of row `row` of the block's inputs; zero beyond the matrix.
template <Before BEFORE>
__device__ inline float input(const Dense& layer, unsigned first_row, unsigned row, unsigned c,
                              const Shared& shared) {
    if (first_row + row >= layer.rows || c >= layer.n_in) return 0.0f;
    float x = layer.x[static_cast<uint64_t>(layer.x_stride) * (first_row + row) + c];
    return dense::input<BEFORE>(layer, x, c, shared.factors[row]);
}

__device__ inline float weight(const Dense& layer, unsigned r, unsigned column) {
    bool is_inside = r < layer.n_in && column < layer.n_out;
    return is_inside ? layer.weight[static_cast<uint64_t>(layer.n_out) * r + column] : 0.0f;
}

template <Before BEFORE>
__device__ void load(const Dense& layer, unsigned first_row, unsigned first_column, unsigned depth,
                     Shared& shared) {
    for (unsigned at = threadIdx.x; at < TILE * PAIRS; at += BLOCK) {
        unsigned row = at / PAIRS, pair = at % PAIRS, c = depth + 2 * pair;
        split(input<BEFORE>(layer, first_row, row, c, shared),
              input<BEFORE>(layer, first_row, row, c + 1, shared), shared.x, row, pair);
    }
    for (unsigned at = threadIdx.x; at < TILE * PAIRS; at += BLOCK) {
        unsigned pair = at / TILE, column = at % TILE, r = depth + 2 * pair;
        split(weight(layer, r, first_column + column), weight(layer, r + 1, first_column + column), shared.w,
              column, pair);
    }
}

// Fragments of 16 columns of depth, from `pair` on, for the warp's part of the block.
__device__ inline void read(const unsigned (&x)[TILE][PADDED], unsigned row, unsigned pair,
                            unsigned (&a)[ROWS][4]) {
    unsigned group = threadIdx.x % WARP / 4, member = threadIdx.x % 4;
#pragma unroll
    for (unsigned i = 0; i < ROWS; i++) {
        const unsigned* upper = &x[row + 16 * i + group][pair + member];
        const unsigned* lower = upper + 8 * PADDED;
        a[i][0] = upper[0];
        a[i][1] = lower[0];
        a[i][2] = upper[4];
        a[i][3] = lower[4];
    }
}
__device__ inline void read(const unsigned (&w)[TILE][PADDED], unsigned column, unsigned pair,
                            unsigned (&b)[COLUMNS][2]) {
    unsigned group = threadIdx.x % WARP / 4, member = threadIdx.x % 4;
#pragma unroll
    for (unsigned j = 0; j < COLUMNS; j++) {
        const unsigned* from = &w[column + 8 * j + group][pair + member];
        b[j][0] = from[0];
        b[j][1] = from[4];
    }
}

__device__ inline void multiply(const unsigned (&a)[ROWS][4], const unsigned (&b)[COLUMNS][2],
                                float (&sums)[ROWS][COLUMNS][4]) {
#pragma unroll
    for (unsigned i = 0; i < ROWS; i++) {
#pragma unroll
        for (unsigned j = 0; j < COLUMNS; j++) mma_16x8x16(sums[i][j], a[i], b[j]);
    }
}

template <Before BEFORE, bool ADD> __device__ void layer(const Dense& batch, Shared& shared) {
    const Dense layer = dense::of_scene(batch);
    unsigned first_row = blockIdx.x * TILE, first_column = dense::column_tile(batch) * TILE;
    unsigned warp = threadIdx.x / WARP, row = warp / 2 * 32, column = warp % 2 * 32;
    if (BEFORE != Before::NOTHING) {
        dense::prepare<BEFORE>(layer, first_row, shared.factors);
        __syncthreads();
    }
    float sums[ROWS][COLUMNS][4] = {};
    for (unsigned depth = 0; depth < layer.n_in; depth += DEPTH) {
        load<BEFORE>(layer, first_row, first_column, depth, shared);
        __syncthreads();
#pragma unroll
        for (unsigned pair = 0; pair < PAIRS; pair += 8) {
            unsigned a[ROWS][4], a_rest[ROWS][4], b[COLUMNS][2], b_rest[COLUMNS][2];
            read(shared.x[1], row, pair, a_rest);
            read(shared.w[0], column, pair, b);
            multiply(a_rest, b, sums);
            read(shared.x[0], row, pair, a);
            read(shared.w[1], column, pair, b_rest);
            multiply(a, b_rest, sums);
            multiply(a, b, sums);
        }
        __syncthreads();
    }
    unsigned group = threadIdx.x % WARP / 4, member = threadIdx.x % 4;
#pragma unroll
    for (unsigned i = 0; i < ROWS; i++) {
#pragma unroll
        for (unsigned j = 0; j < COLUMNS; j++) {
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                dense::store<ADD>(layer, first_row + row + 16 * i + group + c / 2 * 8,
                                  first_column + column + 8 * j + 2 * member + c % 2, sums[i][j][c]);
            }
        }
    }
}
}  // namespace dense_half

// As the kernels of the same names in dense.cuh.
KERNEL __launch_bounds__(128) half_plain(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense::Before::NOTHING, false>(layer, shared);
}
KERNEL __launch_bounds__(128) half_add(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense::Before::NOTHING, true>(layer, shared);
}
KERNEL __launch_bounds__(128) half_norm(Dense layer) {
    SHARED dense_half::Shared shared;
    dense_half::layer<dense::Before::NORM, false>(layer, shared);
}
