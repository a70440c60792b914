//! Exact k nearest neighbours by a uniform grid: for points that lie about evenly on surfaces, as
//! those of a cloud do, four times as fast as a k-d tree.

use std::ops::Range;

use crate::base::geometry::{Cells, Vec3, bounds};
use crate::base::simd::vectorized;

/// Points that are looked at together, in one AVX-512 register or two of AVX2.
const LANES: usize = 16;

/// Cells per point. Points of a cloud lie on surfaces, so that most cells of the box are empty.
const CELLS_PER_POINT: f32 = 8.0;
/// Cells along an axis at most: the rounding of a place in cells stays far below [`SLACK`].
const MAX_CELLS: f32 = 1000.0;
/// Share of a cell by which a point may lie outside of the cell that rounding gives it.
const SLACK: f32 = 1e-3;
/// Points in a point's own cell at most, on average; more are left to the tree.
const MAX_MEAN_OCCUPANCY: u64 = 48;
/// Rings of cells searched around a point before all points are.
const MAX_RINGS: i32 = 4;
/// Most neighbours that are kept without allocating.
pub(super) const MAX_K: usize = 16;

/// Points sorted by cell; keeps its memory.
#[derive(Debug, Default, Clone)]
pub(super) struct Grid {
    cells: Cells,
    cell_m: f32,
    dims: [i32; 3],
    /// x, y and z of the points by cell, then [`LANES`] more.
    axes: [Vec<f32>; 3],
}

/// The nearest so far: squared distance's bits, then index; as integers in the order of both.
struct Nearest {
    keys: [u64; MAX_K],
    k: usize,
}

/// The cells around a point up to some ring.
#[derive(Clone, Copy)]
struct Rings {
    center: [i32; 3],
    /// The point's place, in cells from the corner of the box.
    place: Vec3,
    ring: i32,
}

impl Nearest {
    fn new(k: usize) -> Self {
        Self { keys: [u64::from(f32::INFINITY.to_bits()) << 32 | u64::from(u32::MAX); MAX_K], k }
    }

    #[inline(always)]
    fn offer(&mut self, squared_m2: f32, index: u32) {
        // Not negative, so the bits are in the order of the numbers.
        let key = u64::from(squared_m2.to_bits()) << 32 | u64::from(index);
        if key >= self.keys[self.k - 1] {
            return;
        }
        let mut at = self.k - 1;
        while at > 0 && self.keys[at - 1] > key {
            self.keys[at] = self.keys[at - 1];
            at -= 1;
        }
        self.keys[at] = key;
    }

    /// Squared distance of the last one; infinite while there are less than `k`.
    #[inline(always)]
    fn farthest_m2(&self) -> f32 {
        f32::from_bits((self.keys[self.k - 1] >> 32) as u32)
    }
}

vectorized! {
    fn search_grid(
        grid: &'a Grid,
        nodes: Range<usize>,
        positions: &'a [Vec3],
        k: usize,
        rows: &'a mut [u32],
    ) {
        for (node, row) in nodes.zip(rows.chunks_exact_mut(k)) {
            let nearest = grid.nearest(node as u32, &positions[node], k);
            row.iter_mut().zip(&nearest.keys).for_each(|(slot, &key)| *slot = key as u32);
        }
    }
}

impl Grid {
    /// Sorts `positions` (finite) into cells; false if they are spread so unevenly that a search
    /// would be slow.
    pub(super) fn rebuild(&mut self, positions: &[Vec3]) -> bool {
        let (origin, cell_m, dims) = fit(positions);
        (self.cell_m, self.dims) = (cell_m, dims);
        self.cells.rebuild(positions, origin, cell_m, dims.map(|n| n as usize));
        if self.cells.pairs() > MAX_MEAN_OCCUPANCY * positions.len() as u64 {
            return false;
        }
        for (axis, column) in self.axes.iter_mut().enumerate() {
            column.clear();
            column.extend(self.cells.order().iter().map(|&i| positions[i as usize][axis]));
            column.extend([0.0; LANES]);
        }
        true
    }

    /// The `k` (at most [`MAX_K`], and fewer than there are points) nearest others of each of
    /// `nodes`, nearest first, into `rows`; ties go to the lower index.
    pub(super) fn search(
        &self,
        nodes: Range<usize>,
        positions: &[Vec3],
        k: usize,
        rows: &mut [u32],
    ) {
        search_grid(self, nodes, positions, k, rows);
    }

    /// The point nearest to `position`, wherever that is (finite); of equally near ones, the first.
    #[inline(always)]
    pub(super) fn nearest_point(&self, position: &Vec3) -> u32 {
        // So far outside of the box the rounding of a place in cells exceeds the slack.
        if self.cells.place(position).iter().all(|place| place.abs() < 2.0 * MAX_CELLS) {
            return self.nearest(u32::MAX, position, 1).keys[0] as u32;
        }
        let mut nearest = Nearest::new(1);
        self.search_places(u32::MAX, position, 0..self.cells.order().len(), &mut nearest);
        nearest.keys[0] as u32
    }

    #[inline(always)]
    fn nearest(&self, node: u32, position: &Vec3, k: usize) -> Nearest {
        let mut nearest = Nearest::new(k);
        let center = self.cells.coordinates(position, 0.0).map(|c| c as i32);
        let place = self.cells.place(position);
        for ring in 1..=MAX_RINGS {
            self.search_ring(node, position, Rings { center, place, ring }, &mut nearest);
            let reach = self.reach(Rings { center, place, ring });
            // Points at the same distance may lie outside: they would have to lose by index.
            if nearest.farthest_m2() < reach * reach {
                return nearest;
            }
        }
        let mut nearest = Nearest::new(k);
        self.search_places(node, position, 0..self.cells.order().len(), &mut nearest);
        nearest
    }

    /// Distance (m) within which all points lie in the cells up to the ring.
    #[inline(always)]
    fn reach(&self, Rings { center, place, ring }: Rings) -> f32 {
        let mut reach = f32::INFINITY;
        for i in 0..3 {
            if center[i] - ring > 0 {
                reach = reach.min(place[i] - (center[i] - ring) as f32);
            }
            if center[i] + ring < self.dims[i] - 1 {
                reach = reach.min((center[i] + ring + 1) as f32 - place[i]);
            }
        }
        (reach - SLACK).max(0.0) * self.cell_m
    }

    /// Offers the points of the cells in the ring, the nearest columns first; ring 1 holds ring 0.
    #[inline(always)]
    fn search_ring(&self, node: u32, position: &Vec3, rings: Rings, nearest: &mut Nearest) {
        let Rings { center, ring, .. } = rings;
        // 0, -1, 1, -2, 2, …
        let offsets = || (0..2 * ring + 1).map(|i| if i % 2 == 1 { -(i + 1) / 2 } else { i / 2 });
        for dz in offsets() {
            for dy in offsets() {
                let (y, z) = (center[1] + dy, center[2] + dz);
                let inside = (0..self.dims[1]).contains(&y) && (0..self.dims[2]).contains(&z);
                if !inside || self.gap_m2(rings, y, z) > nearest.farthest_m2() {
                    continue;
                }
                let (first, last) = (center[0] - ring, center[0] + ring);
                if ring == 1 || dz.abs().max(dy.abs()) == ring {
                    let ends = [first.max(0), last.min(self.dims[0] - 1)];
                    self.search_row(node, position, z, y, ends, nearest);
                    continue;
                }
                // Only the two ends are new.
                for x in [first, last] {
                    if (0..self.dims[0]).contains(&x) {
                        self.search_row(node, position, z, y, [x; 2], nearest);
                    }
                }
            }
        }
    }

    /// Squared distance (m²) below which no point of column (y, z) lies.
    #[inline(always)]
    fn gap_m2(&self, Rings { center, place, .. }: Rings, y: i32, z: i32) -> f32 {
        let gap = |i: usize, cell: i32| match cell - center[i] {
            0 => 0.0,
            1.. => cell as f32 - place[i],
            _ => place[i] - (cell + 1) as f32,
        };
        let [gap_y, gap_z] = [gap(1, y), gap(2, z)].map(|g| (g - SLACK).max(0.0) * self.cell_m);
        gap_y * gap_y + gap_z * gap_z
    }

    /// Offers the points of the cells from `ends[0]` to `ends[1]` of a row.
    #[inline(always)]
    fn search_row(
        &self,
        node: u32,
        position: &Vec3,
        z: i32,
        y: i32,
        ends: [i32; 2],
        nearest: &mut Nearest,
    ) {
        let [from, to] = ends.map(|x| x as usize);
        let (start, end) = self.cells.row(z as usize, y as usize, from, to);
        self.search_places(node, position, start..end, nearest);
    }

    #[inline(always)]
    fn search_places(
        &self,
        node: u32,
        position: &Vec3,
        places: Range<usize>,
        nearest: &mut Nearest,
    ) {
        for first in places.clone().step_by(LANES) {
            let n = (places.end - first).min(LANES);
            let squared_m2 = self.squared_distances(first, position);
            let farthest_m2 = nearest.farthest_m2();
            let mut closer = 0u32;
            for (lane, &squared) in squared_m2.iter().enumerate() {
                closer |= u32::from(squared <= farthest_m2) << lane;
            }
            closer &= u32::MAX >> (32 - n);
            while closer != 0 {
                let lane = closer.trailing_zeros() as usize;
                closer &= closer - 1;
                let index = self.cells.order()[first + lane];
                if index != node {
                    nearest.offer(squared_m2[lane], index);
                }
            }
        }
    }

    /// Of the points at `first` and after, in the order of operations of
    /// [`crate::base::geometry::squared_distance`].
    #[inline(always)]
    fn squared_distances(&self, first: usize, position: &Vec3) -> [f32; LANES] {
        let [x, y, z] = &self.axes;
        let lanes = first..first + LANES;
        let (x, y, z) = (&x[lanes.clone()], &y[lanes.clone()], &z[lanes]);
        let mut squared_m2 = [0.0; LANES];
        for lane in 0..LANES {
            let [dx, dy, dz] =
                [position[0] - x[lane], position[1] - y[lane], position[2] - z[lane]];
            squared_m2[lane] = (dx * dx + dy * dy) + dz * dz;
        }
        squared_m2
    }
}

/// Origin, side of the cells (m), and cells along each axis.
fn fit(positions: &[Vec3]) -> (Vec3, f32, [i32; 3]) {
    let [min, max] = bounds(positions);
    let extent: Vec3 = std::array::from_fn(|i| max[i] - min[i]);
    let length = extent.into_iter().fold(0.0, f32::max);
    let one_cell = (min, 1.0, [1; 3]);
    if !length.is_normal() {
        return one_cell; // all in one place, or too far apart for the numbers
    }
    let n_cells = CELLS_PER_POINT * positions.len() as f32;
    let [x, y, z] = extent.map(|e| e / length);
    // Of points in a plane or on a line, the volume says nothing.
    let volume = (x * y * z / n_cells).cbrt();
    let area = ((x * y).max(y * z).max(z * x) / n_cells).sqrt();
    let cell = volume.max(area).max(1.0 / n_cells.min(MAX_CELLS));
    if !(1.0 / (cell * length)).is_finite() {
        return one_cell;
    }
    (min, cell * length, [x, y, z].map(|e| (e / cell) as i32 + 1))
}
