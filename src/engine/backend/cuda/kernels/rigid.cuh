// Rigid motions (base::geometry::rigid): how far they take points, and the one that fits points seen twice.
#pragma once
#include "pass.cuh"

namespace rigid {
// Pull towards no rotation, as a share of the points' scatter.
const float STIFFNESS = 1e-4f;
// Sweeps of Jacobi's method: four are enough for single precision.
const unsigned N_SWEEPS = 6;
const float INVERSE_PI = 0.318309886f;

__device__ inline float dot(const float* a, const float* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// How far p goes with a motion.
__device__ inline void motion_of(const float* motion, const float* p, float (&way)[3]) {
    float arm[3];
    for (unsigned axis = 0; axis < 3; axis++) arm[axis] = p[axis] - motion[9 + axis];
    for (unsigned axis = 0; axis < 3; axis++) {
        way[axis] = dot(motion + 3 * axis, arm) - arm[axis] + motion[12 + axis];
    }
}

// Where a pose has p.
__device__ inline void apply(const float* pose, const float* p, float (&there)[3]) {
    for (unsigned axis = 0; axis < 3; axis++) there[axis] = dot(pose + 3 * axis, p) + pose[9 + axis];
}

// Rows of the rotation of a quaternion of length 1.
__device__ inline void rows(float w, float x, float y, float z, float* r) {
    r[0] = 1.0f - 2.0f * (y * y + z * z), r[1] = 2.0f * (x * y - z * w), r[2] = 2.0f * (x * z + y * w);
    r[3] = 2.0f * (x * y + z * w), r[4] = 1.0f - 2.0f * (x * x + z * z), r[5] = 2.0f * (y * z - x * w);
    r[6] = 2.0f * (x * z - y * w), r[7] = 2.0f * (y * z + x * w), r[8] = 1.0f - 2.0f * (x * x + y * y);
}

// `pose`, then a rotation by the vector `turn` (rad) about `center`, and a shift.
__device__ inline void then(float (&pose)[N_POSE], const float* turn, const float* shift, const float* center) {
    float half[3] = {0.5f * turn[0], 0.5f * turn[1], 0.5f * turn[2]}, sine, cosine, r[9], next[N_POSE];
    float angle = sqrtf(dot(half, half));
    sincospif(angle * INVERSE_PI, &sine, &cosine);
    float scale = angle > 1e-6f ? sine / angle : 1.0f;
    rows(cosine, half[0] * scale, half[1] * scale, half[2] * scale, r);
    float from[3] = {pose[9] - center[0], pose[10] - center[1], pose[11] - center[2]};
#pragma unroll
    for (unsigned i = 0; i < 3; i++) {
#pragma unroll
        for (unsigned j = 0; j < 3; j++) {
            next[3 * i + j] = r[3 * i] * pose[j] + r[3 * i + 1] * pose[3 + j] + r[3 * i + 2] * pose[6 + j];
        }
        next[9 + i] = dot(r + 3 * i, from) + center[i] + shift[i];
    }
#pragma unroll
    for (unsigned c = 0; c < N_POSE; c++) pose[c] = next[c];
}

// The rotation vector of a motion (rad); none of half a turn.
__device__ inline void turn_of(const float* motion, float (&turn)[3]) {
    turn[0] = 0.5f * (motion[7] - motion[5]);
    turn[1] = 0.5f * (motion[2] - motion[6]);
    turn[2] = 0.5f * (motion[3] - motion[1]);
    float sine = sqrtf(dot(turn, turn));
    float angle = atan2f(sine, 0.5f * (motion[0] + motion[4] + motion[8] - 1.0f));
    for (unsigned axis = 0; axis < 3; axis++) turn[axis] = sine > 1e-6f ? turn[axis] * (angle / sine) : 0.0f;
}

// Turns the plane of P and Q so that the symmetric `a` has nothing between them any more (Jacobi).
template <unsigned P, unsigned Q> __device__ inline void annul(float (&a)[4][4], float (&v)[4][4]) {
    if (a[P][Q] == 0.0f) return;
    float theta = (a[Q][Q] - a[P][P]) / (2.0f * a[P][Q]);
    float tangent = (theta < 0.0f ? -1.0f : 1.0f) / (fabsf(theta) + sqrtf(theta * theta + 1.0f));
    float cosine = 1.0f / sqrtf(tangent * tangent + 1.0f), sine = tangent * cosine;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        float p = a[i][P], q = a[i][Q];
        a[i][P] = cosine * p - sine * q;
        a[i][Q] = sine * p + cosine * q;
        p = v[i][P], q = v[i][Q];
        v[i][P] = cosine * p - sine * q;
        v[i][Q] = sine * p + cosine * q;
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        float p = a[P][i], q = a[Q][i];
        a[P][i] = cosine * p - sine * q;
        a[Q][i] = sine * p + cosine * q;
    }
}

// Rows of the rotation that turns `m` = Σ b·aᵀ's points a into b with the least squared error: the first
// eigenvector of Horn's matrix (1987) is its quaternion, and it is never a reflection.
__device__ inline void rotation_of(const float (&m)[9], float* r) {
    float a[4][4] = {{m[0] + m[4] + m[8], m[7] - m[5], m[2] - m[6], m[3] - m[1]},
                     {m[7] - m[5], m[0] - m[4] - m[8], m[3] + m[1], m[2] + m[6]},
                     {m[2] - m[6], m[3] + m[1], m[4] - m[0] - m[8], m[7] + m[5]},
                     {m[3] - m[1], m[2] + m[6], m[7] + m[5], m[8] - m[0] - m[4]}};
    float v[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
    for (unsigned sweep = 0; sweep < N_SWEEPS; sweep++) {
        annul<0, 1>(a, v), annul<0, 2>(a, v), annul<0, 3>(a, v);
        annul<1, 2>(a, v), annul<1, 3>(a, v), annul<2, 3>(a, v);
    }
    float most = a[0][0], q[4] = {v[0][0], v[1][0], v[2][0], v[3][0]};
#pragma unroll
    for (unsigned c = 1; c < 4; c++) {
        if (!(a[c][c] > most)) continue;
        most = a[c][c];
#pragma unroll
        for (unsigned i = 0; i < 4; i++) q[i] = v[i][c];
    }
    float square = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3], scale = 1.0f / sqrtf(square);
    // What is not finite turns nothing.
    bool is_usable = is_finite(square) && is_finite(most);
    rows(is_usable ? q[0] * scale : 1.0f, is_usable ? q[1] * scale : 0.0f, is_usable ? q[2] * scale : 0.0f,
         is_usable ? q[3] * scale : 0.0f, r);
}

// The motion that takes points to points with the least squared error, of less than three their mean way;
// a warp's work, each lane of which has it. `points.get(i, from, to)` gives pair i of `count`.
template <class Points> __device__ void fit(const Points& points, unsigned count, float (&motion)[N_MOTION]) {
    unsigned lane = threadIdx.x % WARP;
    float from[3], to[3], sums[6] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (unsigned i = lane; i < count; i += WARP) {
        points.get(i, from, to);
        for (unsigned axis = 0; axis < 3; axis++) sums[axis] += from[axis], sums[3 + axis] += to[axis];
    }
    for (unsigned c = 0; c < 6; c++) sums[c] = warp_sum(sums[c]) / static_cast<float>(count > 0 ? count : 1);
    float m[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0}, scatter = 0.0f;
    for (unsigned i = lane; i < count; i += WARP) {
        points.get(i, from, to);
#pragma unroll
        for (unsigned axis = 0; axis < 3; axis++) from[axis] -= sums[axis], to[axis] -= sums[3 + axis];
#pragma unroll
        for (unsigned c = 0; c < 9; c++) m[c] += to[c / 3] * from[c % 3];
        scatter += dot(from, from);
    }
    scatter = warp_sum(scatter);
#pragma unroll
    for (unsigned c = 0; c < 9; c++) m[c] = warp_sum(m[c]) + (c % 4 == 0 ? STIFFNESS * scatter : 0.0f);
#pragma unroll
    for (unsigned c = 0; c < 9; c++) motion[c] = c % 4 == 0 ? 1.0f : 0.0f;
    if (count >= 3) rotation_of(m, motion);
    for (unsigned axis = 0; axis < 3; axis++) {
        motion[9 + axis] = sums[axis];
        motion[12 + axis] = sums[3 + axis] - sums[axis];
    }
}
}  // namespace rigid
