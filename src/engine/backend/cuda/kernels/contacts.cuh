// Candidate motions, and what will touch what (model::tokens::contacts). Least distances are found as the
// greatest of `nearer` keys, so that their order does not matter.
#pragma once
#include "flight.cuh"

namespace contacts {
const unsigned BLOCK = 128;

// Greater for less distance, then for the first particle.
__device__ inline uint64_t nearer(float distance, unsigned i) {
    return ~(static_cast<uint64_t>(__float_as_uint(distance)) << 32 | i);
}
__device__ inline float distance_of(uint64_t key) {
    return key ? __uint_as_float(static_cast<unsigned>(~key >> 32)) : infinity();
}
__device__ inline unsigned particle_of(uint64_t key) { return static_cast<unsigned>(~key); }

// How near `p` of particle `i` comes to the robot in a step, and how high above the plane it is at `ahead`.
__device__ inline void meet(const Pass& s, unsigned i, unsigned step, unsigned body, const float* p,
                            const float* ahead) {
    unsigned at = step * s.room + body;
    if (s.n_robot > 0) {
        unsigned point = s.nearest[(step + 1) * (s.n + s.h) + i];
        float distance = sqrtf(squared_distance(p, pass::robot(s, step + 2) + 3ull * point));
        if (distance < infinity()) atomicMax(&s.robot_contacts[at], nearer(distance, i));
    }
    float clearance = ahead[2] - pass::support_m(s);
    if (is_finite(clearance)) atomicMax(&s.clearances[at], ordered(-clearance));
}
}  // namespace contacts

// The candidate motions of each scene particle in each step, and where it goes: a thread each.
KERNEL __launch_bounds__(128) propose(Pass s) {
    if (!pass::of_scene(s)) return;
    unsigned i = blockIdx.x * contacts::BLOCK + threadIdx.x;
    if (i >= s.n) return;
    unsigned body = s.body_of[i];
    bool is_first = pass::is_first(s), has_body = body < pass::n_bodies(s);
    bool turns = is_first && has_body && s.motion_known[body];
    float p[3], at[3], v[3], motion[N_MOTION], link_before[3] = {0.0f, 0.0f, 0.0f}, flown_before[3];
    for (unsigned axis = 0; axis < 3; axis++) {
        p[axis] = at[axis] = flown_before[axis] = s.positions[3ull * i + axis];
        v[axis] = (is_first ? s.onward : s.velocities)[3ull * i + axis];
    }
    for (unsigned c = 0; c < N_MOTION && turns; c++) motion[c] = s.body_motions[N_MOTION * body + c];
    unsigned link = s.n_robot > 0 ? s.links[s.nearest[i]] : 0;
    float fall = pass::fall(s);
    for (unsigned step = 0; step < s.steps; step++) {
        // Its body goes on to turn; where none is known, all goes on straight.
        if (turns && step > 0) {
            for (unsigned axis = 0; axis < 3; axis++) motion[9 + axis] += motion[12 + axis];
            rigid::motion_of(motion, at, v);
        }
        float linked[3] = {0.0f, 0.0f, 0.0f}, flown[3] = {0.0f, 0.0f, 0.0f};
        if (s.n_robot > 0) rigid::motion_of(pass::link_motion(s, step + 1, link), p, linked);
        if (has_body) rigid::apply(s.poses + static_cast<uint64_t>(N_POSE) * (body * s.steps + step), p, flown);
        float* to = pass::candidates(s, i, step);
        float times = static_cast<float>(step + 1), there[3];
        for (unsigned axis = 0; axis < 3; axis++) {
            at[axis] += v[axis];
            to[axis] = 0.0f;
            to[3 + axis] = v[axis];
            to[6 + axis] = linked[axis] - link_before[axis];
            to[9 + axis] = has_body ? flown[axis] - flown_before[axis] : v[axis] + (axis == 2 ? times * fall : 0.0f);
            link_before[axis] = linked[axis];
            flown_before[axis] = flown[axis];
            there[axis] = at[axis] + (axis == 2 ? 0.5f * times * (times + 1.0f) * fall : 0.0f);
            s.ahead[3ull * (static_cast<uint64_t>(step) * s.n + i) + axis] = there[axis];
        }
        if (has_body) contacts::meet(s, i, step, body, p, there);
    }
}

// What moves and what rests in its way: a thread a scene particle; blocks of y = j look at step j.
KERNEL __launch_bounds__(128) strike(Pass s) {
    if (!pass::of_scene(s)) return;
    using namespace contacts;
    SHARED float tile[3 * BLOCK];
    SHARED unsigned n_movers;
    unsigned i = blockIdx.x * BLOCK + threadIdx.x, step = blockIdx.y, obstacle = 0;
    unsigned body = i < s.n ? s.body_of[i] : NO_BODY;
    bool moves = body < pass::n_bodies(s) && s.velocity_known[i] > 0.0f && !pass::is_still(s, i);
    if (threadIdx.x == 0) n_movers = 0;
    __syncthreads();
    if (moves) atomicAdd(&n_movers, 1u);
    __syncthreads();
    if (n_movers == 0) return;
    float p[3] = {0.0f, 0.0f, 0.0f}, best = infinity();
    if (moves) {
        for (unsigned axis = 0; axis < 3; axis++) {
            p[axis] = s.ahead[3ull * (static_cast<uint64_t>(step) * s.n + i) + axis];
        }
    }
    for (unsigned first = 0; first < s.n; first += BLOCK) {
        unsigned other = first + threadIdx.x, count = s.n - first < BLOCK ? s.n - first : BLOCK;
        bool rests = other < s.n && pass::is_still(s, other);
        for (unsigned axis = 0; axis < 3; axis++) {
            // Infinitely far is nobody's nearest.
            tile[3 * threadIdx.x + axis] = rests ? s.positions[3ull * other + axis] : infinity();
        }
        __syncthreads();
        for (unsigned c = 0; c < count && moves; c++) {
            float square = squared_distance(tile + 3 * c, p);
            if (square < best) {
                best = square;
                obstacle = first + c;
            }
        }
        __syncthreads();
    }
    if (!moves || !(best < infinity())) return;
    unsigned struck = s.body_of[obstacle];
    if (struck == body) return;
    float distance = sqrtf(best);
    atomicMax(&s.obstacles[step * s.room + body], ~__float_as_uint(distance));
    if (struck < pass::n_bodies(s)) atomicMax(&s.strikes[step * s.room + struck], nearer(distance, i));
}
