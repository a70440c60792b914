// Local attention under the mask of merged loads (ops::grf_attention): a warp a row.
#pragma once
#include "loads.cuh"

namespace grf {
const unsigned WARPS = 4, MAX_STRIDE = 9;
const float EPSILON = 1e-6f;

// ln(1 + e^x), stable for large x.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// out = Σ_j M_ij (q_i·k_j) v_j / (Σ_j M_ij (q_i·k_j) + ε) of rows [q | k | v], each of width d at most
// 32 · COLUMNS. `hop_weights`: [MAX_STRIDE], f_t of the mask M_ij = Σ_t f_t c(i, j, t).
template <unsigned COLUMNS>
__device__ void attend(const float* qkv, unsigned d, const Loads& mask, const float* hop_weights,
                       float* out) {
    unsigned lane = threadIdx.x % WARP, row = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= mask.n) return;
    unsigned len = mask.lens[row], stride = mask.n_hops + 1;
    uint64_t start = static_cast<uint64_t>(row) * mask.cap;
    float q[COLUMNS], sum[COLUMNS], total = EPSILON;
#pragma unroll
    for (unsigned c = 0; c < COLUMNS; c++) {
        unsigned column = lane + c * WARP;
        q[c] = column < d ? qkv[3ull * d * row + column] : 0.0f;
        sum[c] = 0.0f;
    }
    for (unsigned first = 0; first < len; first += WARP) {
        // Each lane reads one entry, then all of them work on one after the other.
        unsigned node = 0, count = len - first < WARP ? len - first : WARP;
        float weight = 0.0f;
        if (lane < count) {
            node = mask.nodes[start + first + lane];
            const float* loads = mask.loads + (start + first + lane) * stride;
            for (unsigned t = 0; t < stride; t++) weight += hop_weights[t] * loads[t];
        }
        for (unsigned entry = 0; entry < count; entry++) {
            uint64_t j = __shfl_sync(FULL_WARP, node, entry);
            const float *key = qkv + (3 * j + 1) * d, *value = key + d;
            float score = 0.0f, v[COLUMNS];
#pragma unroll
            for (unsigned c = 0; c < COLUMNS; c++) {
                unsigned column = lane + c * WARP;
                score += column < d ? q[c] * key[column] : 0.0f;
                v[c] = column < d ? value[column] : 0.0f;
            }
            score = warp_sum(score) * __shfl_sync(FULL_WARP, weight, entry);
            total += score;
#pragma unroll
            for (unsigned c = 0; c < COLUMNS; c++) sum[c] += score * v[c];
        }
    }
    float inverse = 1.0f / total;
#pragma unroll
    for (unsigned c = 0; c < COLUMNS; c++) {
        unsigned column = lane + c * WARP;
        if (column < d) out[static_cast<uint64_t>(d) * row + column] = sum[c] * inverse;
    }
}
}  // namespace grf

// out [n, d] from qkv [n, 3 d]; `width` is the largest d, `blocks` how many are to fit a multiprocessor.
#define GRF_ATTENTION(width, blocks)                                                                  \
    KERNEL __launch_bounds__(128, blocks) grf_attention_##width(                                      \
        const float* qkv, unsigned d, Loads mask, const float* hop_logits, float* out) {              \
        SHARED float hop_weights[grf::MAX_STRIDE];                                                    \
        unsigned t = threadIdx.x;                                                                     \
        if (t <= mask.n_hops) hop_weights[t] = grf::softplus(hop_logits[t]);                          \
        __syncthreads();                                                                              \
        grf::attend<width / WARP>(qkv, d, mask, hop_weights, out);                                    \
    }
GRF_ATTENTION(64, 8)
GRF_ATTENTION(128, 8)
GRF_ATTENTION(256, 6)
