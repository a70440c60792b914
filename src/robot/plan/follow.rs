//! Whether the robot can follow a candidate plan from where it is.

use super::{Present, command_at, segment};
use crate::base::error::{Error, Result};
use crate::message::{JointTrajectory, Stamp, TrajectoryPoint};
use crate::robot::kinematics::JointLimits;
use std::sync::Arc;

/// A joint that is measured may lie a little beyond its limits (rad or m).
const BEYOND: f64 = 1e-3;
/// A plan may start so far from where a joint is: turning (rad), sliding (m).
const OFF: [f64; 2] = [0.1, 0.02];
/// Share of a joint's greatest speed that a plan may ask for: times are rounded, and so are limits.
const SPEED_SHARE: f64 = 1.1;

/// Checks that all positions are within the joints' limits.
///
/// # Errors
/// [`Error::Plan`] names the first that is not.
pub(super) fn check_positions(plan: &JointTrajectory, present: &Present) -> Result<()> {
    for (column, joint, limits) in columns(plan, present) {
        let name = &present.joint_names[joint];
        for (i, point) in plan.points.iter().enumerate() {
            let q = point.positions[column];
            let (lower, upper) = (limits.lower, limits.upper);
            if q < lower - BEYOND || q > upper + BEYOND {
                return refused(format!(
                    "point {i} puts '{name}' at {q:.3}, beyond its limits {lower:.3} to {upper:.3}"
                ));
            }
        }
    }
    Ok(())
}

/// Lets `plan` begin where the robot is: where its first point is still to come, a point is put before
/// it, as controllers do.
///
/// # Errors
/// [`Error::Plan`] if the first point is at the plan's start, and not where the robot is.
pub(super) fn begin_where_it_is(
    plans: &[Arc<JointTrajectory>],
    plan: &mut JointTrajectory,
    present: &Present,
    lag_secs: f64,
) -> Result<()> {
    let Some(first) = plan.points.first() else { return Ok(()) };
    let start = plan.header.stamp;
    let begin = start.max(present.stamp);
    let begin_nanos = begin.nanos().saturating_sub(start.nanos());
    let is_to_come = first.time_from_start_nanos > begin_nanos;
    // Where the joints were when a plan began that is being executed nobody knows any more.
    if !is_to_come && start < present.stamp {
        return Ok(());
    }
    let mut positions = first.positions.clone();
    for (column, joint, limits) in columns(plan, present) {
        let here = here(plans, present, joint, limits, begin, lag_secs);
        if is_to_come {
            positions[column] = here;
        } else {
            let name = &present.joint_names[joint];
            // The joint trails its command: a plan may go on from either.
            let commanded = command_at(plans, name, limits, begin).unwrap_or(here);
            check_start(name, positions[column], [here, commanded], limits)?;
        }
    }
    if is_to_come {
        plan.points.insert(0, TrajectoryPoint { positions, time_from_start_nanos: begin_nanos });
    }
    Ok(())
}

/// Where a joint is at `begin`, if until then it follows `plans` as in the live prediction; as it is
/// measured, without one.
fn here(
    plans: &[Arc<JointTrajectory>],
    present: &Present,
    joint: usize,
    limits: &JointLimits,
    begin: Stamp,
    lag_secs: f64,
) -> f64 {
    let name = &present.joint_names[joint];
    let commanded = |at: Stamp| command_at(plans, name, limits, at.plus_secs(-lag_secs));
    let moved = commanded(begin).and_then(|then| Some(limits.way(commanded(present.stamp)?, then)));
    present.joints[joint] + moved.unwrap_or(0.0)
}

/// Checks that a plan starts where its joint is, at one of `places`.
fn check_start(name: &str, start: f64, places: [f64; 2], limits: &JointLimits) -> Result<()> {
    let [off, off_command] = places.map(|place| limits.way(place, start).abs());
    if off.min(off_command) <= OFF[usize::from(limits.slides)] {
        return Ok(());
    }
    refused(format!(
        "joint '{name}' starts {off:.2} {unit} from where it is then ({here:.3}): begin where the robot \
         is, or leave out the point at time 0",
        unit = limits.unit(),
        here = places[0],
    ))
}

/// Checks that no joint moves faster between two points than it can.
///
/// # Errors
/// [`Error::Plan`] names the first that does.
pub(super) fn check_speeds(plan: &JointTrajectory, present: &Present) -> Result<()> {
    for (column, joint, limits) in columns(plan, present) {
        for pair in plan.points.windows(2) {
            let [from, to] = [&pair[0], &pair[1]].map(|p| p.time_from_start_nanos as f64 / 1e9);
            let way = segment(plan, column, limits, [&pair[0], &pair[1]]).abs();
            let speed = way / (to - from);
            if speed > SPEED_SHARE * limits.speed {
                let (name, unit, most) = (&present.joint_names[joint], limits.unit(), limits.speed);
                return refused(format!(
                    "joint '{name}' would move at {speed:.2} {unit}/s between {from} s and {to} s, its \
                     limit is {most:.2}: give it more time"
                ));
            }
        }
    }
    Ok(())
}

/// Of the joints of a checked plan: column, number in the robot, limits.
fn columns<'a>(
    plan: &'a JointTrajectory,
    present: &'a Present<'a>,
) -> impl Iterator<Item = (usize, usize, &'a JointLimits)> + use<'a> {
    plan.joint_names.iter().enumerate().filter_map(move |(column, name)| {
        let joint = present.joint_names.iter().position(|other| other == name)?;
        Some((column, joint, present.limits.get(joint)?))
    })
}

fn refused<T>(problem: String) -> Result<T> {
    Err(Error::Plan { problem })
}

#[cfg(test)]
mod tests {
    use super::super::{Horizon, JointsNow, forecast, with_candidate};
    use super::*;
    use crate::message::Header;

    const NOW: f64 = 10.0;
    const LAG: f64 = 0.05;
    /// Where `a`, which turns, and `b`, which slides, were measured.
    const JOINTS: [f64; 2] = [1.0, 0.2];

    fn horizon() -> Horizon {
        Horizon { step_secs: 0.1, n_steps: 10, lag_secs: LAG }
    }

    fn trajectory(start: f64, joint: &str, points: &[(f64, f64)]) -> JointTrajectory {
        let point = |&(secs, q): &(f64, f64)| TrajectoryPoint {
            positions: vec![q],
            time_from_start_nanos: Stamp::from_secs(secs).nanos(),
        };
        JointTrajectory {
            header: Header { stamp: Stamp::from_secs(start), ..Header::default() },
            joint_names: vec![joint.to_owned()],
            points: points.iter().map(point).collect(),
        }
    }

    /// Joints of the steps ahead under `candidate`, `[n_steps][2]`.
    fn followed(live: &[JointTrajectory], candidate: JointTrajectory) -> Result<Vec<f64>> {
        let live: Vec<_> = live.iter().cloned().map(Arc::new).collect();
        let names = ["a", "b"].map(String::from);
        let turning = JointLimits { lower: -3.0, upper: 3.0, speed: 2.0, ..JointLimits::NONE };
        let limits = [turning, JointLimits { slides: true, ..JointLimits::NONE }];
        let now = Stamp::from_secs(NOW);
        let present = Present { stamp: now, joint_names: &names, joints: &JOINTS, limits: &limits };
        let plan = with_candidate(&live, candidate, &present, &horizon())?;
        let mut rows = Vec::new();
        let velocities = Some(&[0.0; 2][..]);
        let joints = JointsNow { names: &names, limits: &limits, positions: &JOINTS, velocities };
        forecast(&joints, &plan, now, &horizon(), &mut rows)?;
        Ok(rows)
    }

    fn a(rows: &[f64]) -> Vec<f64> {
        rows.chunks_exact(2).map(|row| row[0]).collect()
    }

    fn refusal(live: &[JointTrajectory], candidate: JointTrajectory) -> String {
        followed(live, candidate).unwrap_err().to_string()
    }

    /// A live plan that `a` follows 0.05 rad behind.
    fn running() -> JointTrajectory {
        trajectory(9.0, "a", &[(0.0, 0.1), (2.0, 2.1)])
    }

    #[test]
    fn a_point_at_the_start_may_be_left_out() {
        for live in [vec![], vec![running()]] {
            let told = followed(&live, trajectory(0.0, "a", &[(0.0, 1.0), (0.8, 1.5)])).unwrap();
            let left_out = followed(&live, trajectory(0.0, "a", &[(0.8, 1.5)])).unwrap();
            assert_eq!(a(&left_out), a(&told));
            let way = a(&left_out);
            assert!((way[0] - 1.0).abs() < 0.1, "no jump: {way:?}");
            assert!(way.windows(2).all(|pair| (pair[1] - pair[0]).abs() < 0.11), "{way:?}");
            let off = if live.is_empty() { 0.0 } else { -LAG };
            assert!((way[9] - 1.5 - off).abs() < 1e-9, "{way:?}");
        }
    }

    #[test]
    fn a_plan_that_starts_later_begins_where_the_joint_is_then() {
        // 0.3 s on the live plan has brought it from 1.0 to 1.3.
        let way = a(&followed(&[running()], trajectory(10.3, "a", &[(0.4, 1.3)])).unwrap());
        assert!((way[2] - 1.3).abs() < 0.051, "{way:?}");
        assert!(way[3..].iter().all(|q| (q - 1.3).abs() < 0.051), "{way:?}");
        // Without one it stands until then.
        let way = a(&followed(&[], trajectory(10.3, "a", &[(0.4, 1.4)])).unwrap());
        assert!(way[..3].iter().all(|q| *q == 1.0) && (way[9] - 1.4).abs() < 1e-9, "{way:?}");
    }

    #[test]
    fn a_plan_under_way_whose_first_point_is_to_come_goes_on_from_here() {
        let way = a(&followed(&[], trajectory(9.5, "a", &[(1.0, 1.5)])).unwrap());
        assert!((way[0] - 1.05).abs() < 1e-9 && (way[9] - 1.5).abs() < 1e-9, "{way:?}");
        // One whose points have begun is taken at its word.
        assert!(followed(&[], trajectory(9.5, "a", &[(0.0, 0.3), (1.0, 1.5)])).is_ok());
    }

    #[test]
    fn a_plan_that_starts_elsewhere_is_refused() {
        let told = refusal(&[], trajectory(0.0, "a", &[(0.0, 1.4), (1.0, 1.5)]));
        assert!(told.contains("joint 'a' starts 0.40 rad from where it is then (1.000)"), "{told}");
        assert!(told.contains("leave out the point at time 0"), "{told}");
        let told = refusal(&[], trajectory(0.0, "b", &[(0.0, 0.17)]));
        assert!(told.contains("joint 'b' starts 0.03 m from"), "{told}");
        assert!(followed(&[], trajectory(0.0, "a", &[(0.0, 1.09)])).is_ok());
        assert!(followed(&[], trajectory(0.0, "b", &[(0.0, 0.19)])).is_ok());
        // A joint that trails its command may be planned for from either.
        let ahead = [trajectory(9.0, "a", &[(0.0, 1.3)])];
        for (start, is_ok) in [(0.95, true), (1.15, false), (1.35, true), (1.45, false)] {
            let outcome = followed(&ahead, trajectory(0.0, "a", &[(0.0, start)]));
            assert_eq!(outcome.is_ok(), is_ok, "{start}");
        }
        // And held against where the live plan leads until then.
        let later = |at| followed(&[running()], trajectory(10.5, "a", &[(0.0, at)]));
        assert!(later(1.5).is_ok() && later(1.0).is_err());
    }

    #[test]
    fn a_plan_faster_than_its_joints_is_refused() {
        let told = refusal(&[], trajectory(0.0, "a", &[(0.0, 1.0), (0.1, 1.0), (0.1001, 1.5)]));
        let part =
            "joint 'a' would move at 5000.00 rad/s between 0.1 s and 0.1001 s, its limit is 2.00";
        assert!(told.contains(part), "{told}");
        // On the way to its first point, too.
        let told = refusal(&[], trajectory(0.0, "a", &[(0.0001, 1.5)]));
        assert!(told.contains("between 0 s and 0.0001 s"), "{told}");
        assert!(followed(&[], trajectory(0.0, "a", &[(0.0, 1.0), (0.5, 2.05)])).is_ok());
        assert!(followed(&[], trajectory(0.0, "a", &[(0.0, 1.0), (0.5, 2.15)])).is_err());
        // Without a limit nobody knows; what runs already is what it is.
        assert!(followed(&[], trajectory(0.0, "b", &[(0.0, 0.2), (0.1, 9.0)])).is_ok());
        let fast = trajectory(10.0, "a", &[(0.0, 0.0), (0.1, 2.0)]);
        assert!(followed(std::slice::from_ref(&fast), fast.clone()).is_ok());
    }
}
