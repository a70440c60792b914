// From the images of all cameras to their points in the world frame, the height of the support plane,
// and draws of particles in Morton order: cloud.rs and particles.rs, number for number. Operations are
// never fused, and sums are of integers, so that the order of threads changes nothing.
#pragma once
#include "knn_tiles.cuh"

// The images of a camera; `Picture` in src/engine/backend/cuda/kernels.rs is its mirror image.
struct Picture {
    const unsigned char* depth;  // rows of depth_step bytes
    const unsigned char* color;  // rows of color_step bytes; null: the points are grey
    const float* rays;           // [height, 3]: of each row's column 0, or of all pixels [n_pixels, 2] at
                                 // depth 1 m, in the camera's frame
    unsigned first;              // its first pixel, of those of all cameras
    unsigned first_source;       // and its source: camera << 24
    unsigned width, has_table;
    unsigned depth_bytes, depth_step, is_big;  // 2: millimetres, 4: metres
    unsigned color_bytes, color_step, channels[3];
    float origin[3], per_column[3];  // of rays by row, in the world frame
    float rotation[9];               // of rays by pixel, to the world frame; rows
};

// What changes from frame to frame.
struct Settings {
    float low[3], high[3], cells_per_m[3];  // the workspace, and cells of Morton codes
    unsigned stride;                        // of points on the support plane one in this many takes part
    unsigned wanted[2];                     // points of each draw at most
    uint64_t seed, stamp;
};

namespace cloud {
// As in particles/support.rs; the bins, one more where rounding makes one, and an empty one.
const unsigned MAX_BINS = 4096, N_BINS = MAX_BINS + 2;
const unsigned THREADS = 256, ROUNDS = 12;
const uint64_t NOBODY = ~static_cast<uint64_t>(0);

// The least key beyond `rank` others that begin alike, as far as it is known; or, FOUND, the largest key
// that begins like those that are drawn, all of them.
struct Rank {
    uint64_t key;
    unsigned pixel, rank;
};
const unsigned FOUND = 0xffffffffu;

struct Draw {
    Rank* ranks;             // [ROUNDS + 1]
    unsigned* counts;        // [ROUNDS, 256], zero at first
    unsigned* n_drawn;       // zero at first
    uint64_t* sorted;        // [n_sorted], a power of two
    float* positions;        // [wanted, 3]
    unsigned* colors;        // [wanted]: red, green, blue in the lower bytes
    unsigned* pixels;        // [wanted]
    unsigned number, n_sorted;  // which of the draws it is
};
}  // namespace cloud

// `CloudBuffers` in src/engine/backend/cuda/kernels.rs is its mirror image.
struct Cloud {
    const Picture* pictures;    // [n_pictures]
    const Settings* settings;
    float* positions;           // [n, 3], m; NaN where nothing was measured in the workspace
    unsigned* colors;           // [n]
    uint64_t* keys;             // [n]
    unsigned* histogram;        // [N_BINS] of heights, zero at first, as the next three
    unsigned long long* sum;    // of heights on the support plane, in units of 2^-30 m
    unsigned* bounds;           // [2]: the least and the largest height, as `ordered` has them
    unsigned* counts;           // [2]: points, and those on the support plane
    unsigned* support;          // [3]: points; whether there is a support plane; bits of its height, m
    unsigned n_pictures, n;
};

namespace cloud {
// Bits that are in the order of the numbers; none is 0.
__device__ inline unsigned ordered(float x) {
    unsigned bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float from_ordered(unsigned bits) {
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// How many places of those that `counter` hands out a whole warp takes: the place of this lane.
__device__ inline unsigned take_place(unsigned* counter, bool takes) {
    unsigned takers = __ballot_sync(FULL_WARP, takes), lane = threadIdx.x % WARP, first = 0;
    if (lane == 0 && takers != 0) first = atomicAdd(counter, static_cast<unsigned>(__popc(takers)));
    return __shfl_sync(FULL_WARP, first, 0) + __popc(takers & ((1u << lane) - 1u));
}

__device__ inline unsigned warp_max(unsigned x) {
    for (unsigned offset = WARP / 2; offset > 0; offset /= 2) {
        unsigned other = __shfl_xor_sync(FULL_WARP, x, offset);
        x = x < other ? other : x;
    }
    return x;
}

// Metres; NaN where nothing was measured.
__device__ inline float read_depth(const Picture& picture, unsigned u, unsigned v) {
    const unsigned char* at = picture.depth + static_cast<uint64_t>(v) * picture.depth_step;
    at += picture.depth_bytes * u;
    unsigned bits = 0;
    for (unsigned i = 0; i < picture.depth_bytes; i++) {
        bits |= static_cast<unsigned>(at[i]) << 8 * (picture.is_big ? picture.depth_bytes - 1 - i : i);
    }
    float depth = picture.depth_bytes == 2 ? __fmul_rn(static_cast<float>(bits), 1e-3f) : __uint_as_float(bits);
    return depth >= 0.01f && depth <= 100.0f ? depth : __uint_as_float(0x7fc00000u);
}

__device__ inline void unproject(const Picture& picture, unsigned u, unsigned v, float depth, float (&out)[3]) {
    if (!picture.has_table) {
        for (unsigned axis = 0; axis < 3; axis++) {
            float along = __fmul_rn(static_cast<float>(u), picture.per_column[axis]);
            float ray = __fadd_rn(picture.rays[3ull * v + axis], along);
            out[axis] = __fadd_rn(picture.origin[axis], __fmul_rn(depth, ray));
        }
        return;
    }
    const float* ray = picture.rays + 2ull * (static_cast<uint64_t>(v) * picture.width + u);
    float x = __fmul_rn(depth, ray[0]), y = __fmul_rn(depth, ray[1]);
    for (unsigned axis = 0; axis < 3; axis++) {
        const float* row = picture.rotation + 3 * axis;
        float xy = __fadd_rn(__fmul_rn(row[0], x), __fmul_rn(row[1], y));
        out[axis] = __fadd_rn(__fadd_rn(xy, __fmul_rn(row[2], depth)), picture.origin[axis]);
    }
}

__device__ inline unsigned read_color(const Picture& picture, unsigned u, unsigned v) {
    if (picture.color == nullptr) return 0x808080u;
    const unsigned char* at = picture.color + static_cast<uint64_t>(v) * picture.color_step + picture.color_bytes * u;
    unsigned color = 0;
    for (unsigned c = 0; c < 3; c++) color |= static_cast<unsigned>(at[picture.channels[c]]) << 8 * c;
    return color;
}

// Bins of heights, as particles/support.rs makes them.
struct Bins {
    float low, width;
    unsigned n;

    __device__ Bins(const Cloud& c) {
        float least = from_ordered(~c.bounds[0]), most = from_ordered(c.bounds[1]);
        width = fmaxf(0.004f, __fdiv_rn(__fsub_rn(most, least), static_cast<float>(MAX_BINS - 1)));
        low = __fmul_rn(floorf(__fdiv_rn(least, width)), width);
        n = static_cast<unsigned>(__fdiv_rn(__fsub_rn(most, low), width)) + 1;
        n = n < N_BINS - 1 ? n : N_BINS - 1;
    }

    __device__ unsigned of(float z) const {
        unsigned bin = static_cast<unsigned>(fmaxf(__fdiv_rn(__fsub_rn(z, low), width), 0.0f));
        return bin < n ? bin : n - 1;
    }
};

const float SUPPORT_M = 0.008f;

// graph::random::draw of stream 0.
__device__ inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
__device__ inline uint64_t draw(uint64_t seed, uint64_t stamp, uint64_t particle) {
    uint64_t hash = mix(seed ^ 0x9e3779b97f4a7c15ull);
    return mix(mix(mix(hash ^ stamp) ^ particle));
}

// The picture that a pixel is of.
__device__ inline unsigned picture_of(const Cloud& c, unsigned pixel) {
    unsigned i = 0;
    while (i + 1 < c.n_pictures && c.pictures[i + 1].first <= pixel) i++;
    return i;
}

__device__ inline unsigned digit(uint64_t key, unsigned pixel, unsigned round) {
    return (round < 8 ? static_cast<unsigned>(key >> (56 - 8 * round)) : pixel >> (88 - 8 * round)) & 255u;
}

// Whether the first `round` digits are those of `rank`.
__device__ inline bool is_alike(const Rank& rank, uint64_t key, unsigned pixel, unsigned round) {
    if (round == 0) return true;
    if (round <= 8) return (key ^ rank.key) >> (64 - 8 * round) == 0;
    return key == rank.key && (pixel ^ rank.pixel) >> (96 - 8 * round) == 0;
}

// Points of a draw.
__device__ inline unsigned n_drawn(const Cloud& c, const Draw& d) {
    unsigned wanted = c.settings->wanted[d.number];
    return c.counts[0] < wanted ? c.counts[0] : wanted;
}

// The rank that is looked for in `round`, by the counts of the round before; asked by a whole block.
// `scan` [THREADS] and `found` are shared. False: there are no points.
__device__ inline bool find_rank(const Cloud& c, const Draw& d, unsigned round, unsigned* scan, Rank* found) {
    unsigned n = n_drawn(c, d), t = threadIdx.x;
    if (n == 0) return false;
    if (round == 0) {
        if (t == 0) *found = {0, 0, n - 1};
        __syncthreads();
        return true;
    }
    Rank rank = d.ranks[round - 1];
    if (rank.rank == FOUND) {
        if (t == 0) *found = rank;
        __syncthreads();
        return true;
    }
    unsigned count = d.counts[THREADS * (round - 1) + t], sum = count;
    for (unsigned stride = 1; stride < THREADS; stride *= 2) {
        scan[t] = sum;
        __syncthreads();
        if (t >= stride) sum += scan[t - stride];
        __syncthreads();
    }
    if (sum - count <= rank.rank && rank.rank < sum) {
        rank.rank -= sum - count;
        if (round <= 8) {
            rank.key |= static_cast<uint64_t>(t) << (64 - 8 * round);
        } else {
            rank.pixel |= t << (96 - 8 * round);
        }
        if (rank.rank + 1 == count) {
            // All that begin so: mostly one is left after three or four digits.
            if (round <= 8) rank.key |= (static_cast<uint64_t>(1) << (64 - 8 * round)) - 1;
            rank.pixel |= round <= 8 ? FOUND : (1u << (96 - 8 * round)) - 1u;
            rank.rank = FOUND;
        }
        *found = rank;
    }
    __syncthreads();
    return true;
}
}  // namespace cloud

// A thread a pixel of all cameras.
KERNEL __launch_bounds__(256) unproject_pixels(Cloud c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float p[3] = {0.0f, 0.0f, 0.0f};
    bool is_kept = i < c.n;
    if (i < c.n) {
        const Picture& picture = c.pictures[cloud::picture_of(c, i)];
        const Settings& s = *c.settings;
        unsigned u = (i - picture.first) % picture.width, v = (i - picture.first) / picture.width;
        cloud::unproject(picture, u, v, cloud::read_depth(picture, u, v), p);
        // Comparisons with NaN are false.
        for (unsigned axis = 0; axis < 3; axis++) is_kept = is_kept && p[axis] >= s.low[axis] && p[axis] <= s.high[axis];
        for (unsigned axis = 0; axis < 3; axis++) c.positions[3ull * i + axis] = is_kept ? p[axis] : __uint_as_float(0x7fc00000u);
        c.colors[i] = cloud::read_color(picture, u, v);
    }
    unsigned kept = __ballot_sync(FULL_WARP, is_kept);
    unsigned least = cloud::warp_max(is_kept ? ~cloud::ordered(p[2]) : 0u);
    unsigned most = cloud::warp_max(is_kept ? cloud::ordered(p[2]) : 0u);
    if (threadIdx.x % WARP == 0 && kept != 0) {
        atomicAdd(&c.counts[0], static_cast<unsigned>(__popc(kept)));
        atomicMax(&c.bounds[0], least);
        atomicMax(&c.bounds[1], most);
    }
}

// The histogram of heights; blocks take pixels by turns.
KERNEL __launch_bounds__(256) count_heights(Cloud c) {
    SHARED unsigned counts[cloud::N_BINS];
    for (unsigned bin = threadIdx.x; bin < cloud::N_BINS; bin += blockDim.x) counts[bin] = 0;
    __syncthreads();
    if (c.counts[0] > 0) {
        cloud::Bins bins(c);
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < c.n; i += gridDim.x * blockDim.x) {
            float z = c.positions[3ull * i + 2];
            if (is_finite(z)) atomicAdd(&counts[bins.of(z)], 1u);
        }
    }
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < cloud::N_BINS; bin += blockDim.x) {
        if (counts[bin] > 0) atomicAdd(&c.histogram[bin], counts[bin]);
    }
}

// Sums up the heights around the two neighbouring bins that hold most, the lowest of several.
KERNEL __launch_bounds__(256) sum_heights(Cloud c) {
    SHARED uint64_t fullest[cloud::THREADS];
    if (c.counts[0] == 0) return;
    cloud::Bins bins(c);
    uint64_t best = 0;
    for (unsigned bin = threadIdx.x; bin < bins.n; bin += blockDim.x) {
        // Behind the last bin there is an empty one.
        uint64_t pair = static_cast<uint64_t>(c.histogram[bin] + c.histogram[bin + 1]) << 32 | (0xffffffffu - bin);
        best = pair > best ? pair : best;
    }
    fullest[threadIdx.x] = best;
    __syncthreads();
    for (unsigned half = cloud::THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && fullest[threadIdx.x + half] > fullest[threadIdx.x]) {
            fullest[threadIdx.x] = fullest[threadIdx.x + half];
        }
        __syncthreads();
    }
    unsigned bin = 0xffffffffu - static_cast<unsigned>(fullest[0]);
    float center = __fadd_rn(bins.low, __fmul_rn(static_cast<float>(bin + 1), bins.width));
    long long sum = 0;
    unsigned count = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < c.n; i += gridDim.x * blockDim.x) {
        float z = c.positions[3ull * i + 2];
        if (fabsf(__fsub_rn(z, center)) < cloud::SUPPORT_M) {
            sum += static_cast<long long>(static_cast<double>(z) * 1073741824.0);
            count += 1;
        }
    }
    if (count > 0) {
        atomicAdd(c.sum, static_cast<unsigned long long>(sum));
        atomicAdd(&c.counts[1], count);
    }
}

// What points are drawn by: those with the least keys.
KERNEL __launch_bounds__(256) draw_keys(Cloud c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = c.counts[0], n_on = c.counts[1];
    bool has_support = n_on > 0 && static_cast<float>(n_on) >= __fmul_rn(0.15f, static_cast<float>(n));
    float height = 0.0f;
    if (has_support) {
        double mean = static_cast<double>(static_cast<long long>(*c.sum)) / static_cast<double>(n_on);
        height = static_cast<float>(mean / 1073741824.0);
    }
    if (i == 0) {
        c.support[0] = n;
        c.support[1] = has_support;
        c.support[2] = __float_as_uint(height);
    }
    if (i >= c.n) return;
    const Settings& s = *c.settings;
    float z = c.positions[3ull * i + 2];
    if (!is_finite(z)) {
        c.keys[i] = cloud::NOBODY;
        return;
    }
    const Picture& picture = c.pictures[cloud::picture_of(c, i)];
    uint64_t bits = cloud::draw(s.seed, s.stamp, picture.first_source + (i - picture.first));
    bool is_thinned = has_support && fabsf(__fsub_rn(z, height)) < cloud::SUPPORT_M;
    is_thinned = is_thinned && static_cast<unsigned>(bits) % s.stride != 0;
    c.keys[i] = bits >> 1 | static_cast<uint64_t>(is_thinned) << 63;
}

// Round after round, a digit more of the key that as many others are below as are wanted: ties go by
// pixel.
KERNEL __launch_bounds__(256) count_digits(Cloud c, cloud::Draw d, unsigned round) {
    SHARED unsigned scan[cloud::THREADS], counts[cloud::THREADS];
    SHARED cloud::Rank rank;
    counts[threadIdx.x] = 0;
    if (!cloud::find_rank(c, d, round, scan, &rank)) return;
    if (blockIdx.x == 0 && threadIdx.x == 0) d.ranks[round] = rank;
    if (rank.rank == cloud::FOUND) return;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < c.n; i += gridDim.x * blockDim.x) {
        uint64_t key = c.keys[i];
        if (key != cloud::NOBODY && cloud::is_alike(rank, key, i, round)) {
            atomicAdd(&counts[cloud::digit(key, i, round)], 1u);
        }
    }
    __syncthreads();
    unsigned count = counts[threadIdx.x];
    if (count > 0) atomicAdd(&d.counts[cloud::THREADS * round + threadIdx.x], count);
}

// The points up to that key: Morton code << 32 | pixel, in any order; all ones behind them.
KERNEL __launch_bounds__(256) collect_drawn(Cloud c, cloud::Draw d) {
    SHARED unsigned scan[cloud::THREADS];
    SHARED cloud::Rank last;
    bool has_points = cloud::find_rank(c, d, cloud::ROUNDS, scan, &last);
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = cloud::n_drawn(c, d);
    uint64_t key = i < c.n ? c.keys[i] : cloud::NOBODY;
    bool is_drawn = has_points && key != cloud::NOBODY && (key < last.key || (key == last.key && i <= last.pixel));
    unsigned place = cloud::take_place(d.n_drawn, is_drawn), code = 0;
    const Settings& s = *c.settings;
    for (unsigned axis = 0; axis < 3 && is_drawn; axis++) {
        float cell = __fmul_rn(__fsub_rn(c.positions[3ull * i + axis], s.low[axis]), s.cells_per_m[axis]);
        code |= tiles::spread(static_cast<unsigned>(fminf(fmaxf(cell, 0.0f), 1023.0f))) << axis;
    }
    // As many as there is room for: their number is that of the count above.
    if (is_drawn && place < d.n_sorted) d.sorted[place] = static_cast<uint64_t>(code) << 32 | i;
    if (i >= n && i < d.n_sorted) d.sorted[i] = cloud::NOBODY;
}

// The points in the order of `sorted`.
KERNEL __launch_bounds__(256) gather_drawn(Cloud c, cloud::Draw d) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = cloud::n_drawn(c, d);
    if (i >= n) return;
    unsigned pixel = static_cast<unsigned>(d.sorted[i]);
    for (unsigned axis = 0; axis < 3; axis++) d.positions[3ull * i + axis] = c.positions[3ull * pixel + axis];
    d.colors[i] = c.colors[pixel];
    d.pixels[i] = pixel;
}
