//! Kernel means over the points of a cloud, sorted into cells.

use nalgebra::Matrix3;

use crate::geometry::{Cells, Vec3, bounds, squared_distance};
use crate::simd::vectorize;

/// Cells along an axis at most: a point far out must not make the grid large.
const MAX_CELLS: usize = 64;
const LANES: usize = 8;

/// Points sorted into cubic cells.
#[derive(Debug, Default, Clone)]
pub(super) struct Grid {
    pub(super) cells: Cells,
    /// x, y, z, red, green, blue of each point, in the cells' order; some zeros behind them.
    columns: [Vec<f32>; 6],
}

/// Kernel moments about a point q.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Moments {
    /// Kernel mean m(q) less q (m).
    pub offset: Vec3,
    /// Sum of the weights.
    pub mass: f32,
    /// I - ∂m/∂q, its symmetric part: how much of a shift of q the mean does not follow. On a
    /// plane of one colour it is the projection on the normal; near edges it is more.
    pub stiffness: Matrix3<f32>,
}

impl Grid {
    pub(super) fn rebuild(&mut self, positions: &[Vec3], colors: &[Vec3], cell_m: f32) {
        let [min, max] = bounds(positions);
        let counts = std::array::from_fn(|axis| {
            let extent = ((max[axis] - min[axis]) / cell_m).max(0.0);
            (extent as usize + 1).min(MAX_CELLS)
        });
        self.cells.rebuild(positions, min, cell_m, counts);
        for (axis, column) in self.columns.iter_mut().enumerate() {
            let values = if axis < 3 { positions } else { colors };
            column.clear();
            column.extend(self.cells.order().iter().map(|&i| values[i as usize][axis % 3]));
            column.extend([0.0; LANES]);
        }
    }

    /// Position and colour of the point at place `i` in cell order.
    #[inline(always)]
    pub(super) fn point(&self, i: usize) -> (Vec3, Vec3) {
        let column = |c: usize| self.columns[c][i];
        ([column(0), column(1), column(2)], [column(3), column(4), column(5)])
    }

    /// Calls `f` with the points of a ball, as places in the cells' order.
    #[inline(always)]
    pub(super) fn near(&self, center: &Vec3, radius: f32, mut f: impl FnMut(usize)) {
        self.cells.near_rows(center, radius, |places| {
            for i in places {
                if squared_distance(&self.point(i).0, center) < radius * radius {
                    f(i);
                }
            }
        });
    }

    /// Offsets (m) of the points from `start` on, and (1 - s)₊ of each that lies before `end`: s is
    /// the squared distance in units of the radii of positions and colours.
    #[inline(always)]
    fn weigh(&self, start: usize, end: usize, about: &About) -> ([[f32; LANES]; 3], [f32; LANES]) {
        let (x, y) = (eight(&self.columns[0], start), eight(&self.columns[1], start));
        let (z, r) = (eight(&self.columns[2], start), eight(&self.columns[3], start));
        let (g, b) = (eight(&self.columns[4], start), eight(&self.columns[5], start));
        let (mut d, mut kernel) = ([[0.0; LANES]; 3], [0.0; LANES]);
        let n = (end - start).min(LANES) as i32;
        for lane in 0..LANES {
            // Whole vectors, also of rows that end before.
            let inside = if (lane as i32) < n { 1.0 } else { 0.0 };
            d[0][lane] = x[lane] - about.center[0];
            d[1][lane] = y[lane] - about.center[1];
            d[2][lane] = z[lane] - about.center[2];
            let squares =
                d[0][lane] * d[0][lane] + d[1][lane] * d[1][lane] + d[2][lane] * d[2][lane];
            let c = [r[lane] - about.color[0], g[lane] - about.color[1], b[lane] - about.color[2]];
            let s = about.near * squares + about.alike * (c[0] * c[0] + c[1] * c[1] + c[2] * c[2]);
            kernel[lane] = (1.0 - s).max(0.0) * inside;
        }
        (d, kernel)
    }

    /// Kernel mean less `center` (m), and the mass, under the biweight kernel (1 - s)².
    ///
    /// Never inlined, as [`Self::moments`]: the choice of instructions is made here, so that what
    /// calls it is compiled once, and not for each instruction set.
    #[inline(never)]
    pub(super) fn mean(&self, center: &Vec3, color: &Vec3, kernel: Kernel) -> (Vec3, f32) {
        vectorize(|| self.mean_vectorized(center, color, kernel))
    }

    #[inline(always)]
    fn mean_vectorized(&self, center: &Vec3, color: &Vec3, kernel: Kernel) -> (Vec3, f32) {
        let about = kernel.about(center, color);
        let (mut sx, mut sy, mut sz) = ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
        let mut masses = [0.0f32; LANES];
        // Loops, not closures: those may be compiled apart, without the instruction set.
        let [low, high] = self.cells.around(center, kernel.radius_m);
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                let (mut start, end) = self.cells.row(z, y, low[0], high[0]);
                while start < end {
                    let (d, kernel) = self.weigh(start, end, &about);
                    for lane in 0..LANES {
                        let weight = kernel[lane] * kernel[lane];
                        sx[lane] += weight * d[0][lane];
                        sy[lane] += weight * d[1][lane];
                        sz[lane] += weight * d[2][lane];
                        masses[lane] += weight;
                    }
                    start += LANES;
                }
            }
        }
        let mass = sum(&masses);
        if mass <= 1e-6 {
            return ([0.0; 3], 0.0);
        }
        ([sum(&sx) / mass, sum(&sy) / mass, sum(&sz) / mass], mass)
    }

    /// Kernel moments about `center`.
    #[inline(never)]
    pub(super) fn moments(&self, center: &Vec3, color: &Vec3, kernel: Kernel) -> Moments {
        vectorize(|| self.moments_vectorized(center, color, kernel))
    }

    #[inline(always)]
    fn moments_vectorized(&self, center: &Vec3, color: &Vec3, kernel: Kernel) -> Moments {
        let about = kernel.about(center, color);
        let mut lanes = [[0.0f32; LANES]; 13];
        let [low, high] = self.cells.around(center, kernel.radius_m);
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                let (mut start, end) = self.cells.row(z, y, low[0], high[0]);
                while start < end {
                    let ([dx, dy, dz], kernel) = self.weigh(start, end, &about);
                    for lane in 0..LANES {
                        let (x, y, z, k) = (dx[lane], dy[lane], dz[lane], kernel[lane]);
                        let weight = k * k;
                        lanes[0][lane] += weight * x;
                        lanes[1][lane] += weight * y;
                        lanes[2][lane] += weight * z;
                        lanes[3][lane] += weight;
                        lanes[4][lane] += k * x;
                        lanes[5][lane] += k * y;
                        lanes[6][lane] += k * z;
                        lanes[7][lane] += k * x * x;
                        lanes[8][lane] += k * y * y;
                        lanes[9][lane] += k * z * z;
                        lanes[10][lane] += k * x * y;
                        lanes[11][lane] += k * x * z;
                        lanes[12][lane] += k * y * z;
                    }
                    start += LANES;
                }
            }
        }
        let mut sums = [0.0; 13];
        for i in 0..13 {
            sums[i] = sum(&lanes[i]);
        }
        let mass = sums[3];
        let scale = 1.0 / mass.max(1e-6);
        let offset = [sums[0] * scale, sums[1] * scale, sums[2] * scale];
        // ∂m/∂q = 4/(r²·Σ(1-s)²) · Σ (1-s)·d·(d - m)ᵀ
        let factor = 4.0 * scale * about.near;
        let entry = |second: f32, i: usize, j: usize| {
            let means = 0.5 * (sums[4 + i] * offset[j] + sums[4 + j] * offset[i]);
            f32::from(u8::from(i == j)) - factor * (second - means)
        };
        let (xx, yy, zz) = (entry(sums[7], 0, 0), entry(sums[8], 1, 1), entry(sums[9], 2, 2));
        let (xy, xz, yz) = (entry(sums[10], 0, 1), entry(sums[11], 0, 2), entry(sums[12], 1, 2));
        let stiffness = Matrix3::new(xx, xy, xz, xy, yy, yz, xz, yz, zz);
        Moments { offset, mass, stiffness }
    }
}

/// Radii of a kernel over positions (m) and over colours (0..1 a channel).
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub radius_m: f32,
    pub color: f32,
}

/// What a kernel is centred on; 1/r² of its radii over positions and colours.
struct About {
    center: Vec3,
    color: Vec3,
    near: f32,
    alike: f32,
}

impl Kernel {
    #[inline(always)]
    fn about(&self, center: &Vec3, color: &Vec3) -> About {
        let near = 1.0 / (self.radius_m * self.radius_m);
        About { center: *center, color: *color, near, alike: 1.0 / (self.color * self.color) }
    }
}

#[inline(always)]
fn sum(lanes: &[f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = *lanes;
    ((a + e) + (b + f)) + ((c + g) + (d + h))
}

/// Numbers from `start` on; a column has that many zeros behind its end.
#[inline(always)]
fn eight(column: &[f32], start: usize) -> &[f32; LANES] {
    match column[start..].first_chunk() {
        Some(chunk) => chunk,
        None => &[0.0; LANES],
    }
}
