//! The robot of a frame: its measured joints, and what tf tells of it; or that there is none.

use std::sync::Arc;

use super::{Frames, Joints, Missing, ProblemKind};
use crate::message::Stamp;
use crate::robot::kinematics::{Mount, Mounting, RobotMode};

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
    /// None without a description that can be used.
    mounting: Option<Mounting>,
    /// Whether the last frame went without the robot: then none waits for it.
    pub(super) is_given_up: bool,
}

/// Why a frame has no robot.
struct Lack {
    missing: Missing,
    /// Whether there is none, as far as is known, rather than one whose messages are late.
    is_absent: bool,
}

impl RobotSource {
    /// Takes a description. Who predicts tells what is wrong with it.
    pub(super) fn describe(&mut self, urdf: String, world_frame: &str) {
        self.mounting = Mounting::of(&urdf, world_frame).ok();
        self.description = Some(urdf.into());
    }

    /// Whether a link of the robot is the world frame, so that who places the robot places all.
    pub(super) fn is_rooted_in_world(&self) -> bool {
        self.mounting.as_ref().is_some_and(|mounting| mounting.root.is_none())
    }

    pub(super) fn description(&self) -> Option<&Arc<str>> {
        self.description.as_ref()
    }
}

impl Frames {
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
            // The first frame waits for the next one: the robot's messages may be on their way.
            Err(Lack { is_absent: true, .. })
                if mode == RobotMode::Optional && (is_overdue || self.robot.is_given_up) =>
            {
                Ok(None)
            }
            Err(Lack { missing, .. }) => Err(missing),
        }
    }

    fn measured(&self, stamp: Stamp, slack_secs: f64) -> Result<RobotState, Lack> {
        let joints = self.joints.at(stamp, slack_secs).map_err(|problem| Lack {
            missing: Missing::Joints(format!(
                "{problem}: check that {} is published",
                self.config.topics.joint_states
            )),
            is_absent: self.robot.description.is_none() || self.joints.is_silent(stamp),
        })?;
        let mount = self.robot.mounting.as_ref().map(|mounting| self.mount(mounting, stamp));
        Ok(RobotState { joints, mount: mount.transpose()?.unwrap_or_default() })
    }

    fn mount(&self, mounting: &Mounting, stamp: Stamp) -> Result<Mount, Lack> {
        let lookup = |parent: &str, child: &str| {
            self.tf.lookup(parent, child, stamp).map_err(|error| Lack {
                missing: Missing::Tf(format!("the robot can't be placed: {error}")),
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
            if was_given_up && robot.is_some() {
                self.news = Some(format!("frames include the robot from {stamp} s on"));
            }
            return;
        }
        self.counts.frames_without_robot += 1;
        if !was_given_up {
            let why = match self.measured(stamp, self.config.tolerance_secs) {
                Err(Lack { missing, .. }) => missing.problem().1.to_owned(),
                Ok(_) => String::new(),
            };
            let problem = format!(
                "frames go on without the robot from {stamp} s on: {why}. If there is none, say \
                 so with robot: none"
            );
            self.problems.note(ProblemKind::Robot, problem);
        }
    }
}
