//! The predicting thread: takes the newest frame, predicts, publishes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use r2r::forecloud::msg::Timing;

use super::clock::{Ages, Moment};
use super::health::{Cause, Health};
use super::mailbox::{Answer, FrameJob, MAX_PASSED, Mailbox, Orders, Refusal, SnapshotRequest};
use super::outside;
use super::parameters::NodeConfig;
use super::problems::Problems;
use super::publish::Outputs;
use super::rollouts::PATIENCE;
use crate::Error;
use crate::base::keep_workers_hot::keep_workers_hot;
use crate::message::Stamp;
use crate::predict::config::PredictorConfig;
use crate::predict::predictor::Predictor;
use crate::predict::rig::LiveRig;
use crate::robot::kinematics::MeshSearch;
use crate::vision::cloud::{Place, Workspace};
use crate::vision::frames::Frame;

/// Time between two looks at where the points outside of the workspace are.
const LOOK_OUTSIDE: Duration = Duration::from_secs(2);

/// How often it is tried to warm up the predictor.
const WARM_UPS: u32 = 2;

/// How long predictions go on after somebody asked for a snapshot.
const INTEREST: Duration = Duration::from_secs(5);

/// Predicts from each frame that lies in the mailbox until it is closed.
pub struct Worker {
    predictor: Predictor,
    /// Whether the workspace follows the cameras, and what came of that.
    follows_cameras: bool,
    followed: Option<Place>,
    world_frame: String,
    idle_without_subscribers: bool,
    paused: bool,
    /// Whether the last frame was let pass: what was predicted before is of the past.
    passing: bool,
    /// How often it may still be tried to warm up the predictor.
    warm_ups_left: u32,
    ages: Ages,
    /// When the frame came that was predicted from last.
    predicted: Option<Moment>,
    /// Frames that were not predicted from, oldest first.
    passed: VecDeque<Frame>,
    outputs: Outputs,
    health: Arc<Health>,
    /// Want a snapshot of the next prediction.
    wishes: Vec<SnapshotRequest>,
    last_wish: Option<Instant>,
    problems: Problems,
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
    frames_used: u64,
    frames_without_history: u64,
    /// The first of the frames without history since the last prediction.
    without_history_since: Option<Stamp>,
    frames_rejected: u64,
    frames_paused: u64,
    frames_idle: u64,
    predictions_cut: u64,
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
            idle_without_subscribers: config.idle_without_subscribers,
            paused: false,
            passing: false,
            warm_ups_left: WARM_UPS,
            ages,
            predicted: None,
            passed: VecDeque::new(),
            outputs,
            health,
            wishes: Vec::new(),
            last_wish: None,
            problems: Problems::default(),
            device: String::new(),
            robot: None,
            refusals,
            outside: None,
            rig: LiveRig::new(config.cameras.clone()),
            meshes: MeshSearch::new(&config.mesh_paths),
            frames_used: 0,
            frames_without_history: 0,
            without_history_since: None,
            frames_rejected: 0,
            frames_paused: 0,
            frames_idle: 0,
            predictions_cut: 0,
        }
    }

    /// Works until `mailbox` is closed.
    pub fn run(mut self, mailbox: &Mailbox<Frame>) {
        self.watch_device();
        while let Some(post) = mailbox.take() {
            self.follow(post.orders);
            self.passed.extend(post.passed);
            if let Some(parcel) = post.frame {
                self.take(parcel);
            }
            self.passed.drain(..self.passed.len().saturating_sub(MAX_PASSED));
        }
    }

    /// Does what was ordered, between two frames.
    fn follow(&mut self, orders: Orders) {
        if orders.reset {
            self.passed.clear();
            self.predictor.forget();
            self.rig.forget();
            self.without_history_since = None;
            self.followed = None;
        }
        if let Some(settings) = orders.settings {
            self.idle_without_subscribers = settings.idle_without_subscribers;
            self.follows_cameras = settings.predictor.workspace.is_none();
            match self.followed.filter(|_| self.follows_cameras) {
                Some(place) => self.set_config(settings.predictor.placed(place)),
                None => self.set_config(settings.predictor),
            }
        }
        if let Some(urdf) = orders.robot {
            self.set_robot(urdf);
        }
        if let Some(paused) = orders.paused {
            self.paused = paused;
        }
        orders.wishes.into_iter().for_each(|wish| self.consider(wish));
    }

    fn set_config(&mut self, config: PredictorConfig) {
        if let Err(error) = self.predictor.set_config(config) {
            self.problems.warn("settings", format!("parameters: {error}"));
        }
    }

    /// As the tool does, by the first frame that is there: also where the machine was too busy to predict from
    /// it. The last digits of predictions hang on the place.
    fn follow_first_frame(&mut self, newest: &Frame) {
        if let Some(first) = self.passed.pop_front() {
            self.follow_cameras(&first);
            self.passed.push_front(first);
        }
        self.follow_cameras(newest);
    }

    /// Unless a workspace is set: puts it where the cameras see most, once.
    fn follow_cameras(&mut self, frame: &Frame) {
        if !self.follows_cameras || self.followed.is_some() {
            return;
        }
        let usual = self.predictor.model().config.workspace;
        // What is wrong with the images is told where they are predicted from.
        let Ok(Some(place)) = usual.proposal(&frame.cameras) else { return };
        self.followed = Some(place);
        if place.workspace != usual {
            let (Workspace { min, max }, frame) = (place.workspace, &self.world_frame);
            tracing::info!(
                "workspace: {min:.1?} to {max:.1?} (m, in '{frame}'), because the cameras see \
                 little in the model's; workspace_min and workspace_max override it"
            );
        }
        self.set_config(self.predictor.config().placed(place));
    }

    /// Sends a snapshot, now or with the next prediction.
    fn consider(&mut self, wish: SnapshotRequest) {
        if self.paused {
            let problem = "predicting is paused: call ~/pause with data: false".to_owned();
            // Nobody waits for it any more: then it needs no answer.
            let _ = wish.send(Answer::Refused(problem));
            return;
        }
        self.last_wish = Some(Instant::now());
        let age_secs = self.predicted.map_or(0.0, |then| self.ages.secs_since(then));
        let is_old = age_secs > PATIENCE.as_secs_f64();
        let reason = match self.predictor.snapshot() {
            Ok(snapshot) if !self.passing && !is_old => {
                let _ = wish.send(Answer::Snapshot(Box::new(snapshot)));
                return;
            }
            // What was predicted from an old frame is of a scene that may be another by now.
            Ok(_) if is_old => format!(
                "the last frame is {age_secs:.1} s old: do the cameras still send? /diagnostics says \
                 what is missing"
            ),
            Ok(_) => "no frame came".to_owned(),
            Err(error) => error.to_string(),
        };
        let _ = wish.send(Answer::NotYet(reason));
        self.wishes.push(wish);
    }

    /// Predicts from a frame, or lets it pass.
    fn take(&mut self, parcel: FrameJob<Frame>) {
        // What came after this frame is of a time that was set back.
        self.passed.retain(|passed| passed.stamp < parcel.frame.stamp);
        let was_passing = self.passing;
        self.passing = self.paused || !self.is_wanted();
        if !self.passing {
            self.health.note(|facts, now| {
                facts.resting = None;
                facts.working(now, parcel.n_replaced);
            });
            self.follow_first_frame(&parcel.frame);
            if self.passed.is_empty() && !self.predictor.has_history(&parcel.frame) {
                self.warm_up(&parcel.frame, 0);
            }
            self.recall_history(&parcel.frame);
            let outcome = self.step(parcel);
            self.watch_device();
            self.health.note(|facts, _| facts.rests());
            self.answer_wish(outcome);
            return;
        }
        self.warm_up(&parcel.frame, 1);
        if !self.paused && !was_passing {
            tracing::info!("nobody subscribes to predictions: keeping frames, predicting nothing");
        }
        let why = match self.paused {
            true => "predicting is paused: call ~/pause with data: false to resume",
            false => "nobody subscribes to predictions (idle_without_subscribers)",
        };
        self.health.note(|facts, _| facts.resting = Some(why));
        *(if self.paused { &mut self.frames_paused } else { &mut self.frames_idle }) += 1;
        self.passed.push_back(parcel.frame);
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

    /// Tells what predictions run on, and why without the GPU where there is one.
    fn watch_device(&mut self) {
        let backend = self.predictor.backend();
        if backend.name() == self.device {
            return;
        }
        backend.name().clone_into(&mut self.device);
        let missed = backend.missed().map(|why| format!("predictions run on the CPU: {why}"));
        self.health.note(|facts, _| facts.device(&self.device, missed.as_deref()));
        if let Some(text) = missed {
            self.problems.warn("device", text);
        }
    }

    /// Sends a snapshot to those who wait for one, or why this frame gave none.
    fn answer_wish(&mut self, outcome: Result<(), String>) {
        if self.wishes.is_empty() {
            return;
        }
        match outcome.and_then(|()| self.predictor.snapshot().map_err(|e| e.to_string())) {
            Ok(snapshot) => {
                for wish in self.wishes.drain(..) {
                    let _ = wish.send(Answer::Snapshot(Box::new(snapshot.clone())));
                }
            }
            // Where nobody waits any longer, the wish is over.
            Err(reason) => {
                self.wishes.retain(|wish| wish.send(Answer::NotYet(reason.clone())).is_ok());
            }
        }
    }

    fn is_wanted(&self) -> bool {
        let asked = |at: Instant| at.elapsed() < INTEREST;
        !self.idle_without_subscribers
            || !self.wishes.is_empty()
            || self.last_wish.is_some_and(asked)
            || self.outputs.are_heard()
    }

    fn set_robot(&mut self, urdf: String) {
        match self.predictor.set_robot(&urdf, &self.world_frame) {
            Ok(warnings) => {
                self.warm_ups_left = WARM_UPS;
                tracing::info!("robot description received");
                warnings.iter().for_each(|warning| tracing::warn!("robot_description: {warning}"));
                self.health.note(|facts, _| facts.robot(Ok(warnings)));
                // The predictor has taken it: nothing is wrong with it.
                let _ = self.rig.set_robot(&urdf, &self.world_frame, &self.meshes);
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

    /// Shows the predictor the passed frame that lies one step back, where it knows none there.
    fn recall_history(&mut self, frame: &Frame) {
        if self.predictor.has_history(frame) {
            return;
        }
        let wanted = frame.stamp.plus_secs(-self.predictor.model().config.step_secs);
        let Some(nearest) = self.passed.iter().min_by_key(|f| f.stamp.abs_diff(wanted)) else {
            return;
        };
        let predictor = &mut self.predictor;
        if nearest.stamp < frame.stamp
            && let Err(error) = keep_workers_hot(|| predictor.recall(nearest))
        {
            self.trouble(Cause::Rejected, format!("history frame: {error}"));
        }
    }

    /// Warns once frames have come for more than a step, and still none lies one step back.
    fn miss_history(&mut self, stamp: Stamp) {
        let since = self.without_history_since.filter(|since| *since <= stamp).unwrap_or(stamp);
        self.without_history_since = Some(since);
        let step_secs = self.predictor.model().config.step_secs;
        let tolerance_secs = self.predictor.config().history_tolerance_secs;
        if stamp.secs_since(since) > step_secs + tolerance_secs {
            self.trouble(
                Cause::History,
                format!(
                    "no prediction: no frame lies {step_secs} s before the one of {stamp} s, \
                     within {tolerance_secs} s ({} frames without so far). Remedy: images must \
                     come at {} Hz or a multiple of it, or raise history_tolerance_secs",
                    self.frames_without_history,
                    (1.0 / step_secs * 100.0).round() / 100.0
                ),
            );
        }
    }

    /// Predicts from a frame and publishes that; says why not.
    fn step(&mut self, parcel: FrameJob<Frame>) -> Result<(), String> {
        let (predictor, frame) = (&mut self.predictor, &parcel.frame);
        let prediction = match keep_workers_hot(|| predictor.step_in_time(frame, parcel.whole)) {
            Ok(Some(prediction)) => prediction,
            Ok(None) => {
                self.frames_without_history += 1;
                self.health.note(|facts, _| facts.n_without_history += 1);
                self.miss_history(parcel.frame.stamp);
                return Err(Error::NoPrediction.to_string());
            }
            Err(error) => {
                self.frames_rejected += 1;
                return Err(self.reject(&error, &parcel.frame));
            }
        };
        self.frames_used += 1;
        self.warm_ups_left = 0;
        self.predicted = Some(self.ages.moment(parcel.arrived));
        self.without_history_since = None;
        if self.frames_used == 1 {
            tracing::info!("predicting");
        }
        let n_steps = prediction.displacements.len();
        let is_cut = prediction.is_cut;
        self.predictions_cut += u64::from(is_cut);
        let counts = parcel.counts;
        let timing = Timing {
            decode_ms: parcel.decode_ms,
            particles_ms: prediction.timings.particles_ms as f32,
            predict_ms: prediction.timings.predict_ms as f32,
            frames_in: counts.frames,
            frames_used: self.frames_used,
            frames_dropped_busy: parcel.n_replaced,
            frames_without_history: self.frames_without_history,
            frames_rejected: self.frames_rejected,
            frames_paused: self.frames_paused,
            frames_idle: self.frames_idle,
            frames_dropped_incomplete: counts.dropped_no_info
                + counts.dropped_no_tf
                + counts.dropped_no_joints
                + counts.dropped_mismatched
                + counts.dropped_late,
            images_dropped_unpaired: counts.dropped_unpaired,
            time_jumps: counts.time_jumps,
            predictions_cut: self.predictions_cut,
            frames_without_robot: counts.frames_without_robot,
            bad_messages: counts.bad_messages,
            ..Timing::default()
        };
        let moving = prediction.world_motion_m;
        let outcomes = prediction.outcomes;
        let n_particles = prediction.particles.len();
        let planned = !parcel.frame.plan.is_empty();
        match self.outputs.publish(prediction, timing, parcel.arrived) {
            Ok(latency_ms) => {
                let stamp = parcel.frame.stamp;
                tracing::debug!(
                    "prediction of {stamp} s: {n_particles} particles, {latency_ms} ms"
                );
                self.health.note(|facts, now| {
                    facts.predicted(now, latency_ms, n_particles, planned);
                    facts.cut(now, is_cut.then_some(n_steps));
                    facts.turned_out(now, &outcomes);
                });
            }
            Err(error) => {
                self.trouble(
                    Cause::Publish,
                    format!("a prediction could not be published: {error}"),
                );
            }
        }
        if let Some(motion_m) = moving {
            let frame = &self.world_frame;
            let text = format!(
                "all that is seen moves alike, by {:.0} mm a step: does the frame '{frame}' move with a base? \
                 Nothing is held at rest. Remedy: set world_frame to one that is fixed to the ground, such \
                 as odom or map",
                1e3 * motion_m
            );
            self.trouble(Cause::World, text);
        }
        self.watch_rig(&parcel.frame);
        Ok(())
    }

    /// Looks at the rig now and then, and notes what was found.
    fn watch_rig(&mut self, frame: &Frame) {
        // What is wrong with the frame is told where it is predicted from.
        if let Ok(Some(items)) = self.rig.take(frame) {
            self.health.note(|facts, _| facts.rig = Some(items));
        }
    }

    /// Notes, logs and returns why a frame gave no prediction.
    fn reject(&mut self, error: &Error, frame: &Frame) -> String {
        let text = format!("no prediction for this frame: {error}");
        let cause = match error {
            // The status of the robot description says it.
            Error::NoRobot => {
                self.problems.warn("no robot", &text);
                return text;
            }
            Error::TooFewPoints { .. } => Cause::Workspace,
            Error::Device { .. } => Cause::Device,
            Error::MissingJoints { .. } => Cause::Joints,
            Error::Encoding { .. } | Error::ImageSize { .. } | Error::Camera { .. } => Cause::Image,
            _ => Cause::Rejected,
        };
        let text = match cause {
            Cause::Workspace => format!("{text}. {}", self.points_outside(frame)),
            _ => text,
        };
        self.trouble(cause, text.clone());
        text
    }

    /// Where the points of `frame` are, or of one shortly before: it takes a while to tell.
    fn points_outside(&mut self, frame: &Frame) -> &str {
        let known = self.outside.take().filter(|(at, _)| at.elapsed() < LOOK_OUTSIDE);
        let known = known.unwrap_or_else(|| {
            let workspace = self.predictor.config().workspace;
            let workspace = workspace.unwrap_or(self.predictor.model().config.workspace);
            let text = outside::describe(&frame.cameras, &workspace, &self.world_frame);
            (Instant::now(), text)
        });
        &self.outside.insert(known).1
    }

    fn trouble(&mut self, cause: Cause, text: String) {
        self.health.note(|facts, now| facts.trouble(now, cause, 1, &text));
        self.problems.warn(&format!("{cause:?}"), text);
    }
}
