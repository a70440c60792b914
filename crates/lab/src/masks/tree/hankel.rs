//! Many distances by many: f(d + e) is a Hankel matrix of the distances d of those who hear and e of those who
//! are heard, and its products are correlations, made by FFT. In f64, so that rounding stays below f32's.

use std::cell::RefCell;
use std::ops::Range;

use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;

use super::super::centroids::Seen;
use super::n_distances;

thread_local! {
    /// Keeps the transforms that it planned.
    static PLANNER: RefCell<FftPlanner<f64>> = RefCell::new(FftPlanner::new());
}

/// Transforms `grid`, forth or back (times its length).
fn transform(grid: &mut [Complex64], inverse: bool) {
    let plan = PLANNER.with_borrow_mut(|planner| match inverse {
        true => planner.plan_fft_inverse(grid.len()),
        false => planner.plan_fft_forward(grid.len()),
    });
    plan.process(grid);
}

/// A length that FFTs are quick at, at least `len`.
fn quick(len: usize) -> usize {
    len.next_power_of_two()
}

/// y_i += Σ_e f(d_i + e) sums_e of a branch and the others' `sums` `[distances, width]`, two columns at a
/// time, as the parts of complex numbers. f is 0 beyond its length.
pub fn hear(seen: &[Seen], f: &[f32], sums: &[f32], width: usize, y: &mut [f32]) {
    let (Some(first), others) = (seen.first(), sums.len() / width.max(1)) else { return };
    let (first, n) = (first.distance as usize, n_distances(seen));
    // What wraps around falls on places that are not read.
    let len = quick(n + others);
    let f = &f[first..];
    let mut kernel = vec![Complex64::default(); len];
    kernel.iter_mut().zip(f.iter().take(n + others)).for_each(|(k, &f)| k.re = f64::from(f));
    transform(&mut kernel, false);
    let (scale, mut grid) = (1.0 / len as f64, vec![Complex64::default(); len]);
    for columns in pairs(width) {
        grid.fill(Complex64::default());
        lay(sums, width, &columns, grid[..others].iter_mut().rev());
        transform(&mut grid, false);
        grid.iter_mut().zip(&kernel).for_each(|(z, k)| *z *= k * scale);
        transform(&mut grid, true);
        for seen in seen {
            let heard = grid[others - 1 + seen.distance as usize - first];
            let y = &mut y[seen.node as usize * width..][columns.clone()];
            y.iter_mut().zip([heard.re, heard.im]).for_each(|(y, heard)| *y += heard as f32);
        }
    }
}

/// Adds Σ_d of_dy_d · sums_(t - d) to each f_t, `of_dy` `[distances, width]` from distance `first` on. A
/// column of each at a time, as the parts of a complex number; the spectra's products are summed.
pub fn correlate(first: usize, of_dy: &[f32], sums: &[f32], width: usize, of_f: &mut [f64]) {
    let (n, others) = (of_dy.len() / width.max(1), sums.len() / width.max(1));
    let len = quick(n + others);
    let (mut sum, mut grid) = (vec![Complex64::default(); len], vec![Complex64::default(); len]);
    for column in 0..width {
        grid.fill(Complex64::default());
        for (z, of_dy) in grid.iter_mut().zip(of_dy.chunks_exact(width)) {
            z.re = f64::from(of_dy[column]);
        }
        for (z, sums) in grid.iter_mut().zip(sums.chunks_exact(width)) {
            z.im = f64::from(sums[column]);
        }
        transform(&mut grid, false);
        for (k, sum) in sum.iter_mut().enumerate() {
            // Of a + i b: spectra A and B, Z² less the other half's conjugate is 4 i A B.
            let (z, mirrored) = (grid[k], grid[(len - k) % len].conj());
            *sum += z * z - mirrored * mirrored;
        }
    }
    transform(&mut sum, true);
    let scale = 0.25 / len as f64;
    for (of_f, z) in of_f[first..].iter_mut().zip(sum.iter().take(n + others)) {
        // Divided by i.
        *of_f += scale * z.im;
    }
}

/// Columns in twos.
fn pairs(width: usize) -> impl Iterator<Item = Range<usize>> {
    (0..width).step_by(2).map(move |first| first..(first + 2).min(width))
}

/// Columns of `rows` `[_, width]` into the parts of complex numbers.
fn lay<'a>(
    rows: &[f32],
    width: usize,
    columns: &Range<usize>,
    to: impl Iterator<Item = &'a mut Complex64>,
) {
    for (z, row) in to.zip(rows.chunks_exact(width)) {
        z.re = f64::from(row[columns.start]);
        z.im = row[columns.clone()].get(1).map_or(0.0, |&x| f64::from(x));
    }
}
