// One pass's buffers in device memory, of one scene or of several of the same sizes, one behind the other; `PassBuffers` in src/engine/backend/cuda/tokens.rs is its mirror image.
#pragma once
#include "common.cuh"

const unsigned N_BODY = 17;
const unsigned N_CANDIDATES = 4, N_HEAD = N_CANDIDATES + 3;
// Numbers of a rigid motion: rows of the rotation, centre, way of the centre; and of a pose: rows of the
// rotation, translation.
const unsigned N_MOTION = 15, N_POSE = 12;
const unsigned NO_BODY = 0xffffffffu;

struct Pass {
    const unsigned* n_scenes;  // how many scenes there are; blocks of others end at once
    // What follows has as much for each scene.
    unsigned* counters;  // passes done, flags
    // State; n scene particles, h of history, n_robot points on n_links links of the robot at each time.
    float* positions;          // [n, 3], m
    float* velocities;         // [n, 3], m a step
    float* velocity_known;     // [n], 0 or 1
    const float* colors;       // [n, 3]
    float* history_positions;  // [h, 3]
    float* history_colors;     // [h, 3]
    const float* robot;        // [times, n_robot, 3]: a step back, now, ahead, …
    const unsigned* links;        // [n_robot]: number of the link that holds each point, ascending
    const unsigned* link_starts;  // [n_links + 1]: the first point of each
    const unsigned* body_of;        // [n]: number of each one's body, or NO_BODY
    const unsigned* members;        // particles by body
    const unsigned* member_starts;  // [n_bodies + 1]: the first of each body
    const unsigned* scalars;        // n_bodies, bits of the support plane's height (m; -inf without)
    // Of the first pass alone.
    const float* onward;           // [n, 3]: motion of its first step if bodies turn on as they do, m
    const float* bodies;           // [n, N_BODY]: what each is told of its body
    const float* body_motions;     // [n_bodies, N_MOTION]: of each in its first step
    const unsigned* motion_known;  // [n_bodies]: whether that is known
    // Made anew in each pass.
    unsigned* nearest;    // [steps + 1, n + h]: point of the robot, now and after each step
    float* link_motions;  // [steps + 1, n_links, N_MOTION]: from now to a step back, and to each step ahead
    float* poses;         // [n_bodies, steps, N_POSE]: of bodies in flight, seen from now
    float* ahead;         // [steps, n, 3]: each particle if it goes on and falls, whatever is below
    // Greatest of `ordered` keys (common.cuh), 0 for none.
    uint64_t* heights;          // [MOST_CELLS, MOST_CELLS]: greatest height, with its body
    uint64_t* second_heights;   // the same of another body
    uint64_t* robot_contacts;   // [steps, room]: least distance from the robot, with the particle
    uint64_t* strikes;          // [steps, room]: least distance from what moves, with the particle
    unsigned* clearances;       // [steps, room]: least height above the support plane
    unsigned* obstacles;        // [steps, room]: least distance from what rests
    unsigned* bounds;           // [4]: of what rests: -x, -y, x, y
    // Tokens; k of each time are points of the robot, one in `stride` of them.
    float* token_positions;  // [n + h + 3 k, 3]
    float* features;         // [n + h + 3 k, n_features]
    float* candidates;       // [n, steps, N_CANDIDATES, 3]
    // The model's outputs, and what follows from them.
    const float* outputs;  // [n, steps, n_outputs]
    float* displacements;  // [kept, n, 3]
    float* sigmas;         // [steps, n], or none
    unsigned n, h, k, n_robot, n_links, stride, room;
    // Steps of a pass, and behind how many of them the next pass starts.
    unsigned steps, kept;
    unsigned n_features, n_outputs;
    // Words of a scene that came from the host, and of its keys.
    unsigned n_uploaded, n_keys;
    unsigned is_paper;  // whether tokens are told places, colours and times alone
    float center[3], half_side, step_secs;
};

namespace pass {
const float GRAVITY_M_S2 = -9.81f, STILL_M = 0.0015f;

// The part of scene blockIdx.z; false if there is no such scene.
__device__ inline bool of_scene(Pass& s) {
    unsigned scene = blockIdx.z;
    if (scene >= s.n_scenes[0]) return false;
    uint64_t c = scene, words = c * s.n_uploaded, keys = c * s.n_keys, tokens = c * (s.n + s.h + 3 * s.k);
    uint64_t moves = c * s.steps * s.n;
    s.counters += 2 * c;
    s.positions += words, s.velocities += words, s.velocity_known += words, s.colors += words;
    s.history_positions += words, s.history_colors += words;
    s.robot += words, s.links += words, s.link_starts += words;
    s.body_of += words, s.members += words, s.member_starts += words, s.scalars += words;
    s.onward += words, s.bodies += words, s.body_motions += words, s.motion_known += words;
    s.nearest += c * (s.steps + 1) * (s.n + s.h);
    s.link_motions += c * (s.steps + 1) * s.n_links * N_MOTION;
    s.poses += c * s.room * s.steps * N_POSE;
    s.ahead += 3 * moves;
    s.heights += keys / 2, s.second_heights += keys / 2, s.robot_contacts += keys / 2, s.strikes += keys / 2;
    s.clearances += keys, s.obstacles += keys, s.bounds += keys;
    s.token_positions += 3 * tokens, s.features += s.n_features * tokens;
    s.candidates += 3 * N_CANDIDATES * moves;
    s.outputs += s.n_outputs * moves;
    s.displacements += 3 * c * s.kept * s.n;
    s.sigmas += moves;
    return true;
}

__device__ inline bool is_first(const Pass& s) { return s.counters[0] == 0; }
__device__ inline unsigned n_bodies(const Pass& s) { return s.scalars[0]; }
__device__ inline float support_m(const Pass& s) { return __uint_as_float(s.scalars[1]); }
// What a step's fall adds to the motion in a step (m).
__device__ inline float fall(const Pass& s) { return GRAVITY_M_S2 * s.step_secs * s.step_secs; }

// Scene particle `i`, or history particle `i - n`, before the pass.
__device__ inline const float* particle(const Pass& s, unsigned i) {
    return i < s.n ? s.positions + 3ull * i : s.history_positions + 3ull * (i - s.n);
}

// Points of the robot a step back (0), now (1) or ahead (2, …).
__device__ inline const float* robot(const Pass& s, unsigned row) {
    return s.robot + 3ull * s.n_robot * (s.counters[0] * s.kept + row);
}

// Whether particle `i` rests, in the order of operations of rollout_input::is_still.
__device__ inline bool is_still(const Pass& s, unsigned i) {
    const float zero[3] = {0.0f, 0.0f, 0.0f};
    return s.velocity_known[i] >= 0.5f && sqrtf(squared_distance(s.velocities + 3ull * i, zero)) < STILL_M;
}

// The candidate motions of particle `i` in a step.
__device__ inline float* candidates(const Pass& s, unsigned i, unsigned step) {
    return s.candidates + 3ull * N_CANDIDATES * (static_cast<uint64_t>(i) * s.steps + step);
}

// The motion of a link from now to a step back (0) or to the end of a step (1, …).
__device__ inline const float* link_motion(const Pass& s, unsigned time, unsigned link) {
    return s.link_motions + static_cast<uint64_t>(N_MOTION) * (time * s.n_links + link);
}
}  // namespace pass
