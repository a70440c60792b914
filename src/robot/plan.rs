//! What the robot is about to do: joint positions ahead, from its planned trajectories.

mod candidate;
mod follow;

use crate::base::error::{Error, Result};
use crate::message::{JointTrajectory, Stamp, TrajectoryPoint};
use crate::robot::kinematics::JointLimits;
use std::f64::consts::{PI, TAU};
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

/// The joints that a forecast is of, as they are at its start: one of each per joint.
#[derive(Debug, Clone, Copy)]
pub struct JointsNow<'a> {
    /// Names.
    pub names: &'a [String],
    /// How they move.
    pub limits: &'a [JointLimits],
    /// Where they were measured (rad or m).
    pub positions: &'a [f64],
    /// How fast they are (rad/s or m/s); none: those without a plan stay.
    pub velocities: Option<&'a [f64]>,
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
/// counts; before all starts, the first point of the oldest. Linear between points, a joint that wraps
/// (`limits`) the short way round unless the plan counts its turns; the first point before it, the last
/// one after it. A trajectory without points cancels what ran before:
/// its command at that time is held.
pub fn command_at(
    plan: &[Arc<JointTrajectory>],
    joint: &str,
    limits: &JointLimits,
    stamp: Stamp,
) -> Option<f64> {
    let mut at = stamp;
    for trajectory in plan.iter().rev().filter(|trajectory| trajectory.header.stamp <= stamp) {
        if trajectory.points.is_empty() && stops(trajectory, joint) {
            at = at.min(trajectory.header.stamp);
        } else if let Some(column) = column(trajectory, joint) {
            return position_at(trajectory, column, limits, at);
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
/// keeps its velocity, or stays without one.
///
/// # Errors
/// [`Error::Shape`] if lengths differ; [`Error::Plan`] if a time is negative or not finite.
pub fn forecast(
    joints: &JointsNow,
    plan: &[Arc<JointTrajectory>],
    now: Stamp,
    horizon: &Horizon,
    out: &mut Vec<f64>,
) -> Result<()> {
    check_arguments(joints, horizon)?;
    let &JointsNow { names, limits, positions, velocities } = joints;
    let n_joints = names.len();
    let Horizon { step_secs, n_steps, lag_secs } = *horizon;
    out.clear();
    out.resize(n_steps * n_joints, 0.0);
    for (j, (&here, joint)) in positions.iter().zip(names).enumerate() {
        let command = |at: Stamp| command_at(plan, joint, &limits[j], at);
        let commanded = command(now.plus_secs(-lag_secs));
        let velocity = velocities.map_or(0.0, |velocities| velocities[j]);
        for (h, row) in out.chunks_exact_mut(n_joints).enumerate() {
            let ahead_secs = (h + 1) as f64 * step_secs;
            let then = || command(now.plus_secs(ahead_secs - lag_secs));
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
/// `step_secs` is not a positive number. One limit per joint: those that wrap went the short way round.
///
/// # Errors
/// [`Error::Shape`] if the positions or limits differ in number.
pub fn velocities(
    now: &[f64],
    before: &[f64],
    limits: &[JointLimits],
    step_secs: f64,
    out: &mut Vec<f64>,
) -> Result<()> {
    check_length("joint positions one step before", now.len(), before.len())?;
    check_length("limits of the joints", now.len(), limits.len())?;
    let per_sec = if step_secs > 0.0 { step_secs.recip() } else { 0.0 };
    out.clear();
    let ways = now.iter().zip(before).zip(limits);
    out.extend(ways.map(|((now, before), limits)| limits.way(*before, *now) * per_sec));
    Ok(())
}

fn check_arguments(joints: &JointsNow, horizon: &Horizon) -> Result<()> {
    let &JointsNow { names, limits, positions, velocities } = joints;
    let n_joints = names.len();
    check_length("joint positions", n_joints, positions.len())?;
    check_length("limits of the joints", n_joints, limits.len())?;
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

fn position_at(
    trajectory: &JointTrajectory,
    column: usize,
    limits: &JointLimits,
    stamp: Stamp,
) -> Option<f64> {
    let nanos = stamp.nanos().saturating_sub(trajectory.header.stamp.nanos());
    let (from, to, share) = around(&trajectory.points, nanos)?;
    let way = segment(trajectory, column, limits, [from, to]);
    Some(from.positions.get(column)? + share * way)
}

/// The points of a trajectory that lie around `nanos` from its start, and how far that is from the first to the
/// second (0 to 1): it goes on a straight line. Twice the first point before all, twice the last one after
/// them; `None` without points.
pub(super) fn around(
    points: &[TrajectoryPoint],
    nanos: i64,
) -> Option<(&TrajectoryPoint, &TrajectoryPoint, f64)> {
    let next = points.partition_point(|point| point.time_from_start_nanos <= nanos);
    let from = points.get(next.saturating_sub(1))?;
    let to = points.get(next).unwrap_or(from);
    let [start, end] = [from, to].map(|point| point.time_from_start_nanos);
    let share = if end > start { (nanos - start) as f64 / (end - start) as f64 } else { 0.0 };
    Some((from, to, share))
}

/// How far a joint goes between two points of a plan (rad or m).
///
/// A joint that wraps goes the short way round: who plans in (-π, π] jumps there. Not where the plan counts
/// the turns, so that its positions fit into no single one: then the way is what it says.
fn segment(
    plan: &JointTrajectory,
    column: usize,
    limits: &JointLimits,
    [from, to]: [&TrajectoryPoint; 2],
) -> f64 {
    let position = |point: &TrajectoryPoint| point.positions.get(column).copied();
    let (Some(from), Some(to)) = (position(from), position(to)) else { return 0.0 };
    let way = limits.way(from, to);
    if way == to - from {
        return way;
    }
    let fits = |turn: std::ops::RangeInclusive<f64>| {
        plan.points.iter().filter_map(position).all(|q| turn.contains(&q))
    };
    let is_one_turn = fits(-PI - ROUNDING..=PI + ROUNDING) || fits(-ROUNDING..=TAU + ROUNDING);
    if is_one_turn { way } else { to - from }
}

/// A wrapped position may lie so far beyond its turn (rad).
const ROUNDING: f64 = 1e-3;

#[cfg(test)]
mod tests;
