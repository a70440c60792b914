//! Layer normalisation over the columns of each row (Ba et al. 2016), biased variance.

use pulp::Simd;

use crate::base::simd::{WithSimd, add, axpys, dispatch, dots, multiply, multiply_add, sum_of};

/// Added to the variance.
pub const EPSILON: f32 = 1e-5;

/// What the backward pass needs of one call.
pub struct Saved<'a> {
    /// Normalised rows `[rows, d]`.
    pub normalized: &'a mut [f32],
    /// Inverse standard deviation of each row.
    pub inverse_deviation: &'a mut [f32],
}

/// y = (x - mean) / √(var + ε) · weight + bias. `x`, `y` `[rows, d]`.
pub fn layer_norm_forward(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    y: &mut [f32],
    saved: Option<Saved<'_>>,
) {
    dispatch(Forward { x, weight, bias, y, saved });
}

struct Forward<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    y: &'a mut [f32],
    saved: Option<Saved<'a>>,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let d = self.weight.len();
        let rows = self.x.chunks_exact(d).zip(self.y.chunks_exact_mut(d));
        for (row, (x, y)) in rows.enumerate() {
            let (mean, rstd) = moments(simd, x);
            let normalized = self.saved.as_mut().map(|saved| {
                saved.inverse_deviation[row] = rstd;
                &mut saved.normalized[row * d..][..d]
            });
            normalize(simd, x, [mean, rstd], [self.weight, self.bias], y, normalized);
        }
    }
}

/// y = (x - mean) · rstd · weight + bias of a row; what is before the weight also to `normalized`.
#[inline(always)]
fn normalize<S: Simd>(
    simd: S,
    x: &[f32],
    [mean, rstd]: [f32; 2],
    [weight, bias]: [&[f32]; 2],
    y: &mut [f32],
    mut normalized: Option<&mut [f32]>,
) {
    let (means, rstds) = (simd.splat_f32s(mean), simd.splat_f32s(rstd));
    let ((xs, x), (ws, w), (bs, b)) =
        (S::as_simd_f32s(x), S::as_simd_f32s(weight), S::as_simd_f32s(bias));
    let (ys, y) = S::as_mut_simd_f32s(y);
    for (c, y) in ys.iter_mut().enumerate() {
        let x_hat = simd.mul_f32s(simd.sub_f32s(xs[c], means), rstds);
        if let Some(normalized) = &mut normalized {
            S::as_mut_simd_f32s(normalized).0[c] = x_hat;
        }
        *y = simd.mul_add_e_f32s(x_hat, ws[c], bs[c]);
    }
    for (c, y) in y.iter_mut().enumerate() {
        let x_hat = (x[c] - mean) * rstd;
        if let Some(normalized) = &mut normalized {
            S::as_mut_simd_f32s(normalized).1[c] = x_hat;
        }
        *y = x_hat * w[c] + b[c];
    }
}

/// Mean and inverse deviation of a row.
#[inline(always)]
fn moments<S: Simd>(simd: S, x: &[f32]) -> (f32, f32) {
    let d = x.len() as f32;
    let mean = sum_of(simd, x, |sum, x| simd.add_f32s(sum, x), |x| x) / d;
    let means = simd.splat_f32s(mean);
    let squares = |sum: S::f32s, x: S::f32s| {
        let deviation = simd.sub_f32s(x, means);
        simd.mul_add_e_f32s(deviation, deviation, sum)
    };
    let variance = sum_of(simd, x, squares, |x| (x - mean) * (x - mean)) / d;
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

/// The output of a forward call, again, from its normalised rows.
pub fn layer_norm_output(normalized: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
    dispatch(Output { normalized, weight, bias, y });
}

struct Output<'a> {
    normalized: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Output<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let d = self.weight.len();
        for (x, y) in self.normalized.chunks_exact(d).zip(self.y.chunks_exact_mut(d)) {
            // Of mean 0 and deviation 1 already: the same products as in the forward call.
            normalize(simd, x, [0.0, 1.0], [self.weight, self.bias], y, None);
        }
    }
}

/// dx += the gradient of the input; d_weight, d_bias += theirs. Overwrites `dy`.
pub fn layer_norm_backward(
    dy: &mut [f32],
    normalized: &[f32],
    inverse_deviation: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    d_weight: &mut [f32],
    d_bias: &mut [f32],
) {
    let saved = (normalized, inverse_deviation);
    dispatch(Backward { dy, saved, weight, dx, d_weight, d_bias });
}

struct Backward<'a> {
    dy: &'a mut [f32],
    /// Normalised rows and their inverse deviations.
    saved: (&'a [f32], &'a [f32]),
    weight: &'a [f32],
    dx: &'a mut [f32],
    d_weight: &'a mut [f32],
    d_bias: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let d = self.weight.len();
        let (normalized, inverse_deviation) = self.saved;
        let rows = self.dy.chunks_exact_mut(d).zip(normalized.chunks_exact(d));
        let rows = rows.zip(self.dx.chunks_exact_mut(d)).zip(inverse_deviation);
        for (((dy, x_hat), dx), &rstd) in rows {
            axpys(simd, self.d_bias, [1.0], [dy]);
            multiply_add(simd, self.d_weight, dy, x_hat);
            multiply(simd, dy, self.weight);
            let mean = sum_of(simd, dy, |sum, g| simd.add_f32s(sum, g), |g| g) / d as f32;
            let [projection] = dots(simd, dy, [x_hat]).map(|p| p / d as f32);
            // dx += rstd · (dy - mean - x̂ · projection)
            axpys(simd, dx, [rstd, -rstd * projection], [dy, x_hat]);
            add(simd, dx, -rstd * mean);
        }
    }
}

#[cfg(test)]
use crate::engine::ops::plain;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    #[test]
    fn layer_norm_and_its_gradients() {
        for (rows, d, scale) in [(9, 19, 1.0), (3, 64, 1e3), (3, 16, 1e-2)] {
            let x: Vec<f32> = numbers(rows * d, 1).iter().map(|x| scale * (x + 0.5)).collect();
            let (w, b, dy) = (numbers(d, 2), numbers(d, 3), numbers(rows * d, 4));
            let (mut y, mut x_hat, mut rstd) = (x.clone(), x.clone(), vec![0.0; rows]);
            let saved = Saved { normalized: &mut x_hat, inverse_deviation: &mut rstd };
            layer_norm_forward(&x, &w, &b, &mut y, Some(saved));
            let (x64, w64, b64) = (f64s(&x), f64s(&w), f64s(&b));
            assert_close(&y, &plain::layer_norm(&x64, &w64, &b64), 1e-5);
            let mut again = vec![0.0; y.len()];
            layer_norm_output(&x_hat, &w, &b, &mut again);
            assert_eq!(y, again);

            let (mut dx, mut dw, mut db) = (vec![0.0; x.len()], vec![0.0; d], vec![0.0; d]);
            layer_norm_backward(&mut dy.clone(), &x_hat, &rstd, &w, &mut dx, &mut dw, &mut db);
            assert_gradient(&dx, &x, &dy, |x| plain::layer_norm(x, &w64, &b64));
            assert_gradient(&dw, &w, &dy, |w| plain::layer_norm(&x64, w, &b64));
            assert_gradient(&db, &b, &dy, |b| plain::layer_norm(&x64, &w64, b));
        }
    }
}
