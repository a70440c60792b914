// Exact k nearest neighbours of many points: sorted in Morton order, 32 to a tile with a bounding box;
// a warp searches for the 32 points of its own tile, in tiles whose box may hold nearer ones.
#pragma once
#include "knn.cuh"

namespace tiles {
const unsigned WARPS = 4, SORTED = 1024;
const unsigned NOBODY = 0xffffffffu;

struct alignas(16) Point {
    float at[3];
    unsigned index;  // NOBODY behind the last point
};

struct Box {
    float low[3], high[3];
};

// Cells that Morton codes number, 1024 an axis; any grid gives the same neighbours.
struct Grid {
    float low[3], cells_per_m;
};

// Moves bit i of ten bits to bit 3 i.
__device__ inline unsigned spread(unsigned x) {
    x = (x | x << 16) & 0x030000ffu;
    x = (x | x << 8) & 0x0300f00fu;
    x = (x | x << 4) & 0x030c30c3u;
    return (x | x << 2) & 0x09249249u;
}

__device__ inline void order(uint64_t& a, uint64_t& b, bool is_ascending) {
    if ((a > b) == is_ascending) {
        uint64_t first = a;
        a = b;
        b = first;
    }
}

// The bitonic network's steps of strides below SORTED, for SORTED numbers that begin at `first`.
__device__ inline void merge(uint64_t* keys, uint64_t first, uint64_t length, unsigned stride) {
    for (; stride > 0; stride /= 2) {
        unsigned at = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
        order(keys[at], keys[at + stride], ((first + at) & length) == 0);
        __syncthreads();
    }
}

// Least squared distance between points of two boxes, rounded as `squared_distance` is: rounding keeps
// the order, so no point within is nearer.
__device__ inline float gap(const Box& a, const Box& b) {
    float along[3];
    for (unsigned axis = 0; axis < 3; axis++) {
        float above = __fsub_rn(b.low[axis], a.high[axis]), below = __fsub_rn(a.low[axis], b.high[axis]);
        along[axis] = fmaxf(fmaxf(above, below), 0.0f);
    }
    float plane = __fadd_rn(__fmul_rn(along[0], along[0]), __fmul_rn(along[1], along[1]));
    return __fadd_rn(plane, __fmul_rn(along[2], along[2]));
}

__device__ inline float warp_max(float x) {
    for (unsigned offset = WARP / 2; offset > 0; offset /= 2) {
        x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, offset));
    }
    return x;
}

__device__ inline float warp_min(float x) { return -warp_max(-x); }

template <unsigned K> struct Search {
    const Point* points;
    Point* candidates;  // of this warp, in shared memory
    Point query;
    knn::Nearest<K> nearest;

    // Offers all points of a tile to all queries.
    __device__ void visit(unsigned tile) {
        unsigned lane = threadIdx.x % WARP;
        candidates[lane] = points[static_cast<uint64_t>(WARP) * tile + lane];
        __syncwarp();
        for (unsigned c = 0; c < WARP; c++) {
            Point candidate = candidates[c];
            if (candidate.index != query.index && candidate.index != NOBODY) {
                nearest.offer(squared_distance(query.at, candidate.at), candidate.index);
            }
        }
        __syncwarp();
    }

    // The largest distance at which a point may still be among this query's k nearest.
    __device__ float own_reach(unsigned k) const {
        float distance = 0.0f;
#pragma unroll
        for (unsigned place = 0; place < K; place++) {
            if (place + 1 == k && query.index != NOBODY) distance = nearest.distances[place];
        }
        return distance;
    }

    // Whether a box may hold a point among any query's k nearest.
    __device__ bool is_wanted(const Box& box, unsigned k) const {
        const float *p = query.at;
        float distance = gap({{p[0], p[1], p[2]}, {p[0], p[1], p[2]}}, box);
        return __ballot_sync(FULL_WARP, query.index != NOBODY && !(distance > own_reach(k))) != 0;
    }

    // Visits those of 32 tiles that may hold a nearer point, the queries' own first.
    __device__ void visit_group(unsigned first, unsigned own, unsigned n_tiles, unsigned k, const Box* boxes) {
        unsigned tile = first + threadIdx.x % WARP, next = own - first;
        float distance = tile < n_tiles ? gap(boxes[own], boxes[tile]) : infinity(), most = warp_max(own_reach(k));
        unsigned wanted = __ballot_sync(FULL_WARP, tile < n_tiles && distance <= most);
        while (wanted != 0) {
            if (next >= WARP || (wanted >> next & 1u) == 0) next = __ffs(wanted) - 1;
            wanted &= ~(1u << next);
            // The reach has shrunk meanwhile.
            if (__shfl_sync(FULL_WARP, distance, next) > most) continue;
            // Points that are far from one another have a box that is near to many others, and few of
            // these are near to one of the points.
            if (!is_wanted(boxes[first + next], k)) continue;
            visit(first + next);
            most = warp_max(own_reach(k));
        }
    }
};

template <unsigned K>
__device__ void search(const Point* points, const Box* boxes, unsigned n_tiles, unsigned n, unsigned k,
                       unsigned* neighbors, Point* candidates) {
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, own = blockIdx.x * WARPS + warp;
    if (own >= n_tiles) return;
    Search<K> search = {points, candidates + warp * WARP, points[static_cast<uint64_t>(WARP) * own + lane], {}};
    // Outward along the curve, by turns: near tiles come first and shorten the reach.
    unsigned n_groups = ceil_div(n_tiles, WARP), group = own / WARP;
    for (unsigned turn = 0; turn < 2 * n_groups; turn++) {
        unsigned away = (turn + 1) / 2, next = turn % 2 == 1 ? group + away : group - away;
        if (next < n_groups) search.visit_group(next * WARP, own, n_tiles, k, boxes);
    }
    if (search.query.index == NOBODY) return;
#pragma unroll
    for (unsigned place = 0; place < K; place++) {
        unsigned index = search.nearest.indices[place];
        uint64_t row = static_cast<uint64_t>(k) * search.query.index;
        if (place < k) neighbors[row + place] = index < n ? index : 0;
    }
}
}  // namespace tiles

// keys [padded]: Morton code << 32 | index; all ones from n on.
KERNEL morton_keys(const float* positions, unsigned n, unsigned padded, tiles::Grid grid, uint64_t* keys) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= padded) return;
    unsigned code = 0;
    for (unsigned axis = 0; axis < 3 && i < n; axis++) {
        float cell = (positions[3ull * i + axis] - grid.low[axis]) * grid.cells_per_m;
        // Not a number counts as 0.
        code |= tiles::spread(static_cast<unsigned>(fminf(fmaxf(cell, 0.0f), 1023.0f))) << axis;
    }
    keys[i] = i < n ? static_cast<uint64_t>(code) << 32 | i : ~static_cast<uint64_t>(0);
}

// Sorts each 1024 keys, up and down by turns: a bitonic sort as far as shared memory reaches.
KERNEL __launch_bounds__(512) sort_blocks(uint64_t* keys) {
    SHARED uint64_t sorted[tiles::SORTED];
    uint64_t first = static_cast<uint64_t>(tiles::SORTED) * blockIdx.x;
    for (unsigned at = threadIdx.x; at < tiles::SORTED; at += 512) sorted[at] = keys[first + at];
    __syncthreads();
    for (unsigned length = 2; length <= tiles::SORTED; length *= 2) {
        tiles::merge(sorted, first, length, length / 2);
    }
    for (unsigned at = threadIdx.x; at < tiles::SORTED; at += 512) keys[first + at] = sorted[at];
}

// A step of the network beyond shared memory: pairs `stride` apart, in sequences of `length`.
KERNEL __launch_bounds__(512) merge_pairs(uint64_t* keys, unsigned length, unsigned stride) {
    uint64_t thread = static_cast<uint64_t>(512) * blockIdx.x + threadIdx.x;
    uint64_t at = 2 * thread - (thread & (stride - 1));
    tiles::order(keys[at], keys[at + stride], (at & length) == 0);
}

// All further steps of sequences of `length`.
KERNEL __launch_bounds__(512) merge_blocks(uint64_t* keys, unsigned length) {
    SHARED uint64_t merged[tiles::SORTED];
    uint64_t first = static_cast<uint64_t>(tiles::SORTED) * blockIdx.x;
    for (unsigned at = threadIdx.x; at < tiles::SORTED; at += 512) merged[at] = keys[first + at];
    __syncthreads();
    tiles::merge(merged, first, length, tiles::SORTED / 2);
    for (unsigned at = threadIdx.x; at < tiles::SORTED; at += 512) keys[first + at] = merged[at];
}

// points [32 n_tiles] in the order of the keys, boxes [n_tiles]; a warp a tile.
KERNEL __launch_bounds__(128)
    make_tiles(const float* positions, unsigned n, unsigned n_tiles, const uint64_t* keys,
               tiles::Point* points, tiles::Box* boxes) {
    unsigned tile = blockIdx.x * tiles::WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (tile >= n_tiles) return;
    unsigned at = WARP * tile + lane;
    tiles::Point point = {{infinity(), infinity(), infinity()}, tiles::NOBODY};
    if (at < n) {
        point.index = static_cast<unsigned>(keys[at]);
        for (unsigned axis = 0; axis < 3; axis++) point.at[axis] = positions[3ull * point.index + axis];
    }
    points[at] = point;
    for (unsigned axis = 0; axis < 3; axis++) {
        float low = tiles::warp_min(point.at[axis]);
        float high = tiles::warp_max(at < n ? point.at[axis] : -infinity());
        if (lane == 0) {
            boxes[tile].low[axis] = low;
            boxes[tile].high[axis] = high;
        }
    }
}

// neighbors [n, k] of the points of tiles; k at most what the name says.
#define KNN_TILES(K)                                                                                      \
    KERNEL __launch_bounds__(128)                                                                         \
        knn_tiles_##K(const tiles::Point* points, const tiles::Box* boxes, unsigned n_tiles, unsigned n,  \
                      unsigned k, unsigned* neighbors) {                                                  \
        SHARED tiles::Point candidates[tiles::WARPS * WARP];                                              \
        tiles::search<K>(points, boxes, n_tiles, n, k, neighbors, candidates);                            \
    }
KNN_TILES(4)
KNN_TILES(8)
KNN_TILES(32)
