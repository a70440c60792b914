use super::*;
use crate::message::{Header, TrajectoryPoint};

const SEC: i64 = 1_000_000_000;

/// Trajectory that starts at `start` s with points (s from the start, one position per joint).
fn trajectory(start: f64, names: &[&str], points: &[(f64, &[f64])]) -> Arc<JointTrajectory> {
    let point = |&(secs, positions): &(f64, &[f64])| TrajectoryPoint {
        positions: positions.to_vec(),
        time_from_start_nanos: Stamp::from_secs(secs).nanos(),
    };
    Arc::new(JointTrajectory {
        header: Header { stamp: Stamp::from_secs(start), ..Header::default() },
        joint_names: names.iter().map(|name| (*name).to_owned()).collect(),
        points: points.iter().map(point).collect(),
    })
}

fn at(plan: &[Arc<JointTrajectory>], joint: &str, secs: f64) -> Option<f64> {
    command_at(plan, joint, &JointLimits::NONE, Stamp::from_secs(secs))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn assert_near(got: Option<f64>, expected: f64) {
    assert!(got.is_some_and(|got| (got - expected).abs() < 1e-9), "{got:?}, not {expected}");
}

/// A joint that turns without end.
const ENDLESS: JointLimits = JointLimits { wraps: true, ..JointLimits::NONE };

/// Forecasts joints that have ends.
fn forecast(
    positions: &[f64],
    names: &[String],
    velocities: Option<&[f64]>,
    plan: &[Arc<JointTrajectory>],
    now: Stamp,
    horizon: &Horizon,
    out: &mut Vec<f64>,
) -> Result<()> {
    let limits = &vec![JointLimits::NONE; names.len()];
    let joints = JointsNow { names, limits, positions, velocities };
    super::forecast(&joints, plan, now, horizon, out)
}

#[test]
fn commands_are_linear_between_points_and_held_outside() {
    let plan = [trajectory(10.0, &["a", "b"], &[(1.0, &[2.0, 0.0]), (3.0, &[6.0, -1.0])])];
    for (secs, a, b) in [
        (0.0, 2.0, 0.0),
        (10.5, 2.0, 0.0),
        (11.0, 2.0, 0.0),
        (11.5, 3.0, -0.25),
        (13.0, 6.0, -1.0),
        (99.0, 6.0, -1.0),
    ] {
        assert_near(at(&plan, "a", secs), a);
        assert_near(at(&plan, "b", secs), b);
    }
    assert_eq!(at(&plan, "c", 11.0), None);
    assert_eq!(at(&[], "a", 11.0), None);
}

#[test]
fn the_newest_started_trajectory_of_the_joint_counts() {
    let plan = [
        trajectory(10.0, &["a"], &[(0.0, &[1.0]), (10.0, &[11.0])]),
        trajectory(12.0, &["b"], &[(0.0, &[5.0])]),
        trajectory(14.0, &["a"], &[(0.0, &[-1.0])]),
    ];
    assert_near(at(&plan, "a", 13.0), 4.0);
    assert_near(at(&plan, "a", 14.0), -1.0);
    assert_near(at(&plan, "b", 0.0), 5.0);
    // Two points at one time: the later one.
    let jump = [trajectory(1.0, &["a"], &[(0.0, &[0.0]), (1.0, &[1.0]), (1.0, &[7.0])])];
    assert_near(at(&jump, "a", 2.0), 7.0);
}

#[test]
fn a_trajectory_without_points_holds_the_command() {
    let before = trajectory(10.0, &["a"], &[(0.0, &[0.0]), (10.0, &[10.0])]);
    for cancel in [trajectory(12.0, &[], &[]), trajectory(12.0, &["a"], &[])] {
        let plan = [before.clone(), cancel];
        assert_near(at(&plan, "a", 11.0), 1.0);
        assert_near(at(&plan, "a", 15.0), 2.0);
    }
    assert_near(at(&[before, trajectory(12.0, &["b"], &[])], "a", 15.0), 5.0);
}

#[test]
fn a_forecast_follows_the_commands_late_from_where_the_joint_is() {
    // Command: 1 rad/s from second 10 to 12, then still.
    let plan = [trajectory(10.0, &["a"], &[(0.0, &[0.0]), (2.0, &[2.0])])];
    let joints = names(&["free", "a"]);
    let horizon = Horizon { step_secs: 0.5, n_steps: 4, lag_secs: 0.25 };
    let mut rows = vec![9.0; 3];
    let now = Stamp::from_secs(11.0);
    // The joint lags: the command of 0.25 s ago was 0.75, it is at 0.7.
    forecast(&[3.0, 0.7], &joints, Some(&[-1.0, 50.0]), &plan, now, &horizon, &mut rows).unwrap();
    let expected = [2.5, 1.2, 2.0, 1.7, 1.5, 1.95, 1.0, 1.95];
    assert_eq!(rows.len(), expected.len());
    for (got, expected) in rows.iter().zip(expected) {
        assert_near(Some(*got), expected);
    }
    forecast(&[3.0, 0.7], &joints, None, &[], now, &horizon, &mut rows).unwrap();
    assert_eq!(rows, [3.0, 0.7].repeat(4));
    // Before the plan starts, its first point is held.
    let early = Stamp::from_secs(9.9);
    forecast(&[0.0, 0.0], &joints, None, &plan, early, &horizon, &mut rows).unwrap();
    assert_near(Some(rows[1]), 0.15);
}

#[test]
fn a_forecast_refuses_what_does_not_belong_together() {
    let joints = names(&["a"]);
    let horizon = Horizon { step_secs: 0.1, n_steps: 2, lag_secs: 0.0 };
    let mut out = Vec::new();
    let mut run = |measured: &[f64], velocities: Option<&[f64]>, horizon| {
        forecast(measured, &joints, velocities, &[], Stamp::default(), &horizon, &mut out)
    };
    assert!(matches!(run(&[], None, horizon), Err(Error::Shape { expected: 1, got: 0, .. })));
    assert!(matches!(run(&[0.0], Some(&[]), horizon), Err(Error::Shape { .. })));
    for secs in [-0.1, f64::NAN, f64::INFINITY] {
        let bad = Horizon { lag_secs: secs, ..horizon };
        assert!(matches!(run(&[0.0], None, bad), Err(Error::Plan { .. })), "{secs}");
    }
    assert!(run(&[0.0], None, horizon).is_ok());
}

#[test]
fn validation_names_what_is_wrong() {
    let problem = |plan: Arc<JointTrajectory>| validate(&plan).unwrap_err().to_string();
    assert!(validate(&trajectory(1.0, &["a"], &[(0.0, &[0.0]), (0.0, &[1.0])])).is_ok());
    assert!(validate(&trajectory(1.0, &["a"], &[])).is_ok());
    assert!(problem(trajectory(0.0, &["a"], &[(0.0, &[0.0])])).contains("stamp is 0"));
    assert!(problem(trajectory(1.0, &["a"], &[(0.0, &[])])).contains("0 positions of 1"));
    assert!(problem(trajectory(1.0, &["a"], &[(0.0, &[f64::NAN])])).contains("'a' at NaN"));
    let back = trajectory(1.0, &["a"], &[(1.0, &[0.0]), (0.5, &[1.0])]);
    assert!(problem(back).contains("point 1"));
    assert!(problem(trajectory(1.0, &["a"], &[(-1.0, &[0.0])])).contains("point 0"));
}

#[test]
fn unchecked_trajectories_do_not_panic() {
    let mut ragged = Arc::unwrap_or_clone(trajectory(1.0, &["a", "b"], &[(0.0, &[1.0])]));
    ragged.points.push(TrajectoryPoint::default());
    ragged.header.stamp = Stamp::from_nanos(i64::MIN);
    let plan = [Arc::new(ragged)];
    for secs in [-1e18, 0.0, 1e18] {
        at(&plan, "a", secs);
        at(&plan, "b", secs);
    }
}

#[test]
fn velocities_are_of_the_last_step() {
    let mut out = Vec::new();
    velocities(&[1.0, 2.0], &[0.0, 2.5], &[JointLimits::NONE; 2], 0.5, &mut out).unwrap();
    assert_eq!(out, [2.0, -1.0]);
    velocities(&[1.0], &[0.0], &[JointLimits::NONE], 0.0, &mut out).unwrap();
    assert_eq!(out, [0.0]);
    assert!(velocities(&[1.0], &[], &[JointLimits::NONE], 0.5, &mut out).is_err());
    assert_eq!(Stamp::from_secs(1.0).nanos(), SEC);
}

#[test]
fn steps_are_planned_until_the_last_motion_ends() {
    let horizon = Horizon { step_secs: 0.1, n_steps: 10, lag_secs: 0.05 };
    let of = |plan: &[Arc<JointTrajectory>], now: f64| {
        n_planned(&names(&["a", "b"]), plan, Stamp::from_secs(now), &horizon)
    };
    let arm = trajectory(10.0, &["a"], &[(0.0, &[0.0]), (0.6, &[1.0]), (5.0, &[1.0])]);
    let only_arm = std::slice::from_ref(&arm);
    // The command of step h is that of 0.1 h - 0.05 s from now; it stays after 0.6 s.
    assert_eq!(of(&[], 10.0), 0);
    assert_eq!(of(only_arm, 10.01), 6);
    assert_eq!(of(only_arm, 10.4), 2);
    assert_eq!(of(only_arm, 11.0), 0, "over");
    let moves = [(0.0, &[0.0][..]), (9.0, &[1.0])];
    assert_eq!(of(&[trajectory(10.0, &["c"], &moves)], 10.0), 0, "another robot's");
    // Any joint's motion counts; what is to come is known to be waited for.
    let hand = trajectory(10.0, &["b"], &[(0.0, &[0.0]), (0.9, &[0.1])]);
    assert_eq!(of(&[arm.clone(), hand], 10.01), 9);
    let later = trajectory(10.5, &["a"], &[(0.0, &[0.0]), (0.2, &[0.1])]);
    assert_eq!(of(&[later], 10.01), 7);
    // What else a trajectory moves is not this robot's.
    let two = trajectory(
        10.0,
        &["c", "a"],
        &[(0.0, &[0.0, 0.0]), (0.3, &[0.1, 0.1]), (0.8, &[0.2, 0.1])],
    );
    assert_eq!(of(&[two], 10.01), 3);
    // A newer one replaces what was, and a stop ends it.
    let newer = trajectory(10.1, &["a"], &[(0.0, &[0.0]), (0.1, &[0.1])]);
    assert_eq!(of(&[arm.clone(), newer], 10.01), 2);
    assert_eq!(of(&[arm, trajectory(10.3, &[], &[])], 10.01), 3);
    // Nothing but a place to stay at; and times without end are no panic.
    assert_eq!(of(&[trajectory(10.0, &["a"], &[(9.0, &[0.0])])], 10.01), 0);
    let mut endless = (*trajectory(10.0, &["a"], &moves)).clone();
    endless.points[1].time_from_start_nanos = i64::MAX;
    assert_eq!(of(&[Arc::new(endless)], 10.01), 10);
}

#[test]
fn a_joint_that_wraps_goes_the_short_way_round() {
    let wrapped = [trajectory(10.0, &["a"], &[(0.0, &[3.0]), (1.0, &[-3.0])])];
    let command = |plan: &[Arc<JointTrajectory>], limits, secs| {
        command_at(plan, "a", limits, Stamp::from_secs(secs)).unwrap()
    };
    let way = 2.0 * PI - 6.0;
    assert_near(Some(command(&wrapped, &ENDLESS, 10.5)), 3.0 + 0.5 * way);
    assert_near(Some(command(&wrapped, &JointLimits::NONE, 10.5)), 0.0);
    // From 0 to 2 pi it is the same; a plan that counts the turns is taken at its word.
    let positive = [trajectory(10.0, &["a"], &[(0.0, &[6.2]), (1.0, &[0.1])])];
    assert_near(Some(command(&positive, &ENDLESS, 10.5)), 6.2 + 0.5 * (2.0 * PI - 6.1));
    let counted = [trajectory(10.0, &["a"], &[(0.0, &[0.0]), (1.0, &[8.0])])];
    assert_near(Some(command(&counted, &ENDLESS, 10.5)), 4.0);
    let mut out = Vec::new();
    velocities(&[-3.0, -3.0], &[3.0, 3.0], &[ENDLESS, JointLimits::NONE], 0.1, &mut out).unwrap();
    assert_near(Some(out[0]), way / 0.1);
    assert_near(Some(out[1]), -60.0);
    // Nothing is too far to have a way.
    for far in [1e300, f64::MAX, -f64::MAX] {
        assert!(ENDLESS.way(0.0, far).abs() <= PI + 1e-9, "{far}");
    }
}

#[test]
fn a_plan_is_followed_to_the_start_of_the_next() {
    // In force for 0.25 s more, then the other one.
    let plans = [
        trajectory(10.0, &["a"], &[(0.0, &[0.0]), (2.0, &[2.0])]),
        trajectory(11.25, &["a"], &[(0.0, &[1.25]), (1.0, &[-0.75])]),
    ];
    let horizon = Horizon { step_secs: 0.1, n_steps: 5, lag_secs: 0.0 };
    let mut rows = Vec::new();
    let now = Stamp::from_secs(11.0);
    forecast(&[1.0], &names(&["a"]), Some(&[9.0]), &plans, now, &horizon, &mut rows).unwrap();
    for (got, expected) in rows.iter().zip([1.1, 1.2, 1.15, 0.95, 0.75]) {
        assert_near(Some(*got), expected);
    }
}
