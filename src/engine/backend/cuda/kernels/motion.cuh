// From the model's outputs to displacements (ops::motion_head), and on to the next step's state.
#pragma once
#include "step.cuh"

namespace motion {
const float MAX_RESIDUAL_M = 0.25f;

// Σ_c softmax(y)_c · candidate_c + MAX_RESIDUAL_M · tanh(r), for y | r of a row.
__device__ inline void head(const float* y, const float* candidates, float (&out)[3]) {
    float most = y[0], total = 0.0f, shares[N_CANDIDATES];
    for (unsigned c = 1; c < N_CANDIDATES; c++) most = fmaxf(most, y[c]);
    for (unsigned c = 0; c < N_CANDIDATES; c++) {
        shares[c] = expf(y[c] - most);
        total += shares[c];
    }
    for (unsigned axis = 0; axis < 3; axis++) {
        out[axis] = MAX_RESIDUAL_M * tanhf(y[N_CANDIDATES + axis]);
        for (unsigned c = 0; c < N_CANDIDATES; c++) {
            out[axis] += shares[c] / total * candidates[3 * c + axis];
        }
    }
}
}  // namespace motion

// One thread a scene particle, then one a history particle: what was the scene becomes the history.
// Reads the positions before the step from the tokens, so that nobody reads what another one writes.
KERNEL move_particles(Step s) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < s.n) {
        float displacement[3];
        motion::head(s.outputs + static_cast<uint64_t>(N_OUTPUTS) * i,
                     s.candidates + 3ull * N_CANDIDATES * i, displacement);
        for (unsigned axis = 0; axis < 3; axis++) {
            uint64_t at = 3ull * i + axis;
            if (!is_finite(displacement[axis])) atomicOr(&s.counters[1], FLAG_DISPLACEMENT);
            s.displacements[at] = displacement[axis];
            s.positions[at] = s.token_positions[at] + displacement[axis];
            s.velocities[at] = displacement[axis];
        }
        s.velocity_known[i] = 1.0f;
    } else if (i - s.n < s.h && s.n > 0) {
        uint64_t j = i - s.n, from = j * s.n / s.h;
        for (unsigned axis = 0; axis < 3; axis++) {
            s.history_positions[3 * j + axis] = s.token_positions[3 * from + axis];
            s.history_colors[3 * j + axis] = s.colors[3 * from + axis];
        }
    }
}

// Behind all kernels of a step: the next one reads the next kinematic particles.
KERNEL end_step(Step s) { s.counters[0] += 1; }
