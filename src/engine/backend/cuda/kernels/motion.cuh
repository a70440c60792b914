// From the model's outputs to displacements and sigmas (ops::motion_head), and on to the next pass's state.
#pragma once
#include "pass.cuh"

namespace motion {
const float MAX_RESIDUAL_M = 0.25f;
// Sigma of an output of 0, and how far the logarithm goes from there.
const float USUAL_SIGMA_M = 5e-3f, MAX_LOG_SIGMA = 5.0f;

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

// One thread a scene particle: its displacements and sigmas; where it is behind the steps that are kept, and
// in the history a step before that.
KERNEL move_particles(Pass s) {
    if (!pass::of_scene(s)) return;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= s.n) return;
    float displacement[3], before[3], now[3];
    for (unsigned axis = 0; axis < 3; axis++) before[axis] = now[axis] = s.positions[3ull * i + axis];
    for (unsigned step = 0; step < s.steps; step++) {
        const float* y = s.outputs + static_cast<uint64_t>(s.n_outputs) * (static_cast<uint64_t>(i) * s.steps + step);
        uint64_t at = static_cast<uint64_t>(step) * s.n + i;
        if (s.n_outputs > N_HEAD) {
            float log_sigma = fminf(fmaxf(y[N_HEAD], -motion::MAX_LOG_SIGMA), motion::MAX_LOG_SIGMA);
            s.sigmas[at] = motion::USUAL_SIGMA_M * expf(log_sigma);
        }
        if (step >= s.kept) continue;
        motion::head(y, pass::candidates(s, i, step), displacement);
        for (unsigned axis = 0; axis < 3; axis++) {
            if (!is_finite(displacement[axis])) atomicOr(&s.counters[1], FLAG_DISPLACEMENT);
            s.displacements[3 * at + axis] = displacement[axis];
            before[axis] = now[axis];
            now[axis] += displacement[axis];
        }
    }
    for (unsigned axis = 0; axis < 3; axis++) {
        s.positions[3ull * i + axis] = now[axis];
        s.velocities[3ull * i + axis] = displacement[axis];
    }
    s.velocity_known[i] = 1.0f;
    // All j whose particle is this one: rollout_input::history_index.
    uint64_t j = (static_cast<uint64_t>(i) * s.h + s.n - 1) / s.n;
    for (; j < s.h && j * s.n / s.h == i; j++) {
        for (unsigned axis = 0; axis < 3; axis++) {
            s.history_positions[3 * j + axis] = before[axis];
            s.history_colors[3 * j + axis] = s.colors[3ull * i + axis];
        }
    }
}

// Behind all kernels of a pass: the next one reads the robot's points behind the steps that were kept.
KERNEL end_pass(Pass s) {
    if (pass::of_scene(s)) s.counters[0] += 1;
}
