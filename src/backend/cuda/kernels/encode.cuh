// Tokens of a step: positions, input features, candidate motions (model::tokens, the CPU's).
#pragma once
#include "step.cuh"

namespace tokens {
const float GRAVITY_M_S2 = -9.81f;
const float MOTION_SCALE_M = 0.05f, NEARNESS_M = 0.03f, DIRECTION_M = 0.02f;
const unsigned N_OCTAVES = 4, N_KINDS = 5;
const unsigned POSITION = 0, OCTAVES = POSITION + 3, COLOR = OCTAVES + 6 * N_OCTAVES;
const unsigned KIND = COLOR + 3, VELOCITY = KIND + N_KINDS, VELOCITY_KNOWN = VELOCITY + 3;
const unsigned DIRECTION = VELOCITY_KNOWN + 1, NEARNESS = DIRECTION + 3;
const unsigned ROBOT_MOTION = NEARNESS + 1, NEAR_MOTION = ROBOT_MOTION + 3;

__device__ inline void encode_position(float* row, const float* p, const Step& s) {
    for (unsigned axis = 0; axis < 3; axis++) {
        float x = (p[axis] - s.center[axis]) / s.half_side, sine, cosine;
        row[POSITION + axis] = x;
        sincospif(x, &sine, &cosine);
        for (unsigned octave = 0; octave < N_OCTAVES; octave++) {
            row[OCTAVES + 6 * octave + 2 * axis] = sine;
            row[OCTAVES + 6 * octave + 2 * axis + 1] = cosine;
            float doubled = 2.0f * sine * cosine;
            cosine = cosine * cosine - sine * sine;
            sine = doubled;
        }
    }
}

// Index of the kinematic particle nearest to p, now; of equally near ones, the first.
__device__ inline unsigned nearest(const float* robot, unsigned k, const float* p) {
    float best = infinity();
    unsigned index = 0;
    for (unsigned j = 0; j < k; j++) {
        float distance = squared_distance(robot + 3 * j, p);
        if (distance < best) {
            best = distance;
            index = j;
        }
    }
    return index;
}

// Where the robot's nearest particle is, how near, and how it moves; its motion to `motion`.
__device__ inline void encode_robot(float* row, const float* p, const float* now, const float* ahead,
                                    float (&motion)[3]) {
    float length = sqrtf(squared_distance(p, now)), nearness = expf(-length / NEARNESS_M);
    row[NEARNESS] = nearness;
    for (unsigned axis = 0; axis < 3; axis++) {
        motion[axis] = ahead[axis] - now[axis];
        row[DIRECTION + axis] = (p[axis] - now[axis]) / (length + DIRECTION_M);
        row[ROBOT_MOTION + axis] = motion[axis] / MOTION_SCALE_M;
        row[NEAR_MOTION + axis] = nearness * motion[axis] / MOTION_SCALE_M;
    }
}

// Scene particle `i`, or history particle `i - n`.
__device__ inline void encode_particle(const Step& s, unsigned i, float* row, const float* p,
                                       const float* now, const float* ahead) {
    float motion[3] = {0.0f, 0.0f, 0.0f};
    if (s.k > 0) {
        unsigned j = nearest(now, s.k, p);
        encode_robot(row, p, now + 3 * j, ahead + 3 * j, motion);
    }
    const float* color = i < s.n ? s.colors + 3 * i : s.history_colors + 3 * (i - s.n);
    for (unsigned axis = 0; axis < 3; axis++) row[COLOR + axis] = color[axis] - 0.5f;
    row[KIND + (i < s.n ? 0 : 1)] = 1.0f;
    if (i >= s.n) return;
    row[VELOCITY_KNOWN] = s.velocity_known[i];
    float fall = GRAVITY_M_S2 * s.step_secs * s.step_secs;
    for (unsigned axis = 0; axis < 3; axis++) {
        float v = s.velocities[3 * i + axis];
        row[VELOCITY + axis] = v / MOTION_SCALE_M;
        float* candidates = s.candidates + 3 * N_CANDIDATES * i + axis;
        candidates[0] = 0.0f;
        candidates[3] = v;
        candidates[6] = motion[axis];
        candidates[9] = axis == 2 ? v + fall : v;
    }
}

// Kinematic particle `j` of time 0 (a step back), 1 (now) or 2 (ahead); `back`, `now`, `ahead` are its
// positions then.
__device__ inline void encode_kinematic(float* row, unsigned time, const float* back, const float* now,
                                        const float* ahead) {
    row[KIND + 2 + time] = 1.0f;
    row[VELOCITY_KNOWN] = 1.0f;
    row[NEARNESS] = 1.0f;
    for (unsigned axis = 0; axis < 3; axis++) {
        float before = now[axis] - back[axis], next = ahead[axis] - now[axis];
        row[VELOCITY + axis] = (time == 0 ? before : next) / MOTION_SCALE_M;
        row[ROBOT_MOTION + axis] = next / MOTION_SCALE_M;
        row[NEAR_MOTION + axis] = next / MOTION_SCALE_M;
    }
}
}  // namespace tokens

// One thread a token.
KERNEL encode(Step s) {
    using namespace tokens;
    unsigned token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= s.n + s.h + 3 * s.k) return;
    const float* back = s.kinematic + 3ull * s.k * s.counters[0];
    const float *now = back + 3ull * s.k, *ahead = now + 3ull * s.k;
    unsigned j = token < s.n + s.h ? 0 : token - s.n - s.h;  // among the kinematic ones of all times
    const float* p = token < s.n         ? s.positions + 3ull * token
                     : token < s.n + s.h ? s.history_positions + 3ull * (token - s.n)
                                         : back + 3ull * j;
    float* row = s.features + static_cast<uint64_t>(N_FEATURES) * token;
    for (unsigned feature = 0; feature < N_FEATURES; feature++) row[feature] = 0.0f;
    for (unsigned axis = 0; axis < 3; axis++) {
        s.token_positions[3ull * token + axis] = p[axis];
        if (!is_finite(p[axis])) atomicOr(&s.counters[1], FLAG_POSITION);
    }
    encode_position(row, p, s);
    if (token < s.n + s.h) {
        encode_particle(s, token, row, p, now, ahead);
    } else {
        unsigned at = 3 * (j % s.k);
        encode_kinematic(row, j / s.k, back + at, now + at, ahead + at);
    }
}
