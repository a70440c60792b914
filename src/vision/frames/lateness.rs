//! How long after its images what a frame waited for came: for the remedy.

use super::{Frames, Missing, Wanted};
use crate::message::{JointState, Stamp};
use std::collections::VecDeque;

/// Frames of which it is watched when what they lacked comes.
const MAX_WATCHED: usize = 16;

/// Seconds of newer states after which a state that did not come is lost.
const LOST_SECS: f64 = 1.0;

/// What frames waited for.
#[derive(Debug, Clone, PartialEq)]
enum What {
    Joints,
    Transform(Wanted),
}

/// Frames that waited, and by how much what they lacked was late.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// Stamp of the frame, when its images were complete, and what it lacked then.
    watched: VecDeque<(Stamp, Stamp, What)>,
    /// Seconds by which joints, and transforms, came after the images last.
    joints_secs: Option<f64>,
    transforms_secs: Option<f64>,
}

impl Lateness {
    pub(super) fn forget_times(&mut self) {
        self.watched.clear();
    }

    /// A frame of `stamp`, whose images were complete at `since`, has to wait.
    pub(super) fn note_waiting(&mut self, stamp: Stamp, since: Stamp, missing: &Missing) {
        let what = match missing {
            Missing::Joints(_) => What::Joints,
            Missing::Tf(_, Some(wanted)) | Missing::Workspace(_, wanted) => {
                What::Transform(wanted.clone())
            }
            _ => return,
        };
        if self.watched.iter().any(|(at, _, known)| *at == stamp && *known == what) {
            return;
        }
        if self.watched.len() == MAX_WATCHED {
            self.watched.pop_front();
        }
        self.watched.push_back((stamp, since, what));
    }

    /// What to do about joints that are late; none if they were not seen to come.
    pub(super) fn joints_remedy(&self, patience_secs: f64) -> Option<String> {
        remedy("joint states come", self.joints_secs?, patience_secs)
    }

    /// The same of transforms.
    pub(super) fn transforms_remedy(&self, patience_secs: f64) -> Option<String> {
        remedy("transforms come", self.transforms_secs?, patience_secs)
    }
}

fn remedy(what: &str, secs: f64, patience_secs: f64) -> Option<String> {
    let enough_secs = (secs * 125.0).ceil() / 100.0;
    (secs >= patience_secs).then(|| {
        format!(
            "{what} {secs:.3} s after the images, which wait {patience_secs} s: set patience_secs to \
             {enough_secs}"
        )
    })
}

impl Frames {
    /// Adds a joint state, and notes what is wrong with it.
    pub(super) fn push_joints(&mut self, state: &JointState) {
        let robot = self.robot.outline();
        let findings = self.joints.push(state, robot);
        self.counts.joints_ignored += findings.n_ignored;
        self.counts.joint_contradictions += findings.n_contradictions;
        let topic = self.config.topics.joint_states.clone();
        if let Some(bad) = findings.bad {
            self.bad_message(format!("{topic}: {bad}"));
        }
        if let Some(text) = findings.contradiction.filter(|_| !self.robot.told_contradiction) {
            self.robot.told_contradiction = true;
            self.warn(format!(
                "two sources on {topic} contradict each other: {text}. Find them with `ros2 topic info -v \
                 {topic}` and stop one"
            ));
        }
        self.note_late_joints();
    }

    fn note_late_joints(&mut self) {
        let is_due = |(stamp, _, what): &(Stamp, Stamp, What)| {
            *what == What::Joints && self.joints.has_come_since(*stamp)
        };
        let Some(i) = self.lateness.watched.iter().position(is_due) else { return };
        let (stamp, since, _) = &self.lateness.watched[i];
        let has_come = self.joints.at(*stamp, 0.0, self.robot.outline()).is_ok();
        if has_come {
            self.lateness.joints_secs = Some(self.now.secs_since(*since));
        }
        // What did not come by then was lost.
        if has_come || self.joints.has_come_since(stamp.plus_secs(LOST_SECS)) {
            self.lateness.watched.remove(i);
        }
    }

    /// Notes which of the transforms came that frames waited for.
    pub(super) fn note_late_transforms(&mut self) {
        self.take_usable_back();
        while let Some(i) = self.lateness.watched.iter().position(|(_, _, what)| match what {
            What::Transform(Wanted { target, source, stamp }) => {
                self.tf.lookup(target, source, *stamp).is_ok()
            }
            What::Joints => false,
        }) {
            let since = self.lateness.watched.remove(i).map(|(_, since, _)| since);
            self.lateness.transforms_secs = since.map(|since| self.now.secs_since(since));
        }
    }
}
