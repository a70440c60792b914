//! Kernel means over the points of a cloud, sorted into cells.

use nalgebra::Matrix3;

use super::sums::{Kernel, LANES, N_BOTH, N_MEAN, N_MOMENTS, Sums};
use crate::base::geometry::{Cells, Vec3, bounds, squared_distance};
use crate::base::simd::dispatch;

/// Cells along an axis at most: a point far out must not make the grid large.
const MAX_CELLS: usize = 64;

/// Points sorted into cubic cells.
#[derive(Debug, Default, Clone)]
pub(super) struct Grid {
    pub(super) cells: Cells,
    /// x, y, z, red, green, blue of each point, in the cells' order; some zeros behind them.
    columns: [Vec<f32>; 6],
}

/// Kernel mean about a point q.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Mean {
    /// The mean m(q) less q (m); none where there is no mass.
    pub offset: Vec3,
    /// Sum of the weights.
    pub mass: f32,
}

impl Mean {
    fn of([x, y, z, mass]: [f32; N_MEAN]) -> Self {
        if mass <= 1e-6 {
            return Self::default();
        }
        Self { offset: [x / mass, y / mass, z / mass], mass }
    }
}

/// Kernel moments about a point q.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Moments {
    pub mean: Mean,
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

    /// Kernel mean about `center` under the biweight kernel (1 - s)².
    ///
    /// Never inlined, as [`Self::moments`]: the choice of instructions is made here, so that what
    /// calls it is compiled once, and not for each instruction set.
    #[inline(never)]
    pub(super) fn mean(&self, center: &Vec3, color: &Vec3, kernel: Kernel) -> Mean {
        Mean::of(dispatch(self.sums::<N_MEAN>(center, color, kernel)))
    }

    /// The same, and that under the kernel that sees no colour.
    #[inline(never)]
    pub(super) fn both_means(&self, center: &Vec3, color: &Vec3, kernel: Kernel) -> [Mean; 2] {
        let [x, y, z, mass, blind @ ..]: [f32; N_BOTH] = dispatch(self.sums(center, color, kernel));
        [Mean::of([x, y, z, mass]), Mean::of(blind)]
    }

    /// Kernel moments about `center`.
    #[inline(never)]
    pub(super) fn moments(&self, center: &Vec3, color: &Vec3, kernel: Kernel) -> Moments {
        let sums: [f32; N_MOMENTS] = dispatch(self.sums(center, color, kernel));
        let mass = sums[3];
        let scale = 1.0 / mass.max(1e-6);
        let offset = [sums[0] * scale, sums[1] * scale, sums[2] * scale];
        // ∂m/∂q = 4/(r²·Σ(1-s)²) · Σ (1-s)·d·(d - m)ᵀ
        let factor = 4.0 * scale / (kernel.radius_m * kernel.radius_m);
        let entry = |second: f32, i: usize, j: usize| {
            let means = 0.5 * (sums[4 + i] * offset[j] + sums[4 + j] * offset[i]);
            f32::from(u8::from(i == j)) - factor * (second - means)
        };
        let (xx, yy, zz) = (entry(sums[7], 0, 0), entry(sums[8], 1, 1), entry(sums[9], 2, 2));
        let (xy, xz, yz) = (entry(sums[10], 0, 1), entry(sums[11], 0, 2), entry(sums[12], 1, 2));
        let stiffness = Matrix3::new(xx, xy, xz, xy, yy, yz, xz, yz, zz);
        Moments { mean: Mean { offset, mass }, stiffness }
    }

    #[inline(always)]
    fn sums<'a, const N: usize>(
        &'a self,
        center: &'a Vec3,
        color: &'a Vec3,
        kernel: Kernel,
    ) -> Sums<'a, N> {
        Sums { cells: &self.cells, columns: &self.columns, center, color, kernel }
    }
}
