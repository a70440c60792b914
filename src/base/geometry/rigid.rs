//! Rigid motions in single precision, and what fits them to points seen twice. Poses are nalgebra's
//! `Isometry3<f64>`; these are for many points, with every sum in one order.

use nalgebra::{Isometry3, Matrix3, Vector3};

use super::{Vec3, dot};

/// Pull towards no rotation, as a share of the points' scatter: decides where they lie on a line.
const STIFFNESS: f32 = 1e-4;

/// p ↦ R·p + t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rigid {
    rotation: Matrix3<f32>,
    translation: Vector3<f32>,
}

impl Default for Rigid {
    fn default() -> Self {
        Self::shift([0.0; 3])
    }
}

impl Rigid {
    /// Nothing turns.
    pub const fn shift([x, y, z]: Vec3) -> Self {
        Self {
            rotation: Matrix3::new(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0),
            translation: Vector3::new(x, y, z),
        }
    }

    /// Of a pose, rounded.
    pub fn from_isometry(isometry: &Isometry3<f64>) -> Self {
        Self {
            rotation: isometry.rotation.to_rotation_matrix().matrix().cast(),
            translation: isometry.translation.vector.cast(),
        }
    }

    /// The motion that takes the points `from` to the points `to` of one body: see
    /// [`RigidMotion::fit`].
    pub fn fit(from: &[Vec3], to: &[Vec3]) -> Self {
        let RigidMotion { about: Self { rotation, translation }, center } =
            RigidMotion::fit(from, to);
        Self { rotation, translation: center + translation - rotation * center }
    }

    /// Rows of R, and t.
    pub fn rows(&self) -> ([Vec3; 3], Vec3) {
        let row = |i: usize| [self.rotation[(i, 0)], self.rotation[(i, 1)], self.rotation[(i, 2)]];
        ([row(0), row(1), row(2)], self.translation())
    }

    /// t.
    #[inline(always)]
    pub fn translation(&self) -> Vec3 {
        self.translation.into()
    }

    /// R·p.
    #[inline(always)]
    pub fn turn(&self, p: &Vec3) -> Vec3 {
        (self.rotation * Vector3::from(*p)).into()
    }

    /// R·p + t; in this order of operations on a GPU, too.
    #[inline(always)]
    pub fn apply(&self, p: &Vec3) -> Vec3 {
        (self.rotation * Vector3::from(*p) + self.translation).into()
    }

    /// R⁻¹·(p - t).
    pub fn undo(&self, p: &Vec3) -> Vec3 {
        self.rotation.tr_mul(&(Vector3::from(*p) - self.translation)).into()
    }

    /// R·S·Rᵀ.
    #[inline(always)]
    pub fn conjugate(&self, s: &Matrix3<f32>) -> Matrix3<f32> {
        self.rotation * s * self.rotation.transpose()
    }

    /// This motion, then a rotation by the vector `turn` (rad) about `center`, and a shift.
    pub fn then(&self, turn: &Vec3, shift: &Vec3, center: &Vec3) -> Self {
        let (second, center) = (rotation(turn), Vector3::from(*center));
        Self {
            rotation: second * self.rotation,
            translation: second * (self.translation - center) + center + Vector3::from(*shift),
        }
    }
}

/// Matrix of a rotation vector, by way of the unit quaternion: nalgebra's rounds otherwise, and what
/// is found with it would be another motion in its last bits.
fn rotation(turn: &Vec3) -> Matrix3<f32> {
    let half = turn.map(|x| 0.5 * x);
    let angle = dot(&half, &half).sqrt();
    let scale = if angle > 1e-6 { angle.sin() / angle } else { 1.0 };
    let ([x, y, z], w) = (half.map(|h| h * scale), angle.cos());
    let row_x = [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)];
    let row_y = [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)];
    let row_z = [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)];
    Matrix3::from([row_x, row_y, row_z]).transpose()
}

/// A rigid motion told about a centre of the points that it moves, so that small ways far from the
/// origin keep their digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RigidMotion {
    /// The rotation, and the way of the centre.
    about: Rigid,
    center: Vector3<f32>,
}

impl RigidMotion {
    /// Nothing moves.
    pub const REST: Self =
        Self { about: Rigid::shift([0.0; 3]), center: Vector3::new(0.0, 0.0, 0.0) };

    /// A translation (m).
    pub fn shift(way: Vec3) -> Self {
        Self { about: Rigid::shift(way), ..Self::REST }
    }

    /// The motion that takes the points `from` to the points `to` (m) with the least squared error
    /// (Kabsch 1976); of less than three points their mean translation.
    pub fn fit(from: &[Vec3], to: &[Vec3]) -> Self {
        Self::fit_weighted(from, to, |_| 1.0)
    }

    /// As [`Self::fit`], each point's squared error times its weight, above 0.
    pub fn fit_weighted(from: &[Vec3], to: &[Vec3], weight: impl Fn(usize) -> f32) -> Self {
        let total = (0..from.len()).map(&weight).sum::<f32>();
        let mean = |points: &[Vec3]| {
            let weighted = |(i, &p): (usize, &Vec3)| weight(i) * Vector3::from(p);
            let sum: Vector3<f32> = points.iter().enumerate().map(weighted).sum();
            if points.is_empty() { sum } else { sum / total }
        };
        let (center, target) = (mean(from), mean(to));
        let still = Self { about: Rigid::shift((target - center).into()), center };
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
        let about = if is_usable { Rigid { rotation, ..still.about } } else { still.about };
        Self { about, center }
    }

    /// The rotation vector (rad); that of half a turn, whose axis may point either way, is none.
    pub fn turn(&self) -> Vec3 {
        let r = &self.about.rotation;
        // The axis times the angle's sine.
        let axis =
            [r[(2, 1)] - r[(1, 2)], r[(0, 2)] - r[(2, 0)], r[(1, 0)] - r[(0, 1)]].map(|x| 0.5 * x);
        let sine = dot(&axis, &axis).sqrt();
        let angle = sine.atan2(0.5 * (r.trace() - 1.0));
        axis.map(|x| if sine > 1e-6 { x * (angle / sine) } else { 0.0 })
    }

    /// The same, `more` (m) farther.
    pub fn shifted(&self, more: &Vec3) -> Self {
        let mut shifted = *self;
        shifted.about.translation += Vector3::from(*more);
        shifted
    }

    /// Tells of places from `origin`.
    pub fn set_origin(&mut self, origin: &Vec3) {
        self.center -= Vector3::from(*origin);
    }

    /// The centre before the motion (m).
    pub fn center(&self) -> Vec3 {
        self.center.into()
    }

    /// The way of the centre (m).
    pub fn way(&self) -> Vec3 {
        self.about.translation.into()
    }

    /// The same once more, of a body that nothing holds: its centre goes on straight, and it turns about
    /// that. (The motion done twice would turn the way of the centre, too.)
    pub fn again(&self) -> Self {
        Self { about: self.about, center: self.center + self.about.translation }
    }

    /// The same once more, of a body that something holds to its course: the way of its centre turns as the
    /// body does about the vertical, as on a turntable; what rolls goes straight on.
    pub fn again_on_course(&self) -> Self {
        let way = rotation(&[0.0, 0.0, self.turn()[2]]) * self.about.translation;
        let about = Rigid { translation: way, ..self.about };
        Self { about, center: self.center + self.about.translation }
    }

    /// The same at `factor` times its speed: the way and the turn of as much time.
    pub fn scaled(&self, factor: f32) -> Self {
        let turn = self.turn().map(|x| x * factor);
        let way = self.way().map(|x| x * factor);
        let about = Rigid { rotation: rotation(&turn), translation: way.into() };
        Self { about, center: self.center }
    }

    /// Rows of the rotation, centre, way of the centre (m): what [`Self::motion_of`] takes.
    #[cfg(feature = "cuda")]
    pub(crate) fn numbers(&self) -> [f32; 15] {
        let mut numbers = [0.0; 15];
        numbers[..9].copy_from_slice(self.about.rotation.transpose().as_slice());
        numbers[9..12].copy_from_slice(self.center.as_slice());
        numbers[12..].copy_from_slice(self.about.translation.as_slice());
        numbers
    }

    /// How far the point `p` of the body goes (m).
    pub fn motion_of(&self, p: &Vec3) -> Vec3 {
        let arm = Vector3::from(*p) - self.center;
        (self.about.rotation * arm - arm + self.about.translation).into()
    }

    /// Gradient of the point from that of its motion.
    pub fn gradient(&self, d_motion: &Vec3) -> Vec3 {
        let d = Vector3::from(*d_motion);
        (self.about.rotation.tr_mul(&d) - d).into()
    }
}

/// Replaces `motions` by those of the links from `now` to `ahead`: the number of each point's link is
/// in `links`, ascending.
pub fn follow_links(links: &[u32], now: &[Vec3], ahead: &[Vec3], motions: &mut Vec<RigidMotion>) {
    follow_some_links(links, now, ahead, |_| true, motions);
}

/// As [`follow_links`], of the links that `is_wanted`; the others rest.
pub fn follow_some_links(
    links: &[u32],
    now: &[Vec3],
    ahead: &[Vec3],
    is_wanted: impl Fn(usize) -> bool,
    motions: &mut Vec<RigidMotion>,
) {
    motions.clear();
    let mut from = 0;
    while let Some(&link) = links.get(from) {
        let to = from + links[from..].partition_point(|&other| other <= link);
        // Links without points are nobody's nearest.
        motions.resize(link as usize, RigidMotion::REST);
        motions.push(match is_wanted(link as usize) {
            true => RigidMotion::fit(&now[from..to], &ahead[from..to]),
            false => RigidMotion::REST,
        });
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::geometry::{length, minus};
    use crate::base::random::{draw, normal_pair};
    use nalgebra::Point3;

    fn points(n: usize, seed: u64) -> Vec<Vec3> {
        let normal = |i, axis| 0.1 * normal_pair(draw(seed, 0, i, axis))[0];
        (0..n as u64).map(|i| [normal(i, 0), normal(i, 1), normal(i, 2)]).collect()
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
                let (rows, translation) = Rigid::fit(&from, &moved(&pose, &from)).rows();
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
            assert_eq!(motion.about.rotation, Matrix3::identity());
        }
        assert_eq!(RigidMotion::fit(&[], &[]), RigidMotion::REST);
        let broken = RigidMotion::fit(&[[f32::NAN; 3]; 4], &[[0.0; 3]; 4]);
        assert_eq!(broken.about.rotation, Matrix3::identity());
    }

    #[test]
    fn a_motion_is_found_and_undone() {
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
            assert!(length(&error) < 2e-4, "{error:?}");
            let back = minus(&truth.undo(b), p);
            assert!(length(&back) < 1e-6, "{back:?}");
        }
    }

    #[test]
    fn motions_follow_one_another_as_poses_do() {
        let pose = |turn: &Vec3, shift: &Vec3| {
            Isometry3::new(Vector3::from(*shift).cast(), Vector3::from(*turn).cast::<f64>())
        };
        let [turn, shift, center] = [[0.3, -0.7, 1.1], [0.1, 0.2, -0.3], [0.4, -0.1, 0.6]];
        let first = pose(&[-0.2, 0.4, 0.1], &[0.3, 0.0, -0.1]);
        let about = Isometry3::translation(0.4, -0.1, 0.6);
        let want =
            pose(&[0.0; 3], &shift) * about * pose(&turn, &[0.0; 3]) * about.inverse() * first;
        let got = Rigid::from_isometry(&first).then(&turn, &shift, &center);
        for p in points(9, 4) {
            let there: Vec3 = (want * Point3::from(p.map(f64::from))).cast::<f32>().into();
            assert!(length(&minus(&got.apply(&p), &there)) < 1e-6);
            assert!(length(&minus(&got.undo(&there), &p)) < 1e-6);
            assert_eq!(
                got.apply(&p),
                crate::base::geometry::plus(&got.turn(&p), &got.translation())
            );
        }
        let s = Matrix3::new(2.0, 0.5, 0.1, 0.5, 1.0, -0.3, 0.1, -0.3, 3.0);
        let turned = got.rotation.cast::<f64>() * s.cast() * got.rotation.cast().transpose();
        assert!((got.conjugate(&s).cast::<f64>() - turned).norm() < 1e-6);
    }
}
