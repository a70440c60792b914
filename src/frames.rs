//! Messages into frames: images, joints and camera poses of one time, from a bag or from DDS.
//!
//! Pairing goes by header stamps: which frames come out does not depend on the order in which
//! the messages of different topics arrive, as long as they come within one frame of each other.

mod frame;
mod images;
mod joints;
#[cfg(test)]
mod tests;
mod topics;

use crate::error::{Error, Result};
use crate::message::{CameraInfo, Image, JointTrajectory, PointCloud2, Stamp, TfMessage};
use crate::tf::TransformBuffer;
use images::{ImagePairer, ImageSet, Pair};
use joints::JointHistory;
use nalgebra::Isometry3;
use std::collections::VecDeque;
use std::sync::Arc;

pub use frame::{CameraFrame, ColorView, Frame, FrameCounts, FramesConfig, View};
pub use joints::Joints;
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
    images: ImagePairer,
    infos: Vec<Option<Arc<CameraInfo>>>,
    joints: JointHistory,
    /// In the order of arrival.
    plans: VecDeque<Arc<JointTrajectory>>,
    tf: TransformBuffer,
    robot_description: Option<Arc<str>>,
    /// Images that are complete and wait for joints, calibration or poses.
    waiting: VecDeque<ImageSet>,
    /// Newest stamp of each source: colour and depth of each camera, and the joint states.
    newest: Vec<Option<Stamp>>,
    last_frame: Option<Stamp>,
    counts: FrameCounts,
    problem: Option<String>,
}

/// What a frame needs besides its images.
struct Parts {
    /// Calibration and `world_from_camera` of each camera.
    cameras: Vec<(Arc<CameraInfo>, Isometry3<f64>)>,
    joints: Joints,
}

/// Why a frame can't be made (yet).
enum Missing {
    Info(String),
    Tf(String),
    Joints(String),
    Size(String),
}

impl Frames {
    /// Without any message yet.
    pub fn new(config: FramesConfig) -> Self {
        let n_cameras = config.topics.cameras.len();
        Self {
            images: ImagePairer::new(n_cameras, config.tolerance_secs, config.max_pending),
            infos: vec![None; n_cameras],
            joints: JointHistory::default(),
            plans: VecDeque::new(),
            tf: TransformBuffer::new(),
            robot_description: None,
            waiting: VecDeque::new(),
            newest: vec![None; 2 * n_cameras + 1],
            last_frame: None,
            counts: FrameCounts::default(),
            problem: None,
            config,
        }
    }

    /// What became of the messages so far.
    pub fn counts(&self) -> &FrameCounts {
        &self.counts
    }

    /// The newest cause of a count other than `frames`, with its remedy.
    pub fn last_problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The same, once: `None` until another problem comes.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// URDF of the robot, once it has come.
    pub fn robot_description(&self) -> Option<&Arc<str>> {
        self.robot_description.as_ref()
    }

    /// Names of the cameras that are left out at present.
    pub fn absent_cameras(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }

    /// The settings.
    pub fn config(&self) -> &FramesConfig {
        &self.config
    }

    /// Decodes a message and adds it; other topics than those of the settings change nothing.
    ///
    /// A message that cannot be decoded is counted, not returned as an error.
    pub fn push_raw(&mut self, topic: &str, data: &[u8]) -> Option<Frame> {
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
    /// [`Error::Shape`] if a camera index is none of the settings'.
    pub fn push(&mut self, input: Input) -> Result<Option<Frame>> {
        match input {
            Input::Color { camera, image } => self.push_image(camera, false, image)?,
            Input::Depth { camera, image } => self.push_image(camera, true, image)?,
            Input::Points { camera, cloud } => self.push_points(camera, &cloud)?,
            Input::DepthInfo { camera, .. } => self.check_camera(camera)?,
            Input::ColorInfo { camera, info } => {
                self.check_camera(camera)?;
                self.infos[camera] = Some(info);
            }
            Input::JointState(state) => {
                self.watch_time(self.newest.len() - 1, "joint states", state.header.stamp);
                self.joints.push(state);
            }
            Input::Plan(plan) => self.push_plan(plan),
            Input::Tf(message) => self.push_tf(&message, false),
            Input::TfStatic(message) => self.push_tf(&message, true),
            Input::RobotDescription(text) => self.robot_description = Some(text.into()),
        }
        Ok(self.next_frame(1))
    }

    /// The frame that still waits at the end of a recording, if what came is enough for it.
    pub fn finish(&mut self) -> Option<Frame> {
        self.next_frame(0)
    }

    fn push_image(&mut self, camera: usize, is_depth: bool, image: Image) -> Result<()> {
        self.check_camera(camera)?;
        self.watch_time(2 * camera + usize::from(is_depth), "images", image.header.stamp);
        if let Some(set) = self.images.push(camera, is_depth, image) {
            match self.last_frame.max(self.waiting.back().map(|set| set.stamp)) {
                Some(last) if set.stamp <= last => {
                    self.counts.dropped_late += 1;
                    let stamp = set.stamp;
                    self.problem =
                        Some(format!("images of {stamp} s came after those of {last} s"));
                }
                _ => self.waiting.push_back(set),
            }
        }
        if self.images.n_unpaired > self.counts.dropped_unpaired {
            self.counts.dropped_unpaired = self.images.n_unpaired;
            self.problem = Some(format!(
                "images found no partners within {} s: check that all image topics publish, and \
                 that the cameras are synchronised; or raise tolerance_secs",
                self.config.tolerance_secs
            ));
        }
        Ok(())
    }

    fn push_points(&mut self, camera: usize, _cloud: &PointCloud2) -> Result<()> {
        self.check_camera(camera)?;
        self.bad_message("point clouds are not made into frames yet".into());
        Ok(())
    }

    fn check_camera(&self, camera: usize) -> Result<()> {
        let expected = self.config.topics.cameras.len();
        if camera < expected {
            return Ok(());
        }
        Err(Error::Shape {
            what: "camera index (below the number of cameras)",
            expected,
            got: camera,
        })
    }

    fn push_tf(&mut self, message: &TfMessage, is_static: bool) {
        for transform in &message.transforms {
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
    pub(crate) fn bad_message(&mut self, problem: String) {
        self.counts.bad_messages += 1;
        self.problem = Some(problem);
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
                self.problem = Some(format!(
                    "time of the {what} went back from {newest} s to {stamp} s: started anew"
                ));
            }
            newest => self.newest[source] = newest.max(Some(stamp)),
        }
    }

    /// Keeps what has no time: calibrations, fixed transforms and the robot's description.
    ///
    /// Of the new time, at most a plan and moving transforms can have come before this; the
    /// sources that `watch_time` watches can't.
    fn forget_times(&mut self) {
        self.images.clear();
        self.joints = JointHistory::default();
        self.tf.forget_moving();
        self.plans.clear();
        self.waiting.clear();
        self.last_frame = None;
    }

    /// Makes a frame of the oldest images that wait; at most `n_waiting` may go on waiting.
    fn next_frame(&mut self, n_waiting: usize) -> Option<Frame> {
        while let Some(set) = self.waiting.pop_front() {
            let overdue = self.waiting.len() >= n_waiting;
            let slack_secs = if overdue { self.config.tolerance_secs } else { 0.0 };
            match self.parts(&set, slack_secs) {
                Ok(parts) => return Some(self.frame(set, parts)),
                Err(missing) if overdue || matches!(missing, Missing::Size(_)) => {
                    self.drop_frame(set.stamp, missing);
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
    fn parts(&self, set: &ImageSet, slack_secs: f64) -> std::result::Result<Parts, Missing> {
        let mut cameras = Vec::with_capacity(set.pairs.len());
        for (i, pair) in set.pairs.iter().enumerate() {
            let info = self.info_of(i, pair)?;
            let frame = [&pair.depth.header.frame_id, &info.header.frame_id];
            let frame = frame.into_iter().find(|id| !id.is_empty()).map_or("", String::as_str);
            let pose = self.tf.lookup(&self.config.world_frame, frame, set.stamp);
            cameras.push((info, pose.map_err(|error| Missing::Tf(error.to_string()))?));
        }
        let joints = self.joints.at(set.stamp, slack_secs).map_err(|problem| {
            let topic = &self.config.topics.joint_states;
            Missing::Joints(format!("{problem}: check that {topic} is published"))
        })?;
        Ok(Parts { cameras, joints })
    }

    /// The calibration of a camera, of the same size as its images.
    fn info_of(&self, camera: usize, pair: &Pair) -> std::result::Result<Arc<CameraInfo>, Missing> {
        let CameraTopics { name, color_info: topic, .. } = &self.config.topics.cameras[camera];
        let info = self.infos[camera].as_ref().ok_or_else(|| {
            Missing::Info(format!("no calibration of '{name}' has come: publish {topic}"))
        })?;
        let (cw, ch) = (pair.color.width, pair.color.height);
        let (dw, dh) = (pair.depth.width, pair.depth.height);
        let (iw, ih) = (info.width, info.height);
        if (cw, ch) == (dw, dh) && (cw, ch) == (iw, ih) {
            return Ok(info.clone());
        }
        Err(Missing::Size(format!(
            "'{name}' has colour of {cw} x {ch}, depth of {dw} x {dh} and calibration of {iw} x \
             {ih} pixels: publish depth that is registered to the colour image"
        )))
    }

    fn frame(&mut self, set: ImageSet, parts: Parts) -> Frame {
        let joined = set.pairs.into_iter().zip(parts.cameras).enumerate();
        let cameras = joined
            .map(|(camera, (Pair { color, depth }, (info, world_from_camera)))| {
                let color = ColorView { image: color, info: info.clone(), color_from_depth: None };
                let view = View::Depth { depth, info, color: Some(color) };
                CameraFrame { camera, view, world_from_camera }
            })
            .collect();
        self.counts.frames += 1;
        self.last_frame = Some(set.stamp);
        let plan = self.plans_until(set.stamp);
        Frame { stamp: set.stamp, cameras, joints: parts.joints, plan }
    }

    fn plans_until(&self, stamp: Stamp) -> Vec<Arc<JointTrajectory>> {
        let until = stamp.plus_secs(PLAN_LEAD_SECS);
        let started = self.plans.iter().filter(|plan| plan.header.stamp <= until);
        let mut plans: Vec<_> = started.cloned().collect();
        plans.sort_by_key(|plan| plan.header.stamp);
        plans.split_off(plans.len().saturating_sub(MAX_PLANS))
    }

    fn drop_frame(&mut self, stamp: Stamp, missing: Missing) {
        let (count, problem) = match missing {
            Missing::Info(problem) => (&mut self.counts.dropped_no_info, problem),
            Missing::Tf(problem) => (&mut self.counts.dropped_no_tf, problem),
            Missing::Joints(problem) => (&mut self.counts.dropped_no_joints, problem),
            Missing::Size(problem) => (&mut self.counts.dropped_mismatched, problem),
        };
        *count += 1;
        self.problem = Some(format!("dropped the frame of {stamp} s: {problem}"));
    }
}
