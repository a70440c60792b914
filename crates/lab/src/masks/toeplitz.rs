//! Block-Toeplitz mask on a full grid of any number of axes: M_ij = f(place of i - place of j), a number
//! learnt for each offset within reach, 0 beyond (masked attention, section 3.2; learnt offsets: Luo et
//! al. 2021); f = softplus(θ). Pixels and patches of a depth image, steps of time, cells.
//!
//! Where nodes hear few others they are summed one by one ([`sums`]). Else it is a circular convolution on
//! a larger grid ([`super::padded_grid`]) by fast Fourier transforms, O(N log N). Kernels are real, so two
//! columns go through as one of complex numbers: no transform is of fewer numbers than it must be. They are
//! of f64: where a node hears nobody, attention divides what they round to by itself.

mod sums;

use rustfft::num_complex::Complex64;

use super::padded_grid::{Axis, PaddedGrid};
use super::{Mask, sigmoid, softplus};
use forecloud::Result;
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::vectorized;
use sums::Sums;

/// Most pairs of columns that are laid out together: a row's part of them is a cache line.
const PAIRS: usize = 8;
/// Most numbers of the grids that they fill.
const MAX_GRIDS: usize = 1 << 20;

/// The mask over a full grid, whose nodes lie in row-major order (the last axis fastest).
#[derive(Debug, Clone)]
pub struct Toeplitz {
    grid: PaddedGrid,
    /// Place of each node in the larger grid.
    places: Vec<u32>,
    /// Where nodes hear few others.
    sums: Option<Sums>,
}

impl Toeplitz {
    /// The mask on a grid of `shape`, reaching `reach` places along each axis.
    ///
    /// # Errors
    /// [`forecloud::Error::Shape`] unless there is a reach for each axis and the grid is not too large.
    pub fn new(shape: &[usize], reach: &[usize]) -> Result<Self> {
        let grid = PaddedGrid::new(shape, reach)?;
        let places = grid.places(|axis| axis.len, |_, at| at);
        let sums = Sums::new(grid.axes());
        Ok(Self { grid, places, sums })
    }

    /// Parameters: offsets, to minus from, row-major from the lowest on.
    pub fn n_params(&self) -> usize {
        self.grid.axes().iter().map(|axis| 2 * axis.reach + 1).product()
    }

    /// Place of each offset in the larger grid: negative ones at its end.
    fn offsets(&self) -> Vec<u32> {
        let wrapped = |axis: &Axis, at: usize| (at + axis.padded - axis.reach) % axis.padded;
        self.grid.places(|axis| 2 * axis.reach + 1, wrapped)
    }

    /// Places along the first axis that nodes have.
    fn n_rows(&self) -> usize {
        self.grid.axes().first().map_or(1, |axis| axis.len)
    }

    /// How many pairs of columns go through together.
    fn n_pairs(&self, width: usize) -> usize {
        let most = (MAX_GRIDS / self.grid.len().max(1)).clamp(1, PAIRS);
        width.div_ceil(2).clamp(1, most)
    }

    /// y = M x, or Mᵀ x.
    fn product(&self, params: &[f32], transposed: bool, x: &[f32], y: &mut [f32]) {
        if let Some(sums) = &self.sums {
            return with_scratch(params.len(), |f| {
                f.iter_mut().zip(params).for_each(|(f, &theta)| *f = softplus(theta));
                if transposed {
                    f.reverse();
                }
                sums.product(f, x, y);
            });
        }
        let (len, width) = (self.grid.len(), x.len() / self.n_nodes().max(1));
        let (n_pairs, n_rows) = (self.n_pairs(width), self.n_rows());
        self.grid.with(n_pairs + 1, |grids, other, scratch| {
            let (kernel, grids) = grids.split_at_mut(len);
            let scale = 1.0 / len as f64;
            for (&at, &theta) in self.offsets().iter().zip(params) {
                kernel[at as usize].re = scale * f64::from(softplus(theta));
            }
            // Offsets wrap around: the kernel fills all rows.
            let (kernel, other) = self.grid.forward(usize::MAX, kernel, other, scratch);
            if transposed {
                kernel.iter_mut().for_each(|k| *k = k.conj());
            }
            for first in (0..width).step_by(2 * n_pairs) {
                let n_pairs = n_pairs.min((width - first).div_ceil(2));
                let grids = &mut grids[..n_pairs * len];
                self.lay(x, width, first, grids);
                for grid in grids.chunks_exact_mut(len) {
                    let (z, spare) = self.grid.forward(n_rows, grid, other, scratch);
                    multiply(z, kernel);
                    // As many turns back as there: the result lies where the columns lay.
                    self.grid.inverse(n_rows, z, spare, scratch);
                }
                self.take(grids, width, first, y);
            }
        });
    }

    /// Pairs of columns from `first` on into a grid each, zeros where no node is.
    fn lay(&self, x: &[f32], width: usize, first: usize, grids: &mut [Complex64]) {
        let len = self.grid.len();
        grids.fill(Complex64::default());
        for (x, &at) in x.chunks_exact(width).zip(&self.places) {
            let places = grids[at as usize..].iter_mut().step_by(len);
            for (z, pair) in places.zip(x[first..].chunks(2)) {
                let [re, im] = [pair[0], pair.get(1).copied().unwrap_or(0.0)].map(f64::from);
                *z = Complex64 { re, im };
            }
        }
    }

    /// The same, back.
    fn take(&self, grids: &[Complex64], width: usize, first: usize, y: &mut [f32]) {
        let len = self.grid.len();
        for (y, &at) in y.chunks_exact_mut(width).zip(&self.places) {
            let places = grids[at as usize..].iter().step_by(len);
            for (z, pair) in places.zip(y[first..].chunks_mut(2)) {
                pair[0] = z.re as f32;
                pair[1..].iter_mut().for_each(|y| *y = z.im as f32);
            }
        }
    }
}

vectorized! {
/// z = z·k, number by number.
fn multiply(z: &'a mut [Complex64], k: &'a [Complex64]) {
    z.iter_mut().zip(k).for_each(|(z, k)| *z *= k);
}
}

vectorized! {
/// sum += a·b̄, number by number.
fn correlate(sum: &'a mut [Complex64], a: &'a [Complex64], b: &'a [Complex64]) {
    sum.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b.conj());
}
}

impl Mask for Toeplitz {
    fn n_nodes(&self) -> usize {
        self.places.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(params, false, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(params, true, x, y);
    }

    /// ∂f(o): Σ dy_i·x_j over the pairs at the offset o, a circular correlation.
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        if let Some(sums) = &self.sums {
            return sums.gradients(x, dy, |at, d| d_params[at] += d * sigmoid(params[at]));
        }
        let (len, width) = (self.grid.len(), x.len() / self.n_nodes().max(1));
        let (n_pairs, n_rows) = (self.n_pairs(width), self.n_rows());
        self.grid.with(2 * n_pairs + 2, |grids, other, scratch| {
            let (sum, rest) = grids.split_at_mut(len);
            let (another, rest) = rest.split_at_mut(len);
            let (of_x, of_dy) = rest.split_at_mut(n_pairs * len);
            for first in (0..width).step_by(2 * n_pairs) {
                let n_pairs = n_pairs.min((width - first).div_ceil(2));
                let (of_x, of_dy) = (&mut of_x[..n_pairs * len], &mut of_dy[..n_pairs * len]);
                self.lay(x, width, first, of_x);
                self.lay(dy, width, first, of_dy);
                for (x, dy) in of_x.chunks_exact_mut(len).zip(of_dy.chunks_exact_mut(len)) {
                    let (x, _) = self.grid.forward(n_rows, x, other, scratch);
                    let (dy, _) = self.grid.forward(n_rows, dy, another, scratch);
                    correlate(sum, dy, x);
                }
            }
            let (sum, _) = self.grid.inverse(usize::MAX, sum, other, scratch);
            let offsets = self.offsets();
            for ((d, &theta), &at) in d_params.iter_mut().zip(params).zip(&offsets) {
                *d += sum[at as usize].re / len as f64 * sigmoid(theta);
            }
        });
    }
}

#[cfg(test)]
mod tests;
