//! Messages into frames: images, the robot's joints and camera poses of one time, from a bag or from
//! DDS.
//!
//! Colour and depth of a camera make a shot, shots of all cameras make a frame; a camera that
//! fell silent is left out. Pairing goes by header stamps: which frames come out does not depend
//! on the order in which the messages of different topics arrive, as long as they come within one
//! frame of each other. A robot may be missing: see [`FramesConfig::robot`].

mod depth;
mod frame;
mod images;
mod joints;
mod lateness;
mod place;
mod plans;
mod problems;
mod rectified;
mod robot;
mod sets;
mod shots;
mod stream;
#[cfg(test)]
mod tests;
mod topics;
mod usable;
mod views;
mod waiting;
mod watch;
mod world;

use crate::base::error::Result;
use crate::message::{Stamp, TfMessage};
use crate::robot::tf::{Carried, TransformBuffer};
use images::{ImagePairer, Shot};
use joints::JointHistory;
use lateness::Lateness;
use place::Placing;
use plans::Plans;
use problems::Problems;
use robot::RobotSource;
use sets::{SetPairer, ShotSet};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use usable::Usable;
use views::Calibration;
use watch::Watch;

pub use frame::{CameraFrame, ColorView, Frame, FrameCounts, FramesConfig, MAX_CAMERAS, View};
pub use joints::Joints;
pub use place::Unplaced;
pub use problems::{Problem, ProblemKind, are_alike};
pub use robot::RobotState;
pub use topics::{CameraInput, CameraTopics, Input, Role, TopicSpec, Topics};

pub use plans::PLAN_AHEAD_SECS;

/// Warnings that wait to be taken.
const MAX_WARNINGS: usize = 64;

/// Pairs messages into frames; all buffers are bounded.
pub struct Frames {
    config: FramesConfig,
    /// Nanoseconds of the settings' tolerance and of the cameras' timeout.
    tolerance: u64,
    timeout: u64,
    /// One per camera.
    pairers: Vec<ImagePairer>,
    sets: SetPairer,
    watch: Watch,
    infos: Vec<Calibration>,
    joints: JointHistory,
    plans: Plans,
    tf: TransformBuffer,
    /// How the world frame moves, once tf has told that it does.
    moving_world: Option<Carried>,
    robot: RobotSource,
    placing: Placing,
    /// Images that are complete and wait for joints, calibration or poses, each with when it was complete.
    waiting: VecDeque<(ShotSet, Stamp)>,
    /// Frames that nobody has taken yet.
    ready: VecDeque<Frame>,
    /// When the newest message arrived; until somebody tells that, the newest stamp.
    now: Stamp,
    is_timed: bool,
    lateness: Lateness,
    usable: Usable,
    /// Newest stamp of each source: colour and depth (or cloud) of each camera, and the joint
    /// states.
    newest: Vec<Option<Stamp>>,
    last_frame: Option<Stamp>,
    counts: FrameCounts,
    /// Part of the counts: what the sets lost.
    n_unpaired_shots: u64,
    problems: Problems,
    news: Option<String>,
    warnings: VecDeque<String>,
    /// Warnings that are told once.
    told: BTreeSet<String>,
    /// Names of topics after remaps, by those of the settings.
    names: BTreeMap<String, String>,
}

/// Why a frame can't be made (yet).
enum Missing {
    Info(String),
    /// With the transform that lacks, where it is known which.
    Tf(String, Option<Wanted>),
    /// Where the box to predict in is.
    Workspace(String, Wanted),
    Joints(String),
    Match(String),
}

/// A transform of one time: its two frames.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    target: String,
    source: String,
    stamp: Stamp,
}

impl Missing {
    fn problem(&self) -> (ProblemKind, &str) {
        match self {
            Self::Info(problem) => (ProblemKind::Calibration, problem),
            Self::Tf(problem, _) | Self::Workspace(problem, _) => (ProblemKind::Transform, problem),
            Self::Joints(problem) => (ProblemKind::Joints, problem),
            Self::Match(problem) => (ProblemKind::Mismatch, problem),
        }
    }
}

impl Frames {
    /// Without any message yet.
    pub fn new(config: FramesConfig) -> Self {
        let (n_cameras, max_pending) = (config.topics.cameras.len(), config.max_pending);
        let tolerance = nanos(config.tolerance_secs);
        let timeout = nanos(config.camera_timeout_secs);
        let pairer = |_| ImagePairer::new(tolerance, max_pending);
        Self {
            tolerance,
            timeout,
            pairers: (0..n_cameras).map(pairer).collect(),
            sets: SetPairer::new(n_cameras, tolerance, timeout, max_pending),
            watch: Watch::new(n_cameras),
            infos: vec![Calibration::default(); n_cameras],
            joints: JointHistory::default(),
            plans: Plans::default(),
            tf: TransformBuffer::new(),
            moving_world: None,
            robot: RobotSource::default(),
            placing: Placing::default(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            now: Stamp::default(),
            is_timed: false,
            lateness: Lateness::default(),
            usable: Usable::new(n_cameras),
            newest: vec![None; 2 * n_cameras + 1],
            last_frame: None,
            counts: FrameCounts::default(),
            n_unpaired_shots: 0,
            problems: Problems::default(),
            news: None,
            warnings: VecDeque::new(),
            told: BTreeSet::new(),
            names: BTreeMap::new(),
            config,
        }
    }

    /// What became of the messages so far.
    pub fn counts(&self) -> &FrameCounts {
        &self.counts
    }

    /// Why there are counts other than `frames`, with the remedies: the first of each kind, causes
    /// before what follows from them.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.all()
    }

    /// The newest cause that was not taken.
    pub fn last_problem(&self) -> Option<&str> {
        self.problems.last()
    }

    /// The newest cause, once: `None` until another problem comes.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problems.take().pop().map(|problem| problem.first)
    }

    /// What came up since this was called last, in that order.
    pub fn take_problems(&mut self) -> Vec<Problem> {
        self.problems.take()
    }

    /// URDF of the robot, once it has come.
    pub fn robot_description(&self) -> Option<&Arc<str>> {
        self.robot.description()
    }

    /// Goes back to the description `in_use`, as who predicts can't use `refused`; unless another one
    /// has come since.
    pub fn take_back_description(&mut self, refused: &str, in_use: &str) {
        if self.robot_description().is_some_and(|newest| **newest == *refused) {
            self.robot.describe(in_use.to_owned(), &self.config);
        }
    }

    /// What is worth a warning and cost nothing yet, each once, with its remedy; oldest first.
    pub fn take_warnings(&mut self) -> impl Iterator<Item = String> {
        std::mem::take(&mut self.warnings).into_iter()
    }

    fn warn(&mut self, text: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push_back(text);
        }
    }

    /// What is worth telling and no problem: a camera that is back. Once.
    pub fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Names of the cameras that are left out at present.
    pub fn absent_cameras(&self) -> impl Iterator<Item = &str> {
        let cameras = self.config.topics.cameras.iter().enumerate();
        let is_absent = |i: usize| self.watch.absent[i] || self.usable.is_left_out(i);
        cameras.filter(move |(i, _)| is_absent(*i)).map(|(_, camera)| camera.name.as_str())
    }

    /// The settings.
    pub fn config(&self) -> &FramesConfig {
        &self.config
    }

    /// Takes other times (tolerances and the like) from now on; the topics stay as they are.
    pub fn set_config(&mut self, config: FramesConfig) {
        self.config = FramesConfig { topics: std::mem::take(&mut self.config.topics), ..config };
        self.tolerance = nanos(self.config.tolerance_secs);
        self.timeout = nanos(self.config.camera_timeout_secs);
        let (tolerance, timeout) = (self.tolerance, self.timeout);
        self.pairers.iter_mut().for_each(|pairer| pairer.set_tolerance(tolerance));
        self.sets.set_times(tolerance, timeout);
    }

    /// Forgets all that has a time; returns the number of images that waited for a frame, which
    /// count as unpaired.
    ///
    /// Calibrations, fixed transforms and the robot's description are kept.
    pub fn forget(&mut self) -> u64 {
        let before = self.n_unpaired();
        self.forget_times();
        self.newest.fill(None);
        self.n_unpaired() - before
    }

    /// As [`Frames::forget`], counted as a time jump with its cause.
    pub fn time_jumped(&mut self, problem: String) {
        self.forget();
        self.counts.time_jumps += 1;
        self.problems.note(ProblemKind::TimeJump, problem);
    }

    /// Decodes a message and adds it; other topics than those of the settings change nothing.
    ///
    /// A message that cannot be decoded is counted, not returned as an error. Clouds keep the message, so
    /// one that is given away is not copied. Returns a frame that is complete; [`Frames::take_frame`] has
    /// others. Time passes as the messages' stamps say.
    pub fn push_raw<'a>(&mut self, topic: &str, data: impl Into<Cow<'a, [u8]>>) -> Option<Frame> {
        let outcome = match self.config.topics.decode(topic, data)? {
            Ok(input) => self.push(input),
            Err(error) => Err(error),
        };
        outcome.unwrap_or_else(|error| {
            self.bad_message(format!("{topic}: {error}"));
            None
        })
    }

    /// As [`Frames::push_raw`], for a message that arrived at `arrived`, on any clock that does not go back.
    pub fn push_raw_at<'a>(
        &mut self,
        topic: &str,
        data: impl Into<Cow<'a, [u8]>>,
        arrived: Stamp,
    ) -> Option<Frame> {
        // Whose patience ended before does not get to know of the message.
        let before = self.pass_time(arrived);
        let frame = self.push_raw(topic, data);
        match before {
            Some(before) => {
                frame.into_iter().for_each(|frame| self.ready.push_front(frame));
                Some(before)
            }
            None => frame,
        }
    }

    /// It is `now`, on the clock of [`Frames::push_raw_at`]: what waited long enough becomes a frame with
    /// what is there.
    pub fn pass_time(&mut self, now: Stamp) -> Option<Frame> {
        self.is_timed = true;
        self.now = self.now.max(now);
        self.advance(false);
        self.take_frame()
    }

    /// The next frame that is complete, if there is one more.
    pub fn take_frame(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    /// Adds a message; a frame that is complete, as in [`Frames::push_raw`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if a camera index is none of the settings'.
    pub fn push(&mut self, input: Input) -> Result<Option<Frame>> {
        if let Some(stamp) = input.stamp().filter(|_| !self.is_timed) {
            self.now = self.now.max(stamp);
            self.advance(false);
        }
        self.add(input)?;
        self.advance(false);
        Ok(self.take_frame())
    }

    fn add(&mut self, input: Input) -> Result<()> {
        match input {
            Input::Color { camera, image } => self.push_image(camera, false, image)?,
            Input::Depth { camera, image } => self.push_image(camera, true, image)?,
            Input::Points { camera, cloud } => {
                self.note_image(camera, 1, cloud.header.stamp)?;
                self.push_shot(camera, Shot::Points(cloud));
                self.collect(camera, false);
            }
            Input::ColorInfo { camera, info } => {
                self.check_camera(camera)?;
                let info = self.of_images(camera, false, info);
                views::keep(&mut self.infos[camera].color, info);
            }
            Input::DepthInfo { camera, info } => {
                self.check_camera(camera)?;
                let info = self.of_images(camera, true, info);
                views::keep(&mut self.infos[camera].depth, info);
            }
            Input::JointState(state) => {
                self.watch_time(self.newest.len() - 1, "joint states", state.header.stamp);
                self.push_joints(&state);
            }
            Input::Plan(plan) => {
                // Without patience, joints are known before their time.
                let newest = match self.config.patience_secs {
                    Some(_) => self.newest.iter().flatten().max().copied(),
                    None => self.newest_image(),
                };
                self.plans.push(plan, newest.unwrap_or_default());
            }
            Input::Tf(message) => self.push_tf(&message, false),
            Input::TfStatic(message) => self.push_tf(&message, true),
            Input::RobotDescription(text) => self.push_description(text),
        }
        Ok(())
    }

    /// A frame that still waits at the end of a recording, if what came is enough for it; call it
    /// until there is none.
    ///
    /// Images that are left then count as unpaired if there was no frame at all.
    pub fn finish(&mut self) -> Option<Frame> {
        for camera in 0..self.pairers.len() {
            self.pair_images(camera, true);
        }
        for camera in 0..self.pairers.len() {
            self.collect(camera, true);
        }
        self.advance(true);
        let frame = self.take_frame();
        if frame.is_none() && self.counts.frames == 0 {
            for camera in 0..self.pairers.len() {
                self.pairers[camera].give_up();
                self.count_losses(camera);
            }
            self.sets.give_up();
            self.count_losses(0);
        }
        frame
    }

    fn push_tf(&mut self, message: &TfMessage, is_static: bool) {
        for transform in &message.transforms {
            self.note_placed_elsewhere(transform);
            if let Err(error) = self.tf.insert(transform, is_static) {
                self.bad_message(error.to_string());
            }
        }
        self.note_late_transforms();
    }

    /// Counts a message that could not be used.
    pub fn bad_message(&mut self, problem: String) {
        self.counts.bad_messages += 1;
        self.problems.note(ProblemKind::BadMessage, problem);
    }

    /// Starts anew if the stamps of `source` went back.
    fn watch_time(&mut self, source: usize, what: &str, stamp: Stamp) {
        let jump_secs = self.config.time_jump_secs;
        match self.newest[source] {
            Some(newest) if newest.secs_since(stamp) > jump_secs => {
                self.forget_times();
                for newest in self.newest.iter_mut().flatten() {
                    *newest = stamp.min(*newest);
                }
                if !self.is_timed {
                    self.now = stamp;
                }
                self.counts.time_jumps += 1;
                let problem = format!(
                    "time of the {what} went back from {newest} s to {stamp} s: started anew"
                );
                self.problems.note(ProblemKind::TimeJump, problem);
            }
            newest => self.newest[source] = newest.max(Some(stamp)),
        }
    }

    /// Keeps what has no time: calibrations, fixed transforms and the robot's description.
    ///
    /// Of the new time, at most a plan and moving transforms can have come before this; the
    /// sources that `watch_time` watches can't.
    fn forget_times(&mut self) {
        self.pairers.iter_mut().for_each(ImagePairer::clear);
        self.sets.clear();
        self.watch.forget_times();
        self.joints = JointHistory::default();
        self.tf.forget_moving();
        self.moving_world = None;
        self.plans.clear();
        self.lateness.forget_times();
        self.usable.forget_times();
        // What came by stamps alone starts anew, too.
        if !self.is_timed {
            self.now = Stamp::default();
        }
        for (set, _) in self.waiting.drain(..) {
            self.sets.losses.unpaired += set.n_images();
        }
        // No problem of its own.
        self.counts.dropped_unpaired = self.n_unpaired();
        self.n_unpaired_shots = self.sets.losses.unpaired;
        self.last_frame = None;
        self.placing.forget_times();
    }
}

fn nanos(secs: f64) -> u64 {
    Stamp::from_secs(secs).nanos().unsigned_abs()
}
