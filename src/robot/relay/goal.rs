//! Goals as they come, checked, into trajectories.

use std::collections::HashSet;

use crate::base::error::{Error, Result};
use crate::message::{Header, JointTrajectory, Stamp, TrajectoryPoint};

/// Joints of a goal at most.
pub const MAX_JOINTS: usize = 128;
/// Bytes of a joint's name at most.
const MAX_NAME: usize = 256;
/// Points of a goal at most.
pub const MAX_POINTS: usize = 100_000;
/// Joints times points of a goal at most.
pub const MAX_VALUES: usize = 1_000_000;

/// One point of a goal as it came: nothing of it is checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct GoalPoint<'a> {
    /// One per joint (rad or m), or none.
    pub positions: &'a [f64],
    /// One per joint (rad/s or m/s), or none.
    pub velocities: &'a [f64],
    /// One per joint (rad/s² or m/s²), or none.
    pub accelerations: &'a [f64],
    /// Nanoseconds from the start.
    pub time_from_start_nanos: i64,
}

/// The trajectory of a goal with a start at `stamp` (0: when it is accepted); `None` if it has no
/// positions to plan with, which a controller may still be able to execute.
///
/// # Errors
/// [`Error::Plan`] if it is too large, names a joint twice, has a point with another number of values
/// than joints or with one that is not finite, or if its times do not ascend from 0. No controller
/// executes such a goal.
pub fn planned(
    stamp: Stamp,
    joint_names: &[String],
    points: &[GoalPoint],
) -> Result<Option<JointTrajectory>> {
    check_size(joint_names, points.len())?;
    let mut before_nanos = -1;
    for (i, point) in points.iter().enumerate() {
        check_point(i, point, joint_names)?;
        if point.time_from_start_nanos <= before_nanos {
            let secs = point.time_from_start_nanos as f64 / 1e9;
            return error(format!("point {i} is at {secs} s: times must ascend from 0"));
        }
        before_nanos = point.time_from_start_nanos;
    }
    let has_positions = |point: &GoalPoint| point.positions.len() == joint_names.len();
    if points.is_empty() || joint_names.is_empty() || !points.iter().all(has_positions) {
        return Ok(None);
    }
    let point = |point: &GoalPoint| TrajectoryPoint {
        positions: point.positions.to_vec(),
        time_from_start_nanos: point.time_from_start_nanos,
    };
    let header = Header { stamp, ..Header::default() };
    let points = points.iter().map(point).collect();
    Ok(Some(JointTrajectory { header, joint_names: joint_names.to_vec(), points }))
}

fn error<T>(problem: String) -> Result<T> {
    Err(Error::Plan { problem })
}

fn check_size(joint_names: &[String], n_points: usize) -> Result<()> {
    let n_joints = joint_names.len();
    if n_joints > MAX_JOINTS || n_points > MAX_POINTS || n_joints * n_points > MAX_VALUES {
        return error(format!(
            "{n_points} points of {n_joints} joints are too many: at most {MAX_POINTS} points, \
             {MAX_JOINTS} joints and {MAX_VALUES} positions are allowed"
        ));
    }
    if let Some(long) = joint_names.iter().find(|name| name.len() > MAX_NAME) {
        let (name, n) = (shortened(long), long.len());
        return error(format!(
            "joint '{name}…' has a name of {n} bytes: at most {MAX_NAME} are allowed"
        ));
    }
    let mut seen = HashSet::new();
    match joint_names.iter().find(|name| !seen.insert(name.as_str())) {
        Some(twice) => error(format!("joint '{}' is named twice", shortened(twice))),
        None => Ok(()),
    }
}

fn check_point(i: usize, point: &GoalPoint, joint_names: &[String]) -> Result<()> {
    let fields = [
        ("positions", point.positions),
        ("velocities", point.velocities),
        ("accelerations", point.accelerations),
    ];
    for (field, values) in fields {
        if !values.is_empty() && values.len() != joint_names.len() {
            let (got, n_joints) = (values.len(), joint_names.len());
            return error(format!("point {i} has {got} {field} of {n_joints} joints"));
        }
        let wrong = values.iter().zip(joint_names).find(|(value, _)| !value.is_finite());
        if let Some((value, joint)) = wrong {
            let joint = shortened(joint);
            return error(format!("point {i} has {value} in {field}, of joint '{joint}'"));
        }
    }
    Ok(())
}

/// A name in a message: what comes from outside can be of any length.
fn shortened(name: &str) -> String {
    name.chars().take(60).flat_map(char::escape_debug).collect()
}

/// Puts where the joints are at the beginning of a trajectory whose first point lies ahead: the
/// controller moves them from there. Left as it is where a joint is not `measured` (rad or m).
pub fn from_here(trajectory: &mut JointTrajectory, measured: impl Fn(&str) -> Option<f64>) {
    if trajectory.points.first().is_none_or(|first| first.time_from_start_nanos == 0) {
        return;
    }
    let here: Option<Vec<f64>> = trajectory.joint_names.iter().map(|name| measured(name)).collect();
    if let Some(positions) = here {
        trajectory.points.insert(0, TrajectoryPoint { positions, time_from_start_nanos: 0 });
    }
}

/// The joints that a gripper command moves, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Fingers {
    /// Names of the joints, with the position of each (rad or m) per commanded position.
    pub joints: Vec<(String, f64)>,
    /// How fast the fastest joint moves (rad/s or m/s); more than 0.
    pub speed: f64,
}

impl Fingers {
    /// The motion from where the joints are (rad or m, where `measured`) to the commanded `position`,
    /// starting when it is accepted.
    ///
    /// # Errors
    /// [`Error::Plan`] if a position is not finite.
    pub fn moved_to(
        &self,
        position: f64,
        measured: impl Fn(&str) -> Option<f64>,
    ) -> Result<JointTrajectory> {
        let target: Vec<f64> = self.joints.iter().map(|(_, scale)| scale * position).collect();
        if target.iter().any(|position| !position.is_finite()) {
            return error(format!("the gripper is sent to {position}"));
        }
        let here: Option<Vec<f64>> = self.joints.iter().map(|(name, _)| measured(name)).collect();
        let way = here.iter().flatten().zip(&target).map(|(from, to)| (to - from).abs());
        // One nanosecond at least, so that times ascend.
        let nanos = (way.fold(0.0, f64::max) / self.speed * 1e9).ceil().max(1.0) as i64;
        let start = here.map(|positions| TrajectoryPoint { positions, time_from_start_nanos: 0 });
        let end = TrajectoryPoint { positions: target, time_from_start_nanos: nanos };
        Ok(JointTrajectory {
            header: Header::default(),
            joint_names: self.joints.iter().map(|(name, _)| name.clone()).collect(),
            points: start.into_iter().chain([end]).collect(),
        })
    }
}
