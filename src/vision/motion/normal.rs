//! Normal equations: the small rigid motion that takes away residuals.

use nalgebra::Matrix3;

use crate::base::geometry::Vec3;

/// Numbers in a row of the equations: six unknowns, the right side and a zero, so that compilers make
/// whole vectors of them.
const WIDTH: usize = 8;
const RIGHT: usize = 6;

/// Normal equations of a small rotation and shift.
pub(super) struct Normal {
    rows: [[f32; WIDTH]; 6],
    weight: f32,
    arm_m: f32,
}

impl Normal {
    /// Of no points; a turn by an angle counts as much as a shift by so many `arm_m`.
    pub(super) fn new(arm_m: f32) -> Self {
        Self { rows: [[0.0; WIDTH]; 6], weight: 0.0, arm_m }
    }

    /// Adds a point at `lever` from the centre of rotation whose displacement u is wanted with
    /// `stiffness`·u = `residual`.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        weight: f32,
        lever: &Vec3,
        stiffness: &Matrix3<f32>,
        residual: &Vec3,
    ) {
        let d = lever.map(|x| x / self.arm_m);
        for (row, r) in residual.iter().enumerate() {
            let row = [stiffness[(row, 0)], stiffness[(row, 1)], stiffness[(row, 2)]];
            let j: [f32; WIDTH] = [
                d[1] * row[2] - d[2] * row[1],
                d[2] * row[0] - d[0] * row[2],
                d[0] * row[1] - d[1] * row[0],
                row[0],
                row[1],
                row[2],
                *r,
                0.0,
            ];
            for x in 0..6 {
                let weighted = weight * j[x];
                self.rows[x].iter_mut().zip(&j).for_each(|(sum, j)| *sum += weighted * j);
            }
        }
        self.weight += weight;
    }

    /// Rotation vector and shift, both damped (Levenberg) by these shares of the weight.
    pub(super) fn solve(mut self, damping: [f32; 2]) -> Option<(Vec3, Vec3)> {
        for i in 0..6 {
            self.rows[i][i] += self.weight * damping[i / 3];
        }
        let s = cholesky(&mut self.rows)?;
        Some(([s[0], s[1], s[2]].map(|x| x / self.arm_m), [s[3], s[4], s[5]]))
    }
}

/// Solves a symmetric positive definite system, of which it reads the lower triangle and the right side.
/// nalgebra's subtracts products one by one, and so rounds otherwise.
fn cholesky(a: &mut [[f32; WIDTH]; 6]) -> Option<[f32; 6]> {
    for i in 0..6 {
        for j in 0..=i {
            let sum = a[i][j] - (0..j).map(|k| a[i][k] * a[j][k]).sum::<f32>();
            if i != j {
                a[i][j] = sum / a[j][j];
            } else if sum > 1e-9 {
                a[i][i] = sum.sqrt();
            } else {
                return None;
            }
        }
    }
    let mut x: [f32; 6] = std::array::from_fn(|i| a[i][RIGHT]);
    for i in 0..6 {
        x[i] = (x[i] - (0..i).map(|k| a[i][k] * x[k]).sum::<f32>()) / a[i][i];
    }
    for i in (0..6).rev() {
        x[i] = (x[i] - (i + 1..6).map(|k| a[k][i] * x[k]).sum::<f32>()) / a[i][i];
    }
    Some(x)
}
