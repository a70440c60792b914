//! A candidate plan in the place of what the robot is about to do.

use super::{Horizon, follow, validate};
use crate::base::error::{Error, Result};
use crate::message::{JointTrajectory, Stamp};
use crate::robot::kinematics::JointLimits;
use std::sync::Arc;

/// The robot at the frame that candidates are followed from.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Names of all its joints.
    pub joint_names: &'a [String],
    /// Where each was measured (rad or m).
    pub joints: &'a [f64],
    /// What each can do.
    pub limits: &'a [JointLimits],
}

/// `plans` with what they command the joints of `candidate`, from its start on, replaced by it.
///
/// Other joints, and all joints before the start, keep what `plans` (ascending starts) command: so
/// one of `plans` as candidate is taken as it is, and the newest of them changes nothing. A start of
/// zero means the frame's stamp. Where the first point is still to come, the candidate leads there
/// from where the joints are, as a controller does. A candidate without joints and points holds all
/// joints where they are commanded at its start.
///
/// # Errors
/// [`Error::Plan`] names the first joint or point that can't be followed: of no such joint, over
/// before the frame, later than the roll-out, beyond the limits, too fast, or begun elsewhere than the
/// robot is.
pub fn with_candidate(
    plans: &[Arc<JointTrajectory>],
    mut candidate: JointTrajectory,
    present: &Present,
    horizon: &Horizon,
) -> Result<Vec<Arc<JointTrajectory>>> {
    let joint_names = present.joint_names;
    if candidate.header.stamp.nanos() == 0 {
        candidate.header.stamp = present.stamp;
    }
    if !plans.iter().any(|live| is_same(live, &candidate)) {
        check(&candidate, joint_names, present.stamp, horizon)?;
        follow::check_positions(&candidate, present)?;
        follow::begin_where_it_is(plans, &mut candidate, present, horizon.lag_secs)?;
        follow::check_speeds(&candidate, present)?;
    }
    let start = candidate.header.stamp;
    let replaces_all = candidate.joint_names.is_empty();
    let replaces = |name: &String| replaces_all || candidate.joint_names.contains(name);
    let (before, after) = plans.split_at(plans.partition_point(|plan| plan.header.stamp <= start));
    let after = after.iter().filter_map(|plan| without(plan, replaces, joint_names)).map(Arc::new);
    let after: Vec<_> = after.collect();
    Ok(before.iter().cloned().chain([Arc::new(candidate)]).chain(after).collect())
}

/// Whether two plans command the same at the same times.
fn is_same(a: &JointTrajectory, b: &JointTrajectory) -> bool {
    a.header.stamp == b.header.stamp && a.joint_names == b.joint_names && a.points == b.points
}

fn check(
    candidate: &JointTrajectory,
    joint_names: &[String],
    now: Stamp,
    horizon: &Horizon,
) -> Result<()> {
    let error = |problem| Err(Error::Plan { problem });
    validate(candidate)?;
    let times = candidate.points.windows(2);
    if let Some(i) =
        times.clone().position(|p| p[0].time_from_start_nanos >= p[1].time_from_start_nanos)
    {
        return error(format!("time of point {} is not after that of point {i}", i + 1));
    }
    if candidate.joint_names.is_empty() && !candidate.points.is_empty() {
        return error("joint_names is empty: name the joints that the positions are of".into());
    }
    if candidate.points.is_empty() && !candidate.joint_names.is_empty() {
        let names = candidate.joint_names.join(", ");
        return error(format!(
            "it has no points for {names}: give some, or name no joints to stop the robot"
        ));
    }
    let names = &candidate.joint_names;
    if let Some(name) = names.iter().find(|name| !joint_names.contains(name)) {
        let known = joint_names.join(", ");
        return error(format!("the robot has no joint '{name}'; its joints are: {known}"));
    }
    if let Some(i) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
        return error(format!("joint_names has '{}' twice", names[i]));
    }
    let ahead_secs = horizon.n_steps as f64 * horizon.step_secs;
    let wait_secs = candidate.header.stamp.secs_since(now);
    if wait_secs > ahead_secs {
        return error(format!(
            "it starts {wait_secs:.1} s after the frame, later than the roll-out of \
             {ahead_secs:.1} s ends: set header.stamp in the time of the images, or 0 for the frame's"
        ));
    }
    let Some(last) = candidate.points.last() else { return Ok(()) };
    let end = candidate.header.stamp.nanos().saturating_add(last.time_from_start_nanos);
    let over_secs = now.secs_since(Stamp::from_nanos(end));
    // The joints follow late: as long as they do, it is being executed.
    if over_secs > horizon.lag_secs {
        return error(format!(
            "it was over {over_secs:.1} s before the frame: set header.stamp to when it should start, \
             or 0 for the frame's"
        ));
    }
    Ok(())
}

/// `plan` without the joints that are replaced; none if nothing is left of it.
fn without(
    plan: &JointTrajectory,
    replaces: impl Fn(&String) -> bool,
    joint_names: &[String],
) -> Option<JointTrajectory> {
    // One that names no joint stops all.
    let names = if plan.joint_names.is_empty() { joint_names } else { &plan.joint_names };
    let kept: Vec<usize> = (0..names.len()).filter(|&i| !replaces(&names[i])).collect();
    if kept.is_empty() {
        return None;
    }
    let mut rest = plan.clone();
    rest.joint_names = kept.iter().map(|&i| names[i].clone()).collect();
    for point in &mut rest.points {
        point.positions = kept.iter().filter_map(|&i| point.positions.get(i).copied()).collect();
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::super::command_at;
    use super::*;
    use crate::message::{Header, TrajectoryPoint};

    const NOW: f64 = 10.0;

    fn trajectory(start: f64, names: &[&str], points: &[(f64, &[f64])]) -> JointTrajectory {
        let point = |&(secs, positions): &(f64, &[f64])| TrajectoryPoint {
            positions: positions.to_vec(),
            time_from_start_nanos: Stamp::from_secs(secs).nanos(),
        };
        JointTrajectory {
            header: Header { stamp: Stamp::from_secs(start), ..Header::default() },
            joint_names: names.iter().map(|name| (*name).to_owned()).collect(),
            points: points.iter().map(point).collect(),
        }
    }

    fn merged(
        live: &[JointTrajectory],
        candidate: JointTrajectory,
    ) -> Result<Vec<Arc<JointTrajectory>>> {
        let live: Vec<_> = live.iter().cloned().map(Arc::new).collect();
        let names = ["a", "b", "c"].map(String::from);
        let horizon = Horizon { step_secs: 0.1, n_steps: 5, lag_secs: 0.05 };
        let limits = [JointLimits { lower: -3.0, upper: 3.0, ..JointLimits::NONE }; 3];
        let (stamp, joints) = (Stamp::from_secs(NOW), [1.0, 2.0, 0.0]);
        let present = Present { stamp, joint_names: &names, joints: &joints, limits: &limits };
        with_candidate(&live, candidate, &present, &horizon)
    }

    fn at(plan: &[Arc<JointTrajectory>], joint: &str, secs: f64) -> Option<f64> {
        command_at(plan, joint, &JointLimits::NONE, Stamp::from_secs(secs))
    }

    #[test]
    fn the_plan_that_runs_already_changes_nothing() {
        let live = [
            trajectory(9.0, &["a", "b"], &[(0.0, &[0.0, 1.0]), (2.0, &[2.0, 5.0])]),
            trajectory(9.97, &["b", "a"], &[(0.0, &[7.0, 8.0]), (0.5, &[7.5, 8.7])]),
        ];
        let plain: Vec<_> = live.iter().cloned().map(Arc::new).collect();
        let with = merged(&live, live[1].clone()).unwrap();
        for joint in ["a", "b", "c"] {
            for secs in [8.0, 9.5, 9.9, 9.969, 9.97, 9.98, 10.0, 10.2, 10.47, 99.0] {
                let (with, plain) = (at(&with, joint, secs), at(&plain, joint, secs));
                assert_eq!(with.map(f64::to_bits), plain.map(f64::to_bits), "{joint} at {secs} s");
            }
        }
    }

    #[test]
    fn a_candidate_replaces_its_joints_from_its_start_on() {
        let live = [
            trajectory(9.0, &["a", "b"], &[(0.0, &[1.0, 2.0])]),
            trajectory(10.04, &["a", "b"], &[(0.0, &[3.0, 4.0])]),
            trajectory(10.045, &[], &[]),
        ];
        let with =
            merged(&live, trajectory(0.0, &["b"], &[(0.0, &[2.05]), (0.1, &[2.5])])).unwrap();
        assert_eq!(at(&with, "b", 9.99), Some(2.0), "not yet started");
        assert_eq!(at(&with, "b", NOW), Some(2.05), "a start of zero means now");
        assert_eq!(at(&with, "b", 10.2), Some(2.5), "no later plan takes over");
        for secs in [9.99, 10.0, 10.04, 10.2] {
            let live: Vec<_> = live.iter().cloned().map(Arc::new).collect();
            assert_eq!(at(&with, "a", secs), at(&live, "a", secs), "a is not the candidate's");
        }
    }

    #[test]
    fn a_candidate_without_points_stops_the_robot() {
        let live = [
            trajectory(9.0, &["a", "b"], &[(0.0, &[0.0, 0.0]), (10.0, &[10.0, 20.0])]),
            trajectory(10.04, &["a"], &[(0.0, &[3.0])]),
        ];
        let all = merged(&live, trajectory(0.0, &[], &[])).unwrap();
        assert_eq!((at(&all, "a", 10.3), at(&all, "b", 10.3)), (Some(1.0), Some(2.0)));
        // The robot's own stop of one joint is what it follows; who asks for plans has to say where to.
        let stop = trajectory(10.0, &["b"], &[]);
        let one = merged(&[live[0].clone(), stop.clone(), live[1].clone()], stop.clone()).unwrap();
        assert_eq!((at(&one, "a", 10.3), at(&one, "b", 10.3)), (Some(3.0), Some(2.0)));
        let told = merged(&live, stop).unwrap_err().to_string();
        assert!(told.contains("no points for b: give some"), "{told}");
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let told = |candidate| merged(&[], candidate).unwrap_err().to_string();
        let good: &[(f64, &[f64])] = &[(0.0, &[1.0])];
        for (candidate, part) in [
            (trajectory(0.0, &["z"], good), "no joint 'z'; its joints are: a, b, c"),
            (trajectory(0.0, &["a", "a"], &[(0.0, &[1.0, 1.0])]), "'a' twice"),
            (trajectory(0.0, &[], &[(0.0, &[])]), "joint_names is empty"),
            (trajectory(0.0, &["a", "b"], good), "point 0 has 1 positions of 2 joints"),
            (trajectory(0.0, &["a"], &[(0.0, &[f64::NAN])]), "point 0 puts 'a' at NaN"),
            (trajectory(0.0, &["a"], &[(-0.1, &[1.0])]), "time of point 0"),
            (trajectory(0.0, &["a"], &[(0.2, &[1.0]), (0.1, &[1.0])]), "time of point 1"),
            (trajectory(0.0, &["a"], &[(0.2, &[1.0]), (0.2, &[1.0])]), "time of point 1"),
            (trajectory(NOW + 0.6, &["a"], good), "0.6 s after the frame"),
            (trajectory(2e9, &["a"], good), "set header.stamp in the time of the images"),
            (
                trajectory(1.0, &["a"], good),
                "it was over 9.0 s before the frame: set header.stamp to",
            ),
            (
                trajectory(9.0, &["a"], &[(0.0, &[0.5]), (0.8, &[1.0])]),
                "over 0.2 s before the frame",
            ),
            (
                trajectory(0.0, &["a"], &[(0.5, &[3.1])]),
                "point 0 puts 'a' at 3.100, beyond its limits",
            ),
        ] {
            let text = told(candidate);
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(merged(&[], trajectory(NOW + 0.4, &["a"], good)).is_ok());
        let under_way: &[(f64, &[f64])] = &[(0.0, &[0.5]), (1.0, &[1.5])];
        assert!(merged(&[], trajectory(NOW - 0.5, &["a"], under_way)).is_ok());
        assert!(merged(&[], trajectory(NOW - 1.04, &["a"], under_way)).is_ok(), "it follows late");
        let live = trajectory(1.0, &["a"], good);
        assert!(
            merged(std::slice::from_ref(&live), live.clone()).is_ok(),
            "what the robot follows"
        );
    }
}
