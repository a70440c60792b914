//! Exact k nearest neighbours by a uniform grid: for points that lie about evenly on surfaces, as
//! those of a cloud do, four times as fast as a k-d tree.

use std::ops::Range;

use rayon::prelude::*;

use crate::ops::simd::vectorized;

/// Points that are looked at together, in one AVX-512 register or two of AVX2.
const LANES: usize = 16;

/// Points whose cells one task computes.
const CHUNK: usize = 4096;
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
    min: [f32; 3],
    cell_m: f32,
    cells_per_m: f32,
    dims: [i32; 3],
    /// First of the sorted points of each cell, x fastest; one more at the end.
    starts: Vec<u32>,
    /// Cell of each point, in the order of the points.
    cells: Vec<u32>,
    /// x, y and z of the points by cell, then [`LANES`] more.
    axes: [Vec<f32>; 3],
    /// Which point each of them is.
    indices: Vec<u32>,
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
    place: [f32; 3],
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
        positions: &'a [[f32; 3]],
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
    pub(super) fn rebuild(&mut self, positions: &[[f32; 3]]) -> bool {
        self.fit(positions);
        let n_cells = self.dims.iter().map(|&d| d as usize).product::<usize>();
        let mut cells = std::mem::take(&mut self.cells);
        cells.resize(positions.len(), 0);
        let chunks = cells.par_chunks_mut(CHUNK).zip(positions.par_chunks(CHUNK));
        chunks.for_each(|(cells, positions)| {
            for (cell, position) in cells.iter_mut().zip(positions) {
                let [x, y, z] = self.cell(position);
                *cell = self.at(x, y, z) as u32;
            }
        });
        self.cells = cells;
        self.starts.clear();
        self.starts.resize(n_cells + 2, 0);
        // Σ n² over the cells, as a sum of odd numbers.
        let mut pairs = 0;
        for &cell in &self.cells {
            let count = &mut self.starts[cell as usize + 2];
            pairs += 2 * u64::from(*count) + 1;
            *count += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts[2..] {
            sum += *start;
            *start = sum;
        }
        if pairs > MAX_MEAN_OCCUPANCY * positions.len() as u64 {
            return false;
        }
        self.axes.iter_mut().for_each(|axis| axis.resize(positions.len() + LANES, 0.0));
        self.indices.resize(positions.len(), 0);
        for (i, (&cell, position)) in self.cells.iter().zip(positions).enumerate() {
            let place = &mut self.starts[cell as usize + 1];
            self.axes.iter_mut().zip(position).for_each(|(axis, x)| axis[*place as usize] = *x);
            self.indices[*place as usize] = i as u32;
            *place += 1;
        }
        true
    }

    /// Chooses box and cells.
    fn fit(&mut self, positions: &[[f32; 3]]) {
        let (mut min, mut max) = ([f32::INFINITY; 3], [f32::NEG_INFINITY; 3]);
        for p in positions {
            min = std::array::from_fn(|i| min[i].min(p[i]));
            max = std::array::from_fn(|i| max[i].max(p[i]));
        }
        let extent: [f32; 3] = std::array::from_fn(|i| max[i] - min[i]);
        let length = extent.into_iter().fold(0.0, f32::max);
        self.min = min;
        (self.cell_m, self.cells_per_m, self.dims) = (1.0, 1.0, [1; 3]);
        if !length.is_normal() {
            return; // all in one place, or too far apart for the numbers: one cell
        }
        let n_cells = CELLS_PER_POINT * positions.len() as f32;
        let [x, y, z] = extent.map(|e| e / length);
        // Of points in a plane or on a line, the volume says nothing.
        let volume = (x * y * z / n_cells).cbrt();
        let area = ((x * y).max(y * z).max(z * x) / n_cells).sqrt();
        let cell = volume.max(area).max(1.0 / n_cells.min(MAX_CELLS));
        if !(1.0 / (cell * length)).is_finite() {
            return;
        }
        self.cell_m = cell * length;
        self.cells_per_m = 1.0 / self.cell_m;
        self.dims = [x, y, z].map(|e| (e / cell) as i32 + 1);
    }

    #[inline(always)]
    fn cell(&self, position: &[f32; 3]) -> [i32; 3] {
        let place = self.place(position);
        std::array::from_fn(|i| (place[i] as i32).clamp(0, self.dims[i] - 1))
    }

    /// The place in cells from the corner of the box.
    #[inline(always)]
    fn place(&self, position: &[f32; 3]) -> [f32; 3] {
        std::array::from_fn(|i| (position[i] - self.min[i]) * self.cells_per_m)
    }

    #[inline(always)]
    fn at(&self, x: i32, y: i32, z: i32) -> usize {
        ((z * self.dims[1] + y) * self.dims[0] + x) as usize
    }

    /// The `k` (at most [`MAX_K`], and fewer than there are points) nearest others of each of
    /// `nodes`, nearest first, into `rows`; ties go to the lower index.
    pub(super) fn search(
        &self,
        nodes: Range<usize>,
        positions: &[[f32; 3]],
        k: usize,
        rows: &mut [u32],
    ) {
        search_grid(self, nodes, positions, k, rows);
    }

    /// The point nearest to `position`, wherever that is (finite); of equally near ones, the first.
    #[inline(always)]
    pub(super) fn nearest_point(&self, position: &[f32; 3]) -> u32 {
        // So far outside of the box the rounding of a place in cells exceeds the slack.
        let place = |i: usize| (position[i] - self.min[i]) / self.cell_m;
        if (0..3).all(|i| place(i).abs() < 2.0 * MAX_CELLS) {
            return self.nearest(u32::MAX, position, 1).keys[0] as u32;
        }
        let mut nearest = Nearest::new(1);
        self.search_places(u32::MAX, position, 0..self.indices.len(), &mut nearest);
        nearest.keys[0] as u32
    }

    #[inline(always)]
    fn nearest(&self, node: u32, position: &[f32; 3], k: usize) -> Nearest {
        let mut nearest = Nearest::new(k);
        let center = self.cell(position);
        let place = self.place(position);
        for ring in 1..=MAX_RINGS {
            self.search_ring(node, position, Rings { center, place, ring }, &mut nearest);
            let reach = self.reach(Rings { center, place, ring });
            // Points at the same distance may lie outside: they would have to lose by index.
            if nearest.farthest_m2() < reach * reach {
                return nearest;
            }
        }
        let mut nearest = Nearest::new(k);
        self.search_places(node, position, 0..self.indices.len(), &mut nearest);
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
    fn search_ring(&self, node: u32, position: &[f32; 3], rings: Rings, nearest: &mut Nearest) {
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
                    let cells =
                        self.at(first.max(0), y, z)..self.at(last.min(self.dims[0] - 1), y, z) + 1;
                    self.search_cells(node, position, cells, nearest);
                    continue;
                }
                // Only the two ends are new.
                for x in [first, last] {
                    if (0..self.dims[0]).contains(&x) {
                        let cell = self.at(x, y, z);
                        self.search_cells(node, position, cell..cell + 1, nearest);
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

    #[inline(always)]
    fn search_cells(
        &self,
        node: u32,
        position: &[f32; 3],
        cells: Range<usize>,
        nearest: &mut Nearest,
    ) {
        let places = self.starts[cells.start] as usize..self.starts[cells.end] as usize;
        self.search_places(node, position, places, nearest);
    }

    #[inline(always)]
    fn search_places(
        &self,
        node: u32,
        position: &[f32; 3],
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
                let index = self.indices[first + lane];
                if index != node {
                    nearest.offer(squared_m2[lane], index);
                }
            }
        }
    }

    /// Of the points at `first` and after, in the order of operations of
    /// [`super::squared_distance`].
    #[inline(always)]
    fn squared_distances(&self, first: usize, position: &[f32; 3]) -> [f32; LANES] {
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
