//! Rigid motions, and what fits them to residuals.

use crate::rigid::RigidMotion;

use super::{Vec3, dot, minus, plus};

/// Length (m) that turns rotations into metres, so that all six unknowns are alike.
const ARM_M: f32 = 0.05;

/// p ↦ R·p + t.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rigid {
    rotation: [Vec3; 3],
    pub(super) translation: Vec3,
}

impl Default for Rigid {
    fn default() -> Self {
        Self::shift([0.0; 3])
    }
}

impl Rigid {
    pub(super) fn shift(translation: Vec3) -> Self {
        Self { rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], translation }
    }

    /// The motion that takes the points `from` to the points `to` of one body.
    pub(super) fn fit(from: &[Vec3], to: &[Vec3]) -> Self {
        let (rotation, translation) = RigidMotion::fit(from, to).rows();
        Self { rotation, translation }
    }

    #[inline(always)]
    pub(super) fn turn(&self, p: &Vec3) -> Vec3 {
        let [x, y, z] = &self.rotation;
        [dot(x, p), dot(y, p), dot(z, p)]
    }

    #[inline(always)]
    pub(super) fn apply(&self, p: &Vec3) -> Vec3 {
        plus(&self.turn(p), &self.translation)
    }

    /// R⁻¹·(p - t).
    pub(super) fn undo(&self, p: &Vec3) -> Vec3 {
        let d = minus(p, &self.translation);
        std::array::from_fn(|j| (0..3).map(|i| self.rotation[i][j] * d[i]).sum())
    }

    /// R·S·Rᵀ of a symmetric S.
    #[inline(always)]
    pub(super) fn conjugate(&self, s: &[Vec3; 3]) -> [Vec3; 3] {
        let [x, y, z] = self.rotation;
        let times = |row: &Vec3, [a, b, c]: &[Vec3; 3]| [dot(row, a), dot(row, b), dot(row, c)];
        let rows = [x, y, z];
        [times(&times(&x, s), &rows), times(&times(&y, s), &rows), times(&times(&z, s), &rows)]
    }

    /// This motion, then a rotation by the vector `turn` about `center`, and a shift.
    pub(super) fn then(&self, turn: &Vec3, shift: &Vec3, center: &Vec3) -> Self {
        let second = rotation(turn);
        let columns: [Vec3; 3] = std::array::from_fn(|j| self.rotation.map(|row| row[j]));
        let d = minus(&self.translation, center);
        Self {
            rotation: second.map(|row| std::array::from_fn(|j| dot(&row, &columns[j]))),
            translation: std::array::from_fn(|i| dot(&second[i], &d) + center[i] + shift[i]),
        }
    }
}

/// Matrix of a rotation vector, by way of the unit quaternion.
fn rotation(turn: &Vec3) -> [Vec3; 3] {
    let half = turn.map(|x| 0.5 * x);
    let angle = dot(&half, &half).sqrt();
    let scale = if angle > 1e-6 { angle.sin() / angle } else { 1.0 };
    let ([x, y, z], w) = (half.map(|h| h * scale), angle.cos());
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
        [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)],
        [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

/// Normal equations of a small rotation and shift.
#[derive(Default)]
pub(super) struct Normal {
    matrix: [[f32; 6]; 6],
    right: [f32; 6],
    pub(super) weight: f32,
}

impl Normal {
    /// Adds a point at `lever` from the centre of rotation whose displacement u is wanted with
    /// `stiffness`·u = `residual`.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        weight: f32,
        lever: &Vec3,
        stiffness: &[Vec3; 3],
        residual: &Vec3,
    ) {
        let d = lever.map(|x| x / ARM_M);
        for (row, r) in stiffness.iter().zip(residual) {
            let j = [
                d[1] * row[2] - d[2] * row[1],
                d[2] * row[0] - d[0] * row[2],
                d[0] * row[1] - d[1] * row[0],
                row[0],
                row[1],
                row[2],
            ];
            for x in 0..6 {
                self.right[x] += weight * j[x] * r;
                for y in 0..=x {
                    self.matrix[x][y] += weight * j[x] * j[y];
                }
            }
        }
        self.weight += weight;
    }

    /// Rotation vector and shift, both damped (Levenberg) by these shares of the weight.
    pub(super) fn solve(mut self, damping: [f32; 2]) -> Option<(Vec3, Vec3)> {
        for i in 0..6 {
            self.matrix[i][i] += self.weight * damping[i / 3];
        }
        let s = cholesky(&mut self.matrix, &self.right)?;
        Some(([s[0], s[1], s[2]].map(|x| x / ARM_M), [s[3], s[4], s[5]]))
    }
}

/// Solves a symmetric positive definite system, given by its lower triangle.
fn cholesky(a: &mut [[f32; 6]; 6], right: &[f32; 6]) -> Option<[f32; 6]> {
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
    let mut x = *right;
    for i in 0..6 {
        x[i] = (x[i] - (0..i).map(|k| a[i][k] * x[k]).sum::<f32>()) / a[i][i];
    }
    for i in (0..6).rev() {
        x[i] = (x[i] - (i + 1..6).map(|k| a[k][i] * x[k]).sum::<f32>()) / a[i][i];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_s_motion_is_found_and_undone() {
        let truth =
            Rigid::shift([0.02, 0.0, -0.01]).then(&[0.1, -0.3, 0.2], &[0.0; 3], &[0.4, 0.1, 0.3]);
        let now: Vec<Vec3> = (0..12)
            .map(|i| {
                [
                    0.4 + 0.02 * (i % 3) as f32,
                    0.1 + 0.03 * (i / 3) as f32,
                    0.3 + 0.01 * (i % 5) as f32,
                ]
            })
            .collect();
        let before: Vec<Vec3> = now.iter().map(|p| truth.apply(p)).collect();
        let found = Rigid::fit(&now, &before);
        for (p, b) in now.iter().zip(&before) {
            let error = minus(&found.apply(p), b);
            assert!(dot(&error, &error).sqrt() < 2e-4, "{error:?}");
            let back = minus(&truth.undo(b), p);
            assert!(dot(&back, &back).sqrt() < 1e-6, "{back:?}");
        }
    }
}
