//! Points sorted into cubic cells: what searches and sums over a neighbourhood stand on.

use std::ops::Range;

use rayon::prelude::*;

use super::Vec3;

/// Points whose cells one task computes.
const CHUNK: usize = 4096;

/// Which points lie in which cell, cells along x adjacent; keeps its memory.
#[derive(Debug, Default, Clone)]
pub struct Cells {
    origin: Vec3,
    cell_m: f32,
    counts: [usize; 3],
    /// First of the sorted points of each cell, and one more at the end.
    starts: Vec<u32>,
    /// Index of each point, by cell.
    order: Vec<u32>,
    /// Cell of each point, in the order of the points.
    cells: Vec<u32>,
    pairs: u64,
}

impl Cells {
    /// Sorts `points` into `counts` cells a side of `cell_m` from `origin` on; what lies outside
    /// belongs to the outermost. Points of one cell keep their order.
    pub fn rebuild(&mut self, points: &[Vec3], origin: Vec3, cell_m: f32, counts: [usize; 3]) {
        (self.origin, self.cell_m, self.counts) = (origin, cell_m, counts);
        let mut cells = std::mem::take(&mut self.cells);
        cells.resize(points.len(), 0);
        let chunks = cells.par_chunks_mut(CHUNK).zip(points.par_chunks(CHUNK));
        chunks.for_each(|(cells, points)| {
            for (cell, point) in cells.iter_mut().zip(points) {
                *cell = self.index(self.coordinates(point, 0.0)) as u32;
            }
        });
        self.cells = cells;
        self.starts.clear();
        self.starts.resize(self.n_cells() + 2, 0);
        self.pairs = 0;
        for &cell in &self.cells {
            let count = &mut self.starts[cell as usize + 2];
            // n² as a sum of odd numbers.
            self.pairs += 2 * u64::from(*count) + 1;
            *count += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts[2..] {
            sum += *start;
            *start = sum;
        }
        self.order.resize(points.len(), 0);
        for (i, &cell) in self.cells.iter().enumerate() {
            let place = &mut self.starts[cell as usize + 1];
            self.order[*place as usize] = i as u32;
            *place += 1;
        }
    }

    /// Number of cells.
    pub fn n_cells(&self) -> usize {
        self.counts.iter().product()
    }

    /// Number of cells with points.
    pub(crate) fn n_filled(&self) -> usize {
        (0..self.n_cells()).filter(|&cell| !self.points_in(cell).is_empty()).count()
    }

    /// Index of each point in what was sorted, by cell.
    #[inline(always)]
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Σ n² over the cells' numbers of points: pairs that share a cell, with itself.
    pub(crate) fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Points of a cell, as places in the order.
    pub(crate) fn points_in(&self, cell: usize) -> Range<usize> {
        self.starts[cell] as usize..self.starts[cell + 1] as usize
    }

    /// First and end of the points in cells `from..=to` along x, as places in the order.
    #[inline(always)]
    pub(crate) fn row(&self, z: usize, y: usize, from: usize, to: usize) -> (usize, usize) {
        let row = (z * self.counts[1] + y) * self.counts[0];
        (self.starts[row + from] as usize, self.starts[row + to + 1] as usize)
    }

    /// Number of the cell at these coordinates.
    #[inline(always)]
    pub fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.counts[1] + y) * self.counts[0] + x
    }

    /// Cell of `p + offset` along each axis, the outermost for what lies outside.
    #[inline(always)]
    pub(crate) fn coordinates(&self, p: &Vec3, offset: f32) -> [usize; 3] {
        let mut at = [0; 3];
        for axis in 0..3 {
            let c = ((p[axis] + offset - self.origin[axis]) / self.cell_m).max(0.0) as usize;
            at[axis] = c.min(self.counts[axis] - 1);
        }
        at
    }

    /// The place of `p` in cells from the origin.
    #[inline(always)]
    pub(crate) fn place(&self, p: &Vec3) -> Vec3 {
        std::array::from_fn(|axis| (p[axis] - self.origin[axis]) / self.cell_m)
    }

    /// Coordinates of the first and the last cell that the cube about a ball meets.
    #[inline(always)]
    pub(crate) fn around(&self, center: &Vec3, radius: f32) -> [[usize; 3]; 2] {
        [self.coordinates(center, -radius), self.coordinates(center, radius)]
    }

    /// Calls `f` with the points in each row of cells that the cube about a ball meets, as places in
    /// the order.
    #[inline(always)]
    pub fn near_rows(&self, center: &Vec3, radius: f32, mut f: impl FnMut(Range<usize>)) {
        let [low, high] = self.around(center, radius);
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                let (start, end) = self.row(z, y, low[0], high[0]);
                f(start..end);
            }
        }
    }

    /// Calls `f` with the cells that the cube about a ball meets.
    #[inline(always)]
    pub fn near(&self, center: &Vec3, radius: f32, mut f: impl FnMut(usize)) {
        let [low, high] = self.around(center, radius);
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                let row = self.index([0, y, z]);
                (row + low[0]..=row + high[0]).for_each(&mut f);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::{draw, uniform};

    #[test]
    fn each_point_is_in_its_cell_once() {
        let u = |i: u64, axis: u64| uniform(draw(1, 0, i, axis));
        // More than a chunk, some of them outside.
        let points: Vec<Vec3> =
            (0..9001).map(|i| [u(i, 0), 1.2 * u(i, 1), 0.7 * u(i, 2)]).collect();
        let (mut cells, counts) = (Cells::default(), [5, 4, 3]);
        for n in [9001, 0, 1, 700] {
            cells.rebuild(&points[..n], [0.1, 0.0, 0.0], 0.25, counts);
            let mut seen = vec![false; n];
            let mut pairs = 0;
            for z in 0..3 {
                for y in 0..4 {
                    for x in 0..5 {
                        let places = cells.points_in(cells.index([x, y, z]));
                        pairs += places.len().pow(2);
                        assert!(cells.order()[places.clone()].is_sorted());
                        for &i in &cells.order()[places] {
                            let p = points[i as usize];
                            let at = |c: f32, n: usize| ((c / 0.25).max(0.0) as usize).min(n - 1);
                            assert_eq!([x, y, z], [at(p[0] - 0.1, 5), at(p[1], 4), at(p[2], 3)]);
                            assert!(!std::mem::replace(&mut seen[i as usize], true));
                        }
                    }
                }
            }
            assert!(seen.iter().all(|&seen| seen));
            let filled: std::collections::HashSet<u32> = cells.cells.iter().copied().collect();
            assert_eq!(cells.n_filled(), filled.len());
            assert_eq!((cells.pairs(), cells.n_cells()), (pairs as u64, 60));
        }
    }
}
