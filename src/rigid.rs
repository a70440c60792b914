//! The motion of a rigid body from points on it, seen twice.

use nalgebra::{Matrix3, Vector3};

type Vec3 = [f32; 3];

/// Pull towards no rotation, as a share of the points' scatter: decides where they lie on a line.
const STIFFNESS: f32 = 1e-4;

/// A rotation about a centre and a translation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RigidMotion {
    rotation: Matrix3<f32>,
    center: Vector3<f32>,
    translation: Vector3<f32>,
}

impl RigidMotion {
    /// Nothing moves.
    pub(crate) const REST: Self = Self {
        rotation: Matrix3::new(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0),
        center: Vector3::new(0.0, 0.0, 0.0),
        translation: Vector3::new(0.0, 0.0, 0.0),
    };

    /// The motion that takes the points `from` to the points `to` (m) with the least squared error
    /// (Kabsch 1976); of less than three points their mean translation.
    pub(crate) fn fit(from: &[Vec3], to: &[Vec3]) -> Self {
        Self::fit_weighted(from, to, |_| 1.0)
    }

    /// As [`Self::fit`], each point's squared error times its weight, above 0.
    pub(crate) fn fit_weighted(from: &[Vec3], to: &[Vec3], weight: impl Fn(usize) -> f32) -> Self {
        let total = (0..from.len()).map(&weight).sum::<f32>();
        let mean = |points: &[Vec3]| {
            let weighted = |(i, &p): (usize, &Vec3)| weight(i) * Vector3::from(p);
            let sum: Vector3<f32> = points.iter().enumerate().map(weighted).sum();
            if points.is_empty() { sum } else { sum / total }
        };
        let (center, target) = (mean(from), mean(to));
        let still = Self { rotation: Matrix3::identity(), center, translation: target - center };
        if from.len() < 3 {
            return still;
        }
        let mut covariance = Matrix3::zeros();
        let mut scatter = 0.0;
        for (i, (&a, &b)) in from.iter().zip(to).enumerate() {
            let (a, b) = (Vector3::from(a) - center, Vector3::from(b) - target);
            covariance += weight(i) * b * a.transpose();
            scatter += weight(i) * a.norm_squared();
        }
        covariance += Matrix3::identity() * (STIFFNESS * scatter);
        // Bounded: what is not finite never converges.
        let svd = covariance.try_svd(true, true, f32::EPSILON, 100);
        let Some((Some(u), Some(v_t))) = svd.map(|svd| (svd.u, svd.v_t)) else { return still };
        let handedness = (u * v_t).determinant().signum();
        let rotation = u * Matrix3::from_diagonal(&Vector3::new(1.0, 1.0, handedness)) * v_t;
        let is_usable = rotation.iter().all(|x| x.is_finite());
        if is_usable { Self { rotation, ..still } } else { still }
    }

    /// Rows of R, and t, of p ↦ R·p + t.
    pub(crate) fn rows(&self) -> ([Vec3; 3], Vec3) {
        let translation = self.center + self.translation - self.rotation * self.center;
        let row = |i: usize| [self.rotation[(i, 0)], self.rotation[(i, 1)], self.rotation[(i, 2)]];
        ([row(0), row(1), row(2)], translation.into())
    }

    /// Rows of the rotation, centre, translation (m): what [`Self::motion_of`] takes.
    #[cfg(feature = "cuda")]
    pub(crate) fn numbers(&self) -> [f32; 15] {
        let mut numbers = [0.0; 15];
        numbers[..9].copy_from_slice(self.rotation.transpose().as_slice());
        numbers[9..12].copy_from_slice(self.center.as_slice());
        numbers[12..].copy_from_slice(self.translation.as_slice());
        numbers
    }

    /// How far the point `p` of the body goes (m).
    pub(crate) fn motion_of(&self, p: &Vec3) -> Vec3 {
        let arm = Vector3::from(*p) - self.center;
        (self.rotation * arm - arm + self.translation).into()
    }

    /// Gradient of the point from that of its motion.
    pub(crate) fn gradient(&self, d_motion: &Vec3) -> Vec3 {
        let d = Vector3::from(*d_motion);
        (self.rotation.tr_mul(&d) - d).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::numbers;
    use nalgebra::{Isometry3, Point3};

    fn points(n: usize, seed: u64) -> Vec<Vec3> {
        numbers(3 * n, seed).chunks_exact(3).map(|c| [0.1 * c[0], 0.1 * c[1], 0.1 * c[2]]).collect()
    }

    fn moved(pose: &Isometry3<f32>, points: &[Vec3]) -> Vec<Vec3> {
        points.iter().map(|&p| (pose * Point3::from(p)).into()).collect()
    }

    #[test]
    fn finds_the_motion_of_a_body() {
        for (seed, angle) in [(1, 0.0), (2, 0.3), (3, -1.5)] {
            let axis = Vector3::new(0.2, -0.5, 0.4).normalize() * angle;
            let pose = Isometry3::new(Vector3::new(0.05, -0.02, 0.3), axis);
            let from = points(12, seed);
            let motion = RigidMotion::fit(&from, &moved(&pose, &from));
            let probes = points(5, 9);
            for (p, there) in probes.iter().zip(moved(&pose, &probes)) {
                let got = motion.motion_of(p);
                let (rows, translation) = motion.rows();
                for axis in 0..3 {
                    let error = got[axis] - (there[axis] - p[axis]);
                    assert!(error.abs() < 2e-4, "{error} m at {angle} rad");
                    let turned = Vector3::from(rows[axis]).dot(&Vector3::from(*p));
                    assert!((turned + translation[axis] - p[axis] - got[axis]).abs() < 1e-5);
                }
            }
        }
    }

    #[test]
    fn few_points_and_lines_do_not_spin() {
        let pose = Isometry3::new(Vector3::new(0.1, 0.0, 0.0), Vector3::new(0.0, 0.2, 0.0));
        let line: Vec<Vec3> = (0..5).map(|i| [0.05 * i as f32, 0.0, 0.0]).collect();
        let motion = RigidMotion::fit(&line, &moved(&pose, &line));
        let (beside, above) = (motion.motion_of(&[0.0, 0.1, 0.0]), motion.motion_of(&[0.0; 3]));
        // The turn about the line itself is unknown: none.
        assert!((0..3).all(|axis| (beside[axis] - above[axis]).abs() < 1e-3), "{beside:?}");
        for n in 0..3 {
            let motion = RigidMotion::fit(&line[..n], &moved(&pose, &line[..n]));
            assert!(motion.motion_of(&[0.3, 0.2, 0.1]).iter().all(|m| m.is_finite()));
            assert_eq!(motion.rotation, Matrix3::identity());
        }
        assert_eq!(RigidMotion::fit(&[], &[]), RigidMotion::REST);
        let broken = RigidMotion::fit(&[[f32::NAN; 3]; 4], &[[0.0; 3]; 4]);
        assert_eq!(broken.rotation, Matrix3::identity());
    }
}
