//! Messages into frames: images, the robot's joints and camera poses of one time, from a bag or from
//! DDS.
//!
//! Colour and depth of a camera make a shot, shots of all cameras make a frame; a camera that
//! fell silent is left out. Pairing goes by header stamps: which frames come out does not depend
//! on the order in which the messages of different topics arrive, as long as they come within one
//! frame of each other. A robot may be missing: see [`FramesConfig::robot`].

mod frame;
mod images;
mod joints;
mod place;
mod problems;
mod robot;
mod sets;
mod shots;
mod stream;
#[cfg(test)]
mod tests;
mod topics;
mod views;
mod watch;

use crate::base::error::Result;
use crate::message::{JointTrajectory, Stamp, TfMessage};
use crate::robot::tf::TransformBuffer;
use images::{ImagePairer, Shot};
use joints::JointHistory;
use place::Placing;
use problems::Problems;
use robot::RobotSource;
use sets::{SetPairer, ShotSet};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use views::{Calibration, ViewParts};
use watch::Watch;

pub use frame::{CameraFrame, ColorView, Frame, FrameCounts, FramesConfig, MAX_CAMERAS, View};
pub use joints::Joints;
pub use place::Unplaced;
pub use problems::{Problem, ProblemKind, are_alike};
pub use robot::RobotState;
pub use topics::{CameraInput, CameraTopics, Input, Role, TopicSpec, Topics};

/// Plans that a frame carries.
const MAX_PLANS: usize = 8;
/// Plans that are held: controllers stream at 100 Hz, and the images come late.
const MAX_HELD_PLANS: usize = 256;
/// Seconds by which a plan may start after the frame that it belongs to.
const PLAN_LEAD_SECS: f64 = 0.05;

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
    /// In the order of arrival.
    plans: VecDeque<Arc<JointTrajectory>>,
    tf: TransformBuffer,
    robot: RobotSource,
    placing: Placing,
    /// Images that are complete and wait for joints, calibration or poses.
    waiting: VecDeque<ShotSet>,
    /// Newest stamp of each source: colour and depth (or cloud) of each camera, and the joint
    /// states.
    newest: Vec<Option<Stamp>>,
    last_frame: Option<Stamp>,
    counts: FrameCounts,
    /// Part of the counts: what the sets lost.
    n_unpaired_shots: u64,
    problems: Problems,
    news: Option<String>,
}

/// What a frame needs besides its images.
struct Parts {
    /// One per camera of the frame.
    views: Vec<ViewParts>,
    robot: Option<RobotState>,
}

/// Why a frame can't be made (yet).
enum Missing {
    Info(String),
    Tf(String),
    Joints(String),
    Match(String),
}

impl Missing {
    fn problem(&self) -> (ProblemKind, &str) {
        match self {
            Self::Info(problem) => (ProblemKind::Calibration, problem),
            Self::Tf(problem) => (ProblemKind::Transform, problem),
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
            plans: VecDeque::new(),
            tf: TransformBuffer::new(),
            robot: RobotSource::default(),
            placing: Placing::default(),
            waiting: VecDeque::new(),
            newest: vec![None; 2 * n_cameras + 1],
            last_frame: None,
            counts: FrameCounts::default(),
            n_unpaired_shots: 0,
            problems: Problems::default(),
            news: None,
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
            self.robot.describe(in_use.to_owned(), &self.config.world_frame);
        }
    }

    /// What is worth telling and no problem: a camera that is back. Once.
    pub fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Names of the cameras that are left out at present.
    pub fn absent_cameras(&self) -> impl Iterator<Item = &str> {
        let cameras = self.config.topics.cameras.iter().zip(&self.watch.absent);
        cameras.filter(|(_, absent)| **absent).map(|(camera, _)| camera.name.as_str())
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
    /// one that is given away is not copied.
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

    /// Adds a message; the frame that it completes, if any.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if a camera index is none of the settings'.
    pub fn push(&mut self, input: Input) -> Result<Option<Frame>> {
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
                views::keep(&mut self.infos[camera].color, info);
            }
            Input::DepthInfo { camera, info } => {
                self.check_camera(camera)?;
                views::keep(&mut self.infos[camera].depth, info);
            }
            Input::JointState(state) => {
                self.watch_time(self.newest.len() - 1, "joint states", state.header.stamp);
                self.joints.push(state);
            }
            Input::Plan(plan) => self.push_plan(plan),
            Input::Tf(message) => self.push_tf(&message, false),
            Input::TfStatic(message) => self.push_tf(&message, true),
            Input::RobotDescription(text) => self.robot.describe(text, &self.config.world_frame),
        }
        Ok(self.next_frame(1))
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
        let frame = self.next_frame(0);
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
    }

    /// A stamp of zero means: from now on.
    fn push_plan(&mut self, mut plan: JointTrajectory) {
        if plan.header.stamp.nanos() == 0 {
            plan.header.stamp = self.newest.iter().flatten().max().copied().unwrap_or_default();
        }
        if self.plans.len() == MAX_HELD_PLANS {
            self.plans.pop_front();
        }
        self.plans.push_back(Arc::new(plan));
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
        self.plans.clear();
        for set in self.waiting.drain(..) {
            self.sets.losses.unpaired += set.n_images();
        }
        // No problem of its own.
        self.counts.dropped_unpaired = self.n_unpaired();
        self.n_unpaired_shots = self.sets.losses.unpaired;
        self.last_frame = None;
        self.placing.forget_times();
    }

    /// Makes a frame of the oldest images that wait; at most `n_waiting` may go on waiting.
    fn next_frame(&mut self, n_waiting: usize) -> Option<Frame> {
        while let Some(set) = self.waiting.pop_front() {
            let overdue = self.waiting.len() >= n_waiting;
            let slack_secs = if overdue { self.config.tolerance_secs } else { 0.0 };
            match self.parts(&set, slack_secs, overdue) {
                Ok(parts) => return Some(self.frame(set, parts)),
                Err(missing) if overdue || matches!(missing, Missing::Match(_)) => {
                    self.drop_frame(set.stamp, &missing);
                    if matches!(missing, Missing::Tf(_)) {
                        self.note_unplaced(set);
                    }
                }
                Err(_) => {
                    self.waiting.push_front(set);
                    return None;
                }
            }
        }
        None
    }

    /// What belongs to the images, if all of it has come.
    fn parts(
        &self,
        set: &ShotSet,
        slack_secs: f64,
        is_overdue: bool,
    ) -> std::result::Result<Parts, Missing> {
        let shots = set
            .shots
            .iter()
            .map(|(camera, shot)| self.view_parts(*camera, shot, Some(&self.config.world_frame)));
        let views = shots.collect::<std::result::Result<Vec<_>, Missing>>()?;
        let robot = self.robot_at(set.stamp, slack_secs, is_overdue)?;
        Ok(Parts { views, robot })
    }

    fn frame(&mut self, set: ShotSet, parts: Parts) -> Frame {
        let views = set.shots.into_iter().zip(parts.views);
        let join = |((camera, shot), view): (_, ViewParts)| view.join(camera, shot);
        let cameras: Vec<_> = views.filter_map(join).collect();
        self.counts.frames += 1;
        let is_whole = cameras.len() == self.config.topics.cameras.len();
        self.counts.frames_without_camera += u64::from(!is_whole);
        self.last_frame = Some(set.stamp);
        let plan = self.plans_until(set.stamp);
        self.note_robot(set.stamp, parts.robot.as_ref());
        Frame { stamp: set.stamp, cameras, robot: parts.robot, plan }
    }

    fn plans_until(&self, stamp: Stamp) -> Vec<Arc<JointTrajectory>> {
        let until = stamp.plus_secs(PLAN_LEAD_SECS);
        let started = self.plans.iter().filter(|plan| plan.header.stamp <= until);
        let mut plans: Vec<_> = started.cloned().collect();
        plans.sort_by_key(|plan| plan.header.stamp);
        plans.split_off(plans.len().saturating_sub(MAX_PLANS))
    }

    fn drop_frame(&mut self, stamp: Stamp, missing: &Missing) {
        let count = match missing {
            Missing::Info(_) => &mut self.counts.dropped_no_info,
            Missing::Tf(_) => &mut self.counts.dropped_no_tf,
            Missing::Joints(_) => &mut self.counts.dropped_no_joints,
            Missing::Match(_) => &mut self.counts.dropped_mismatched,
        };
        *count += 1;
        let hint = match missing {
            Missing::Tf(_) => self.placing_hint(),
            _ => "",
        };
        let (kind, problem) = missing.problem();
        self.problems.note(kind, format!("dropped the frame of {stamp} s: {problem}{hint}"));
    }
}

fn nanos(secs: f64) -> u64 {
    Stamp::from_secs(secs).nanos().unsigned_abs()
}
