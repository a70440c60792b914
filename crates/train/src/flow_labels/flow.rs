//! The motion of a frame's points to the next frame.

use rayon::prelude::*;

use forecloud::Result;
use forecloud::base::geometry::{PointTree, Vec3, length, minus, plus, squared_distance};
use forecloud::vision::motion::{MotionEstimator, PastMotion, TwoFrames};
use forecloud::vision::particles::Particles;

/// Points that are asked whether they agree: how far they may be (m), and what is near (m) and of like
/// colour (RGB of 0 to 1).
pub(super) const REACH_M: f32 = 0.02;
const NEAR_M: f32 = 0.01;
pub(super) const ALIKE: f32 = 0.15;
/// Both ways may differ by so much (m), and by this share of the motion, and are half as sure then.
const DIFFERS_M: f32 = 0.004;
const DIFFERS_SHARE: f32 = 0.15;

/// A frame, as labels are made of it (world frame, m).
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Its points.
    pub cloud: &'a Particles,
    /// Those of them that the other frame looked at, too: all, where no camera moved.
    pub common: &'a Particles,
    /// Points on the robot, in correspondence with those of other frames; they may be none.
    pub robot: &'a [Vec3],
}

/// How far each point of a frame moves to the next frame, `[n]`.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Flow {
    /// Motions (m).
    pub motions: Vec<Vec3>,
    /// How sure they are, 0 to 1.
    pub confidences: Vec<f32>,
    /// Numbers of the bodies that the points seem to be of; [`forecloud::vision::motion::NO_BODY`] for none.
    pub body_of: Vec<u32>,
}

/// Finds flows, keeping its memory between calls.
#[derive(Debug, Default)]
pub struct Labeler {
    estimator: MotionEstimator,
    found: PastMotion,
    back: PastMotion,
}

impl Labeler {
    /// The flow from the frame `now` to the frame `next` of the same cameras; `links` are the numbers of
    /// the links of the robot's points, ascending; `camera_moved`: in between.
    ///
    /// # Errors
    /// [`forecloud::Error::NonFinite`] if a point is not finite.
    pub fn find(
        &mut self,
        [now, next]: [View; 2],
        links: &[u32],
        camera_moved: bool,
        flow: &mut Flow,
    ) -> Result<()> {
        let Self { estimator, found, back } = self;
        // To the estimator, the frame that it comes from is the one before.
        let mut estimate = |[from, to]: [View; 2], found: &mut PastMotion| {
            let (clouds, robot) = ([from.common, to.common], [from.robot, to.robot]);
            let robot = if from.robot.len() == to.robot.len() { robot } else { [&[][..]; 2] };
            let particles = to.cloud;
            let frames = TwoFrames { particles, clouds, robot, links, camera_moved };
            estimator.estimate(&frames, found);
        };
        estimate([next, now], found);
        estimate([now, next], back);
        let next_tree = PointTree::new(&next.cloud.positions)?;
        flow.motions.clear();
        flow.motions.extend(found.motions.iter().map(|motion| motion.map(|m| -m)));
        flow.body_of.clone_from(&found.body_of);
        flow.confidences.resize(now.cloud.len(), 0.0);
        let (motions, known) = (&flow.motions, &found.confidences);
        flow.confidences.par_iter_mut().with_min_len(64).enumerate().for_each(|(i, confidence)| {
            let there = plus(&now.cloud.positions[i], &motions[i]);
            let came = came_here(&there, &now.cloud.colors[i], next.cloud, &next_tree, back);
            *confidence = came.map_or(0.0, |came| {
                let allowed = DIFFERS_M + DIFFERS_SHARE * length(&motions[i]);
                known[i] / (1.0 + (length(&minus(&came, &motions[i])) / allowed).powi(2))
            });
        });
        Ok(())
    }
}

/// The mean motion by which the points of `cloud` about the place `there`, and of like colour, came
/// there; none where there are none.
fn came_here(
    there: &Vec3,
    color: &Vec3,
    cloud: &Particles,
    tree: &PointTree,
    back: &PastMotion,
) -> Option<Vec3> {
    let (mut sum, mut total) = ([0.0; 3], 0.0);
    for j in tree.within(there, REACH_M) {
        let apart = squared_distance(there, &cloud.positions[j]) / NEAR_M.powi(2);
        let unlike = squared_distance(color, &cloud.colors[j]) / ALIKE.powi(2);
        let weight = (-apart - unlike).exp() * back.confidences[j];
        total += weight;
        sum = std::array::from_fn(|axis| sum[axis] + weight * back.motions[j][axis]);
    }
    (total > 1e-3).then(|| sum.map(|x| x / total))
}
