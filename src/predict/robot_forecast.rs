//! Where the robot will go, as known at one frame.

use std::sync::Arc;

use nalgebra::{Isometry3, Point3};

use crate::Result;
use crate::base::geometry::Vec3;
use crate::engine::model::ModelConfig;
use crate::engine::rollout_input::RolloutInput;
use crate::message::{JointTrajectory, Stamp};
use crate::predict::observation::Observation;
use crate::robot::kinematics::{Mount, Robot};
use crate::robot::plan::{self, Horizon, JointsNow, Present};
use crate::vision::cloud::Workspace;

/// A robot all of whose particles stay farther than this outside of the workspace (m) is left out:
/// it touches nothing that is predicted, yet the model would let it matter.
const FAR_M: f32 = 0.2;

/// What is known at one frame of where the robot will go.
#[derive(Debug, Default, Clone)]
pub struct RobotForecast {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Measured joints (rad or m), in the robot's order.
    pub joints: Vec<f64>,
    /// Their velocities over the last step (rad/s or m/s).
    pub joint_velocities: Vec<f64>,
    /// What else tells where the robot is, one step back and now.
    mounts: [Mount; 2],
    /// A step's share of the time between the two.
    steps_of_history: f64,
    /// Kinematic particles one step back and now (world frame, m); none without a robot.
    placed: [Vec<Vec3>; 2],
    /// The plans that the frame carries.
    pub plan: Vec<Arc<JointTrajectory>>,
}

impl RobotForecast {
    /// Whether the robot was there.
    pub fn has_robot(&self) -> bool {
        !self.placed[1].is_empty()
    }

    /// Puts the kinematic particles where the robot was measured one step back and now; none where it was not
    /// there at both: predictions go without it then.
    pub(super) fn set_places(&mut self, [history, now]: [&Observation; 2]) {
        self.placed[0].clone_from(&history.kinematic);
        self.placed[1].clone_from(&now.kinematic);
        if self.placed.iter().any(Vec::is_empty) {
            self.placed.iter_mut().for_each(Vec::clear);
        }
    }

    /// Takes the joints and the mount of `robot`, which is there in both observations, and `plan`; its
    /// particles one step back are those of `model`'s step, though the history lies nearer or farther.
    /// `joints_then` is scratch.
    ///
    /// # Errors
    /// As [`plan::velocities`], [`Robot::set_mount`] and [`Robot::place`].
    pub(super) fn set_motion(
        &mut self,
        [history, now]: [&Observation; 2],
        plan: &[Arc<JointTrajectory>],
        robot: &mut Robot,
        model: &ModelConfig,
        joints_then: &mut Vec<f64>,
    ) -> Result<()> {
        self.stamp = now.stamp;
        self.joints.clone_from(&now.joints);
        self.mounts[0].clone_from(&history.mount);
        self.mounts[1].clone_from(&now.mount);
        self.plan.clear();
        self.plan.extend_from_slice(plan);
        let elapsed_secs = now.stamp.secs_since(history.stamp);
        self.steps_of_history = steps_of(model, elapsed_secs);
        let velocities = &mut self.joint_velocities;
        plan::velocities(&now.joints, &history.joints, robot.limits(), elapsed_secs, velocities)?;
        if self.steps_of_history != 1.0 {
            let back = now.joints.iter().zip(&*velocities);
            joints_then.clear();
            joints_then.extend(back.map(|(q, v)| q - v * model.step_secs));
            let mount = self.mounts[1].extrapolated(&self.mounts[0], -self.steps_of_history);
            robot.set_mount(&mount)?;
            robot.place(joints_then, &mut self.placed[0])?;
        }
        Ok(())
    }

    /// Puts the root of `robot`, and what else tf places, where they are now.
    ///
    /// # Errors
    /// As [`Robot::set_mount`].
    pub fn mount(&self, robot: &mut Robot) -> Result<()> {
        robot.set_mount(&self.mounts[1])
    }

    /// What candidate plans of `robot` are held against.
    pub fn present<'a>(&'a self, robot: &'a Robot) -> Present<'a> {
        Present {
            stamp: self.stamp,
            joint_names: robot.joint_names(),
            joints: &self.joints,
            limits: robot.limits(),
        }
    }

    /// Kinematic particles one step back, now, and at each step ahead, where `plan` leads `robot`,
    /// into `scene`: `[n_steps + 2]` rows, and the links; none where the robot stays far outside of
    /// `workspace`. `joints_ahead` is scratch.
    ///
    /// # Errors
    /// As [`plan::forecast`], [`Robot::set_mount`] and [`Robot::place`].
    pub fn place_robot(
        &self,
        plan: &[Arc<JointTrajectory>],
        robot: &mut Robot,
        horizon: &Horizon,
        workspace: &Workspace,
        joints_ahead: &mut Vec<f64>,
        scene: &mut RolloutInput,
    ) -> Result<()> {
        let (names, limits) = (robot.joint_names(), robot.limits());
        let (positions, velocities) = (&self.joints[..], Some(&self.joint_velocities[..]));
        let joints = JointsNow { names, limits, positions, velocities };
        plan::forecast(&joints, plan, self.stamp, horizon, joints_ahead)?;
        scene.n_planned = plan::n_planned(names, plan, self.stamp, horizon);
        let rows = &mut scene.kinematic;
        rows.resize_with(horizon.n_steps + 2, Vec::new);
        rows[0].clone_from(&self.placed[0]);
        rows[1].clone_from(&self.placed[1]);
        let n_joints = self.joints.len();
        for (step, row) in rows[2..].iter_mut().enumerate() {
            let times = (step + 1) as f64 * self.steps_of_history;
            robot.set_mount(&self.mounts[1].extrapolated(&self.mounts[0], times))?;
            robot.place(&joints_ahead[step * n_joints..][..n_joints], row)?;
        }
        link(scene, robot, workspace);
        Ok(())
    }

    /// Takes the poses of the links of `robot` now and after each step, where `joints_ahead` (as
    /// [`RobotForecast::place_robot`] left them) lead it.
    ///
    /// # Errors
    /// As [`Robot::set_mount`] and [`Robot::place`].
    pub fn place_links(
        &self,
        robot: &mut Robot,
        joints_ahead: &[f64],
        links: &mut LinksAhead,
    ) -> Result<()> {
        links.poses.clear();
        links.n_links = robot.n_links();
        robot.set_mount(&self.mounts[1])?;
        robot.place_links(&self.joints, &mut links.poses)?;
        for (step, joints) in joints_ahead.chunks_exact(self.joints.len().max(1)).enumerate() {
            let times = (step + 1) as f64 * self.steps_of_history;
            robot.set_mount(&self.mounts[1].extrapolated(&self.mounts[0], times))?;
            robot.place_links(joints, &mut links.poses)?;
        }
        Ok(())
    }
}

/// Where the links of a robot are at a frame and will be after each step.
#[derive(Debug, Clone, Default)]
pub struct LinksAhead {
    /// The robot, as it came; none without.
    pub robot: Option<Arc<Robot>>,
    n_links: usize,
    /// Of the links with points, row after row: now, and after each step.
    poses: Vec<Isometry3<f32>>,
}

impl LinksAhead {
    /// Forgets the robot.
    pub(crate) fn clear(&mut self) {
        self.robot = None;
        self.poses.clear();
    }

    /// Replaces the poses of all links: `[n_steps + 1][n_links]`.
    #[cfg(test)]
    pub(crate) fn of(robot: Arc<Robot>, rows: &[Vec<Isometry3<f32>>]) -> Self {
        Self { n_links: robot.n_links(), robot: Some(robot), poses: rows.concat() }
    }

    /// Poses of the links (world frame, in the order of [`Robot::links`]) now, then after each step. Empty
    /// without a robot.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[Isometry3<f32>]> + Clone {
        self.poses.chunks_exact(self.n_links.max(1))
    }
}

/// The robot where it is now, with a margin: what is that near may be seen of it.
pub(super) struct RobotNow<'a> {
    robot: Option<&'a Robot>,
    from_world: Vec<Isometry3<f32>>,
    margin_m: f32,
}

impl<'a> RobotNow<'a> {
    /// Of the first row of `links`.
    pub fn new(links: &'a LinksAhead, margin_m: f32) -> Self {
        let now = links.rows().next().unwrap_or_default();
        let from_world = now.iter().map(Isometry3::inverse).collect();
        Self { robot: links.robot.as_deref(), from_world, margin_m }
    }

    /// Whether a point (world frame, m) is as near to the surface of a link as the margin.
    pub fn is_near(&self, p: &Vec3) -> bool {
        let (Some(robot), margin_m) = (self.robot, self.margin_m) else { return false };
        self.from_world.iter().enumerate().any(|(link, pose)| {
            let p = Vec3::from((pose * Point3::from(*p)).coords);
            let [min, max] = robot.bounds_of_link(link);
            let inside =
                |axis: usize| (min[axis] - margin_m..=max[axis] + margin_m).contains(&p[axis]);
            (0..3).all(inside) && robot.distance_m(link, &p).is_some_and(|off_m| off_m <= margin_m)
        })
    }
}

/// Takes the links of the particles of `robot`, which stand in `scene`; where it stays far outside of
/// `workspace` all the time, its particles go.
pub fn link(scene: &mut RolloutInput, robot: &Robot, workspace: &Workspace) {
    scene.start.kinematic_links.clear();
    if is_far(&scene.kinematic, workspace) {
        scene.kinematic.iter_mut().for_each(Vec::clear);
    } else {
        scene.start.kinematic_links.extend(robot.links());
    }
}

/// Whether all points lie far outside of the workspace.
fn is_far(rows: &[Vec<Vec3>], workspace: &Workspace) -> bool {
    let near =
        Workspace { min: workspace.min.map(|x| x - FAR_M), max: workspace.max.map(|x| x + FAR_M) };
    !rows.iter().flatten().any(|point| near.contains(*point))
}

/// How many times as long a step is as `elapsed_secs`: what moved so long is scaled by it. To the bit 1
/// where they are the same, but for rounding.
pub(crate) fn steps_of(model: &ModelConfig, elapsed_secs: f64) -> f64 {
    let ratio = if elapsed_secs > 0.0 { model.step_secs / elapsed_secs } else { 1.0 };
    if (ratio - 1.0).abs() < 1e-5 { 1.0 } else { ratio }
}
