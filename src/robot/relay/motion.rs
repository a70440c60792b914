//! One trajectory under way.

use super::planner::GoalId;
use crate::message::{JointTrajectory, Stamp, TrajectoryPoint};
use crate::robot::plan::around;

/// A trajectory that a controller executes, or the positions that it holds after one.
pub(super) struct Motion {
    /// Which controller.
    pub controller: usize,
    /// The goal; `None` once it has ended and the joints are held.
    pub goal: Option<GoalId>,
    /// Whether the robot's speed scaling stretches it.
    pub is_scaled: bool,
    /// At least one point.
    trajectory: JointTrajectory,
    /// How far it had come at `at`, in its own time; negative before its start.
    progress_nanos: i64,
    at: Stamp,
}

impl Motion {
    /// Of a trajectory with points, which starts at its stamp, or at `now` without one.
    pub fn new(
        controller: usize,
        goal: GoalId,
        is_scaled: bool,
        trajectory: JointTrajectory,
        now: Stamp,
    ) -> Self {
        let start = trajectory.header.stamp.nanos();
        let progress_nanos = if start == 0 { 0 } else { now.nanos().saturating_sub(start) };
        Self { controller, goal: Some(goal), is_scaled, trajectory, progress_nanos, at: now }
    }

    /// Names of its joints.
    pub fn joint_names(&self) -> &[String] {
        &self.trajectory.joint_names
    }

    /// Goes on to `now` with `factor` times its own speed. A time that was set back, or that was not
    /// known before (0, without `/clock`), moves nothing.
    pub fn advance(&mut self, now: Stamp, factor: f64) {
        let elapsed = match self.at.nanos() {
            0 => 0,
            then => now.nanos().saturating_sub(then).max(0),
        };
        let moved = if factor == 1.0 { elapsed } else { (elapsed as f64 * factor).round() as i64 };
        self.progress_nanos = self.progress_nanos.saturating_add(moved);
        self.at = now;
    }

    /// Stops where it is.
    pub fn hold(&mut self) {
        let mut positions = Vec::new();
        self.positions_at(0, 1.0, &mut positions);
        self.goal = None;
        self.trajectory.points = vec![TrajectoryPoint { positions, time_from_start_nanos: 0 }];
        self.progress_nanos = 0;
    }

    /// Nanoseconds from now until each of its points ahead, at `factor` times its speed; without any
    /// where it stands.
    pub fn points_ahead(&self, factor: f64) -> impl Iterator<Item = i64> {
        let points = &self.trajectory.points;
        let next = points.partition_point(|p| p.time_from_start_nanos <= self.progress_nanos);
        let ahead = if factor > 0.0 { points.get(next..) } else { None };
        ahead.unwrap_or_default().iter().map(move |point| {
            let nanos = point.time_from_start_nanos.saturating_sub(self.progress_nanos);
            if factor == 1.0 { nanos } else { (nanos as f64 / factor).ceil() as i64 }
        })
    }

    /// Appends the positions (rad or m) `ahead_nanos` from now, one per joint. As [`around`] has it, without
    /// the turns of joints that wrap: the relay knows no robot description, and the node counts them.
    pub fn positions_at(&self, ahead_nanos: i64, factor: f64, out: &mut Vec<f64>) {
        let moved = if factor == 1.0 { ahead_nanos } else { (ahead_nanos as f64 * factor) as i64 };
        let nanos = self.progress_nanos.saturating_add(moved);
        let Some((from, to, share)) = around(&self.trajectory.points, nanos) else { return };
        let between = |(from, to): (&f64, &f64)| from + share * (to - from);
        out.extend(from.positions.iter().zip(&to.positions).map(between));
    }
}
