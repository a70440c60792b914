//! What a prediction says of its objects: boxes, and where they will be.

use nalgebra::{Isometry3, Translation3, UnitQuaternion, Vector3};

use crate::base::geometry::{RigidMotion, Vec3, add, distance, dot, minus, plus};
use crate::message::Stamp;
use crate::predict::prediction::Prediction;

use super::{Followed, ParticleKind};

/// Particles by which an object's motion is told, at most.
const MAX_FITTED: usize = 96;
/// Noise of a place that many points tell of (m), and least arm by which it turns into an angle (m).
const NOISE_M: f64 = 0.002;
const LEAST_ARM_M: f64 = 0.01;
/// Radius that holds nine of ten draws from a normal distribution in space, over its deviation along an axis.
const RADIUS_90: f64 = 2.5003;
/// Variance of an angle of which nothing is known (rad²).
const ANY_ANGLE: f64 = std::f64::consts::PI * std::f64::consts::PI / 3.0;
/// Directions that are tried for the box.
const N_YAWS: usize = 45;

/// A pose and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObjectPose {
    /// From the box's frame to the world (m).
    pub pose: Isometry3<f64>,
    /// Variances along the world's axes (m²) and about them (rad²); nothing correlates. None of models that were
    /// not calibrated.
    pub variances: Option<[f64; 6]>,
}

/// An object of a prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Its number and since when it is followed.
    pub followed: Followed,
    /// Stamp of the frame that it was seen in last: the prediction's.
    pub last_seen: Stamp,
    /// What most of its particles are.
    pub kind: ParticleKind,
    /// Number of its particles.
    pub n_particles: usize,
    /// Sides of the box about what is seen of it (m): upright, of the smallest area, x the longer side.
    pub size: Vec3,
    /// Where the box is at the prediction's stamp, and after each step.
    ///
    /// Steps are the rigid motion that fits its particles' displacements best (least squares). Variances of a place:
    /// that of a normal distribution whose sphere of 90 % is the root mean square of its particles' sigma_90 in that
    /// step (their errors are not averaged, as those of one body are alike), and what the fit leaves over; of an
    /// angle: the same over the squared distance of its particles from the centre. At the stamp it is the noise of
    /// the measurement, 2 mm. What is hidden of the object is in neither.
    pub path: Vec<ObjectPose>,
}

impl Object {
    /// Seconds since it was first seen.
    pub fn age_secs(&self) -> f64 {
        self.last_seen.secs_since(self.followed.since)
    }

    /// Where it is `steps` after the prediction's stamp, between two steps along the straight way; none outside of
    /// the prediction's steps.
    pub fn pose_after(&self, steps: f64) -> Option<ObjectPose> {
        let last = self.path.len().checked_sub(1)?;
        if !(0.0..=last as f64).contains(&steps) {
            return None;
        }
        let from = (steps as usize).min(last.saturating_sub(1));
        let (a, b) = (&self.path[from], &self.path[(from + 1).min(last)]);
        let share = steps - from as f64;
        let mix = |a: f64, b: f64| a + share * (b - a);
        let pose = a.pose.try_lerp_slerp(&b.pose, share, 1e-9).unwrap_or(b.pose);
        let variances = a.variances.zip(b.variances);
        let variances = variances.map(|(a, b)| std::array::from_fn(|i| mix(a[i], b[i])));
        Some(ObjectPose { pose, variances })
    }
}

impl Prediction {
    /// The objects that are seen, by ascending number, and where they will be. Costs about as much as a rigid fit
    /// for each object and step.
    pub fn objects(&self) -> Vec<Object> {
        let map = &self.objects;
        let mut members: Vec<(u64, u32)> =
            map.number_of.iter().zip(0..).filter(|(n, _)| **n > 0).map(|(&n, i)| (n, i)).collect();
        members.sort_unstable();
        let groups = members.chunk_by(|a, b| a.0 == b.0);
        let object = |group: &[(u64, u32)]| {
            let at = map.seen.binary_search_by_key(&group[0].0, |seen| seen.number).ok()?;
            let members: Vec<usize> = group.iter().map(|&(_, i)| i as usize).collect();
            Some(self.object(map.seen[at], &members))
        };
        groups.filter_map(object).collect()
    }

    /// The object whose box's centre is nearest to `point` (m) at the prediction's stamp.
    pub fn nearest_object(objects: &[Object], point: [f64; 3]) -> Option<&Object> {
        let off = |object: &&Object| {
            let center =
                object.path.first().map_or_else(Vector3::zeros, |p| p.pose.translation.vector);
            (center - Vector3::from(point)).norm()
        };
        objects.iter().min_by(|a, b| off(a).total_cmp(&off(b)))
    }

    fn object(&self, followed: Followed, members: &[usize]) -> Object {
        let positions: Vec<Vec3> = members.iter().map(|&i| self.particles.positions[i]).collect();
        let (center, size, yaw) = upright_box(&positions);
        let every = members.len().div_ceil(MAX_FITTED).max(1);
        let fitted: Vec<usize> = members.iter().copied().step_by(every).collect();
        let from: Vec<Vec3> = fitted.iter().map(|&i| self.particles.positions[i]).collect();
        let arms = from.iter().map(|p| minus(p, &center)).map(|arm| f64::from(dot(&arm, &arm)));
        let arm_m2 = (arms.sum::<f64>() / from.len().max(1) as f64).max(LEAST_ARM_M * LEAST_ARM_M);
        let spread = |variance: f64| {
            let angle = (variance / arm_m2).min(ANY_ANGLE);
            [variance, variance, variance, angle, angle, angle]
        };
        let start = Isometry3::from_parts(
            Translation3::from(Vector3::from(center.map(f64::from))),
            UnitQuaternion::from_scaled_axis(Vector3::z() * yaw),
        );
        let is_told = !self.told_sigmas(1).is_empty();
        let now = is_told.then(|| spread(NOISE_M * NOISE_M));
        let mut path = vec![ObjectPose { pose: start, variances: now }];
        let mut to = from.clone();
        for (step, displacements) in self.displacements.iter().enumerate() {
            let moved = |(p, &i): (&mut Vec3, &usize)| {
                add(p, &displacements.get(i).copied().unwrap_or_default());
            };
            to.iter_mut().zip(&fitted).for_each(moved);
            let motion = RigidMotion::fit(&from, &to);
            let left = from
                .iter()
                .zip(&to)
                .map(|(a, b)| f64::from(distance(&plus(a, &motion.motion_of(a)), b)).powi(2));
            let left = left.sum::<f64>() / (3 * from.len()).max(1) as f64;
            let turn =
                UnitQuaternion::from_scaled_axis(Vector3::from(motion.turn().map(f64::from)));
            let there = plus(&center, &motion.motion_of(&center)).map(f64::from);
            let pose = Isometry3::from_parts(
                Translation3::from(Vector3::from(there)),
                turn * start.rotation,
            );
            let variances = self.told_sigmas(1).get(step).map(|radii| {
                let squares = fitted.iter().filter_map(|&i| radii.get(i));
                let squares = squares.map(|&radius| f64::from(radius).powi(2)).sum::<f64>();
                let told = squares / fitted.len().max(1) as f64 / (RADIUS_90 * RADIUS_90);
                spread(told.max(NOISE_M * NOISE_M) + left)
            });
            path.push(ObjectPose { pose, variances });
        }
        let count = |kind: ParticleKind| {
            members.iter().filter(|&&i| self.objects.kinds.get(i) == Some(&kind)).count()
        };
        let kind = ParticleKind::ALL.into_iter().max_by_key(|&kind| count(kind));
        Object {
            followed,
            last_seen: self.stamp,
            kind: kind.unwrap_or(ParticleKind::Resting),
            n_particles: members.len(),
            size,
            path,
        }
    }
}

/// Centre and sides (m) of the upright box of the smallest area about `points`, and its turn about the vertical
/// (rad), in (-π/2, π/2]: x is its longer side.
fn upright_box(points: &[Vec3]) -> (Vec3, Vec3, f64) {
    let about = points.first().copied().unwrap_or_default();
    let ends = |axis: [f32; 3]| {
        let along = points.iter().map(|p| dot(&minus(p, &about), &axis));
        let ends = along
            .fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], x| [low.min(x), high.max(x)]);
        if points.is_empty() { [0.0; 2] } else { ends }
    };
    let sides = |yaw: f64| {
        let (sine, cosine) = (yaw.sin() as f32, yaw.cos() as f32);
        [ends([cosine, sine, 0.0]), ends([-sine, cosine, 0.0])]
    };
    let length = |[low, high]: [f32; 2]| high - low;
    let area = |yaw: f64| {
        let [x, y] = sides(yaw).map(length);
        x * y
    };
    let yaws = (0..N_YAWS).map(|i| i as f64 * std::f64::consts::FRAC_PI_2 / N_YAWS as f64);
    let mut yaw = yaws.min_by(|a, b| area(*a).total_cmp(&area(*b))).unwrap_or(0.0);
    let [x, y] = sides(yaw).map(length);
    if y > x {
        yaw -= std::f64::consts::FRAC_PI_2;
    }
    let ([x, y], z) = (sides(yaw), ends([0.0, 0.0, 1.0]));
    let middle = |[low, high]: [f32; 2]| 0.5 * (low + high);
    let (sine, cosine) = (yaw.sin() as f32, yaw.cos() as f32);
    let (mx, my) = (middle(x), middle(y));
    let center = [cosine * mx - sine * my, sine * mx + cosine * my, middle(z)];
    (plus(&about, &center), [length(x), length(y), length(z)], yaw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::geometry::Rigid;
    use crate::predict::objects::ObjectMap;

    /// Corners and edges of a box of 20 × 10 × 6 cm, turned by 30°.
    fn points() -> Vec<Vec3> {
        let turn = Rigid::default().then(
            &[0.0, 0.0, std::f32::consts::FRAC_PI_6],
            &[0.4, 0.1, 0.03],
            &[0.0; 3],
        );
        let grid = |i: usize, n: usize, side: f32| side * (i as f32 / (n - 1) as f32 - 0.5);
        let at = |i: usize| [grid(i % 5, 5, 0.2), grid(i / 5 % 3, 3, 0.1), grid(i / 15, 2, 0.06)];
        (0..30).map(|i| turn.apply(&at(i))).collect()
    }

    fn prediction() -> Prediction {
        let mut prediction = Prediction { stamp: Stamp::from_secs(5.0), ..Prediction::default() };
        prediction.particles.positions = points();
        prediction.particles.positions.push([9.0; 3]);
        let n = prediction.particles.positions.len();
        prediction.displacements = vec![vec![[0.01, 0.0, 0.0]; n]; 3];
        prediction.sigmas = [vec![vec![0.01; n]; 3], vec![vec![0.025003; n]; 3]];
        let mut number_of = vec![7; n];
        number_of[n - 1] = 0;
        let since = Stamp::from_secs(4.0);
        let seen = vec![Followed { number: 7, since }];
        let kinds = vec![ParticleKind::Moving; n];
        prediction.objects = ObjectMap { number_of, kinds, seen, since, n_followed: 9 };
        prediction
    }

    #[test]
    fn the_box_is_the_smallest_and_goes_with_the_particles() {
        let objects = prediction().objects();
        let [object] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!((object.followed.number, object.n_particles), (7, 30));
        assert_eq!((object.kind, object.age_secs()), (ParticleKind::Moving, 1.0));
        let near = |a: f64, b: f64| (a - b).abs() < 2e-3;
        for (side, wanted) in object.size.into_iter().zip([0.2, 0.1, 0.06]) {
            assert!(near(f64::from(side), wanted), "{:?}", object.size);
        }
        let (_, _, yaw) = object.path[0].pose.rotation.euler_angles();
        assert!((yaw.to_degrees() - 30.0).abs() < 1.1, "{yaw}");
        for (step, at) in object.path.iter().enumerate() {
            let x = at.pose.translation.vector;
            assert!(near(x.x, 0.4 + 0.01 * step as f64) && near(x.y, 0.1) && near(x.z, 0.03));
        }
        // Nine of ten within 25 mm: 10 mm along each axis.
        let told = object.path[2].variances.unwrap();
        assert!((told[0].sqrt() - 0.01).abs() < 1e-5 && told[3] > 0.0);
        assert!(object.path[0].variances.unwrap()[0] < told[0]);
        let between = object.pose_after(1.5).unwrap();
        assert!(near(between.pose.translation.x, 0.415));
        assert_eq!(object.pose_after(3.0).unwrap(), object.path[3]);
        for outside in [-0.1, 3.1, f64::NAN] {
            assert_eq!(object.pose_after(outside), None);
        }
        assert_eq!(Prediction::nearest_object(&objects, [0.0; 3]), objects.first());
    }

    #[test]
    fn none_few_and_uncalibrated_are_no_trouble() {
        assert!(Prediction::default().objects().is_empty());
        assert_eq!(Prediction::nearest_object(&[], [0.0; 3]), None);
        let mut one = prediction();
        one.sigmas[1].clear();
        one.objects.number_of[1..].fill(0);
        one.displacements.clear();
        let objects = one.objects();
        assert_eq!((objects.len(), objects[0].path.len(), objects[0].size), (1, 1, [0.0; 3]));
        assert_eq!(objects[0].path[0].variances, None);
        assert!(objects[0].pose_after(0.0).is_some() && objects[0].pose_after(0.1).is_none());
    }
}
