//! One roll-out at a time, with what is the same for all candidates of a snapshot kept.

use super::Snapshot;
use super::free::{Seen, free_steps};
use crate::costs::{Consequence, Judge, PlanCost};
use crate::geometry::{RigidMotion, add, follow_links};
use crate::kinematics::{NO_LINK, Robot};
use crate::known::Known;
use crate::message::JointTrajectory;
use crate::model::{Mode, ModelConfig, Rollout};
use crate::plan::with_candidate;
use crate::prediction::Prediction;
use crate::scene::Scene;
use crate::{Error, Result};

/// Rolls out candidates; keeps its buffers.
#[derive(Default)]
pub(super) struct Roller {
    /// With the configuration that it was made for.
    rollout: Option<(ModelConfig, Rollout)>,
    robot: Option<Robot>,
    scene: Scene,
    known: Known,
    /// Joints after each step, `[lead + n_steps][n_joints]`.
    joints_ahead: Vec<f64>,
    motions: [Vec<RigidMotion>; 2],
    prediction: Prediction,
}

impl Roller {
    /// Takes what all candidates of `snapshot` share.
    ///
    /// # Errors
    /// As [`Snapshot::robot`].
    pub fn start(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.robot = Some(Robot::clone(snapshot.robot()?));
        self.scene = snapshot.scene.clone();
        Ok(())
    }

    /// Puts the robot where `candidate` leads it, for `n_steps` steps and `more`.
    ///
    /// # Errors
    /// [`Error::Plan`] for a candidate that can't be followed.
    pub fn place(
        &mut self,
        snapshot: &Snapshot,
        candidate: JointTrajectory,
        n_steps: usize,
        more: usize,
    ) -> Result<()> {
        let Some(robot) = self.robot.as_mut() else { return Err(Error::NoRobot) };
        let course = &snapshot.course;
        let mut horizon = snapshot.model.config.horizon(n_steps);
        horizon.n_steps += more;
        let present = course.present(robot);
        // A plan has to begin within the steps that are asked for, not within what their passes see.
        let asked = snapshot.model.config.steps(n_steps);
        let plan = with_candidate(&course.plan, candidate, &present, &asked)?;
        let (joints, workspace) = (&mut self.joints_ahead, &snapshot.workspace);
        let scene = &mut self.scene;
        course.place_robot(&plan, robot, &horizon, workspace, joints, scene)?;
        scene.set_robot_origin(&snapshot.origin);
        Ok(())
    }

    /// Lets the roll-out begin `lead` steps from now: until then the scene stays as it is, but for what
    /// lies on the robot.
    fn begin_at(&mut self, snapshot: &Snapshot, lead: usize) {
        let Scene { start, kinematic, n_planned, on_links, .. } = &mut self.scene;
        start.positions.clone_from(&snapshot.scene.start.positions);
        start.velocities.clone_from(&snapshot.scene.start.velocities);
        if lead == 0 {
            return;
        }
        let [there, back] = &mut self.motions;
        follow_links(&start.kinematic_links, &kinematic[1], &kinematic[lead + 1], there);
        follow_links(&start.kinematic_links, &kinematic[lead + 1], &kinematic[lead], back);
        for (i, &link) in on_links.iter().enumerate().filter(|(_, link)| **link != NO_LINK) {
            let (Some(there), Some(back)) = (there.get(link as usize), back.get(link as usize))
            else {
                continue;
            };
            let way = there.motion_of(&start.positions[i]);
            add(&mut start.positions[i], &way);
            start.velocities[i] = back.motion_of(&start.positions[i]).map(|x| -x);
        }
        kinematic.drain(..lead);
        *n_planned = n_planned.saturating_sub(lead);
    }

    /// Rolls out where [`Roller::place`] leads, into `prediction`, which comes as the snapshot's.
    ///
    /// # Errors
    /// As [`Rollout::run`].
    pub fn run(
        &mut self,
        snapshot: &Snapshot,
        n_steps: usize,
        prediction: &mut Prediction,
    ) -> Result<()> {
        let (config, model) = (snapshot.model.config, &snapshot.model);
        let rollout = match &mut self.rollout {
            Some((known, rollout)) if *known == config => rollout,
            other => &mut other.insert((config, Rollout::new(config.rollout(), Mode::Inference))).1,
        };
        rollout.run(&model.weights, &self.scene, n_steps)?;
        prediction.displacements.resize_with(n_steps, Vec::new);
        for (t, displacements) in prediction.displacements.iter_mut().enumerate() {
            displacements.clear();
            displacements.extend_from_slice(rollout.displacements(t));
        }
        self.known.apply(snapshot.knows, model, &self.scene, prediction);
        let sigmas = (0..n_steps).map_while(|t| rollout.sigmas(t));
        self.known.tell_sigmas(sigmas, model, prediction);
        Ok(())
    }

    /// What a plan costs.
    ///
    /// # Errors
    /// As [`Roller::place`], [`Roller::run`] and [`Judge::cost`].
    pub fn cost(
        &mut self,
        snapshot: &Snapshot,
        judge: &Judge,
        candidate: &super::Candidate,
        seen: Option<&Seen>,
    ) -> Result<PlanCost> {
        let n_all = candidate.n_steps;
        let chunk = snapshot.model.config.chunk;
        // The passes of a roll-out that begins later end later.
        self.place(snapshot, candidate.plan.clone(), n_all, chunk.saturating_sub(1))?;
        let most = n_all.saturating_sub(chunk);
        let rows = self.scene.kinematic.get(1..).unwrap_or_default();
        let lead = seen.map_or(0, |seen| free_steps(seen, rows, most));
        self.begin_at(snapshot, lead);
        let n_steps = n_all - lead;
        let mut prediction = std::mem::take(&mut self.prediction);
        prediction.clone_from(&snapshot.prediction);
        let outcome = self.run(snapshot, n_steps, &mut prediction);
        // Costs are told of the world's places, not of the model's.
        let back = snapshot.origin.map(|x| -x);
        self.scene.set_robot_origin(&back);
        let course = &snapshot.course;
        let n_joints = course.joints.len();
        let ahead = self.joints_ahead.chunks_exact(n_joints.max(1)).take(lead + n_steps);
        let joints: Vec<Vec<f64>> =
            std::iter::once(course.joints.clone()).chain(ahead.map(<[f64]>::to_vec)).collect();
        let cost = outcome.and_then(|()| {
            judge.cost(&Consequence {
                displacements: &prediction.displacements,
                radii: [0, 1].map(|level| prediction.told_sigmas(level)),
                robot: self.scene.kinematic.get(2..).unwrap_or_default(),
                links: &self.scene.start.kinematic_links,
                joints: &joints,
                joint_velocities: &course.joint_velocities,
                step_secs: snapshot.model.config.step_secs,
                lead,
            })
        });
        self.prediction = prediction;
        cost
    }
}
