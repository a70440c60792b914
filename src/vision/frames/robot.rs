//! The robot of a frame: its measured joints, and what tf tells of it; or that there is none.

use std::sync::Arc;

use super::{Frames, FramesConfig, Joints, Missing, ProblemKind, Wanted};
use crate::message::Stamp;
use crate::robot::kinematics::{Mount, Mounting, Outline, RobotMode};

/// A robot as it was measured at the time of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct RobotState {
    /// Its joints.
    pub joints: Joints,
    /// What tf tells: where its root stands, and the links on floating and planar joints.
    pub mount: Mount,
}

/// What came of the robot besides its joints.
#[derive(Debug, Default)]
pub(super) struct RobotSource {
    description: Option<Arc<str>>,
    /// That of the newest description that can be used.
    outline: Option<Outline>,
    /// Whether the last frame went without the robot: then none waits for it.
    pub(super) is_given_up: bool,
    /// Whether it was told that two sources of joint states contradict each other.
    pub(super) told_contradiction: bool,
    /// Whether it was told by how much its joints are late, since the robot was there last.
    told_late: bool,
}

/// Why a frame has no robot.
struct Lack {
    missing: Missing,
    /// Whether there is none, as far as is known, rather than one whose messages are late.
    is_absent: bool,
}

impl RobotSource {
    /// Takes a description. Who predicts tells what is wrong with it.
    pub(super) fn describe(&mut self, urdf: String, config: &FramesConfig) {
        if let Ok(mut outline) = Outline::of(&urdf, config.world_link()) {
            outline.mounting.add_prefix(&config.frame_prefix);
            self.outline = Some(outline);
        }
        self.description = Some(urdf.into());
    }

    /// What the description asks of joint states and transforms.
    pub(super) fn outline(&self) -> Option<&Outline> {
        self.outline.as_ref()
    }

    /// Whether a link of the robot is the world frame, so that who places the robot places all.
    pub(super) fn is_rooted_in_world(&self) -> bool {
        self.outline.as_ref().is_some_and(|outline| outline.mounting.root.is_none())
    }

    pub(super) fn description(&self) -> Option<&Arc<str>> {
        self.description.as_ref()
    }
}

impl Frames {
    /// Takes a description; one that says something else than the last one counts from now on.
    pub(super) fn push_description(&mut self, text: String) {
        let before = self.robot.description.as_deref();
        if before.is_some_and(|before| before != text) {
            self.counts.robot_changes += 1;
            let topic = &self.config.topics.robot_description;
            self.warn_once(format!(
                "another robot description has come on {topic}: it counts from now on. If the robot did not \
                 change, two nodes publish there"
            ));
        }
        self.robot.describe(text, &self.config);
    }

    /// The robot at `stamp`; none where frames may do without and there is none.
    pub(super) fn robot_at(
        &self,
        stamp: Stamp,
        slack_secs: f64,
        is_overdue: bool,
    ) -> Result<Option<RobotState>, Missing> {
        let mode = self.config.robot;
        if mode == RobotMode::None {
            return Ok(None);
        }
        match self.measured(stamp, slack_secs) {
            Ok(state) => Ok(Some(state)),
            // The first frame waits: the robot's messages may be on their way.
            Err(Lack { is_absent, .. })
                if mode == RobotMode::Optional
                    && (is_overdue || is_absent && self.robot.is_given_up) =>
            {
                Ok(None)
            }
            Err(Lack { missing, .. }) => Err(missing),
        }
    }

    fn measured(&self, stamp: Stamp, slack_secs: f64) -> Result<RobotState, Lack> {
        let outline = self.robot.outline();
        let joints = self.joints.at(stamp, slack_secs, outline).map_err(|problem| Lack {
            missing: Missing::Joints(format!("{problem}{}", self.joints_remedy(stamp))),
            is_absent: self.robot.description.is_none() || self.joints.is_silent(stamp),
        })?;
        let mount = outline.map(|outline| self.mount(&outline.mounting, stamp));
        Ok(RobotState { joints, mount: mount.transpose()?.unwrap_or_default() })
    }

    /// What to do about joints that are missing at `stamp`.
    fn joints_remedy(&self, stamp: Stamp) -> String {
        let patience_secs = self.config.patience_secs.unwrap_or(0.0);
        match self.lateness.joints_remedy(patience_secs) {
            Some(late) => format!("; {late}"),
            None if self.joints.has_come_since(stamp.plus_secs(-1.0)) => format!(
                ": {} had nothing of that time {patience_secs} s (patience_secs) after the images",
                self.config.topics.joint_states
            ),
            None => format!(": check that {} is published", self.config.topics.joint_states),
        }
    }

    fn mount(&self, mounting: &Mounting, stamp: Stamp) -> Result<Mount, Lack> {
        let lookup = |parent: &str, child: &str| {
            self.tf.lookup(parent, child, stamp).map_err(|error| Lack {
                missing: Missing::Tf(
                    format!("the robot can't be placed: {error}"),
                    Some(Wanted { target: parent.to_owned(), source: child.to_owned(), stamp }),
                ),
                is_absent: !self.tf.connects(parent, child),
            })
        };
        let world = &self.config.world_frame;
        let root = mounting.root.as_ref().map(|root| lookup(world, root)).transpose()?;
        let free = mounting.free.iter().map(|[parent, child]| lookup(parent, child));
        Ok(Mount { root, free: free.collect::<Result<_, _>>()? })
    }

    /// Counts a frame without the robot where one may be there, and tells the first of a row.
    pub(super) fn note_robot(&mut self, stamp: Stamp, robot: Option<&RobotState>) {
        let was_given_up = self.robot.is_given_up;
        self.robot.is_given_up = robot.is_none();
        if robot.is_some() || self.config.robot == RobotMode::None {
            self.robot.told_late &= robot.is_none();
            if was_given_up && robot.is_some() {
                self.tell(format!("frames include the robot from {stamp} s on"));
            }
            return;
        }
        self.counts.frames_without_robot += 1;
        let Err(Lack { missing, is_absent }) = self.measured(stamp, self.config.tolerance_secs)
        else {
            return;
        };
        self.counts.frames_robot_late += u64::from(!is_absent);
        // Again once it is known by how much it is late.
        let patience_secs = self.config.patience_secs.unwrap_or(0.0);
        let is_measured = self.lateness.joints_remedy(patience_secs).is_some()
            || self.lateness.transforms_remedy(patience_secs).is_some();
        let is_new = is_measured && !is_absent && !self.robot.told_late;
        if !was_given_up || is_new {
            self.robot.told_late = is_measured;
            let why = missing.problem().1;
            let problem = format!(
                "frames go on without the robot from {stamp} s on: {why}. If there is none, say \
                 so with robot: none"
            );
            self.problems.note(ProblemKind::Robot, problem);
        }
    }
}
