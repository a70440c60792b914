// Tokens of a pass: positions and input features (model::tokens, the CPU's).
#pragma once
#include "contacts.cuh"

namespace tokens {
const float MOTION_SCALE_M = 0.05f, NEARNESS_M = 0.03f, DIRECTION_M = 0.02f;
const float CLEARANCE_SCALE_M = 0.05f, MAX_CLEARANCE = 4.0f;
const unsigned N_OCTAVES = 4, N_MORE_OCTAVES = 2, N_KINDS = 5;
const unsigned POSITION = 0, OCTAVES = POSITION + 3, COLOR = OCTAVES + 6 * N_OCTAVES;
const unsigned KIND = COLOR + 3, VELOCITY = KIND + N_KINDS, VELOCITY_KNOWN = VELOCITY + 3;
const unsigned DIRECTION = VELOCITY_KNOWN + 1, NEARNESS = DIRECTION + 3;
// Of a step: of the first one here, of the others behind all this.
const unsigned ROBOT_MOTION = NEARNESS + 1, NEAR_MOTION = ROBOT_MOTION + 3;
const unsigned AHEAD_DIRECTION = NEAR_MOTION + 3, BODY = AHEAD_DIRECTION + 4;
const unsigned N_STEP = BODY - ROBOT_MOTION, FIRST = BODY + N_BODY;
// Of what touches the body in a step.
const unsigned TOUCH_ROBOT = 0, CLEARANCE = 4, OBSTACLE = 5, STRUCK = 6, N_CONTACT = 10;
static_assert(FIRST == 70 && N_STEP == 10, "the features of model::tokens");
const unsigned BLOCK = 128;

__device__ inline void encode_axis(float* row, unsigned axis, unsigned n_octaves, float half_turns) {
    float sine, cosine;
    sincospif(half_turns, &sine, &cosine);
    for (unsigned octave = 0; octave < n_octaves; octave++) {
        row[6 * octave + 2 * axis] = sine;
        row[6 * octave + 2 * axis + 1] = cosine;
        float doubled = 2.0f * sine * cosine;
        cosine = cosine * cosine - sine * sine;
        sine = doubled;
    }
}

__device__ inline float nearness(float distance) { return expf(-distance / NEARNESS_M); }

__device__ inline void encode_motion(float* row, const float* from, const float* to) {
    for (unsigned axis = 0; axis < 3; axis++) row[axis] = (to[axis] - from[axis]) / MOTION_SCALE_M;
}

// The direction of p from a point of the robot, and behind it how near it is, which it gives too.
__device__ inline float encode_nearness(float* row, const float* p, const float* point) {
    float length = sqrtf(squared_distance(p, point)), near = nearness(length);
    for (unsigned axis = 0; axis < 3; axis++) row[axis] = (p[axis] - point[axis]) / (length + DIRECTION_M);
    row[3] = near;
    return near;
}

// What is told once of a scene or history particle, but for its place.
__device__ inline void encode_particle(const Pass& s, unsigned i, float* row, float* past, const float* p) {
    bool is_scene = i < s.n;
    const float* color = is_scene ? s.colors + 3ull * i : s.history_colors + 3ull * (i - s.n);
    for (unsigned axis = 0; axis < 3; axis++) row[COLOR + axis] = color[axis] - 0.5f;
    row[KIND + (is_scene ? 0 : 1)] = 1.0f;
    if (s.is_paper) return;
    if (s.n_robot > 0) {
        unsigned now = s.nearest[i];
        encode_nearness(row + DIRECTION, p, pass::robot(s, 1) + 3ull * now);
        float back[3];
        rigid::motion_of(pass::link_motion(s, 0, s.links[now]), p, back);
        for (unsigned axis = 0; axis < 3; axis++) past[axis] = -back[axis] / MOTION_SCALE_M;
    }
    if (!is_scene) return;
    row[VELOCITY_KNOWN] = s.velocity_known[i];
    for (unsigned axis = 0; axis < 3; axis++) row[VELOCITY + axis] = s.velocities[3ull * i + axis] / MOTION_SCALE_M;
    if (!pass::is_first(s)) return;
    for (unsigned c = 0; c < N_BODY; c++) row[BODY + c] = s.bodies[static_cast<uint64_t>(N_BODY) * i + c];
}

// Row of the robot's points that are tokens of time 0, 1 or 2.
__device__ inline unsigned row_of(const Pass& s, unsigned time) {
    if (s.steps == 1) return time;
    return time == 0 ? 1 : time == 1 ? 1 + ceil_div(s.steps, 2) : 1 + s.steps;
}

// What is told once of a kinematic particle, which is at place `at` of the robot's points.
__device__ inline void encode_kinematic(const Pass& s, unsigned time, uint64_t at, float* row, float* past) {
    row[KIND + 2 + time] = 1.0f;
    if (s.is_paper) return;
    // Of now and later the way ahead; in longer passes the way that led there.
    unsigned to = s.steps > 1 ? row_of(s, time) : time == 0 ? 1 : 2;
    encode_motion(row + VELOCITY, pass::robot(s, to - 1) + at, pass::robot(s, to) + at);
    row[VELOCITY_KNOWN] = 1.0f;
    row[NEARNESS] = 1.0f;
    encode_motion(past, pass::robot(s, 0) + at, pass::robot(s, 1) + at);
}

// What touches the body of scene particle `i` in a step.
__device__ inline void encode_contact(const Pass& s, unsigned i, unsigned step, float* row) {
    unsigned body = s.body_of[i];
    if (body >= pass::n_bodies(s)) return;
    unsigned at = step * s.room + body;
    uint64_t robot = s.robot_contacts[at], strike = s.strikes[at];
    float near = nearness(contacts::distance_of(robot));
    row[TOUCH_ROBOT] = near;
    if (robot) {
        unsigned point = s.nearest[(step + 1) * (s.n + s.h) + contacts::particle_of(robot)];
        encode_motion(row + TOUCH_ROBOT + 1, pass::robot(s, step + 1) + 3ull * point,
                      pass::robot(s, step + 2) + 3ull * point);
        for (unsigned axis = 0; axis < 3; axis++) row[TOUCH_ROBOT + 1 + axis] *= near;
    }
    if (s.clearances[at]) {
        float clearance = -unordered(s.clearances[at]) / CLEARANCE_SCALE_M;
        row[CLEARANCE] = fminf(fmaxf(clearance, -MAX_CLEARANCE), MAX_CLEARANCE);
    }
    if (s.obstacles[at]) row[OBSTACLE] = nearness(__uint_as_float(~s.obstacles[at]));
    if (!strike) return;
    near = nearness(contacts::distance_of(strike));
    row[STRUCK] = near;
    const float* motion = pass::candidates(s, contacts::particle_of(strike), step) + 3;
    for (unsigned axis = 0; axis < 3; axis++) {
        float fall = axis == 2 ? static_cast<float>(step + 1) * pass::fall(s) : 0.0f;
        row[STRUCK + 1 + axis] = near * (motion[axis] + fall) / MOTION_SCALE_M;
    }
}

// What is told of a step to a scene or history particle: where the robot is then, and how the link moves
// that is nearest now.
__device__ inline void encode_step(const Pass& s, unsigned i, unsigned step, float* row, const float* p) {
    if (s.n_robot == 0) return;
    unsigned now = s.nearest[i], link = s.links[now], ahead = s.nearest[(step + 1) * (s.n + s.h) + i];
    encode_nearness(row + AHEAD_DIRECTION - ROBOT_MOTION, p, pass::robot(s, step + 2) + 3ull * ahead);
    float near = nearness(sqrtf(squared_distance(p, pass::robot(s, 1) + 3ull * now)));
    float there[3], before[3] = {0.0f, 0.0f, 0.0f};
    rigid::motion_of(pass::link_motion(s, step + 1, link), p, there);
    if (step > 0) rigid::motion_of(pass::link_motion(s, step, link), p, before);
    for (unsigned axis = 0; axis < 3; axis++) {
        float motion = there[axis] - before[axis];
        row[axis] = motion / MOTION_SCALE_M;
        row[NEAR_MOTION - ROBOT_MOTION + axis] = near * motion / MOTION_SCALE_M;
    }
}

// Point of the robot that token `token` is, of `time`: its place among the points of a time.
__device__ inline uint64_t kinematic(const Pass& s, unsigned token, unsigned& time) {
    unsigned j = token - s.n - s.h;
    time = j / s.k;
    return 3ull * s.stride * (j % s.k);
}

// The link motions' points at two times.
struct LinkPoints {
    const float *from, *to;

    __device__ void get(unsigned i, float (&a)[3], float (&b)[3]) const {
        for (unsigned axis = 0; axis < 3; axis++) a[axis] = from[3ull * i + axis], b[axis] = to[3ull * i + axis];
    }
};
}  // namespace tokens

// Nearest point of the robot of each scene and history particle, the first of several: a thread a
// particle; blocks of y = 0 look at the points now, of y = j behind step j.
KERNEL __launch_bounds__(128) nearest_robot(Pass s) {
    if (!pass::of_scene(s)) return;
    using namespace tokens;
    SHARED float tile[3 * BLOCK];
    unsigned i = blockIdx.x * BLOCK + threadIdx.x, n_others = s.n + s.h, index = 0;
    const float* points = pass::robot(s, 1 + blockIdx.y);
    float p[3] = {0.0f, 0.0f, 0.0f}, best = infinity();
    if (i < n_others) {
        for (unsigned axis = 0; axis < 3; axis++) p[axis] = pass::particle(s, i)[axis];
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

// The motion of each link from now to a step back (y = 0) and to the end of each step: a warp each.
KERNEL __launch_bounds__(32) follow_links(Pass s) {
    if (!pass::of_scene(s)) return;
    unsigned link = blockIdx.x, first = s.link_starts[link];
    uint64_t at = 3ull * first;
    const float* other = pass::robot(s, blockIdx.y == 0 ? 0 : 1 + blockIdx.y);
    float motion[N_MOTION];
    rigid::fit(tokens::LinkPoints{pass::robot(s, 1) + at, other + at}, s.link_starts[link + 1] - first, motion);
    if (threadIdx.x > 0) return;
    float* to = s.link_motions + static_cast<uint64_t>(N_MOTION) * (blockIdx.y * s.n_links + link);
    for (unsigned c = 0; c < N_MOTION; c++) to[c] = motion[c];
}

// Features behind all else: a thread a token; blocks of y = 0 write what is told once, of y = j + 1 what of
// step j.
KERNEL __launch_bounds__(128) encode(Pass s) {
    if (!pass::of_scene(s)) return;
    using namespace tokens;
    unsigned token = blockIdx.x * BLOCK + threadIdx.x, n_others = s.n + s.h, time = 0;
    if (token >= n_others + 3 * s.k) return;
    bool is_robot = token >= n_others;
    uint64_t at = is_robot ? kinematic(s, token, time) : 0;
    const float* p = is_robot ? pass::robot(s, row_of(s, time)) + at : pass::particle(s, token);
    float* row = s.features + static_cast<uint64_t>(s.n_features) * token;
    // Behind the steps: octaves, the nearest link's past, contacts; none of these in the papers' inputs.
    unsigned more = FIRST + (s.steps - 1) * N_STEP, past = more + 6 * N_MORE_OCTAVES;
    if (blockIdx.y > 0) {
        unsigned step = blockIdx.y - 1, of_step = step == 0 ? ROBOT_MOTION : FIRST + (step - 1) * N_STEP;
        unsigned contact = past + 3 + N_CONTACT * step;
        for (unsigned c = 0; c < N_STEP; c++) row[of_step + c] = 0.0f;
        if (s.is_paper) return;
        for (unsigned c = 0; c < N_CONTACT; c++) row[contact + c] = 0.0f;
        if (is_robot) {
            const float *from = pass::robot(s, step + 1) + at, *to = pass::robot(s, step + 2) + at;
            encode_motion(row + of_step, from, to);
            encode_motion(row + of_step + NEAR_MOTION - ROBOT_MOTION, from, to);
        } else {
            encode_step(s, token, step, row + of_step, p);
            if (token < s.n) encode_contact(s, token, step, row + contact);
        }
        return;
    }
    for (unsigned c = 0; c < ROBOT_MOTION; c++) row[c] = 0.0f;
    for (unsigned c = BODY; c < FIRST; c++) row[c] = 0.0f;
    for (unsigned c = 0; c < 3 && !s.is_paper; c++) row[past + c] = 0.0f;
    for (unsigned axis = 0; axis < 3; axis++) {
        float x = (p[axis] - s.center[axis]) / s.half_side;
        row[POSITION + axis] = x;
        encode_axis(row + OCTAVES, axis, N_OCTAVES, x);
        if (!s.is_paper) encode_axis(row + more, axis, N_MORE_OCTAVES, x * (1 << N_OCTAVES));
        s.token_positions[3ull * token + axis] = p[axis];
        if (!is_finite(p[axis])) atomicOr(&s.counters[1], FLAG_POSITION);
    }
    if (is_robot) {
        encode_kinematic(s, time, at, row, row + past);
    } else {
        encode_particle(s, token, row, row + past, p);
    }
}

