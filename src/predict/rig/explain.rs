//! Which single thing that is wrong explains best where the robot is seen: least squares.
//!
//! Each point of the robot that is nearly where it is seen tells by how much its surface is off along its
//! normal. A cause (the robot's place, a camera's, a joint's place or zero, the joints' time) moves the
//! points in a way that it fits best (Gauss and Newton, one step; point to plane: Chen and Medioni 1992),
//! with weights by Geman and McClure against what is no robot. The cause counts that leaves least.

use nalgebra::{DMatrix, DVector, Isometry3, Vector3};

use crate::base::geometry::Vec3;

/// Scale beyond which a residual counts less and less (m).
const SCALE_M: f64 = 0.008;
/// Rounds of weights, after one in which all count alike.
const ROUNDS: usize = 6;
/// Way (m) for which a turn of 1 in the unknowns stands: turns and ways are then alike.
const ARM_M: f64 = 0.3;
/// What holds back unknowns that hardly any point tells of: this share of the others' weight.
const RIDGE: f64 = 0.01;
/// Each unknown more must gain so much.
const PER_UNKNOWN: f64 = 0.01;
/// Fewer points tell nothing; nor do fewer of the part that a cause is about, as what a hand holds covers
/// some of it and lies a few millimetres before it: so many points, or this share of them where few were looked
/// at.
const LEAST: usize = 150;
const LEAST_OF_PART: usize = 250;
const LEAST_SHARE: f64 = 0.2;

/// What may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Where the robot stands.
    Robot,
    /// Where this camera stands.
    Camera(usize),
    /// Where the joint that holds this link sits on its parent.
    Origin(usize),
    /// The zero of this joint.
    Zero(usize),
    /// The joints' time.
    Time,
}

/// How well a cause explains what is seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Explanation {
    pub(super) cause: Cause,
    /// Share of the misfit of the points that it is about that it takes away.
    pub(super) gain: f64,
    /// What that is of the misfit of all points.
    pub(super) saved: f64,
    /// By how much: ways (m) in the world's axes (of an origin: in the parent link's), then turns (rad);
    /// a zero (rad or m), a time (s).
    pub(super) by: Vec<f64>,
    /// Points that it is about.
    pub(super) n: usize,
}

/// A point of the robot, and how far the surface that is seen there lies off along its normal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting {
    pub(super) camera: u16,
    /// Link, in the order of the robot's links.
    pub(super) link: u16,
    /// World frame (m).
    pub(super) point: Vec3,
    pub(super) normal: Vec3,
    pub(super) off_m: f32,
}

/// What was seen of the robot in one frame.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    pub(super) sightings: Vec<Sighting>,
    /// How each goes along its normal with each joint: `[n_sightings][n_joints]`.
    pub(super) slopes: Vec<f32>,
    /// Poses of the robot's links.
    pub(super) world_from_link: Vec<Isometry3<f32>>,
    /// The joints' velocities (rad/s or m/s); empty where not known.
    pub(super) velocities: Vec<f64>,
}

/// The links of a robot, as causes need them.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    pub(super) parents: Vec<usize>,
    pub(super) n_joints: usize,
}

impl Links {
    /// Whether a link is `top`, or hangs on it.
    pub(super) fn is_below(&self, mut link: usize, top: usize) -> bool {
        while link != top && link != 0 {
            link = self.parents[link];
        }
        link == top
    }
}

impl Cause {
    fn n_unknowns(self) -> usize {
        match self {
            Self::Robot | Self::Camera(_) => 6,
            Self::Origin(_) => 3,
            Self::Zero(_) | Self::Time => 1,
        }
    }

    /// How sighting `i` of a look goes along its normal with each unknown; false if not at all.
    fn columns(
        self,
        look: &Look,
        i: usize,
        links: &Links,
        center: &Vector3<f64>,
        out: &mut [f64],
    ) -> bool {
        let Sighting { camera, link, point, normal, .. } = look.sightings[i];
        let normal = Vector3::from(normal).cast::<f64>();
        match self {
            Self::Camera(number) if usize::from(camera) != number => return false,
            Self::Robot | Self::Camera(_) => {
                let arm = Vector3::from(point).cast::<f64>() - center;
                out[..3].copy_from_slice(normal.as_slice());
                out[3..].copy_from_slice((arm.cross(&normal) / ARM_M).as_slice());
            }
            Self::Origin(node) => {
                if !links.is_below(usize::from(link), node) {
                    return false;
                }
                let parent = look.world_from_link[links.parents[node]].rotation.cast::<f64>();
                out.copy_from_slice(parent.inverse_transform_vector(&normal).as_slice());
            }
            Self::Zero(joint) => {
                out[0] = f64::from(look.slopes[i * links.n_joints + joint]);
                return out[0] != 0.0;
            }
            Self::Time => {
                let slopes = look.slopes[i * links.n_joints..].iter().zip(&look.velocities);
                out[0] = slopes.map(|(slope, velocity)| f64::from(*slope) * velocity).sum();
                return out[0] != 0.0;
            }
        }
        true
    }
}

/// Residual with its columns.
struct System {
    n_unknowns: usize,
    columns: Vec<f64>,
    off: Vec<f64>,
}

impl System {
    fn new(cause: Cause, looks: &[&Look], links: &Links, center: &Vector3<f64>) -> Self {
        let n_unknowns = cause.n_unknowns();
        let (mut columns, mut off) = (Vec::new(), Vec::new());
        let mut row = [0.0; 6];
        for look in looks {
            for (i, sighting) in look.sightings.iter().enumerate() {
                if cause.columns(look, i, links, center, &mut row[..n_unknowns]) {
                    columns.extend_from_slice(&row[..n_unknowns]);
                    off.push(f64::from(sighting.off_m));
                }
            }
        }
        Self { n_unknowns, columns, off }
    }

    fn left(&self, x: &DVector<f64>) -> impl Iterator<Item = f64> {
        let rows = self.columns.chunks_exact(self.n_unknowns).zip(&self.off);
        rows.map(move |(row, off)| off - row.iter().zip(x.iter()).map(|(a, x)| a * x).sum::<f64>())
    }

    fn solve(&self, weights: &[f64]) -> Option<DVector<f64>> {
        let n = self.n_unknowns;
        let (mut square, mut side) = (DMatrix::zeros(n, n), DVector::zeros(n));
        let rows = self.columns.chunks_exact(n).zip(&self.off).zip(weights);
        for ((row, off), weight) in rows {
            for a in 0..n {
                side[a] += weight * row[a] * off;
                for b in 0..=a {
                    square[(a, b)] += weight * row[a] * row[b];
                }
            }
        }
        square.fill_upper_triangle_with_lower_triangle();
        let ridge = RIDGE * square.trace() / n as f64 + 1e-12;
        (0..n).for_each(|a| square[(a, a)] += if n > 1 { ridge } else { 1e-12 });
        Some(square.cholesky()?.solve(&side))
    }

    fn fit(&self) -> Option<(DVector<f64>, f64)> {
        let mut weights = vec![1.0; self.off.len()];
        let mut best: Option<(DVector<f64>, f64)> = None;
        // From no change and from where all count alike: weights have several rests.
        for start in 0..2 {
            if start == 1 {
                weights.clear();
                weights.extend(self.off.iter().map(|off| weight(*off)));
            }
            for _ in 0..ROUNDS {
                let x = self.solve(&weights)?;
                let cost = self.left(&x).map(misfit).sum::<f64>();
                weights.clear();
                weights.extend(self.left(&x).map(weight));
                if best.as_ref().is_none_or(|(_, least)| cost < *least) {
                    best = Some((x, cost));
                }
            }
        }
        best
    }
}

/// Cost of a residual (m), at most 1.
fn misfit(off_m: f64) -> f64 {
    let square = (off_m / SCALE_M).powi(2);
    square / (1.0 + square)
}

/// Its weight.
fn weight(off_m: f64) -> f64 {
    (1.0 + (off_m / SCALE_M).powi(2)).powi(-2)
}

/// How well each of `causes` explains what was seen, best first.
pub(super) fn explain(looks: &[&Look], links: &Links, causes: &[Cause]) -> Vec<Explanation> {
    let all = || looks.iter().flat_map(|look| &look.sightings);
    let n = all().count();
    if n < LEAST {
        return Vec::new();
    }
    let sum: Vector3<f64> = all().map(|s| Vector3::from(s.point).cast::<f64>()).sum();
    let center = sum / n as f64;
    let none: f64 = all().map(|s| misfit(f64::from(s.off_m))).sum();
    let least = LEAST_OF_PART.min((LEAST_SHARE * n as f64) as usize);
    let of = |&cause: &Cause| {
        let system = System::new(cause, looks, links, &center);
        let (mut by, cost) = (system.off.len() >= least).then(|| system.fit())??;
        by.iter_mut().skip(3).for_each(|turn| *turn /= ARM_M);
        let own: f64 = system.off.iter().map(|off| misfit(*off)).sum();
        let (gain, saved) = (1.0 - cost / own.max(1e-9), (own - cost) / none.max(1e-9));
        let saved = saved - PER_UNKNOWN * cause.n_unknowns() as f64;
        Some(Explanation { cause, gain, saved, by: by.as_slice().to_vec(), n: system.off.len() })
    };
    let mut found: Vec<Explanation> = causes.iter().filter_map(of).collect();
    found.sort_by(|a, b| b.saved.total_cmp(&a.saved));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::{draw, normal_pair, uniform};

    /// Two links, one on the other, with points all over balls; what is off follows from `moved`.
    fn looks(moved: impl Fn(usize, &Sighting) -> [f32; 3]) -> (Vec<Look>, Links) {
        let links = Links { parents: vec![0, 0, 1], n_joints: 1 };
        let look = |frame: usize| {
            let sighting = |i: u64| {
                let random = |axis| 2.0 * uniform(draw(3, frame as i64, i, axis)) - 1.0;
                let normal = Vector3::from([0, 1, 2].map(random)).normalize();
                let link = 1 + (i % 2) as u16;
                let middle = Vector3::new(0.1, 0.3 * f32::from(link), 0.05 * frame as f32);
                let point = (middle + 0.1 * normal).into();
                let camera = (i / 2 % 2) as u16;
                let normal = normal.into();
                let mut found = Sighting { camera, link, point, normal, off_m: 0.0 };
                let way = moved(frame, &found);
                let [noise, _] = normal_pair(draw(4, frame as i64, i, 0));
                found.off_m = 0.002 * noise + (0..3).map(|a| way[a] * found.normal[a]).sum::<f32>();
                // A tenth is no robot at all.
                if i % 10 == 3 {
                    found.off_m = 0.05 * random(7);
                }
                found
            };
            let sightings: Vec<Sighting> = (0..200).map(sighting).collect();
            // The joint slides link 2 along x.
            let slope = |s: &Sighting| if s.link == 2 { s.normal[0] } else { 0.0 };
            let slopes = sightings.iter().map(slope).collect();
            let turn = nalgebra::UnitQuaternion::from_euler_angles(0.0, 0.0, 0.5 * frame as f32);
            let pose = Isometry3::from_parts(Default::default(), turn);
            let world_from_link = vec![Isometry3::identity(), pose, pose];
            let velocities = vec![[0.5, -0.3, 0.1, 0.0][frame]];
            Look { sightings, slopes, world_from_link, velocities }
        };
        ((0..4).map(look).collect(), links)
    }

    fn best(moved: impl Fn(usize, &Sighting) -> [f32; 3]) -> Explanation {
        let (looks, links) = looks(moved);
        let causes = [
            Cause::Robot,
            Cause::Camera(0),
            Cause::Camera(1),
            Cause::Origin(2),
            Cause::Zero(0),
            Cause::Time,
        ];
        explain(&looks.iter().collect::<Vec<_>>(), &links, &causes).remove(0)
    }

    #[test]
    fn each_cause_is_told_from_the_others() {
        let robot = best(|_, _| [0.02, -0.01, 0.0]);
        assert!(robot.cause == Cause::Robot && robot.gain > 0.5, "{robot:?}");
        assert!(
            (robot.by[0] - 0.02).abs() < 0.002 && (robot.by[1] + 0.01).abs() < 0.002,
            "{robot:?}"
        );
        let camera = best(|_, s| if s.camera == 1 { [0.0, 0.02, 0.0] } else { [0.0; 3] });
        assert_eq!(camera.cause, Cause::Camera(1), "{camera:?}");
        let turned = |frame: usize| (0.5 * frame as f32).sin_cos();
        let origin = best(|frame, s| {
            let (sin, cos) = turned(frame);
            if s.link == 2 { [-0.03 * sin, 0.03 * cos, 0.0] } else { [0.0; 3] }
        });
        assert!(
            origin.cause == Cause::Origin(2) && (origin.by[1] - 0.03).abs() < 0.003,
            "{origin:?}"
        );
        let zero = best(|_, s| if s.link == 2 { [0.02, 0.0, 0.0] } else { [0.0; 3] });
        assert!(zero.cause == Cause::Zero(0) && (zero.by[0] - 0.02).abs() < 0.002, "{zero:?}");
        let velocities = [0.5f32, -0.3, 0.1, 0.0];
        let time = best(
            |frame, s| {
                if s.link == 2 { [0.06 * velocities[frame], 0.0, 0.0] } else { [0.0; 3] }
            },
        );
        assert!(time.cause == Cause::Time && (time.by[0] - 0.06).abs() < 0.006, "{time:?}");
    }

    #[test]
    fn where_nothing_is_wrong_nothing_gains() {
        let found = best(|_, _| [0.0; 3]);
        assert!(found.gain < 0.05, "{found:?}");
        let (_, links) = looks(|_, _| [0.0; 3]);
        assert_eq!(explain(&[], &links, &[Cause::Robot]), []);
    }
}
