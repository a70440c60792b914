//! The 3×3 convolution of an image, stride 1, zeros around it: same size in and out.
//!
//! Images are `[height, width, channels]`, so that a pixel is a row; weights `[9·n_in, n_out]`, the
//! nine neighbours row by row from the upper left. Strips of rows are unfolded (im2col) and
//! multiplied side by side; they are the same on any number of threads, hence so are the sums.

use rayon::prelude::*;

use super::linear::{linear_backward_weights, linear_relu_forward};

/// Pixels of a strip, about: enough for the product to be worth its call, and its unfolded rows stay
/// in cache.
const STRIP: usize = 512;
/// Pixels of the neighbourhood.
const TAPS: usize = 9;

/// Width and height of an image, pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Size {
    /// Number of pixels.
    pub fn n_pixels(self) -> usize {
        self.width * self.height
    }

    /// Half of it; both sides must be even.
    pub fn half(self) -> Self {
        Self { width: self.width / 2, height: self.height / 2 }
    }

    /// Rows of a strip.
    fn strip(self) -> usize {
        (STRIP / self.width.max(1)).max(1)
    }
}

/// y = x * W + b, then ReLU if `relu`. `x` `[height, width, n_in]`, `y` `[height, width, n_out]`.
pub fn conv2d_forward(
    size: Size,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    relu: bool,
    y: &mut [f32],
) {
    let (n_in, n_out) = (weight.len() / (TAPS * bias.len()), bias.len());
    let rows = size.strip();
    let strips = y.par_chunks_mut(rows * size.width * n_out).enumerate();
    strips.for_each_init(Vec::new, |unfolded, (strip, y)| {
        unfold(size, x, n_in, strip * rows..((strip + 1) * rows).min(size.height), unfolded);
        linear_relu_forward(unfolded, weight, bias, if relu { n_out } else { 0 }, y);
    });
}

/// dx of a call, from `dy` as it is before the ReLU: the convolution of `dy` with the weights turned
/// by half a turn, inputs and outputs exchanged.
pub fn conv2d_backward_input(size: Size, dy: &[f32], weight: &[f32], n_out: usize, dx: &mut [f32]) {
    let n_in = weight.len() / (TAPS * n_out);
    let mut turned = vec![0.0; weight.len()];
    for (tap, of_tap) in weight.chunks_exact(n_in * n_out).enumerate() {
        let to = &mut turned[(TAPS - 1 - tap) * n_in * n_out..][..n_in * n_out];
        for (i, of_input) in of_tap.chunks_exact(n_out).enumerate() {
            of_input.iter().enumerate().for_each(|(o, w)| to[o * n_in + i] = *w);
        }
    }
    conv2d_forward(size, dy, &turned, &vec![0.0; n_in], false, dx);
}

/// dW += and db += theirs, from `dy` as it is before the ReLU.
pub fn conv2d_backward_weights(
    size: Size,
    x: &[f32],
    dy: &[f32],
    d_weight: &mut [f32],
    d_bias: &mut [f32],
) {
    let (n_in, n_out) = (d_weight.len() / (TAPS * d_bias.len()), d_bias.len());
    let rows = size.strip();
    let strips = dy.par_chunks(rows * size.width * n_out).enumerate();
    let parts: Vec<(Vec<f32>, Vec<f32>)> = strips
        .map_init(Vec::new, |unfolded, (strip, dy)| {
            unfold(size, x, n_in, strip * rows..((strip + 1) * rows).min(size.height), unfolded);
            let (mut dw, mut db) = (vec![0.0; d_weight.len()], vec![0.0; n_out]);
            linear_backward_weights(unfolded, dy, &mut dw, &mut db);
            (dw, db)
        })
        .collect();
    for (dw, db) in parts {
        d_weight.iter_mut().zip(dw).for_each(|(sum, d)| *sum += d);
        d_bias.iter_mut().zip(db).for_each(|(sum, d)| *sum += d);
    }
}

/// The nine neighbours of each pixel of `rows`, `[pixels, 9·n_in]`.
fn unfold(
    size: Size,
    x: &[f32],
    n_in: usize,
    rows: std::ops::Range<usize>,
    unfolded: &mut Vec<f32>,
) {
    let Size { width, height } = size;
    let row_len = width * TAPS * n_in;
    unfolded.clear();
    unfolded.resize(rows.len() * row_len, 0.0);
    for (v, out) in rows.zip(unfolded.chunks_exact_mut(row_len)) {
        for dv in 0..3 {
            let Some(from) = (v + dv).checked_sub(1).filter(|&from| from < height) else {
                continue;
            };
            let line = &x[from * width * n_in..][..width * n_in];
            for (u, out) in out.chunks_exact_mut(TAPS * n_in).enumerate() {
                // Three pixels side by side lie so in both; at the edges there are two.
                let (first, last) = (u.max(1) - 1, (u + 2).min(width));
                let skipped = (first + 1 - u) * n_in;
                let pixels = &line[first * n_in..last * n_in];
                out[dv * 3 * n_in + skipped..][..pixels.len()].copy_from_slice(pixels);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod plain {
    use super::Size;

    /// The convolution in f64, pixel by pixel.
    pub fn conv2d(size: Size, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let (n_out, n_in) = (bias.len(), weight.len() / (9 * bias.len()));
        let at = |u: i64, v: i64, c: usize| {
            let inside = u >= 0 && v >= 0 && u < size.width as i64 && v < size.height as i64;
            if inside { x[(v as usize * size.width + u as usize) * n_in + c] } else { 0.0 }
        };
        let mut y = Vec::new();
        for (v, u) in (0..size.height).flat_map(|v| (0..size.width).map(move |u| (v, u))) {
            for o in 0..n_out {
                let taps = (0..9).flat_map(|tap| (0..n_in).map(move |c| (tap, c)));
                let of_tap = |(tap, c): (usize, usize)| {
                    let (du, dv) = (tap as i64 % 3 - 1, tap as i64 / 3 - 1);
                    at(u as i64 + du, v as i64 + dv, c) * weight[(tap * n_in + c) * n_out + o]
                };
                y.push(bias[o] + taps.map(of_tap).sum::<f64>());
            }
        }
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    #[test]
    fn convolution_and_its_gradients() {
        for (width, height, n_in, n_out) in [(7, 5, 3, 4), (1, 3, 2, 5), (37, 29, 2, 3)] {
            let size = Size { width, height };
            let n = size.n_pixels();
            let (x, dy) = (numbers(n * n_in, 1), numbers(n * n_out, 4));
            let (w, b) = (numbers(9 * n_in * n_out, 2), numbers(n_out, 3));
            let mut y = vec![0.0; n * n_out];
            conv2d_forward(size, &x, &w, &b, false, &mut y);
            assert_close(&y, &plain::conv2d(size, &f64s(&x), &f64s(&w), &f64s(&b)), 1e-5);
            let mut kept = y.clone();
            conv2d_forward(size, &x, &w, &b, true, &mut kept);
            assert!(kept.iter().zip(&y).all(|(kept, y)| *kept == y.max(0.0)));

            let mut dx = vec![0.0; x.len()];
            let (mut dw, mut db) = (vec![0.0; w.len()], vec![0.0; b.len()]);
            conv2d_backward_input(size, &dy, &w, n_out, &mut dx);
            conv2d_backward_weights(size, &x, &dy, &mut dw, &mut db);
            assert_gradient(&dw, &w, &dy, |w| plain::conv2d(size, &f64s(&x), w, &f64s(&b)));
            assert_gradient(&db, &b, &dy, |b| plain::conv2d(size, &f64s(&x), &f64s(&w), b));
            if n < 100 {
                assert_gradient(&dx, &x, &dy, |x| plain::conv2d(size, x, &f64s(&w), &f64s(&b)));
            }
        }
    }

    #[test]
    fn sums_are_the_same_on_any_number_of_threads() {
        let size = Size { width: 60, height: 40 };
        let (x, dy) = (numbers(size.n_pixels() * 3, 1), numbers(size.n_pixels() * 4, 2));
        let weights = |n_threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            let (mut dw, mut db) = (vec![0.0; 9 * 3 * 4], vec![0.0; 4]);
            pool.install(|| conv2d_backward_weights(size, &x, &dy, &mut dw, &mut db));
            (dw, db)
        };
        assert_eq!(weights(1), weights(3));
    }
}
