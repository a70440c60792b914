//! What the robot is about to do: joint positions ahead, from its planned trajectories.

mod candidate;
mod follow;

use crate::base::error::{Error, Result};
use crate::message::{JointTrajectory, Stamp, TrajectoryPoint};
use std::sync::Arc;

pub use candidate::{Present, with_candidate};

/// When a forecast is wanted, and how late the robot follows its commands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Horizon {
    /// Time between two steps, seconds.
    pub step_secs: f64,
    /// Number of steps.
    pub n_steps: usize,
    /// Time from a command to the robot being there, seconds.
    pub lag_secs: f64,
}

/// Checks what [`forecast`] relies on; decoded messages differ only in the stamp.
///
/// # Errors
/// [`Error::Plan`] if the stamp is 0, a point has not one finite position per joint, or times
/// descend or are negative.
pub fn validate(plan: &JointTrajectory) -> Result<()> {
    let error = |problem| Err(Error::Plan { problem });
    if plan.header.stamp.nanos() == 0 {
        let problem = "header.stamp is 0 (\"starts on receipt\"): set it to the planned start";
        return error(problem.to_owned());
    }
    let n_joints = plan.joint_names.len();
    let mut before_nanos = 0;
    for (i, point) in plan.points.iter().enumerate() {
        let got = point.positions.len();
        if got != n_joints {
            return error(format!("point {i} has {got} positions of {n_joints} joints"));
        }
        if let Some(j) = point.positions.iter().position(|position| !position.is_finite()) {
            let joint = &plan.joint_names[j];
            return error(format!("point {i} puts '{joint}' at {}", point.positions[j]));
        }
        if point.time_from_start_nanos < before_nanos {
            return error(format!("time of point {i} is before the last one or the start"));
        }
        before_nanos = point.time_from_start_nanos;
    }
    Ok(())
}

/// Position (rad or m) that `plan` commands `joint` to have at `stamp`; `None` without a command.
///
/// `plan`: ascending starts. The trajectory of this joint with the newest start up to `stamp`
/// counts; before all starts, the first point of the oldest. Linear between points; the first
/// point before it, the last one after it. A trajectory without points cancels what ran before:
/// its command at that time is held.
pub fn command_at(plan: &[Arc<JointTrajectory>], joint: &str, stamp: Stamp) -> Option<f64> {
    let mut at = stamp;
    for trajectory in plan.iter().rev().filter(|trajectory| trajectory.header.stamp <= stamp) {
        if trajectory.points.is_empty() && stops(trajectory, joint) {
            at = at.min(trajectory.header.stamp);
        } else if let Some(column) = column(trajectory, joint) {
            return position_at(trajectory, column, at);
        }
    }
    plan.iter().find_map(|trajectory| {
        let column = column(trajectory, joint)?;
        trajectory.points.first()?.positions.get(column).copied()
    })
}

/// Replaces `out` by the joint positions of the steps ahead (rad or m), `[n_steps][n_joints]`.
///
/// A planned joint moves from where it is as its command moves, `lag_secs` late:
/// `q(h) = measured + command(now + h step - lag) - command(now - lag)`. A joint without a plan
/// keeps its velocity, or stays without one. `measured` and `velocities` (rad/s or m/s): one per
/// joint, at `now`.
///
/// # Errors
/// [`Error::Shape`] if lengths differ; [`Error::Plan`] if a time is negative or not finite.
pub fn forecast(
    measured: &[f64],
    joint_names: &[String],
    velocities: Option<&[f64]>,
    plan: &[Arc<JointTrajectory>],
    now: Stamp,
    horizon: &Horizon,
    out: &mut Vec<f64>,
) -> Result<()> {
    let n_joints = joint_names.len();
    check_arguments(measured, n_joints, velocities, horizon)?;
    let Horizon { step_secs, n_steps, lag_secs } = *horizon;
    out.clear();
    out.resize(n_steps * n_joints, 0.0);
    for (j, (&here, joint)) in measured.iter().zip(joint_names).enumerate() {
        let commanded = command_at(plan, joint, now.plus_secs(-lag_secs));
        let velocity = velocities.map_or(0.0, |velocities| velocities[j]);
        for (h, row) in out.chunks_exact_mut(n_joints).enumerate() {
            let ahead_secs = (h + 1) as f64 * step_secs;
            let then = || command_at(plan, joint, now.plus_secs(ahead_secs - lag_secs));
            row[j] = match commanded.and_then(|from| Some(then()? - from)) {
                Some(moved) => here + moved,
                None => here + velocity * ahead_secs,
            };
        }
    }
    Ok(())
}

/// How many of the steps ahead plans (ascending starts) tell of, counted from the first: up to the end of the
/// last motion of any of the joints. A command to stay where it is until further notice tells nothing: what comes next nobody has said.
pub fn n_planned(
    joint_names: &[String],
    plan: &[Arc<JointTrajectory>],
    now: Stamp,
    horizon: &Horizon,
) -> usize {
    let Some(end) = joint_names.iter().filter_map(|joint| end_of_motion(plan, joint)).max() else {
        return 0;
    };
    let at = |step: usize| {
        now.plus_secs((step + 1) as f64 * horizon.step_secs - horizon.lag_secs).nanos()
    };
    (0..horizon.n_steps).take_while(|&step| at(step) <= end).count()
}

/// When the last motion of `joint` that is planned ends (ns): in the newest trajectory about it, whose start
/// it is where the joint does not move in it; `None` without one.
fn end_of_motion(plan: &[Arc<JointTrajectory>], joint: &str) -> Option<i64> {
    plan.iter().rev().find_map(|trajectory| {
        let column = column(trajectory, joint);
        if column.is_none() && !(trajectory.points.is_empty() && stops(trajectory, joint)) {
            return None;
        }
        let moves = |pair: &&[TrajectoryPoint]| {
            let [from, to] = [0, 1].map(|i| pair[i].positions.get(column?).copied());
            Some((to? - from?).abs() > STAYS)
        };
        let pairs = trajectory.points.windows(2).rev();
        let last = pairs.into_iter().find(|pair| moves(pair) == Some(true));
        let lasts = last.map_or(0, |pair| pair[1].time_from_start_nanos);
        Some(trajectory.header.stamp.nanos().saturating_add(lasts))
    })
}

/// A joint that moves by no more between two points stays (rad or m).
const STAYS: f64 = 1e-6;

/// Replaces `out` by the joints' velocities (rad/s or m/s) over the last step; zeros if
/// `step_secs` is not a positive number.
///
/// # Errors
/// [`Error::Shape`] if the positions differ in number.
pub fn velocities(now: &[f64], before: &[f64], step_secs: f64, out: &mut Vec<f64>) -> Result<()> {
    check_length("joint positions one step before", now.len(), before.len())?;
    let per_sec = if step_secs > 0.0 { step_secs.recip() } else { 0.0 };
    out.clear();
    out.extend(now.iter().zip(before).map(|(now, before)| (now - before) * per_sec));
    Ok(())
}

fn check_arguments(
    measured: &[f64],
    n_joints: usize,
    velocities: Option<&[f64]>,
    horizon: &Horizon,
) -> Result<()> {
    check_length("joint positions", n_joints, measured.len())?;
    check_length("joint velocities", n_joints, velocities.map_or(n_joints, <[f64]>::len))?;
    for (name, secs) in [("step", horizon.step_secs), ("lag", horizon.lag_secs)] {
        if !(secs.is_finite() && secs >= 0.0) {
            return Err(Error::Plan { problem: format!("{name} of {secs} s") });
        }
    }
    Ok(())
}

fn check_length(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Error::Shape { what, expected, got }) }
}

fn column(trajectory: &JointTrajectory, joint: &str) -> Option<usize> {
    let names = trajectory.joint_names.iter();
    if trajectory.points.is_empty() {
        None
    } else {
        names.into_iter().position(|name| name == joint)
    }
}

/// Whether a trajectory without points is about `joint`: it names it, or no joint at all.
fn stops(trajectory: &JointTrajectory, joint: &str) -> bool {
    trajectory.joint_names.is_empty() || trajectory.joint_names.iter().any(|name| name == joint)
}

fn position_at(trajectory: &JointTrajectory, column: usize, stamp: Stamp) -> Option<f64> {
    let points = &trajectory.points;
    let nanos = stamp.nanos().saturating_sub(trajectory.header.stamp.nanos());
    let next = points.partition_point(|point| point.time_from_start_nanos <= nanos);
    let position = |i: usize| points.get(i)?.positions.get(column).copied();
    if next == 0 {
        return position(0);
    }
    if next == points.len() {
        return position(next - 1);
    }
    let (from, to) = (position(next - 1)?, position(next)?);
    let [start, end] = [next - 1, next].map(|i| points[i].time_from_start_nanos);
    let fraction = (nanos - start) as f64 / (end - start) as f64;
    Some(from + fraction * (to - from))
}

#[cfg(test)]
mod tests;
