//! The predicting thread: takes the newest frame, predicts, publishes.

mod counts;
mod snapshots;
mod trouble;

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use r2r::forecloud::srv::PoseAt;

use super::clock::Ages;
use super::health::{Cause, Health};
use super::mailbox::{Answer, Batch, FrameJob, Halt, Mailbox, Orders, Refusal, Settings};
use super::parameters::NodeConfig;
use super::pose_at;
use super::problems::Problems;
use super::publish::Outputs;
use super::service::respond;
use super::services::ENDING;
use counts::Counts;
use forecloud::Error;
use forecloud::base::keep_workers_hot::keep_workers_hot;
use forecloud::message::Stamp;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Predictor;
use forecloud::predict::rig::LiveRig;
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::cloud::{Place, Workspace};
use forecloud::vision::frames::Frame;
use snapshots::{Snapshots, send};

/// How often it is tried to warm up the predictor.
const WARM_UPS: u32 = 2;

/// Predicts from each frame that lies in the mailbox until it is closed.
pub struct Worker {
    predictor: Predictor,
    world_frame: String,
    /// Frame that the workspace is given in.
    workspace_frame: String,
    /// As the robot's description would name it.
    world_link: String,
    /// Whether the workspace follows the cameras, and what came of that.
    follows_cameras: bool,
    followed: Option<Place>,
    idle_without_subscribers: bool,
    halt: Halt,
    /// Whether the last frame was let pass: what was predicted before is of the past.
    passing: bool,
    /// How often it may still be tried to warm up the predictor.
    warm_ups_left: u32,
    outputs: Outputs,
    snapshots: Snapshots,
    health: Arc<Health>,
    problems: Problems,
    counts: Counts,
    /// The first of the frames without history since the last prediction.
    without_history_since: Option<Stamp>,
    /// What predictions run on, as far as that was told.
    device: String,
    /// The robot description in use, and where to send what becomes of others.
    robot: Option<String>,
    refusals: Sender<Refusal>,
    /// Where the points outside of the workspace are, and when that was.
    outside: Option<(Instant, String)>,
    rig: LiveRig,
    /// Where its robot's meshes are looked for.
    meshes: MeshSearch,
}

impl Worker {
    /// A worker with all counters at zero.
    pub fn new(
        predictor: Predictor,
        config: &NodeConfig,
        outputs: Outputs,
        health: Arc<Health>,
        ages: Ages,
        refusals: Sender<Refusal>,
    ) -> Self {
        Self {
            follows_cameras: predictor.config().workspace.is_none(),
            followed: None,
            predictor,
            world_frame: config.world_frame.clone(),
            workspace_frame: config.workspace_frame().unwrap_or(&config.world_frame).to_owned(),
            world_link: config.world_link(),
            idle_without_subscribers: config.idle_without_subscribers,
            halt: Halt::No,
            passing: false,
            warm_ups_left: WARM_UPS,
            outputs,
            snapshots: Snapshots::new(ages),
            health,
            problems: Problems::default(),
            counts: Counts::default(),
            without_history_since: None,
            device: String::new(),
            robot: None,
            refusals,
            outside: None,
            rig: LiveRig::new(config.cameras.clone()),
            meshes: MeshSearch::new(&config.mesh_paths),
        }
    }

    /// Works until `mailbox` is closed; returns what it published by.
    pub fn run(mut self, mailbox: &Mailbox<Frame>) -> Outputs {
        self.watch_device();
        while let Some(Batch { newest, replaced, orders }) = mailbox.take() {
            self.obey(orders);
            replaced.into_iter().for_each(|frame| self.predictor.keep(frame));
            if let Some(job) = newest {
                self.take(job);
            }
        }
        for request in mailbox.take_unanswered() {
            respond("~/pose_at", request, pose_at::refused(ENDING));
        }
        self.outputs
    }

    /// Does what was ordered, between two frames.
    fn obey(&mut self, orders: Orders) {
        let Orders { reset, jumped, robot, settings, halt, snapshots, poses } = orders;
        if reset {
            self.predictor.forget();
            self.rig.forget();
            self.without_history_since = None;
            self.followed = None;
        }
        if let Some(settings) = settings {
            self.set_settings(settings);
        }
        if let Some(urdf) = robot {
            self.set_robot(urdf);
        }
        self.halt = halt.unwrap_or(self.halt);
        if reset || jumped || halt.is_some_and(|halt| halt != Halt::No) {
            self.outputs.invalidate();
        }
        for request in poses {
            let response = self.pose_at(&request.message);
            respond("~/pose_at", request, response);
        }
        for request in snapshots {
            if let Some(why) = self.halt.why() {
                send(&request, Answer::Refused(why.to_owned()));
            } else {
                self.snapshots.ask(request, &self.predictor, self.passing);
            }
        }
    }

    /// Answers where an object will be.
    fn pose_at(&mut self, request: &PoseAt::Request) -> PoseAt::Response {
        let age_secs = self.snapshots.note_interest();
        let rests = self.halt.why().or_else(|| {
            let why = "nobody subscribed, so no frame was predicted from; the next one will be: ask again";
            self.passing.then_some(why)
        });
        pose_at::answer(
            request,
            self.predictor.prediction(),
            age_secs,
            rests,
            self.outputs.origin(),
        )
    }

    fn set_settings(&mut self, settings: Settings) {
        self.idle_without_subscribers = settings.idle_without_subscribers;
        self.follows_cameras = settings.predictor.workspace.is_none();
        match self.followed.filter(|_| self.follows_cameras) {
            Some(place) => self.set_config(settings.predictor.placed(place)),
            None => self.set_config(settings.predictor),
        }
    }

    fn set_config(&mut self, config: PredictorConfig) {
        if let Err(error) = self.predictor.set_config(config) {
            self.problems.warn("settings", format!("parameters: {error}"));
        }
    }

    fn set_robot(&mut self, urdf: String) {
        match self.predictor.set_robot(&urdf, &self.world_link) {
            Ok(warnings) => {
                self.warm_ups_left = WARM_UPS;
                tracing::info!("robot description received");
                warnings.iter().for_each(|warning| tracing::warn!("robot_description: {warning}"));
                self.health.note(|facts, _| facts.robot(Ok(warnings)));
                // The predictor has taken it: nothing is wrong with it.
                let _ = self.rig.set_robot(&urdf, &self.world_link, &self.meshes);
                self.robot = Some(urdf);
            }
            Err(error) => {
                self.health.note(|facts, _| facts.robot(Err(error.to_string())));
                self.problems.warn("robot description", format!("robot_description: {error}"));
                if let Some(in_use) = self.robot.clone() {
                    // Nobody takes it where the node is ending.
                    let _ = self.refusals.send(Refusal { refused: urdf, in_use });
                }
            }
        }
    }

    /// Predicts from a frame, or lets it pass.
    fn take(&mut self, job: FrameJob<Frame>) {
        let was_passing = self.passing;
        self.passing = self.halt != Halt::No || !self.is_wanted();
        if self.passing {
            self.let_pass(job.frame, was_passing);
        } else {
            self.predict(&job);
        }
    }

    fn is_wanted(&self) -> bool {
        !self.idle_without_subscribers || self.snapshots.are_wanted() || self.outputs.are_heard()
    }

    /// Keeps a frame as history, and predicts nothing.
    fn let_pass(&mut self, frame: Frame, was_passing: bool) {
        self.warm_up(&frame, 1);
        let halted = self.halt.why();
        if halted.is_none() && !was_passing {
            tracing::info!("nobody subscribes to predictions: keeping frames, predicting nothing");
        }
        let why = halted.unwrap_or("nobody subscribes to predictions (idle_without_subscribers)");
        self.health.note(|facts, _| facts.resting = Some(why));
        *(if halted.is_some() { &mut self.counts.paused } else { &mut self.counts.idle }) += 1;
        self.predictor.keep(frame);
    }

    fn predict(&mut self, job: &FrameJob<Frame>) {
        self.health.note(|facts, now| {
            facts.resting = None;
            facts.working(now, job.n_replaced);
        });
        self.follow_cameras(&job.frame);
        let has_kept = self.predictor.kept().next().is_some();
        if !has_kept && !self.predictor.has_history(&job.frame) {
            self.warm_up(&job.frame, 0);
        }
        let outcome = self.step(job);
        self.watch_device();
        self.health.note(|facts, _| facts.rests());
        self.snapshots.answer(outcome, &self.predictor);
    }

    /// Unless a workspace is set: puts it where the cameras see most, once. As the tool does, by the first frame
    /// that is there: also where the machine was too busy to predict from it. The last digits of predictions
    /// hang on the place.
    fn follow_cameras(&mut self, newest: &Frame) {
        if !self.follows_cameras || self.followed.is_some() {
            return;
        }
        let usual = self.predictor.model().config.workspace;
        // What is wrong with the images is told where they are predicted from.
        let proposal = |frame: &Frame| {
            usual.proposal(&frame.cameras, frame.world_from_workspace.as_ref()).ok().flatten()
        };
        let first = self.predictor.kept().next().and_then(proposal);
        let Some(place) = first.or_else(|| proposal(newest)) else { return };
        self.followed = Some(place);
        if place.workspace != usual {
            let (Workspace { min, max }, frame) = (place.workspace, &self.workspace_frame);
            tracing::info!(
                "workspace: {min:.1?} to {max:.1?} (m, in '{frame}'), because the cameras see \
                 little in the model's; workspace_min and workspace_max override it"
            );
        }
        self.set_config(self.predictor.config().placed(place));
    }

    /// At the first frame, with the robot: so that the first prediction is no later than others. As long as
    /// more than `spared` tries are left: a frame that is let pass may lie outside of the workspace, which
    /// only follows the cameras once it is predicted from them.
    fn warm_up(&mut self, frame: &Frame, spared: u32) {
        if self.warm_ups_left <= spared {
            return;
        }
        let predictor = &mut self.predictor;
        // What is wrong with the frame is told where it is predicted from.
        match keep_workers_hot(|| predictor.warm_up(frame)) {
            Ok(()) => self.warm_ups_left = 0,
            Err(Error::NoRobot) => {}
            Err(_) => self.warm_ups_left -= 1,
        }
        self.watch_device();
    }

    /// Predicts from a frame and publishes that; says why not.
    fn step(&mut self, job: &FrameJob<Frame>) -> Result<(), String> {
        let predictor = &mut self.predictor;
        match keep_workers_hot(|| predictor.step_in_time(&job.frame, job.whole)) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(self.miss_history(job.frame.stamp)),
            Err(error) => return Err(self.reject(&error, &job.frame)),
        }
        self.warm_ups_left = 0;
        self.without_history_since = None;
        self.snapshots.predicted(job.arrived);
        self.publish(job);
        self.watch_world();
        self.watch_rig(&job.frame);
        Ok(())
    }

    /// Publishes the newest prediction, which was made of `job`.
    fn publish(&mut self, job: &FrameJob<Frame>) {
        let Some(prediction) = self.predictor.prediction() else { return };
        self.counts.used += 1;
        self.counts.cut += u64::from(prediction.is_cut);
        if self.counts.used == 1 {
            tracing::info!("predicting");
        }
        let timing = self.counts.timing(job, prediction);
        match self.outputs.publish(prediction, timing, job.arrived) {
            Ok(latency_ms) => {
                let (n_particles, n_steps) =
                    (prediction.particles.len(), prediction.displacements.len());
                tracing::debug!(
                    "prediction of {} s: {n_particles} particles, {latency_ms} ms",
                    prediction.stamp
                );
                let is_planned = !job.frame.plan.is_empty();
                self.health.note(|facts, now| {
                    facts.predicted(now, latency_ms, n_particles, is_planned);
                    facts.cut(now, prediction.is_cut.then_some(n_steps));
                    facts.turned_out(now, &prediction.outcomes);
                    prediction.pose_error.iter().for_each(|error| facts.pose_error(now, error));
                });
            }
            Err(error) => {
                self.trouble(
                    Cause::Publish,
                    format!("a prediction could not be published: {error}"),
                );
            }
        }
    }
}
