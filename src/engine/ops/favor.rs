//! FAVOR+: positive orthogonal random features of the softmax kernel (Choromanski et al. 2021,
//! Lemma 1 and section 3.2).
//!
//! φ(x)_r = exp(w_r·x' - |x'|²/2) / √m with x' = x / d_h^¼, so that E φ(q)·φ(k) = exp(q·k / √d_h).
//! The w_r are standard normal vectors, orthogonal to each other in blocks of d_h: directions from
//! Gram-Schmidt, lengths those of independent normal vectors (χ with d_h degrees of freedom).
//! Lengths of √d_h would be less noisy, but estimate another kernel.

use super::linear::{Mat, matmul};
use crate::base::random::{draw, normal_pair};
use crate::base::simd::exp::exp;
use crate::base::simd::{dot, vectorized};

/// Most features of a head.
pub const MAX_FEATURES: usize = 1024;

/// The exponents are cut to ±this, where the gradient is zero. Sums over a cloud of products of two
/// features stay in the range of f32: e^64 times 2^20 tokens is 10^34. No exponent exceeds |w|²/2,
/// of about d_h/2 in the mean, so heads of width 32 hardly ever reach it; wider ones (the GRF
/// attention has one of the full width) may, and where all of a query's products fall far below the
/// attentions' ε its output fades to 0. A stabiliser taken from the data, as in the original, would
/// wait for all rows once more.
pub const MAX_EXPONENT: f32 = 32.0;

/// Sizes of one call.
#[derive(Debug, Clone, Copy)]
pub struct Favor {
    /// Width d of the rows that are mapped.
    pub width: usize,
    /// Heads; divides `width`.
    pub n_heads: usize,
    /// Features m of each head.
    pub n_features: usize,
}

impl Favor {
    /// Width of a head.
    pub fn head_width(self) -> usize {
        self.width / self.n_heads
    }

    /// Projections w_r / d_h^¼, `[m, d_h]`, drawn by counter from `seed`; `layer` tells apart those
    /// of one model. All heads of a layer share them.
    pub fn projections(self, seed: u64, layer: u64) -> Vec<f32> {
        let dh = self.head_width();
        let scale = (dh as f64).powf(-0.25);
        let mut all: Vec<f32> = Vec::with_capacity(self.n_features * dh);
        for block in 0..self.n_features.div_ceil(dh) as u64 {
            let normal = |row: usize, stream: u64| -> Vec<f64> {
                let bits = |c| draw(seed, layer as i64, block << 32 | row as u64, stream << 32 | c);
                (0..dh as u64).map(|c| f64::from(normal_pair(bits(c))[0])).collect()
            };
            let mut basis: Vec<Vec<f64>> = Vec::with_capacity(dh);
            for row in 0..dh.min(self.n_features - block as usize * dh) {
                let direction = orthogonal(normal(row, 0), &basis);
                let length = norm(&normal(row, 1));
                all.extend(direction.iter().map(|x| (x * length * scale) as f32));
                basis.push(direction);
            }
        }
        all
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The unit vector of `x` without its parts along `basis` (Gram-Schmidt, twice for its rounding).
fn orthogonal(mut x: Vec<f64>, basis: &[Vec<f64>]) -> Vec<f64> {
    for b in basis.iter().chain(basis) {
        let along: f64 = x.iter().zip(b).map(|(x, b)| x * b).sum();
        x.iter_mut().zip(b).for_each(|(x, b)| *x -= along * b);
    }
    let length = norm(&x).max(f64::MIN_POSITIVE);
    x.iter_mut().for_each(|x| *x /= length);
    x
}

vectorized! {
/// Features `[rows, n_heads · m]` of `x` `[rows, d]`, both within rows of `x_stride` and
/// `out_stride` numbers.
pub fn favor_forward(
    sizes: Favor,
    projections: &'a [f32],
    x: &'a [f32],
    x_stride: usize,
    out: &'a mut [f32],
    out_stride: usize,
) {
    let (m, dh) = (sizes.n_features, sizes.head_width());
    for head in 0..sizes.n_heads {
        let rows = Mat::columns(x, x_stride, head * dh, dh);
        matmul(&mut out[head * m..], out_stride, rows, Mat::new(projections, dh).t(), false);
    }
    let half = 0.5 / (dh as f32).sqrt();
    let scale = 1.0 / (m as f32).sqrt();
    for (x, out) in x.chunks(x_stride).zip(out.chunks_mut(out_stride)) {
        for head in 0..sizes.n_heads {
            let x = &x[head * dh..(head + 1) * dh];
            let shift = half * dot(x, x);
            for y in &mut out[head * m..(head + 1) * m] {
                *y = scale * exp((*y - shift).clamp(-MAX_EXPONENT, MAX_EXPONENT));
            }
        }
    }
}
}

vectorized! {
/// dx of [`favor_forward`] into `dx` (rows of `dx_stride`), from `features` and `dy` (both in rows
/// of `stride`). Overwrites `dy`.
pub fn favor_backward(
    sizes: Favor,
    projections: &'a [f32],
    x: &'a [f32],
    x_stride: usize,
    features: &'a [f32],
    dy: &'a mut [f32],
    stride: usize,
    dx: &'a mut [f32],
    dx_stride: usize,
) {
    let (m, dh) = (sizes.n_features, sizes.head_width());
    let scale = 1.0 / (m as f32).sqrt();
    // Of the exponent that is cut, the feature is one of two numbers.
    let (low, high) = (scale * exp(-MAX_EXPONENT), scale * exp(MAX_EXPONENT));
    for (y, dy) in features.chunks(stride).zip(dy.chunks_mut(stride)) {
        let n = sizes.n_heads * m;
        for (dy, &y) in dy[..n].iter_mut().zip(&y[..n]) {
            *dy = if y > low && y < high { *dy * y } else { 0.0 };
        }
    }
    for head in 0..sizes.n_heads {
        let g = Mat::columns(dy, stride, head * m, m);
        matmul(&mut dx[head * dh..], dx_stride, g, Mat::new(projections, dh), false);
    }
    let root = 1.0 / (dh as f32).sqrt();
    let rows = x.chunks(x_stride).zip(dy.chunks(stride)).zip(dx.chunks_mut(dx_stride));
    for ((x, dy), dx) in rows {
        for head in 0..sizes.n_heads {
            let g = root * crate::base::simd::sum(&dy[head * m..(head + 1) * m]);
            let at = head * dh..(head + 1) * dh;
            dx[at.clone()].iter_mut().zip(&x[at]).for_each(|(dx, x)| *dx -= g * x);
        }
    }
}
}

#[cfg(test)]
pub(crate) mod plain {
    use super::{Favor, MAX_EXPONENT};

    /// Features in f64; rows of exactly `sizes.width` numbers.
    pub fn favor(sizes: Favor, projections: &[f64], x: &[f64]) -> Vec<f64> {
        let (m, dh) = (sizes.n_features, sizes.head_width());
        let mut out = Vec::new();
        for x in x.chunks_exact(dh) {
            let shift = x.iter().map(|x| x * x).sum::<f64>() / (2.0 * (dh as f64).sqrt());
            for w in projections.chunks_exact(dh) {
                let exponent = w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() - shift;
                let bound = f64::from(MAX_EXPONENT);
                out.push(exponent.clamp(-bound, bound).exp() / (m as f64).sqrt());
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    const SIZES: Favor = Favor { width: 12, n_heads: 2, n_features: 10 };

    #[test]
    fn favor_and_its_gradient() {
        let (rows, stride, wide) = (7, 15, 23);
        let n = SIZES.n_heads * SIZES.n_features;
        let projections = SIZES.projections(5, 1);
        let dense = |x: &[f32], stride: usize, width: usize| -> Vec<f32> {
            x.chunks_exact(stride).flat_map(|row| row[..width].to_vec()).collect()
        };
        let mut x = numbers(rows * stride, 1);
        // Rows whose exponents are cut at the bottom.
        x[stride..stride + 6].iter_mut().for_each(|x| *x *= 40.0);
        let mut features = vec![0.0; rows * wide];
        favor_forward(SIZES, &projections, &x, stride, &mut features, wide);
        let narrow = dense(&x, stride, SIZES.width);
        let w = f64s(&projections);
        let expected = plain::favor(SIZES, &w, &f64s(&narrow));
        assert_close(&dense(&features, wide, n), &expected, 2e-5);
        let is_cut = |y: f64| (y * (SIZES.n_features as f64).sqrt()).ln().abs() > 31.99;
        assert!(expected.iter().any(|&y| is_cut(y)), "some exponent is cut");

        let dy = numbers(rows * wide, 2);
        let (mut scratch, mut dx) = (dy.clone(), vec![0.0; rows * stride]);
        favor_backward(
            SIZES,
            &projections,
            &x,
            stride,
            &features,
            &mut scratch,
            wide,
            &mut dx,
            stride,
        );
        let (dx, dy) = (dense(&dx, stride, SIZES.width), dense(&dy, wide, n));
        assert_gradient(&dx, &narrow, &dy, |x| plain::favor(SIZES, &w, x));
    }

    #[test]
    fn projections_are_orthogonal_normal_and_of_their_seed() {
        let sizes = Favor { width: 16, n_heads: 1, n_features: 40 };
        let w = f64s(&sizes.projections(3, 0));
        let product =
            |a: usize, b: usize| -> f64 { (0..16).map(|c| w[16 * a + c] * w[16 * b + c]).sum() };
        for (a, b) in (0..40).flat_map(|a| (0..a).map(move |b| (a, b))) {
            if a / 16 == b / 16 {
                assert!(product(a, b).abs() < 1e-5, "rows {a} and {b} of one block");
            }
        }
        assert!((0..16).any(|a| product(a, a + 16).abs() > 0.1), "blocks are independent");
        // |w|² is χ² of 16 degrees of freedom, here divided by √16: mean 4, deviation √2.
        let many = Favor { n_features: 1024, ..sizes };
        let w = f64s(&many.projections(4, 2));
        let squares: Vec<f64> = w.chunks_exact(16).map(|w| w.iter().map(|w| w * w).sum()).collect();
        let mean = squares.iter().sum::<f64>() / 1024.0;
        let deviation = (squares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 1024.0).sqrt();
        assert!((mean - 4.0).abs() < 0.15, "mean {mean}");
        assert!((deviation - 2f64.sqrt()).abs() < 0.15, "deviation {deviation}");
        assert_eq!(sizes.projections(3, 0), sizes.projections(3, 0));
        assert_ne!(sizes.projections(3, 0), sizes.projections(3, 1));
        assert_ne!(sizes.projections(3, 0), sizes.projections(4, 0));
    }
}
