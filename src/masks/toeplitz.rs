//! Block-Toeplitz mask on a full grid of any number of axes: M_ij = f(place of i - place of j), a number
//! learnt for each offset within reach, 0 beyond (masked attention, section 3.2; learnt offsets: Luo et
//! al. 2021); f = softplus(θ). Pixels and patches of a depth image, steps of time, cells.
//!
//! A circular convolution on a larger grid ([`super::padded_grid`]) by fast Fourier transforms, O(N log N).
//! Kernels are real, so two columns go through as one of complex numbers.

use rustfft::num_complex::Complex32;

use super::padded_grid::{Axis, PaddedGrid};
use super::{Mask, sigmoid, softplus};
use crate::Result;

/// The mask over a full grid, whose nodes lie in row-major order (the last axis fastest).
#[derive(Debug, Clone)]
pub struct Toeplitz {
    grid: PaddedGrid,
    /// Place of each node in the larger grid.
    places: Vec<u32>,
}

impl Toeplitz {
    /// The mask on a grid of `shape`, reaching `reach` places along each axis.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless there is a reach for each axis and the grid is not too large.
    pub fn new(shape: &[usize], reach: &[usize]) -> Result<Self> {
        let grid = PaddedGrid::new(shape, reach)?;
        let places = grid.places(|axis| axis.len, |_, at| at);
        Ok(Self { grid, places })
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

    /// y = M x, or Mᵀ x.
    fn product(&self, params: &[f32], transposed: bool, x: &[f32], y: &mut [f32]) {
        let (len, width) = (self.grid.len(), x.len() / self.n_nodes().max(1));
        self.grid.with(2, |grids, other, scratch| {
            let (kernel, grid) = grids.split_at_mut(len);
            let scale = 1.0 / len as f32;
            for (&at, &theta) in self.offsets().iter().zip(params) {
                kernel[at as usize].re = scale * softplus(theta);
            }
            self.grid.transform(false, kernel, other, scratch);
            if transposed {
                kernel.iter_mut().for_each(|k| *k = k.conj());
            }
            for column in (0..width).step_by(2) {
                self.lay(x, width, column, grid);
                self.grid.transform(false, grid, other, scratch);
                grid.iter_mut().zip(&*kernel).for_each(|(z, k)| *z *= k);
                self.grid.transform(true, grid, other, scratch);
                for (y, &at) in y.chunks_exact_mut(width).zip(&self.places) {
                    let z = grid[at as usize];
                    y[column] = z.re;
                    y[column + 1..].iter_mut().take(1).for_each(|y| *y = z.im);
                }
            }
        });
    }

    /// Two columns from `column` on, zeros where no node is.
    fn lay(&self, x: &[f32], width: usize, column: usize, grid: &mut [Complex32]) {
        grid.fill(Complex32::default());
        for (x, &at) in x.chunks_exact(width).zip(&self.places) {
            let im = x.get(column + 1).copied().unwrap_or(0.0);
            grid[at as usize] = Complex32::new(x[column], im);
        }
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
        let (len, width) = (self.grid.len(), x.len() / self.n_nodes().max(1));
        self.grid.with(3, |grids, other, scratch| {
            let (sum, rest) = grids.split_at_mut(len);
            let (of_x, of_dy) = rest.split_at_mut(len);
            for column in (0..width).step_by(2) {
                for (from, grid) in [(x, &mut *of_x), (dy, &mut *of_dy)] {
                    self.lay(from, width, column, grid);
                    self.grid.transform(false, grid, other, scratch);
                }
                let products = of_dy.iter().zip(&*of_x).map(|(dy, x)| dy * x.conj());
                sum.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
            }
            self.grid.transform(true, sum, other, scratch);
            let offsets = self.offsets();
            for ((d, &theta), &at) in d_params.iter_mut().zip(params).zip(&offsets) {
                *d += f64::from(sum[at as usize].re) / len as f64 * sigmoid(theta);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::masks::check::{assert_products, softplus64};

    /// Place of node `i` of a grid along each axis, the last first.
    fn place(shape: &[usize], mut i: usize) -> Vec<i64> {
        let mut along = |&len: &usize| {
            let at = i % len;
            i /= len;
            at as i64
        };
        shape.iter().rev().map(&mut along).collect()
    }

    #[test]
    fn the_toeplitz_mask_is_the_dense_one() {
        let grids: [(&str, &[usize], &[usize]); 6] = [
            ("steps of time", &[13], &[4]),
            ("an image", &[5, 7], &[2, 3]),
            ("all offsets", &[3, 4], &[2, 3]),
            ("cells", &[3, 2, 5], &[1, 1, 2]),
            ("one node", &[1], &[0]),
            ("a lone number", &[], &[]),
        ];
        for (name, shape, reach) in grids {
            let mask = Toeplitz::new(shape, reach).unwrap();
            let n: usize = shape.iter().product();
            assert_eq!(mask.n_nodes(), n);
            assert_products(name, &mask, mask.n_params(), 1e-5, |params| {
                let entry = |at: usize| {
                    let (to, from) = (place(shape, at / n), place(shape, at % n));
                    let (mut index, mut stride) = (0, 1);
                    for (shift, &reach) in
                        to.iter().zip(&from).map(|(a, b)| a - b).zip(reach.iter().rev())
                    {
                        let (reach, side) = (reach as i64, 2 * reach as i64 + 1);
                        if shift.abs() > reach {
                            return 0.0;
                        }
                        index += (shift + reach) * stride;
                        stride *= side;
                    }
                    softplus64(params[index as usize])
                };
                (0..n * n).map(entry).collect()
            });
        }
    }

    #[test]
    fn grids_too_large_or_shorter_than_the_reach_are_refused() {
        for (shape, reach) in [
            (&[4usize, 4][..], &[1usize][..]),
            (&[usize::MAX, 2], &[1, 1]),
            (&[1 << 13, 1 << 12], &[1, 1]),
            (&[4, 4], &[1, 4]),
            (&[0, 4], &[0, 1]),
        ] {
            let refused = matches!(Toeplitz::new(shape, reach), Err(Error::Shape { .. }));
            assert!(refused || shape == [0, 4], "{shape:?}, {reach:?}");
        }
        assert_eq!(Toeplitz::new(&[0, 4], &[0, 1]).unwrap().n_nodes(), 0);
    }
}
