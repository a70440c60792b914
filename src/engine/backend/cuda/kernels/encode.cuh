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
const unsigned AHEAD_DIRECTION = NEAR_MOTION + 3, AHEAD_NEARNESS = AHEAD_DIRECTION + 3;
const unsigned BODY = AHEAD_NEARNESS + 1;
static_assert(BODY + N_BODY == N_FEATURES, "the features of model::tokens");
const unsigned BLOCK = 128;

// Scene particle `i`, or history particle `i - n`, before the step.
__device__ inline const float* particle(const Step& s, unsigned i) {
    return i < s.n ? s.positions + 3ull * i : s.history_positions + 3ull * (i - s.n);
}

// Points of the robot a step back (0), now (1) or one step ahead (2).
__device__ inline const float* robot(const Step& s, unsigned time) {
    return s.robot + 3ull * s.n_robot * (s.counters[0] + time);
}

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

// The direction of p from a point of the robot, and behind it how near it is, which it gives too.
__device__ inline float encode_nearness(float* row, unsigned at, const float* p, const float* point) {
    float length = sqrtf(squared_distance(p, point)), nearness = expf(-length / NEARNESS_M);
    for (unsigned axis = 0; axis < 3; axis++) row[at + axis] = (p[axis] - point[axis]) / (length + DIRECTION_M);
    row[at + 3] = nearness;
    return nearness;
}

// How far p goes with a link.
__device__ inline void motion_of(const float* link, const float* p, float (&motion)[3]) {
    const float *center = link + 9, *translation = link + 12;
    float arm[3];
    for (unsigned axis = 0; axis < 3; axis++) arm[axis] = p[axis] - center[axis];
    for (unsigned axis = 0; axis < 3; axis++) {
        const float* turned = link + 3 * axis;
        float there = turned[0] * arm[0] + turned[1] * arm[1] + turned[2] * arm[2];
        motion[axis] = there - arm[axis] + translation[axis];
    }
}

// Where the robot's nearest point is and how near, now and one step ahead; how the link moves that is
// nearest now: to `motion`.
__device__ inline void encode_robot(const Step& s, unsigned i, float* row, const float* p,
                                    float (&motion)[3]) {
    unsigned now = s.nearest[i], ahead = s.nearest[s.n + s.h + i];
    float nearness = encode_nearness(row, DIRECTION, p, robot(s, 1) + 3ull * now);
    encode_nearness(row, AHEAD_DIRECTION, p, robot(s, 2) + 3ull * ahead);
    unsigned link = s.counters[0] * s.n_links + static_cast<unsigned>(s.links[now]);
    motion_of(s.motions + static_cast<uint64_t>(N_MOTION) * link, p, motion);
    for (unsigned axis = 0; axis < 3; axis++) {
        row[ROBOT_MOTION + axis] = motion[axis] / MOTION_SCALE_M;
        row[NEAR_MOTION + axis] = nearness * motion[axis] / MOTION_SCALE_M;
    }
}

__device__ inline void encode_particle(const Step& s, unsigned i, float* row, const float* p) {
    float motion[3] = {0.0f, 0.0f, 0.0f};
    if (s.n_robot > 0) encode_robot(s, i, row, p, motion);
    const float* color = i < s.n ? s.colors + 3 * i : s.history_colors + 3 * (i - s.n);
    for (unsigned axis = 0; axis < 3; axis++) row[COLOR + axis] = color[axis] - 0.5f;
    row[KIND + (i < s.n ? 0 : 1)] = 1.0f;
    if (i >= s.n) return;
    row[VELOCITY_KNOWN] = s.velocity_known[i];
    if (s.counters[0] == 0) {
        for (unsigned c = 0; c < N_BODY; c++) row[BODY + c] = s.bodies[static_cast<uint64_t>(N_BODY) * i + c];
    }
    const float* onward = s.counters[0] == 0 ? s.onward : s.velocities;
    float fall = GRAVITY_M_S2 * s.step_secs * s.step_secs;
    for (unsigned axis = 0; axis < 3; axis++) {
        uint64_t at = 3ull * i + axis;
        row[VELOCITY + axis] = s.velocities[at] / MOTION_SCALE_M;
        float v = onward[at];
        float* candidates = s.candidates + 3 * N_CANDIDATES * i + axis;
        candidates[0] = 0.0f;
        candidates[3] = v;
        candidates[6] = motion[axis];
        candidates[9] = axis == 2 ? v + fall : v;
    }
}

// A kinematic particle of time 0 (a step back), 1 (now) or 2 (ahead); `back`, `now`, `ahead` are its
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

// Nearest point of the robot of each scene and history particle, the first of several: a thread a
// particle; blocks of y = 0 look at the points now, of y = 1 one step ahead.
KERNEL __launch_bounds__(128) nearest_robot(Step s) {
    using namespace tokens;
    SHARED float tile[3 * BLOCK];
    unsigned i = blockIdx.x * BLOCK + threadIdx.x, n_others = s.n + s.h, index = 0;
    const float* points = robot(s, 1 + blockIdx.y);
    float p[3] = {0.0f, 0.0f, 0.0f}, best = infinity();
    if (i < n_others) {
        for (unsigned axis = 0; axis < 3; axis++) p[axis] = particle(s, i)[axis];
    }
    for (unsigned first = 0; first < s.n_robot; first += BLOCK) {
        unsigned count = s.n_robot - first < BLOCK ? s.n_robot - first : BLOCK;
        for (unsigned c = threadIdx.x; c < 3 * count; c += BLOCK) tile[c] = points[3ull * first + c];
        __syncthreads();
        for (unsigned c = 0; c < count; c++) {
            float distance = squared_distance(tile + 3 * c, p);
            if (distance < best) {
                best = distance;
                index = first + c;
            }
        }
        __syncthreads();
    }
    if (i < n_others) s.nearest[n_others * blockIdx.y + i] = index;
}

// One thread a token, behind `nearest_robot`.
KERNEL encode(Step s) {
    using namespace tokens;
    unsigned token = blockIdx.x * blockDim.x + threadIdx.x, n_others = s.n + s.h;
    if (token >= n_others + 3 * s.k) return;
    // Of the robot: its time, and the place of its point there.
    unsigned j = token < n_others ? 0 : token - n_others, time = token < n_others ? 0 : j / s.k;
    uint64_t at = token < n_others ? 0 : 3ull * s.stride * (j % s.k);
    const float* p = token < n_others ? particle(s, token) : robot(s, time) + at;
    float* row = s.features + static_cast<uint64_t>(N_FEATURES) * token;
    for (unsigned feature = 0; feature < N_FEATURES; feature++) row[feature] = 0.0f;
    for (unsigned axis = 0; axis < 3; axis++) {
        s.token_positions[3ull * token + axis] = p[axis];
        if (!is_finite(p[axis])) atomicOr(&s.counters[1], FLAG_POSITION);
    }
    encode_position(row, p, s);
    if (token < n_others) {
        encode_particle(s, token, row, p);
    } else {
        encode_kinematic(row, time, robot(s, 0) + at, robot(s, 1) + at, robot(s, 2) + at);
    }
}
