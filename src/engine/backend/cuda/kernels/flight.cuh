// Where bodies go that nothing holds (model::tokens::flight): heights of what rests, and the way of each body
// over them.
#pragma once
#include "rigid.cuh"

namespace flight {
const unsigned MOMENTS = 4, MOST_PROBES = 24, MOST_CELLS = 192, BLOCK = 128;
const float CELL_M = 0.025f, BELOW_M = 0.01f;
const float FRICTION = 0.4f, BOUNCE = 0.1f, TURN_LEFT = 0.7f;
const float LEAST = 1.17549435e-38f;
static_assert(MOST_PROBES <= WARP, "a lane a probe");

// Cells of the plane that have heights.
struct Cells {
    float origin[2];
    unsigned n[2];
};

__device__ inline Cells cells(const Pass& s) {
    Cells cells = {{0.0f, 0.0f}, {0, 0}};
    if (s.bounds[0] == 0) return cells;
    for (unsigned axis = 0; axis < 2; axis++) {
        float low = -unordered(s.bounds[axis]), high = unordered(s.bounds[2 + axis]);
        float n = floorf((high - low) / CELL_M) + 1.0f, kept = fminf(n, static_cast<float>(MOST_CELLS));
        // Far from the middle nothing is known.
        cells.n[axis] = static_cast<unsigned>(kept);
        cells.origin[axis] = low + 0.5f * (n - kept) * CELL_M;
    }
    return cells;
}

// The cell of p; false outside.
__device__ inline bool find(const Cells& cells, const float* p, unsigned& at) {
    float x = (p[0] - cells.origin[0]) / CELL_M, y = (p[1] - cells.origin[1]) / CELL_M;
    if (!(x >= 0.0f && x < static_cast<float>(cells.n[0]) && y >= 0.0f && y < static_cast<float>(cells.n[1]))) {
        return false;
    }
    at = static_cast<unsigned>(x) * cells.n[1] + static_cast<unsigned>(y);
    return true;
}

// How far `p` is below what lies under it (m), if it came from a height of `from_m`.
__device__ inline float depth(const Pass& s, const Cells& cells, const float* p, float from_m, unsigned body) {
    float under = pass::support_m(s);
    unsigned at;
    if (find(cells, p, at)) {
        for (unsigned second = 0; second < 2; second++) {
            uint64_t key = second ? s.second_heights[at] : s.heights[at];
            float height = unordered(static_cast<unsigned>(key >> 32));
            bool is_other = key != 0 && static_cast<unsigned>(key) != body;
            if (is_other && height <= from_m + BELOW_M) under = fmaxf(under, height);
        }
    }
    return under - p[2];
}

// The particles of a body one step back and now.
struct Members {
    const Pass& s;
    const unsigned* members;

    __device__ void get(unsigned i, float (&from)[3], float (&to)[3]) const {
        for (unsigned axis = 0; axis < 3; axis++) {
            uint64_t at = 3ull * members[i] + axis;
            to[axis] = s.positions[at];
            from[axis] = s.positions[at] - s.velocities[at];
        }
    }
};
}  // namespace flight

// Bounds of what rests: a thread a scene particle.
KERNEL __launch_bounds__(128) bound_still(Pass s) {
    if (!pass::of_scene(s)) return;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned keys[4] = {0, 0, 0, 0};
    const float* p = s.positions + 3ull * i;
    if (i < s.n && pass::is_still(s, i) && is_finite(p[0]) && is_finite(p[1])) {
        keys[0] = ordered(-p[0]), keys[1] = ordered(-p[1]);
        keys[2] = ordered(p[0]), keys[3] = ordered(p[1]);
    }
    for (unsigned c = 0; c < 4; c++) {
        unsigned most = warp_max(keys[c]);
        if (threadIdx.x % WARP == 0 && most > 0) atomicMax(&s.bounds[c], most);
    }
}

// Greatest heights of what rests, behind `bound_still`: a thread a scene particle.
KERNEL raise_heights(Pass s) {
    if (!pass::of_scene(s)) return;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at;
    if (i >= s.n || !pass::is_still(s, i)) return;
    const float* p = s.positions + 3ull * i;
    if (!flight::find(flight::cells(s), p, at)) return;
    atomicMax(&s.heights[at], static_cast<uint64_t>(ordered(p[2])) << 32 | s.body_of[i]);
}

// Those of other bodies than the greatest, behind it.
KERNEL raise_second_heights(Pass s) {
    if (!pass::of_scene(s)) return;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at;
    if (i >= s.n || !pass::is_still(s, i)) return;
    const float* p = s.positions + 3ull * i;
    if (!flight::find(flight::cells(s), p, at) || static_cast<unsigned>(s.heights[at]) == s.body_of[i]) return;
    atomicMax(&s.second_heights[at], static_cast<uint64_t>(ordered(p[2])) << 32 | s.body_of[i]);
}

// The way of each body over the heights: a warp a body, a lane a particle that meets things.
KERNEL __launch_bounds__(32) fly(Pass s) {
    if (!pass::of_scene(s)) return;
    using namespace flight;
    unsigned body = blockIdx.x, lane = threadIdx.x;
    if (body >= pass::n_bodies(s)) return;
    const unsigned* members = s.members + s.member_starts[body];
    unsigned count = s.member_starts[body + 1] - s.member_starts[body];
    if (count == 0) return;
    float motion[N_MOTION];
    if (pass::is_first(s) && s.motion_known[body]) {
        for (unsigned c = 0; c < N_MOTION; c++) motion[c] = s.body_motions[N_MOTION * body + c];
    } else {
        // What it did in the step before, once more.
        rigid::fit(Members{s, members}, count, motion);
        for (unsigned axis = 0; axis < 3; axis++) motion[9 + axis] += motion[12 + axis];
    }
    // Motions a step, as everywhere; the turning of a moment.
    const float part = 1.0f / MOMENTS, gain = pass::fall(s);
    float turn[3], center[3] = {motion[9], motion[10], motion[11]};
    rigid::turn_of(motion, turn);
    for (unsigned axis = 0; axis < 3; axis++) turn[axis] *= part;
    // What it had was the mean of the step before; by now it falls half a step's gain faster.
    float speed[3] = {motion[12], motion[13], motion[14] + 0.5f * gain};
    unsigned stride = ceil_div(count, MOST_PROBES);
    bool has_probe = lane * stride < count;
    float probe[3] = {0.0f, 0.0f, 0.0f};
    if (has_probe) {
        for (unsigned axis = 0; axis < 3; axis++) probe[axis] = s.positions[3ull * members[lane * stride] + axis];
    }
    const Cells grid = cells(s);
    float pose[N_POSE] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, before_m = probe[2], there[3];
    // What is below already, by noise or as things hang over, may stay so deep.
    float allowed = warp_max(has_probe ? depth(s, grid, probe, probe[2], body) : -infinity());
    allowed = fmaxf(allowed, 0.0f);
    for (unsigned moment = 0; moment < s.steps * MOMENTS; moment++) {
        speed[2] += part * gain;
        const float shift[3] = {speed[0] * part, speed[1] * part, (speed[2] - 0.5f * part * gain) * part};
        rigid::then(pose, turn, shift, center);
        for (unsigned axis = 0; axis < 3; axis++) center[axis] += shift[axis];
        rigid::apply(pose, probe, there);
        float deep = warp_max(has_probe ? depth(s, grid, there, before_m, body) : -infinity()) - allowed;
        if (deep > 0.0f) {
            pose[11] += deep;
            center[2] += deep;
            // An impulse upwards, and along the ground what friction makes of it (Coulomb).
            float fallen = fmaxf(-speed[2], 0.0f);
            float along = fmaxf(sqrtf(speed[0] * speed[0] + speed[1] * speed[1]), LEAST);
            float left = fmaxf(1.0f - FRICTION * (1.0f + BOUNCE) * fallen / along, 0.0f);
            speed[0] *= left, speed[1] *= left, speed[2] = fmaxf(speed[2], BOUNCE * fallen);
            for (unsigned axis = 0; axis < 3; axis++) turn[axis] *= TURN_LEFT;
        }
        rigid::apply(pose, probe, there);
        before_m = there[2];
        if ((moment + 1) % MOMENTS == 0 && lane == 0) {
            float* to = s.poses + static_cast<uint64_t>(N_POSE) * (body * s.steps + moment / MOMENTS);
            for (unsigned c = 0; c < N_POSE; c++) to[c] = pose[c];
        }
    }
}
