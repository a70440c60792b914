//! Layer normalisation over the columns of each row (Ba et al. 2016), biased variance.

use super::simd::{dot, sum};

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
#[inline(always)]
pub fn layer_norm_forward(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    y: &mut [f32],
    mut saved: Option<Saved<'_>>,
) {
    let d = weight.len();
    for (row, (x, y)) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)).enumerate() {
        let mean = sum(x) / d as f32;
        for (y, x) in y.iter_mut().zip(x) {
            *y = x - mean;
        }
        let rstd = 1.0 / (dot(y, y) / d as f32 + EPSILON).sqrt();
        for y in y.iter_mut() {
            *y *= rstd;
        }
        if let Some(saved) = &mut saved {
            saved.normalized[row * d..(row + 1) * d].copy_from_slice(y);
            saved.inverse_deviation[row] = rstd;
        }
        for (y, (w, b)) in y.iter_mut().zip(weight.iter().zip(bias)) {
            *y = *y * w + b;
        }
    }
}

/// The output of a forward call, again, from its normalised rows.
#[inline(always)]
pub fn layer_norm_output(normalized: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
    let d = weight.len();
    for (x, y) in normalized.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
        for (y, (x, (w, b))) in y.iter_mut().zip(x.iter().zip(weight.iter().zip(bias))) {
            *y = x * w + b;
        }
    }
}

/// dx += the gradient of the input; d_weight, d_bias += theirs. Overwrites `dy`.
#[inline(always)]
pub fn layer_norm_backward(
    dy: &mut [f32],
    normalized: &[f32],
    inverse_deviation: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    d_weight: &mut [f32],
    d_bias: &mut [f32],
) {
    let d = weight.len();
    let rows = dy.chunks_exact_mut(d).zip(normalized.chunks_exact(d)).zip(dx.chunks_exact_mut(d));
    for (((dy, x_hat), dx), rstd) in rows.zip(inverse_deviation) {
        for c in 0..d {
            d_weight[c] += dy[c] * x_hat[c];
            d_bias[c] += dy[c];
            dy[c] *= weight[c];
        }
        let mean = sum(dy) / d as f32;
        let projection = dot(dy, x_hat) / d as f32;
        for c in 0..d {
            dx[c] += rstd * (dy[c] - mean - x_hat[c] * projection);
        }
    }
}

#[cfg(test)]
pub(crate) mod plain {
    /// Layer normalisation in f64.
    pub fn layer_norm(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let d = weight.len();
        x.chunks_exact(d)
            .flat_map(|row| {
                let mean = row.iter().sum::<f64>() / d as f64;
                let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
                let rstd = 1.0 / (var + f64::from(super::EPSILON)).sqrt();
                row.iter()
                    .zip(weight.iter().zip(bias))
                    .map(move |(x, (w, b))| (x - mean) * rstd * w + b)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::*;

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
