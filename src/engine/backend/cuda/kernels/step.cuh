// One step's buffers in device memory; `Step` in src/engine/backend/cuda/step.rs is its mirror image.
#pragma once
#include "common.cuh"

const unsigned N_BODY = 17, N_FEATURES = 53 + N_BODY;
const unsigned N_CANDIDATES = 4, N_OUTPUTS = N_CANDIDATES + 3;
// Numbers of a rigid motion: rows of the rotation, centre, translation.
const unsigned N_MOTION = 15;

struct Step {
    unsigned* counters;  // steps done, flags
    // State; n scene particles, h of history, n_robot points on n_links links of the robot at each time.
    float* positions;          // [n, 3], m
    float* velocities;         // [n, 3], m a step
    float* velocity_known;     // [n], 0 or 1
    const float* colors;       // [n, 3]
    float* history_positions;  // [h, 3]
    float* history_colors;     // [h, 3]
    const float* robot;        // [steps + 2, n_robot, 3]: a step back, now, ahead, …
    const float* onward;       // [n, 3]: motion of the first step if bodies turn on as they do, m
    const float* bodies;       // [n, N_BODY]: what each is told of its body at the first step
    const float* links;        // [n_robot]: number of the link that holds each point
    const float* motions;      // [steps, n_links, N_MOTION]: of each link from now to one step ahead
    // Tokens; k of each time are points of the robot, one in `stride` of them.
    unsigned* nearest;       // [2, n + h]: point of the robot, now and ahead
    float* token_positions;  // [n + h + 3 k, 3]
    float* features;         // [n + h + 3 k, N_FEATURES]
    float* candidates;       // [n, N_CANDIDATES, 3]
    // The model's outputs, and what follows from them.
    const float* outputs;  // [n, N_OUTPUTS]
    float* displacements;  // [n, 3]
    unsigned n, h, k, n_robot, n_links, stride;
    float center[3], half_side, step_secs;
};
