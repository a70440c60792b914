// One step's buffers in device memory; `Step` in src/backend/cuda/step.rs is its mirror image.
#pragma once
#include "common.cuh"

const unsigned N_FEATURES = 49, N_CANDIDATES = 4, N_OUTPUTS = N_CANDIDATES + 3;

struct Step {
    unsigned* counters;  // steps done, flags
    // State; n scene particles, h of history, k kinematic ones of each time.
    float* positions;          // [n, 3], m
    float* velocities;         // [n, 3], m a step
    float* velocity_known;     // [n], 0 or 1
    const float* colors;       // [n, 3]
    float* history_positions;  // [h, 3]
    float* history_colors;     // [h, 3]
    const float* kinematic;    // [steps + 2, k, 3]: a step back, now, ahead, …
    // Tokens.
    float* token_positions;  // [n + h + 3 k, 3]
    float* features;         // [n + h + 3 k, N_FEATURES]
    float* candidates;       // [n, N_CANDIDATES, 3]
    // The model's outputs, and what follows from them.
    const float* outputs;  // [n, N_OUTPUTS]
    float* displacements;  // [n, 3]
    unsigned n, h, k;
    float center[3], half_side, step_secs;
};
