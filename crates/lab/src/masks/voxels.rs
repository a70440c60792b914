//! Block-Toeplitz mask on voxels: nodes lie in cells of a grid, and M_ij = f(cell of i - cell of j), a
//! number learnt for each offset of up to n_hops cells an axis, 0 beyond (masked attention, section 3.2,
//! in three dimensions with offsets learnt as in Luo et al. 2021); f = softplus(θ).
//!
//! Few cells of a room hold a surface. So products go over the occupied cells and their occupied
//! neighbours, pair by pair; the fast Fourier transform, which a full grid asks for, would pay for all the
//! empty ones.

use super::grouped::Grouped;
use super::{Mask, Nodes, Reads, StepMask, sigmoid, softplus};
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{dots, sum_of_rows, vectorized};
use forecloud::{Error, Result};

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

/// The mask of the step's occupied cells.
#[derive(Debug, Clone, Default)]
pub struct Cells {
    /// Where they lie, ascending.
    places: Vec<[i32; 3]>,
    /// Which are near which, by the cell that hears.
    pairs: Vec<Pair>,
}

/// Nodes in cells.
pub(super) type Voxels = Grouped<Cells>;

/// Offsets an axis within reach.
fn side(n_hops: usize) -> usize {
    2 * n_hops + 1
}

impl Cells {
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

    /// y = M x, or Mᵀ x.
    fn product(&self, params: &[f32], back: bool, x: &[f32], y: &mut [f32]) {
        with_scratch(params.len(), |f| {
            f.iter_mut().zip(params).for_each(|(f, &theta)| *f = softplus(theta));
            hear(&self.pairs, f, back, x, y, x.len() / self.places.len().max(1));
        });
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
        let places = &mut self.of_groups.places;
        places.clear();
        places.extend(nodes.positions.iter().map(|p| p.map(index)));
        places.sort_unstable();
        places.dedup();
        let cell = |p: &[f32; 3]| places.partition_point(|place| *place < p.map(index));
        self.groups.clear();
        self.groups.extend(nodes.positions.iter().map(|p| cell(p) as u32));
        self.of_groups.pair_up(nodes.n_hops as i32)
    }
}

impl Mask for Cells {
    fn n_nodes(&self) -> usize {
        self.places.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(params, false, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(params, true, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        along(&self.pairs, params, x, dy, x.len() / self.places.len().max(1), d_params);
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
