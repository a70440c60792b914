//! Kernel sums over the points near one, in vectors.

use pulp::Simd;

use crate::base::geometry::{Cells, Vec3};
use crate::base::simd::WithSimd;

/// Numbers in a vector at most: so many zeros lie behind the columns' ends.
pub(super) const LANES: usize = 16;
/// Sums of a kernel mean: Σ w·d (3), Σ w, w = (1 - s)².
pub(super) const N_MEAN: usize = 4;
/// The same, and those under the kernel that sees no colour.
pub(super) const N_BOTH: usize = 8;
/// Those of a kernel mean, and those of its derivative: Σ k·d (3) and Σ k·d·dᵀ (xx, yy, zz, xy, xz, yz), k = 1 - s.
pub(super) const N_MOMENTS: usize = 13;

/// Numbers of the lanes.
const INDEX: [f32; LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Radii of a kernel over positions (m) and over colours (0..1 a channel).
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub radius_m: f32,
    pub color: f32,
}

/// The first `N` sums over the points within a kernel about `center` and `color`. For each, s is the
/// squared distance in units of the radii of positions and colours, and d the offset (m).
///
/// It names its vectors: left to the compiler, this ran on the narrowest ones.
pub(super) struct Sums<'a, const N: usize> {
    pub cells: &'a Cells,
    /// x, y, z, red, green, blue of each point, in the cells' order, with [`LANES`] zeros behind them.
    pub columns: &'a [Vec<f32>; 6],
    pub center: &'a Vec3,
    pub color: &'a Vec3,
    pub kernel: Kernel,
}

impl<const N: usize> WithSimd for Sums<'_, N> {
    type Output = [f32; N];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [f32; N] {
        let Self { cells, columns, center, color, kernel } = self;
        let splat = |x: f32| simd.splat_f32s(x);
        let about = [center[0], center[1], center[2], color[0], color[1], color[2]].map(splat);
        let near = splat(-1.0 / (kernel.radius_m * kernel.radius_m));
        let alike = splat(-1.0 / (kernel.color * kernel.color));
        let (zero, one) = (splat(0.0), splat(1.0));
        let index = S::as_simd_f32s(&INDEX).0[0];
        let mut sums = [zero; N];
        let [low, high] = cells.around(center, kernel.radius_m);
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                let (start, end) = cells.row(z, y, low[0], high[0]);
                if start >= end {
                    continue;
                }
                // Whole vectors, also of rows that end before.
                let padded = start + (end - start).next_multiple_of(S::F32_LANES);
                let mut row: [&[S::f32s]; 6] = [&[]; 6];
                for c in 0..6 {
                    row[c] = S::as_simd_f32s(&columns[c][start..padded]).0;
                }
                let n = row[0].len();
                // No closure: it may be compiled apart, without the instruction set.
                let ([xs, ys, zs], [rs, gs, bs]) = (
                    [&row[0][..n], &row[1][..n], &row[2][..n]],
                    [&row[3][..n], &row[4][..n], &row[5][..n]],
                );
                for i in 0..n {
                    let inside = splat((end - start) as f32 - (i * S::F32_LANES) as f32);
                    let inside = simd.less_than_f32s(index, inside);
                    let dx = simd.sub_f32s(xs[i], about[0]);
                    let dy = simd.sub_f32s(ys[i], about[1]);
                    let dz = simd.sub_f32s(zs[i], about[2]);
                    let r = simd.sub_f32s(rs[i], about[3]);
                    let g = simd.sub_f32s(gs[i], about[4]);
                    let b = simd.sub_f32s(bs[i], about[5]);
                    let square = simd.mul_f32s(dx, dx);
                    let square = simd.mul_add_e_f32s(dy, dy, square);
                    let square = simd.mul_add_e_f32s(dz, dz, square);
                    let unlike = simd.mul_f32s(r, r);
                    let unlike = simd.mul_add_e_f32s(g, g, unlike);
                    let unlike = simd.mul_add_e_f32s(b, b, unlike);
                    let k = simd.mul_add_e_f32s(square, near, one);
                    let k = simd.mul_add_e_f32s(unlike, alike, k);
                    let k = simd.select_f32s(inside, simd.max_f32s(k, zero), zero);
                    let w = simd.mul_f32s(k, k);
                    sums[0] = simd.mul_add_e_f32s(w, dx, sums[0]);
                    sums[1] = simd.mul_add_e_f32s(w, dy, sums[1]);
                    sums[2] = simd.mul_add_e_f32s(w, dz, sums[2]);
                    sums[3] = simd.add_f32s(sums[3], w);
                    if N == N_BOTH {
                        let k = simd.mul_add_e_f32s(square, near, one);
                        let k = simd.select_f32s(inside, simd.max_f32s(k, zero), zero);
                        let w = simd.mul_f32s(k, k);
                        sums[4] = simd.mul_add_e_f32s(w, dx, sums[4]);
                        sums[5] = simd.mul_add_e_f32s(w, dy, sums[5]);
                        sums[6] = simd.mul_add_e_f32s(w, dz, sums[6]);
                        sums[7] = simd.add_f32s(sums[7], w);
                    }
                    if N == N_MOMENTS {
                        let (kx, ky) = (simd.mul_f32s(k, dx), simd.mul_f32s(k, dy));
                        let kz = simd.mul_f32s(k, dz);
                        sums[4] = simd.add_f32s(sums[4], kx);
                        sums[5] = simd.add_f32s(sums[5], ky);
                        sums[6] = simd.add_f32s(sums[6], kz);
                        sums[7] = simd.mul_add_e_f32s(kx, dx, sums[7]);
                        sums[8] = simd.mul_add_e_f32s(ky, dy, sums[8]);
                        sums[9] = simd.mul_add_e_f32s(kz, dz, sums[9]);
                        sums[10] = simd.mul_add_e_f32s(kx, dy, sums[10]);
                        sums[11] = simd.mul_add_e_f32s(kx, dz, sums[11]);
                        sums[12] = simd.mul_add_e_f32s(ky, dz, sums[12]);
                    }
                }
            }
        }
        let mut totals = [0.0; N];
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = simd.reduce_sum_f32s(sum);
        }
        totals
    }
}
