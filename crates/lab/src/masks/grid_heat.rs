//! Graph diffusion on a full grid in closed form: M_ij = tanh(λ)^(steps from i to j along the grid)
//! (masked attention, section 4, after Kondor and Lafferty 2002; exact on hypercubes, whose axes have two
//! places, a mask of its own on longer ones). λ = softplus(θ), so t = tanh(λ) is in (0, 1).
//!
//! The steps add up over the axes, so M is a product of one matrix an axis, t^|i - j|: two passes along
//! each axis, forth and back, O(N) without a transform.

use super::{Mask, sigmoid, softplus};
use forecloud::base::scratch::with_scratch;
use forecloud::{Error, Result};

/// Longest grid: places are counted in 32 bits.
const MAX_NODES: usize = 1 << 31;

/// The mask over a full grid in row-major order.
#[derive(Debug, Clone)]
pub struct GridHeat {
    shape: Vec<usize>,
    n_nodes: usize,
}

impl GridHeat {
    /// The mask on a grid of `shape`; it has one parameter.
    ///
    /// # Errors
    /// [`Error::Shape`] for grids of more than 2³¹ nodes.
    pub fn new(shape: &[usize]) -> Result<Self> {
        let n_nodes = shape.iter().fold(1usize, |n, &len| n.saturating_mul(len));
        if n_nodes > MAX_NODES {
            let what = "nodes of a grid (at most)";
            return Err(Error::Shape { what, expected: MAX_NODES, got: n_nodes });
        }
        Ok(Self { shape: shape.to_vec(), n_nodes })
    }

    /// Numbers of columns between neighbours along each axis.
    fn strides(&self, width: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut stride = width;
        self.shape.iter().rev().map(move |&len| {
            stride *= len;
            (len, stride / len.max(1))
        })
    }
}

/// t = tanh(softplus(θ)), and dt/dθ.
fn fade(theta: f32) -> (f32, f64) {
    let t = softplus(theta).tanh();
    (t, (1.0 - f64::from(t) * f64::from(t)) * sigmoid(theta))
}

/// Σ_j t^|i - j| x_j along an axis of `len` places, in place: forth into `y`, back added.
fn spread(t: f32, len: usize, stride: usize, y: &mut [f32]) {
    with_scratch(stride, |below| {
        for block in y.chunks_exact_mut((len * stride).max(1)) {
            // Back first, kept as it was: what comes from behind a place, without itself.
            for i in 1..len {
                let (before, here) = block.split_at_mut(i * stride);
                let before = &before[(i - 1) * stride..];
                here[..stride].iter_mut().zip(before).for_each(|(y, b)| *y += t * b);
            }
            // y_i holds Σ_{j ≤ i}; (1 - t²) of it and t of the whole behind make the whole.
            below.fill(0.0);
            for i in (0..len.saturating_sub(1)).rev() {
                let (here, behind) = block.split_at_mut((i + 1) * stride);
                let (here, behind) = (&mut here[i * stride..], &behind[..stride]);
                here.iter_mut().zip(behind).for_each(|(y, b)| *y = (1.0 - t * t) * *y + t * b);
            }
        }
    });
}

impl Mask for GridHeat {
    fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let t = fade(params[0]).0;
        y.copy_from_slice(x);
        if !x.is_empty() {
            self.strides(x.len() / self.n_nodes)
                .for_each(|(len, stride)| spread(t, len, stride, y));
        }
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂t of one axis after the other: Σ_ij |i - j| t^(|i - j| - 1) dy_i·x_j, the other axes spread.
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        if x.is_empty() {
            return;
        }
        let (t, dt) = fade(params[0]);
        let axes: Vec<(usize, usize)> = self.strides(x.len() / self.n_nodes).collect();
        with_scratch(x.len(), |y| {
            for (axis, &(len, stride)) in axes.iter().enumerate() {
                y.copy_from_slice(x);
                let others = axes.iter().enumerate().filter(|(other, _)| *other != axis);
                others.for_each(|(_, &(len, stride))| spread(t, len, stride, y));
                let blocks = y
                    .chunks_exact((len * stride).max(1))
                    .zip(dy.chunks_exact((len * stride).max(1)));
                let sum: f64 = blocks.map(|(x, dy)| along(t, len, stride, x, dy)).sum();
                d_params[0] += sum * dt;
            }
        });
    }
}

/// Σ_ij |i - j| t^(|i - j| - 1) dy_i·x_j of one block: both ways at once, in columns.
fn along(t: f32, len: usize, stride: usize, x: &[f32], dy: &[f32]) -> f64 {
    let mut sum = 0.0;
    // What came so far, and its derivative by t, of x and of dy.
    with_scratch(4 * stride, |scratch| {
        scratch.fill(0.0);
        for i in 0..len {
            let at = i * stride..(i + 1) * stride;
            let rows = x[at.clone()].iter().zip(&dy[at]).zip(scratch.chunks_exact_mut(4));
            let mut here = 0.0f32;
            for ((x, dy), of) in rows {
                let [all_x, slope_x, all_dy, slope_dy] = of else { continue };
                *slope_x = *all_x + t * *slope_x;
                *slope_dy = *all_dy + t * *slope_dy;
                here += dy * *slope_x + x * *slope_dy;
                *all_x = x + t * *all_x;
                *all_dy = dy + t * *all_dy;
            }
            sum += f64::from(here);
        }
    });
    sum
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_products, identity, matmul, softplus64};
    use super::*;

    fn steps(shape: &[usize], mut i: usize, mut j: usize) -> i32 {
        let mut sum = 0;
        for &len in shape.iter().rev() {
            sum += (i % len).abs_diff(j % len);
            (i, j) = (i / len, j / len);
        }
        sum as i32
    }

    #[test]
    fn the_grids_heat_is_the_dense_one() {
        for shape in [&[13][..], &[5, 7], &[2, 3, 4], &[1], &[1, 6], &[], &[0, 3]] {
            let mask = GridHeat::new(shape).unwrap();
            let n = mask.n_nodes();
            assert_products(&format!("{shape:?}"), &mask, 1, 1e-5, |params| {
                let t = softplus64(params[0]).tanh();
                (0..n * n).map(|at| t.powi(steps(shape, at / n, at % n))).collect()
            });
        }
        assert!(GridHeat::new(&[1 << 20, 1 << 20]).is_err());
    }

    /// On a hypercube it is the heat kernel exp(-λ L), but for a factor.
    #[test]
    fn on_a_hypercube_it_is_the_heat_kernel() {
        let (shape, n, lambda) = ([2, 2, 2], 8, softplus64(0.0));
        let laplacian: Vec<f64> = (0..n * n)
            .map(|at| match steps(&shape, at / n, at % n) {
                0 => 3.0,
                1 => -1.0,
                _ => 0.0,
            })
            .collect();
        let (mut heat, mut term) = (identity(n), identity(n));
        for t in 1..60 {
            term =
                matmul(&term, &laplacian, n).iter().map(|x| -lambda * x / f64::from(t)).collect();
            heat.iter_mut().zip(&term).for_each(|(h, t)| *h += t);
        }
        let mask = GridHeat::new(&shape).unwrap();
        let (mut x, mut y) = ([0.0; 8], [0.0; 8]);
        x[0] = 1.0;
        mask.apply(&[0.0], &x, &mut y);
        for (y, h) in y.iter().zip(&heat) {
            assert!((f64::from(*y) - h / heat[0]).abs() < 1e-6, "{y} against {h}");
        }
    }
}
