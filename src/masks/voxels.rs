//! Block-Toeplitz mask on voxels: nodes lie in cells of a grid, and M_ij = f(cell of i - cell of j), a
//! number learnt for each offset of up to n_hops cells an axis, 0 beyond (masked attention, section 3.2,
//! in three dimensions with offsets learnt as in Luo et al. 2021); f = softplus(θ).
//!
//! Few cells of a room hold a surface. So products go over the occupied cells and their occupied
//! neighbours, pair by pair; the fast Fourier transform, which a full grid asks for, would pay for all the
//! empty ones.

use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use crate::scratch::with_scratch;
use crate::simd::{axpys, dots, sum_of_rows, vectorized};
use crate::{Error, Result};

/// Farthest cell from the world's origin: what lies beyond is taken to lie there.
const MAX_CELL: f32 = (1 << 24) as f32;
/// Most pairs of cells: 768 MiB.
const MAX_PAIRS: usize = 1 << 26;

/// A pair of occupied cells within reach of each other.
#[derive(Debug, Clone, Copy)]
struct Pair {
    to: u32,
    from: u32,
    /// Place of their offset among the parameters.
    offset: u32,
}

/// Occupied cells of the step, and which are near which.
#[derive(Debug, Clone, Default)]
pub(super) struct Voxels {
    /// Cell of each node, among the occupied ones.
    cells: Vec<u32>,
    /// Where the occupied cells lie, ascending.
    places: Vec<[i32; 3]>,
    /// By the cell that hears.
    pairs: Vec<Pair>,
}

/// Offsets an axis within reach.
fn side(n_hops: usize) -> usize {
    2 * n_hops + 1
}

impl Voxels {
    fn pair_up(&mut self, reach: i32) -> Result<()> {
        let (places, side) = (&self.places, 2 * reach + 1);
        self.pairs.clear();
        let most = (2 * reach as usize + 1).pow(3);
        for (to, &[x, y, z]) in (0u32..).zip(places) {
            if self.pairs.len() > MAX_PAIRS - most {
                let what = "pairs of cells within reach (take a larger mask cell, or fewer hops)";
                return Err(Error::Shape { what, expected: MAX_PAIRS, got: self.pairs.len() });
            }
            for (dx, dy) in (-reach..=reach).flat_map(|dx| (-reach..=reach).map(move |dy| (dx, dy)))
            {
                // The cell at `to` minus that at `from` is the offset.
                let (lowest, highest) = ([x - dx, y - dy, z - reach], [x - dx, y - dy, z + reach]);
                let first = places.partition_point(|place| *place < lowest);
                let near = places[first..].iter().take_while(|place| **place <= highest);
                for (from, place) in (first as u32..).zip(near) {
                    let row = (dx + reach) * side + dy + reach;
                    let offset = (row * side + z - place[2] + reach) as u32;
                    self.pairs.push(Pair { to, from, offset });
                }
            }
        }
        Ok(())
    }

    /// Calls `run` with f, and `n` times memory for columns of the cells, as wide as `x`.
    fn with_cells(
        &self,
        params: &[f32],
        x: &[f32],
        n: usize,
        run: impl FnOnce(&[f32], &mut [f32]),
    ) {
        let width = x.len() / self.cells.len().max(1);
        with_scratch(n * self.places.len() * width + params.len(), |scratch| {
            let (f, columns) = scratch.split_at_mut(params.len());
            f.iter_mut().zip(params).for_each(|(f, &theta)| *f = softplus(theta));
            run(f, columns);
        });
    }

    /// y = M x, or Mᵀ x, from the cells' sums of x, by way of those of y.
    fn product(&self, f: &[f32], back: bool, of_x: &[f32], of_y: &mut [f32], y: &mut [f32]) {
        let width = y.len() / self.cells.len().max(1);
        hear(&self.pairs, f, back, of_x, of_y, width);
        for (y, &cell) in y.chunks_exact_mut(width.max(1)).zip(&self.cells) {
            y.copy_from_slice(&of_y[cell as usize * width..][..width]);
        }
    }

    fn gather_and_multiply(&self, params: &[f32], back: bool, x: &[f32], y: &mut [f32]) {
        self.with_cells(params, x, 2, |f, columns| {
            let (of_x, of_y) = columns.split_at_mut(columns.len() / 2);
            gather(&self.cells, x, of_x);
            self.product(f, back, of_x, of_y, y);
        });
    }
}

vectorized! {
/// Sums of the nodes of each cell.
fn gather[simd](cells: &'a [u32], x: &'a [f32], sums: &'a mut [f32]) {
    let width = x.len() / cells.len().max(1);
    sums.fill(0.0);
    for (x, &cell) in x.chunks_exact(width.max(1)).zip(cells) {
        axpys(simd, &mut sums[cell as usize * width..][..width], [1.0], [x]);
    }
}
}

vectorized! {
/// y of each cell: f times what it hears of the cells near it. What M_ij is for an offset, M_ji is for
/// the opposite one, which lies as far from the table's other end.
fn hear[simd](
    pairs: &'a [Pair],
    f: &'a [f32],
    back: bool,
    x: &'a [f32],
    y: &'a mut [f32],
    width: usize,
) {
    let at = |offset: u32| if back { f.len() - 1 - offset as usize } else { offset as usize };
    for pairs in pairs.chunk_by(|a, b| a.to == b.to) {
        let y = &mut y[pairs[0].to as usize * width..][..width];
        sum_of_rows(simd, y, x, pairs.iter().map(|pair| (f[at(pair.offset)], pair.from as usize)));
    }
}
}

impl StepMask for Voxels {
    fn n_params(n_hops: usize) -> usize {
        side(n_hops).pow(3)
    }

    fn reads() -> Reads {
        Reads::CELLS
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        let index = |x: f32| (x / nodes.cell_m).floor().clamp(-MAX_CELL, MAX_CELL) as i32;
        self.places.clear();
        self.places.extend(nodes.positions.iter().map(|p| p.map(index)));
        self.places.sort_unstable();
        self.places.dedup();
        let cell = |p: &[f32; 3]| self.places.partition_point(|place| *place < p.map(index));
        self.cells.clear();
        self.cells.extend(nodes.positions.iter().map(|p| cell(p) as u32));
        self.pair_up(nodes.n_hops as i32)
    }
}

impl Mask for Voxels {
    fn n_nodes(&self) -> usize {
        self.cells.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.gather_and_multiply(params, false, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.gather_and_multiply(params, true, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        self.with_cells(params, x, 3, |f, columns| {
            let (of_x, rest) = columns.split_at_mut(columns.len() / 3);
            let (of_dy, sums) = rest.split_at_mut(of_x.len());
            gather(&self.cells, x, of_x);
            gather(&self.cells, dy, of_dy);
            self.product(f, false, of_x, sums, y);
            self.product(f, true, of_dy, sums, dx);
            let width = x.len() / self.cells.len().max(1);
            along(&self.pairs, params, of_x, of_dy, width, d_params);
        });
    }
}

vectorized! {
/// ∂f of each offset: Σ dy·x over the pairs of cells that lie so.
fn along[simd](
    pairs: &'a [Pair],
    params: &'a [f32],
    x: &'a [f32],
    dy: &'a [f32],
    width: usize,
    d_params: &'a mut [f64],
) {
    let row = |cell: u32| cell as usize * width..(cell as usize + 1) * width;
    let mut add = |pair: &Pair, product: f32| {
        let at = pair.offset as usize;
        d_params[at] += f64::from(product) * sigmoid(params[at]);
    };
    for pairs in pairs.chunk_by(|a, b| a.to == b.to) {
        let dy = &dy[row(pairs[0].to)];
        let fours = pairs.chunks_exact(4);
        for pair in fours.remainder() {
            let [product] = dots(simd, dy, [&x[row(pair.from)]]);
            add(pair, product);
        }
        for four in fours {
            let rows = [0, 1, 2, 3].map(|at: usize| &x[row(four[at].from)]);
            four.iter().zip(dots(simd, dy, rows)).for_each(|(pair, product)| add(pair, product));
        }
    }
}
}

#[cfg(test)]
mod tests;
