//! Messages into frames: images, joints and camera poses of one time, from a bag or from DDS.
//!
//! Pairing goes by header stamps: which frames come out does not depend on the order in which
//! the messages of different topics arrive, as long as they come within one frame of each other.

mod images;
mod joints;
#[cfg(test)]
mod tests;
mod topics;

use crate::error::{Error, Result};
use crate::message::{CameraInfo, Image, JointTrajectory, Stamp, TfMessage};
use crate::tf::TransformBuffer;
use images::{ImagePairer, ImageSet};
use joints::JointHistory;
use nalgebra::Isometry3;
use std::collections::VecDeque;
use std::sync::Arc;

pub use joints::Joints;
pub use topics::{CameraTopics, Input, Topics};

/// Plans that a frame carries.
const MAX_PLANS: usize = 8;
/// Plans that are held: a few may start after the frame that is waiting.
const MAX_HELD_PLANS: usize = 2 * MAX_PLANS;
/// Seconds by which a plan may start after the frame that it belongs to.
const PLAN_LEAD_SECS: f64 = 0.05;

/// How messages are made into frames.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FramesConfig {
    /// Where the messages come from.
    pub topics: Topics,
    /// Frame that the camera poses are given in.
    pub world_frame: String,
    /// Seconds by which the images of one frame, and a late joint state, may differ.
    pub tolerance_secs: f64,
    /// Images of one topic that may wait for their partners.
    pub max_pending: usize,
    /// Seconds that a topic's stamps must go back to count as time being set back.
    pub time_jump_secs: f64,
}

/// What one camera saw.
#[derive(Debug, Clone)]
pub struct CameraFrame {
    /// The colour image.
    pub color: Image,
    /// The depth image, as large as the colour image and registered to it.
    pub depth: Image,
    /// Calibration of both.
    pub info: Arc<CameraInfo>,
    /// Maps points of the optical frame into the world frame; metres.
    pub world_from_camera: Isometry3<f64>,
}

/// All that is known of one time.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Stamp of the first camera's depth image.
    pub stamp: Stamp,
    /// One per camera of [`Topics::cameras`].
    pub cameras: Vec<CameraFrame>,
    /// Measured joints at the stamp.
    pub joints: Joints,
    /// The last plans that start no later than 50 ms after the stamp: at most 8, ascending.
    pub plan: Vec<Arc<JointTrajectory>>,
}

impl CameraFrame {
    fn view(&self) -> crate::cloud::CameraView<'_> {
        let CameraFrame { color, depth, info, world_from_camera } = self;
        crate::cloud::CameraView { depth, color, info, world_from_camera: *world_from_camera }
    }
}

impl Frame {
    /// The cameras as the cloud takes them.
    pub fn views(&self) -> Vec<crate::cloud::CameraView<'_>> {
        self.cameras.iter().map(CameraFrame::view).collect()
    }
}

/// What became of the messages; see [`Frames::last_problem`] for the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct FrameCounts {
    /// Frames that were complete.
    pub frames: u64,
    /// Images without partners within the tolerance.
    pub dropped_unpaired: u64,
    /// Frames without calibration of a camera.
    pub dropped_no_info: u64,
    /// Frames without the pose of a camera.
    pub dropped_no_tf: u64,
    /// Frames without measured joints.
    pub dropped_no_joints: u64,
    /// Frames whose images and calibration differ in size.
    pub dropped_mismatched: u64,
    /// Frames not newer than the last one.
    pub dropped_late: u64,
    /// Times that a topic's stamps went back.
    pub time_jumps: u64,
    /// Messages that could not be decoded or used.
    pub bad_messages: u64,
}

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

/// Why a frame can't be made (yet).
enum Missing {
    Info(String),
    Tf(String),
    Joints(String),
    Size(String),
}

impl Default for FramesConfig {
    fn default() -> Self {
        Self {
            topics: Topics::default(),
            world_frame: "world".into(),
            tolerance_secs: 0.02,
            max_pending: 8,
            time_jump_secs: 1.0,
        }
    }
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
            Input::Info { camera, info } => {
                self.check_camera(camera)?;
                self.infos[camera] = Some(Arc::new(info));
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

    fn bad_message(&mut self, problem: String) {
        self.counts.bad_messages += 1;
        self.problem = Some(problem);
    }

    /// Forgets what lies in the future if the stamps of `source` went back.
    fn watch_time(&mut self, source: usize, what: &str, stamp: Stamp) {
        let jump_secs = self.config.time_jump_secs;
        match self.newest[source] {
            Some(newest) if newest.secs_since(stamp) > jump_secs => {
                self.forget_after(stamp.plus_secs(jump_secs));
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

    fn forget_after(&mut self, stamp: Stamp) {
        self.images.forget_after(stamp);
        self.joints.forget_after(stamp);
        self.tf.forget_after(stamp);
        self.plans.retain(|plan| plan.header.stamp <= stamp);
        self.waiting.retain(|set| set.stamp <= stamp);
        self.last_frame = self.last_frame.filter(|last| *last <= stamp);
    }

    /// Makes a frame of the oldest images that wait; at most `n_waiting` may go on waiting.
    fn next_frame(&mut self, n_waiting: usize) -> Option<Frame> {
        while let Some(set) = self.waiting.pop_front() {
            let overdue = self.waiting.len() >= n_waiting;
            let slack_secs = if overdue { self.config.tolerance_secs } else { 0.0 };
            match self.parts(&set, slack_secs) {
                Ok((poses, infos, joints)) => {
                    return Some(self.frame(set, poses, infos, joints));
                }
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

    #[allow(clippy::type_complexity)]
    fn parts(
        &self,
        set: &ImageSet,
        slack_secs: f64,
    ) -> std::result::Result<(Vec<Isometry3<f64>>, Vec<Arc<CameraInfo>>, Joints), Missing> {
        let mut poses = Vec::with_capacity(set.pairs.len());
        let mut infos = Vec::with_capacity(set.pairs.len());
        let cameras = &self.config.topics.cameras;
        for ((pair, info), topics) in set.pairs.iter().zip(&self.infos).zip(cameras) {
            let CameraTopics { name, info: topic, .. } = topics;
            let info = info.as_ref().ok_or_else(|| {
                Missing::Info(format!("no calibration of '{name}' has come: publish {topic}"))
            })?;
            let sizes = [
                (pair.color.width, pair.color.height),
                (pair.depth.width, pair.depth.height),
                (info.width, info.height),
            ];
            if sizes[0] != sizes[1] || sizes[0] != sizes[2] {
                let [(cw, ch), (dw, dh), (iw, ih)] = sizes;
                return Err(Missing::Size(format!(
                    "'{name}' has colour of {cw} x {ch}, depth of {dw} x {dh} and calibration of \
                     {iw} x {ih} pixels: publish depth that is registered to the colour image"
                )));
            }
            let frame = [&pair.depth.header.frame_id, &info.header.frame_id];
            let frame = frame.into_iter().find(|id| !id.is_empty()).map_or("", String::as_str);
            let pose = self.tf.lookup(&self.config.world_frame, frame, set.stamp);
            poses.push(pose.map_err(|error| Missing::Tf(error.to_string()))?);
            infos.push(info.clone());
        }
        let joints = self.joints.at(set.stamp, slack_secs).map_err(|problem| {
            let topic = &self.config.topics.joint_states;
            Missing::Joints(format!("{problem}: check that {topic} is published"))
        })?;
        Ok((poses, infos, joints))
    }

    fn frame(
        &mut self,
        set: ImageSet,
        poses: Vec<Isometry3<f64>>,
        infos: Vec<Arc<CameraInfo>>,
        joints: Joints,
    ) -> Frame {
        let parts = set.pairs.into_iter().zip(poses).zip(infos);
        let cameras = parts
            .map(|((pair, world_from_camera), info)| CameraFrame {
                color: pair.color,
                depth: pair.depth,
                info,
                world_from_camera,
            })
            .collect();
        self.counts.frames += 1;
        self.last_frame = Some(set.stamp);
        Frame { stamp: set.stamp, cameras, joints, plan: self.plans_until(set.stamp) }
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
