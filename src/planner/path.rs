//! A way of the joints: positions with times.

use super::motion::Situation;
use crate::message::{Header, JointTrajectory, TrajectoryPoint};

/// A way of all joints, from where they are.
#[derive(Debug, Clone, Default)]
pub(super) struct Path {
    /// Time (s) and positions (rad or m), ascending from 0.
    pub points: Vec<(f64, Vec<f64>)>,
    /// When the tool may touch something first (s).
    pub free_until: f64,
}

impl Path {
    /// Standing still.
    pub fn stand(joints: &[f64]) -> Self {
        Self { points: vec![(0.0, joints.to_vec())], free_until: 0.0 }
    }

    /// When it ends (s).
    pub fn end(&self) -> f64 {
        self.points.last().map_or(0.0, |(at, _)| *at)
    }

    /// Goes on to `joints` in no less than `least_secs`, and as fast as `speeds` allow.
    pub fn go(&mut self, joints: &[f64], least_secs: f64, speeds: &[f64]) {
        let Some((at, before)) = self.points.last() else { return };
        let needed = before.iter().zip(joints).zip(speeds);
        let needed = needed.map(|((a, b), speed)| (b - a).abs() / speed).fold(least_secs, f64::max);
        self.points.push((at + needed.max(1e-3), joints.to_vec()));
    }

    /// As a message of the joints that may move.
    pub fn trajectory(&self, situation: &Situation) -> JointTrajectory {
        let active = situation.active();
        let point = |(at, joints): &(f64, Vec<f64>)| TrajectoryPoint {
            positions: active.iter().map(|&j| joints[j]).collect(),
            time_from_start_nanos: (at * 1e9).round() as i64,
        };
        let (stamp, frame_id) = (situation.stamp(), String::new());
        JointTrajectory {
            header: Header { stamp, frame_id },
            joint_names: situation.active_names(),
            points: self.points.iter().map(point).collect(),
        }
    }
}
