// Local attention under the mask of merged loads (ops::grf_attention): a warp a row.
#pragma once
#include "dense_half.cuh"
#include "loads.cuh"

namespace grf {
const unsigned WARPS = 4, MAX_STRIDE = 9;
const float EPSILON = 1e-6f;

// ln(1 + e^x), stable for large x.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// A row's entries 32 at a time, of which each lane holds one: a node, and its weight in the mask; the own
// row with weight 0 behind the last one. `hop_weights`: [MAX_STRIDE], f_t of M_ij = Σ_t f_t c(i, j, t).
struct Entries {
    unsigned node;
    float weight;

    __device__ inline Entries(const Loads& mask, unsigned row, unsigned first, unsigned len,
                              const float* hop_weights) : node(row), weight(0.0f) {
        unsigned entry = first + threadIdx.x % WARP, stride = mask.n_hops + 1;
        if (entry >= len) return;
        uint64_t at = static_cast<uint64_t>(row) * mask.cap + entry;
        node = mask.nodes[at];
        for (unsigned t = 0; t < stride; t++) weight += hop_weights[t] * mask.loads[at * stride + t];
    }
};

// Where rows [n, d] go, either of both: as numbers, or split as dense_half.cuh takes them.
struct Out {
    float* numbers;
    unsigned* halves;
};

// out = Σ_j M_ij (q_i·k_j) v_j / (Σ_j M_ij (q_i·k_j) + ε) of a row of [q | k | v], each of width d at most
// 4 · LANES · QUADS, a multiple of four. So many lanes share an entry's numbers, four entries at a time.
template <unsigned LANES, unsigned QUADS>
__device__ void attend(const float* qkv, unsigned d, const Loads& mask, const float* hop_weights,
                       unsigned row, const Out& out) {
    const unsigned SIDES = WARP / LANES, UPPER = LANES / 2, LOWER = LANES / 4;
    unsigned lane = threadIdx.x % WARP, member = lane % LANES, side = lane / LANES, len = mask.lens[row];
    // Which of its four entries a lane has the score of.
    unsigned slot = member / LOWER;
    Quad q[QUADS], sums[QUADS];
#pragma unroll
    for (unsigned c = 0; c < QUADS; c++) {
        unsigned column = 4 * (member + LANES * c);
        sums[c] = Quad{};
        q[c] = Quad{};
        if (column < d) q[c] = *reinterpret_cast<const Quad*>(qkv + 3ull * d * row + column);
    }
    float total = 0.0f;
    for (unsigned first = 0; first < len; first += WARP) {
        const Entries entries(mask, row, first, len, hop_weights);
        unsigned count = len - first < WARP ? len - first : WARP;
        for (unsigned entry = 4 * side; entry - 4 * side < count; entry += 4 * SIDES) {
            const float* keys[4];
            float scores[4];
#pragma unroll
            for (unsigned s = 0; s < 4; s++) {
                uint64_t j = __shfl_sync(FULL_WARP, entries.node, entry + s);
                keys[s] = qkv + (3 * j + 1) * d;
                scores[s] = 0.0f;
#pragma unroll
                for (unsigned c = 0; c < QUADS; c++) {
                    unsigned column = 4 * (member + LANES * c);
                    Quad k = {};
                    if (column < d) k = *reinterpret_cast<const Quad*>(keys[s] + column);
#pragma unroll
                    for (unsigned i = 0; i < 4; i++) scores[s] += q[c].at[i] * k.at[i];
                }
            }
            // All lanes' sums at once: each exchange leaves a lane half as many entries.
            bool is_upper = (member & UPPER) != 0, is_odd = (member & LOWER) != 0;
            float even = is_upper ? scores[2] : scores[0], odd = is_upper ? scores[3] : scores[1];
            even += __shfl_xor_sync(FULL_WARP, is_upper ? scores[0] : scores[2], UPPER);
            odd += __shfl_xor_sync(FULL_WARP, is_upper ? scores[1] : scores[3], UPPER);
            float score = is_odd ? odd : even;
            score += __shfl_xor_sync(FULL_WARP, is_odd ? even : odd, LOWER);
#pragma unroll
            for (unsigned offset = LOWER / 2; offset > 0; offset /= 2) {
                score += __shfl_xor_sync(FULL_WARP, score, offset);
            }
            score *= __shfl_sync(FULL_WARP, entries.weight, entry + slot);
            total += score;
#pragma unroll
            for (unsigned s = 0; s < 4; s++) {
                float of_entry = __shfl_sync(FULL_WARP, score, side * LANES + s * LOWER);
#pragma unroll
                for (unsigned c = 0; c < QUADS; c++) {
                    unsigned column = 4 * (member + LANES * c);
                    Quad v = {};
                    if (column < d) v = *reinterpret_cast<const Quad*>(keys[s] + d + column);
#pragma unroll
                    for (unsigned i = 0; i < 4; i++) sums[c].at[i] += of_entry * v.at[i];
                }
            }
        }
    }
    // Over the four entries, and over the sides.
#pragma unroll
    for (unsigned offset = LOWER; offset < WARP; offset *= 2) {
        total += __shfl_xor_sync(FULL_WARP, total, offset);
    }
    float inverse = 1.0f / (total + EPSILON);
#pragma unroll
    for (unsigned c = 0; c < QUADS; c++) {
        unsigned column = 4 * (member + LANES * c);
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            if (SIDES == 2) sums[c].at[i] += __shfl_xor_sync(FULL_WARP, sums[c].at[i], LANES % WARP);
            sums[c].at[i] *= inverse;
        }
        if (side != 0) continue;
        // Zeros behind the last column.
        if (out.halves != nullptr && column < dense_half::filled(d)) {
            dense_half::store_split(out.halves, mask.n, d, row, column, sums[c]);
        }
        if (out.numbers != nullptr && column < d) {
            *reinterpret_cast<Quad*>(out.numbers + static_cast<uint64_t>(d) * row + column) = sums[c];
        }
    }
}

// The same of any width up to 32 · COLUMNS.
template <unsigned COLUMNS>
__device__ void attend_any(const float* qkv, unsigned d, const Loads& mask, const float* hop_weights,
                           unsigned row, const Out& out) {
    unsigned lane = threadIdx.x % WARP, len = mask.lens[row];
    float sums[COLUMNS] = {}, total = EPSILON;
    for (unsigned first = 0; first < len; first += WARP) {
        const Entries entries(mask, row, first, len, hop_weights);
        for (unsigned entry = 0; entry < WARP && first + entry < len; entry++) {
            uint64_t j = __shfl_sync(FULL_WARP, entries.node, entry);
            const float *q = qkv + 3ull * d * row, *key = qkv + (3 * j + 1) * d;
            float score = 0.0f;
            for (unsigned column = lane; column < d; column += WARP) score += q[column] * key[column];
            score = warp_sum(score) * __shfl_sync(FULL_WARP, entries.weight, entry);
            total += score;
#pragma unroll
            for (unsigned c = 0; c < COLUMNS; c++) {
                unsigned column = lane + c * WARP;
                if (column < d) sums[c] += score * key[d + column];
            }
        }
    }
#pragma unroll
    for (unsigned c = 0; c < COLUMNS; c++) {
        unsigned column = lane + c * WARP;
        float x = sums[c] / total, next = __shfl_xor_sync(FULL_WARP, x, 1);
        if (out.halves != nullptr && column % 2 == 0 && column < dense_half::filled(d)) {
            unsigned* at = out.halves + dense_half::pair_at(mask.n, row, column);
            dense_half::split(x, next, at[0], at[dense_half::rests_at(mask.n, d)]);
        }
        if (out.numbers != nullptr && column < d) {
            out.numbers[static_cast<uint64_t>(d) * row + column] = x;
        }
    }
}
}  // namespace grf

// out [n, d] from qkv [n, 3 d]; `width` is the largest d, shared by `lanes` of `quads` each, `blocks` how
// many are to fit a multiprocessor. A block takes rows that follow one another, whose entries are much the
// same ones; a warp a row after the other.
#define GRF_ATTENTION(width, lanes, quads, blocks)                                                    \
    KERNEL __launch_bounds__(128, blocks) grf_attention_##width(                                      \
        const float* qkv, unsigned d, Loads mask, const float* hop_logits, float* numbers,            \
        unsigned* halves) {                                                                           \
        SHARED float hop_weights[grf::MAX_STRIDE];                                                    \
        unsigned t = threadIdx.x, rows = ceil_div(mask.n, gridDim.x), first = rows * blockIdx.x;      \
        if (t <= mask.n_hops) hop_weights[t] = grf::softplus(hop_logits[t]);                          \
        __syncthreads();                                                                              \
        const grf::Out out = {numbers, halves};                                                       \
        for (unsigned row = first + t / WARP; row < first + rows && row < mask.n; row += grf::WARPS) { \
            if (d % 4 == 0) {                                                                         \
                grf::attend<lanes, quads>(qkv, d, mask, hop_weights, row, out);                       \
            } else {                                                                                  \
                grf::attend_any<width / WARP>(qkv, d, mask, hop_weights, row, out);                   \
            }                                                                                         \
        }                                                                                             \
    }
GRF_ATTENTION(64, 16, 1, 8)
GRF_ATTENTION(128, 32, 1, 6)
GRF_ATTENTION(256, 32, 2, 4)
