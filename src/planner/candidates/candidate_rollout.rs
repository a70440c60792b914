//! One roll-out at a time, with what is the same for all candidates of a snapshot kept.

use std::sync::Arc;

use super::Snapshot;
use super::free_air::{Seen, free_steps};
use crate::base::geometry::{RigidMotion, Vec3, add, follow_links};
use crate::engine::model::{Mode, ModelConfig, Rollout};
use crate::engine::rollout_input::RolloutInput;
use crate::message::JointTrajectory;
use crate::planner::costs::{Consequence, Judge, PlanCost};
use crate::predict::known_motion::KnownMotion;
use crate::predict::prediction::Prediction;
use crate::predict::robot_forecast::LinksAhead;
use crate::predict::robot_reach::RobotReach;
use crate::robot::kinematics::{NO_LINK, Robot};
use crate::robot::plan::with_candidate;
use crate::{Error, Result};

/// Where the roll-out of a plan begins, and how long it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// Steps in which nothing moves but the robot.
    pub lead: usize,
    /// Steps that are rolled out.
    pub n_steps: usize,
}

/// Rolls out candidates; keeps its buffers.
#[derive(Default)]
pub(super) struct CandidateRollout {
    /// With the configuration that it was made for.
    rollout: Option<(ModelConfig, Rollout)>,
    /// With the one that it was copied from.
    robot: Option<(Arc<Robot>, Robot)>,
    scene: RolloutInput,
    known: KnownMotion,
    reach: RobotReach,
    /// Joints after each step, `[lead + n_steps][n_joints]`.
    joints_ahead: Vec<f64>,
    motions: [Vec<RigidMotion>; 2],
    /// As far as costs depend on it: without the particles.
    prediction: Prediction,
}

impl CandidateRollout {
    /// Takes what all candidates of `snapshot` share.
    ///
    /// # Errors
    /// As [`Snapshot::robot`].
    pub fn start(&mut self, snapshot: &Snapshot) -> Result<()> {
        let robot = snapshot.robot()?;
        if !self.robot.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, robot)) {
            self.robot = Some((robot.clone(), Robot::clone(robot)));
        }
        self.scene.start_from(&snapshot.scene);
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
        let Some((_, robot)) = self.robot.as_mut() else { return Err(Error::NoRobot) };
        let forecast = &snapshot.robot_forecast;
        let mut horizon = snapshot.model.config.horizon(n_steps);
        horizon.n_steps += more;
        let present = forecast.present(robot);
        // A plan has to begin within the steps that are asked for, not within what their passes see.
        let asked = snapshot.model.config.steps(n_steps);
        let plan = with_candidate(&forecast.plan, candidate, &present, &asked)?;
        let (joints, workspace) = (&mut self.joints_ahead, &snapshot.workspace);
        let scene = &mut self.scene;
        forecast.place_robot(&plan, robot, &horizon, workspace, joints, scene)?;
        scene.set_robot_origin(&snapshot.origin);
        scene.evidence.clone_from(&snapshot.scene.evidence);
        self.reach.end_evidence(scene);
        Ok(())
    }

    /// Where [`CandidateRollout::place`] leads the links, into `links`.
    ///
    /// # Errors
    /// As [`crate::predict::robot_forecast::RobotForecast::place_links`].
    pub fn place_links(&mut self, snapshot: &Snapshot, links: &mut LinksAhead) -> Result<()> {
        links.clear();
        let Some((known, robot)) = self.robot.as_mut() else { return Err(Error::NoRobot) };
        links.robot = Some(known.clone());
        snapshot.robot_forecast.place_links(robot, &self.joints_ahead, links)
    }

    /// Lets the roll-out begin `lead` steps from now: until then the scene stays as it is, but for what
    /// lies on the robot.
    fn begin_at(&mut self, snapshot: &Snapshot, lead: usize) {
        let RolloutInput { start, kinematic, n_planned, on_links, evidence, .. } = &mut self.scene;
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
        for known in evidence {
            *known = known.and_then(|known| known.after(lead as u32));
        }
    }

    /// Rolls out where [`CandidateRollout::place`] leads, into all of `prediction` that depends on it.
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
        let steps = (|t| rollout.displacements(t), |t| rollout.sigmas(t));
        read(&mut self.known, snapshot, &self.scene, n_steps, steps, prediction);
        Ok(())
    }

    /// Where the scene is that [`CandidateRollout::lead_to`] leads to.
    pub fn scene(&self) -> &RolloutInput {
        &self.scene
    }

    /// What a plan costs.
    ///
    /// # Errors
    /// As [`CandidateRollout::lead_to`], [`CandidateRollout::run`] and [`Judge::cost`].
    pub fn cost(
        &mut self,
        snapshot: &Snapshot,
        judge: &Judge,
        candidate: &super::Candidate,
        seen: Option<&Seen>,
    ) -> Result<PlanCost> {
        let ahead = self.lead_to(snapshot, candidate, seen)?;
        let mut prediction = std::mem::take(&mut self.prediction);
        let outcome = self.run(snapshot, ahead.n_steps, &mut prediction);
        let cost = outcome.and_then(|()| self.weigh(snapshot, judge, &ahead, &prediction));
        self.prediction = prediction;
        cost
    }

    /// What a plan costs by a roll-out from [`CandidateRollout::scene`] that somebody else made, told step by step.
    ///
    /// # Errors
    /// As [`Judge::cost`].
    pub fn judge<'a>(
        &mut self,
        snapshot: &Snapshot,
        judge: &Judge,
        ahead: &Ahead,
        displacements: impl Fn(usize) -> &'a [Vec3],
        sigmas: impl Fn(usize) -> Option<&'a [f32]>,
    ) -> Result<PlanCost> {
        let mut prediction = std::mem::take(&mut self.prediction);
        let (steps, known) = ((displacements, sigmas), &mut self.known);
        read(known, snapshot, &self.scene, ahead.n_steps, steps, &mut prediction);
        let cost = self.weigh(snapshot, judge, ahead, &prediction);
        self.prediction = prediction;
        cost
    }

    /// Puts the robot where the plan of `candidate` leads it, and the scene where its roll-out begins.
    ///
    /// # Errors
    /// As [`CandidateRollout::place`].
    pub fn lead_to(
        &mut self,
        snapshot: &Snapshot,
        candidate: &super::Candidate,
        seen: Option<&Seen>,
    ) -> Result<Ahead> {
        let n_all = candidate.n_steps;
        let steps_per_pass = snapshot.model.config.steps_per_pass;
        // The passes of a roll-out that begins later end later.
        self.place(snapshot, candidate.plan.clone(), n_all, steps_per_pass.saturating_sub(1))?;
        let most = n_all.saturating_sub(steps_per_pass);
        let rows = self.scene.kinematic.get(1..).unwrap_or_default();
        let lead = seen.map_or(0, |seen| free_steps(seen, rows, most));
        self.begin_at(snapshot, lead);
        Ok(Ahead { lead, n_steps: n_all - lead })
    }

    /// What `prediction` costs, of the plan that [`CandidateRollout::lead_to`] was given last; the scene is moved
    /// for it.
    fn weigh(
        &mut self,
        snapshot: &Snapshot,
        judge: &Judge,
        ahead: &Ahead,
        prediction: &Prediction,
    ) -> Result<PlanCost> {
        // Costs are told of the world's places, not of the model's.
        let back = snapshot.origin.map(|x| -x);
        self.scene.set_robot_origin(&back);
        let forecast = &snapshot.robot_forecast;
        let n_joints = forecast.joints.len();
        let n_all = ahead.lead + ahead.n_steps;
        let places = self.joints_ahead.chunks_exact(n_joints.max(1)).take(n_all);
        let joints: Vec<Vec<f64>> =
            std::iter::once(forecast.joints.clone()).chain(places.map(<[f64]>::to_vec)).collect();
        judge.cost(&Consequence {
            displacements: &prediction.displacements,
            radii: [0, 1].map(|level| prediction.told_sigmas(level)),
            robot: self.scene.kinematic.get(2..).unwrap_or_default(),
            links: &self.scene.start.kinematic_links,
            joints: &joints,
            joint_velocities: &forecast.joint_velocities,
            step_secs: snapshot.model.config.step_secs,
            lead: ahead.lead,
        })
    }
}

/// Reads `n_steps` steps of a roll-out, displacements and sigmas of each, with what is known instead of
/// predicted.
fn read<'a>(
    known: &mut KnownMotion,
    snapshot: &Snapshot,
    scene: &RolloutInput,
    n_steps: usize,
    (displacements, sigmas): (impl Fn(usize) -> &'a [Vec3], impl Fn(usize) -> Option<&'a [f32]>),
    prediction: &mut Prediction,
) {
    prediction.displacements.resize_with(n_steps, Vec::new);
    for (t, to) in prediction.displacements.iter_mut().enumerate() {
        to.clear();
        to.extend_from_slice(displacements(t));
    }
    known.apply(snapshot.knows, scene, prediction);
    let calibration = snapshot.model.calibration.as_ref();
    prediction.set_sigmas((0..n_steps).map_while(sigmas), calibration);
    prediction.widen_by(&scene.evidence);
}
