//! Images `[height, width, channels]` at half and at twice their size, each the other's gradient up
//! to a factor; and channels side by side.

use super::conv2d::Size;

/// y = the means of 2×2 pixels: `x` of `size`, both sides even, `y` of half that.
pub fn halve_forward(size: Size, x: &[f32], y: &mut [f32]) {
    y.fill(0.0);
    let n = x.len() / size.n_pixels();
    each_pixel(size, |from, to| {
        let (x, y) = (&x[from * n..][..n], &mut y[to * n..][..n]);
        y.iter_mut().zip(x).for_each(|(y, x)| *y += 0.25 * x);
    });
}

/// dx += the gradient of [`halve_forward`]; `dx` of `size`.
pub fn halve_backward(size: Size, dy: &[f32], dx: &mut [f32]) {
    let n = dx.len() / size.n_pixels();
    each_pixel(size, |to, from| {
        let (dx, dy) = (&mut dx[to * n..][..n], &dy[from * n..][..n]);
        dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += 0.25 * dy);
    });
}

/// Into `n_to` channels from `first` on of `y` (of `size`): each pixel of `x` (of half that) four times.
pub fn double_forward(size: Size, x: &[f32], (y, first, n_to): (&mut [f32], usize, usize)) {
    let n = x.len() / size.half().n_pixels();
    each_pixel(size, |to, from| {
        y[to * n_to + first..][..n].copy_from_slice(&x[from * n..][..n]);
    });
}

/// dx = the gradient of [`double_forward`].
pub fn double_backward(size: Size, (dy, first, n_to): (&[f32], usize, usize), dx: &mut [f32]) {
    dx.fill(0.0);
    let n = dx.len() / size.half().n_pixels();
    each_pixel(size, |from, to| {
        let (dy, dx) = (&dy[from * n_to + first..][..n], &mut dx[to * n..][..n]);
        dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy);
    });
}

/// Copies the channels of `x` into those of `y` from `first` on, of `n_to`.
pub fn put_channels(x: &[f32], n: usize, (y, first, n_to): (&mut [f32], usize, usize)) {
    for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n_to)) {
        y[first..first + n].copy_from_slice(x);
    }
}

/// dx = the gradient of [`put_channels`].
pub fn take_channels((dy, first, n_to): (&[f32], usize, usize), n: usize, dx: &mut [f32]) {
    for (dx, dy) in dx.chunks_exact_mut(n).zip(dy.chunks_exact(n_to)) {
        dx.copy_from_slice(&dy[first..first + n]);
    }
}

/// Calls `f` with each pixel of `size` and the one of half the size that it belongs to.
fn each_pixel(size: Size, mut f: impl FnMut(usize, usize)) {
    for v in 0..size.height {
        for u in 0..size.width {
            f(v * size.width + u, v / 2 * (size.width / 2) + u / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    const SIZE: Size = Size { width: 6, height: 4 };

    /// Means of 2×2 pixels in f64.
    fn halved(x: &[f64], n: usize) -> Vec<f64> {
        let at = |u: usize, v: usize, c: usize| x[(v * SIZE.width + u) * n + c];
        let pixels = (0..2).flat_map(|v| (0..3).map(move |u| (u, v)));
        let mean = |(u, v): (usize, usize), c| {
            let four = [(0, 0), (1, 0), (0, 1), (1, 1)];
            four.map(|(du, dv)| at(2 * u + du, 2 * v + dv, c)).iter().sum::<f64>() / 4.0
        };
        pixels.flat_map(|pixel| (0..n).map(move |c| mean(pixel, c))).collect()
    }

    #[test]
    fn halving_and_its_gradient() {
        let n = 3;
        let (x, dy) = (numbers(SIZE.n_pixels() * n, 1), numbers(SIZE.half().n_pixels() * n, 2));
        let mut y = vec![f32::NAN; dy.len()];
        halve_forward(SIZE, &x, &mut y);
        assert_close(&y, &halved(&f64s(&x), n), 1e-6);
        let mut dx = vec![1.0; x.len()];
        halve_backward(SIZE, &dy, &mut dx);
        let added: Vec<f32> = dx.iter().map(|dx| dx - 1.0).collect();
        assert_gradient(&added, &x, &dy, |x| halved(x, n));
    }

    #[test]
    fn doubling_and_its_gradient() {
        let (n, first, n_to) = (2, 1, 4);
        let (x, dy) = (numbers(SIZE.half().n_pixels() * n, 1), numbers(SIZE.n_pixels() * n_to, 2));
        let mut y = vec![0.0; dy.len()];
        double_forward(SIZE, &x, (&mut y, first, n_to));
        let doubled = |x: &[f64]| -> Vec<f64> {
            let pixel = |i: usize| (i / SIZE.width / 2 * 3 + i % SIZE.width / 2) * n;
            let row = |i: usize| [0.0, x[pixel(i)], x[pixel(i) + 1], 0.0];
            (0..SIZE.n_pixels()).flat_map(row).collect()
        };
        assert_close(&y, &doubled(&f64s(&x)), 1e-6);
        let mut dx = vec![f32::NAN; x.len()];
        double_backward(SIZE, (&dy, first, n_to), &mut dx);
        assert_gradient(&dx, &x, &dy, doubled);
    }
}
