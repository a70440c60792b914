use std::sync::Arc;

use super::*;
use crate::message::{Header, JointTrajectory, Stamp, TrajectoryPoint};
use crate::robot::kinematics::JointLimits;
use crate::robot::plan::{command_at, validate};

const SEC: i64 = 1_000_000_000;
const START: i64 = 1_000 * SEC;

fn at(secs: f64) -> Stamp {
    Stamp::from_nanos(START).plus_secs(secs)
}

fn goal(number: u8) -> GoalId {
    [number; 16]
}

/// Points of (seconds, positions), starting when it is accepted.
fn trajectory(joints: &[&str], points: &[(f64, &[f64])]) -> JointTrajectory {
    let point = |(secs, positions): &(f64, &[f64])| TrajectoryPoint {
        positions: positions.to_vec(),
        time_from_start_nanos: Stamp::from_secs(*secs).nanos(),
    };
    JointTrajectory {
        header: Header::default(),
        joint_names: joints.iter().map(|&name| name.to_owned()).collect(),
        points: points.iter().map(point).collect(),
    }
}

/// A goal that moves `joint` by 1 in 10 s.
fn slow(joint: &str) -> JointTrajectory {
    trajectory(&[joint], &[(0.0, &[0.0]), (10.0, &[1.0])])
}

/// Plans as the node keeps them.
#[derive(Default)]
struct Node(Vec<Arc<JointTrajectory>>);

impl Node {
    /// Whether there was a plan; each is one that the node takes.
    fn take(&mut self, planner: &mut Planner, now: Stamp) -> bool {
        let plan = planner.due(now);
        if let Some(plan) = &plan {
            validate(plan).unwrap();
            assert!(
                plan.points
                    .windows(2)
                    .all(|pair| { pair[0].time_from_start_nanos < pair[1].time_from_start_nanos })
            );
            self.0.push(Arc::new(plan.clone()));
            let n_old = self.0.len().saturating_sub(8);
            self.0.drain(..n_old);
        }
        plan.is_some()
    }

    fn command(&self, joint: &str, secs: f64) -> f64 {
        command_at(&self.0, joint, &JointLimits::NONE, at(secs)).unwrap_or(f64::NAN)
    }
}

#[track_caller]
fn assert_near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6, "{a} is not {b}");
}

#[test]
fn a_goal_is_a_plan_from_when_it_is_accepted() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    assert!(!node.take(&mut planner, at(0.0)), "nothing to say");
    let goal_of =
        trajectory(&["a", "b"], &[(0.0, &[0.0, 5.0]), (1.0, &[1.0, 5.0]), (3.0, &[0.0, 6.0])]);
    planner.start(0, goal(1), Some(goal_of.clone()), true, at(2.0));
    assert!(node.take(&mut planner, at(2.0)));
    assert_eq!(node.0[0].header.stamp, at(2.0));
    assert_eq!(
        (&node.0[0].joint_names, &node.0[0].points),
        (&goal_of.joint_names, &goal_of.points)
    );
    assert!(!node.take(&mut planner, at(2.5)), "nothing new");
    planner.end(&goal(9), at(2.6));
    assert!(!node.take(&mut planner, at(2.6)), "no goal of ours");
}

#[test]
fn a_stamp_is_the_start_before_or_after_now() {
    for offset in [-1.0, 2.0] {
        let (mut planner, mut node) = (Planner::default(), Node::default());
        let mut given = slow("a");
        given.header.stamp = at(5.0 + offset);
        planner.start(0, goal(1), Some(given), true, at(5.0));
        node.take(&mut planner, at(5.0));
        for secs in [5.0, 6.0, 8.5, 20.0] {
            assert_near(node.command("a", secs), ((secs - 5.0 - offset) / 10.0).clamp(0.0, 1.0));
        }
    }
}

#[test]
fn controllers_are_merged_and_the_others_go_on() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    planner.start(0, goal(1), Some(slow("arm")), true, at(0.0));
    node.take(&mut planner, at(0.0));
    let fingers = trajectory(&["left", "right"], &[(0.0, &[0.0, 0.0]), (2.0, &[0.4, -0.4])]);
    planner.start(1, goal(2), Some(fingers), false, at(3.0));
    assert!(node.take(&mut planner, at(3.0)));
    let merged = node.0.last().unwrap();
    assert_eq!(merged.joint_names, ["arm", "left", "right"]);
    assert_eq!(merged.points.len(), 3, "now, the fingers' end, the arm's end");
    assert_eq!(merged.points[0].positions, [0.3, 0.0, 0.0]);
    assert_eq!(merged.points[2].positions, [1.0, 0.4, -0.4]);
    for secs in [0.5, 3.0, 4.1, 5.7, 9.0, 12.0] {
        assert_near(node.command("arm", secs), (secs / 10.0).min(1.0));
        assert_near(node.command("right", secs), -0.2 * (secs - 3.0).clamp(0.0, 2.0));
    }
    // The gripper is done: it stays, and the arm goes on.
    planner.end(&goal(2), at(4.0));
    assert!(node.take(&mut planner, at(4.0)));
    assert_near(node.command("left", 9.0), 0.2);
    assert_near(node.command("arm", 7.0), 0.7);
    // The arm is cancelled: no more is planned, and all stay.
    planner.end(&goal(1), at(6.0));
    assert!(node.take(&mut planner, at(6.0)));
    let last = node.0.last().unwrap();
    assert!(last.points.is_empty());
    assert_eq!(last.joint_names, ["arm", "left", "right"]);
    assert_near(node.command("arm", 9.0), 0.6);
    assert_near(node.command("left", 9.0), 0.2);
    assert!(!node.take(&mut planner, at(60.0)), "all is said");
}

#[test]
fn plans_are_repeated_so_that_none_is_lost_among_many() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    planner.start(0, goal(0), Some(slow("arm")), true, at(0.0));
    node.take(&mut planner, at(0.0));
    // Twenty gripper goals, and what the node keeps is eight plans.
    for i in 1..=20 {
        let secs = 0.2 * f64::from(i);
        planner.start(1, goal(i), Some(trajectory(&["hand"], &[(0.1, &[secs])])), true, at(secs));
        assert!(node.take(&mut planner, at(secs)));
        assert_near(node.command("arm", secs + 1.0), (secs + 1.0) / 10.0);
        assert_near(node.command("hand", secs + 1.0), secs);
    }
    let n = (0..50).filter(|i| node.take(&mut planner, at(4.1 + 0.1 * f64::from(*i)))).count();
    assert_eq!(n, 5, "once a second");
    assert_near(node.command("arm", 9.5), 0.95);
    assert_near(node.command("hand", 9.5), 4.0);
}

#[test]
fn a_goal_takes_the_place_of_its_controllers_last_one() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    let both = trajectory(&["a", "b"], &[(0.0, &[0.0, 0.0]), (10.0, &[1.0, 1.0])]);
    planner.start(0, goal(1), Some(both), true, at(0.0));
    node.take(&mut planner, at(0.0));
    planner.start(
        0,
        goal(2),
        Some(trajectory(&["a"], &[(0.0, &[0.2]), (1.0, &[-5.0])])),
        true,
        at(2.0),
    );
    node.take(&mut planner, at(2.0));
    // The joint that the new goal leaves out stops.
    assert_near(node.command("b", 8.0), 0.2);
    assert_near(node.command("a", 8.0), -5.0);
    // The end of the old goal comes late, and is none of the new one.
    planner.end(&goal(1), at(2.1));
    assert!(!node.take(&mut planner, at(2.1)));
    // A goal that says nothing of positions ends the plan.
    planner.start(0, goal(3), None, true, at(2.5));
    assert!(node.take(&mut planner, at(2.5)));
    assert!(node.0.last().unwrap().points.is_empty());
    assert_near(node.command("a", 8.0), 0.2 - 0.5 * 5.2);
}

#[test]
fn the_speed_that_the_robot_runs_at_stretches_what_is_ahead() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    planner.start(0, goal(1), Some(slow("arm")), true, at(0.0));
    planner.start(1, goal(2), Some(slow("hand")), false, at(0.0));
    node.take(&mut planner, at(0.0));
    assert!(planner.set_speed(0.5, at(2.0)));
    assert!(node.take(&mut planner, at(2.0)));
    assert_near(node.command("arm", 4.0), 0.3);
    assert_near(node.command("arm", 17.9), 0.995);
    assert_near(node.command("arm", 18.1), 1.0);
    assert_near(node.command("hand", 4.0), 0.4);
    assert!(planner.set_speed(0.0, at(4.0)));
    node.take(&mut planner, at(4.0));
    assert_near(node.command("arm", 30.0), 0.3);
    assert_near(node.command("hand", 9.0), 0.9);
    assert!(planner.set_speed(1.0, at(6.0)));
    node.take(&mut planner, at(6.0));
    assert_near(node.command("arm", 7.0), 0.4);
    assert_near(node.command("arm", 13.0), 1.0);
    for wrong in [f64::NAN, -0.1, f64::INFINITY, 50.0] {
        assert!(!planner.set_speed(wrong, at(6.5)));
    }
    assert!(!node.take(&mut planner, at(6.6)));
}

#[test]
fn a_ramp_of_the_speed_is_told_ten_times_a_second() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    planner.start(0, goal(1), Some(slow("arm")), true, at(0.0));
    node.take(&mut planner, at(0.0));
    let mut truth = 0.0;
    let mut n = 0;
    for i in 1..=98 {
        let (secs, factor) = (f64::from(i) / 100.0, 1.0 - f64::from(i) / 100.0);
        truth += (factor + 0.01) / 1000.0;
        planner.set_speed(if i == 98 { 0.0 } else { factor }, at(secs));
        n += usize::from(node.take(&mut planner, at(secs)));
    }
    assert!((8..=10).contains(&n), "{n} plans");
    let mut late = 1..20;
    assert!(
        late.any(|i| node.take(&mut planner, at(0.98 + f64::from(i) / 100.0))),
        "the last value"
    );
    assert_eq!(node.0.last().unwrap().points.len(), 1, "it stands");
    assert_near(node.command("arm", 5.0), truth);
    // Noise of the value is no change.
    planner.set_speed(0.002, at(1.6));
    assert!(!node.take(&mut planner, at(1.6)));
}

#[test]
fn time_that_goes_back_moves_nothing() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    planner.start(0, goal(1), Some(slow("arm")), true, at(0.0));
    node.take(&mut planner, at(0.0));
    assert!(node.take(&mut planner, at(3.0)));
    assert!(node.take(&mut planner, at(-500.0)));
    let plan = node.0.last().unwrap();
    assert_eq!((plan.header.stamp, plan.points[0].positions[0]), (at(-500.0), 0.3));
    assert_eq!(plan.points[1].time_from_start_nanos, 7 * SEC);
    // A goal that came before the first message on /clock.
    planner.end_all(at(-500.0));
    node.take(&mut planner, at(-500.0));
    planner.start(0, goal(2), Some(slow("arm")), true, Stamp::default());
    assert!(node.0.len() == 4 && planner.due(Stamp::default()).is_some());
    assert!(node.take(&mut planner, at(0.0)));
    assert_near(node.command("arm", 1.0), 0.1);
}

#[test]
fn what_is_published_is_bounded() {
    let (mut planner, mut node) = (Planner::default(), Node::default());
    let points: Vec<(f64, Vec<f64>)> = (0..20_000).map(|i| (f64::from(i), vec![1.0])).collect();
    let points: Vec<(f64, &[f64])> = points.iter().map(|(secs, p)| (*secs, &p[..])).collect();
    planner.start(0, goal(1), Some(trajectory(&["a"], &points)), true, at(0.0));
    node.take(&mut planner, at(0.0));
    assert_eq!(node.0.last().unwrap().points.len(), 4096);
    // Almost standing: the end is years ahead, and ROS has no room for that.
    planner.set_speed(0.005, at(1.0));
    planner.start(
        1,
        goal(2),
        Some(trajectory(&["b"], &[(0.0, &[0.0]), (2e9, &[1.0])])),
        true,
        at(1.0),
    );
    node.take(&mut planner, at(1.0));
    let last = node.0.last().unwrap().points.last().unwrap().time_from_start_nanos;
    assert!(last <= 1_000_000 * SEC, "{last}");
    // Goals of ever new joints on one controller.
    for i in 0..200u8 {
        let names: Vec<String> = (0..100).map(|j| format!("{i} {j}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = trajectory(&names, &[(1.0, &[0.0; 100])]);
        planner.start(2, goal(i), Some(given), true, at(2.0));
    }
    node.take(&mut planner, at(2.0));
    assert!(node.0.last().unwrap().joint_names.len() <= 1024 + 100);
}

fn names(joints: &[&str]) -> Vec<String> {
    joints.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn goals_that_no_controller_executes_are_refused_in_words() {
    let point = |positions, secs: i64| GoalPoint {
        positions,
        time_from_start_nanos: secs * SEC,
        ..GoalPoint::default()
    };
    let velocity = |velocities| GoalPoint { velocities, ..point(&[1.0, 2.0], 1) };
    let acceleration = |accelerations| GoalPoint { accelerations, ..point(&[1.0, 2.0], 1) };
    for (points, words) in [
        (vec![point(&[1.0], 0)], "point 0 has 1 positions of 2 joints"),
        (vec![point(&[1.0, f64::NAN], 0)], "point 0 has NaN in positions, of joint 'b'"),
        (vec![point(&[f64::INFINITY, 0.0], 0)], "point 0 has inf in positions, of joint 'a'"),
        (vec![velocity(&[0.0, f64::NAN])], "point 0 has NaN in velocities"),
        (vec![acceleration(&[0.0])], "point 0 has 1 accelerations of 2 joints"),
        (vec![point(&[1.0, 2.0], -1)], "point 0 is at -1 s: times must ascend from 0"),
        (vec![point(&[1.0, 2.0], 3), point(&[1.0, 2.0], 3)], "point 1 is at 3 s"),
    ] {
        let refused = planned(at(0.0), &names(&["a", "b"]), &points).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    let refused = |joints: &[String], n| {
        planned(at(0.0), joints, &vec![GoalPoint::default(); n]).unwrap_err().to_string()
    };
    assert!(refused(&names(&["a", "b", "a"]), 0).contains("joint 'a' is named twice"));
    let many: Vec<String> = (0..MAX_JOINTS + 1).map(|i| i.to_string()).collect();
    assert!(refused(&many, 1).contains("too many"));
    assert!(refused(&many[..2], MAX_POINTS + 1).contains("too many"));
    assert!(refused(&many[..MAX_JOINTS], MAX_VALUES / MAX_JOINTS + 1).contains("too many"));
    let long = refused(&["x".repeat(1_000_000)], 0);
    assert!(long.contains("a name of 1000000 bytes") && long.len() < 200, "{long}");
}

#[test]
fn goals_without_positions_are_none_to_plan_with() {
    let joints = names(&["a", "b"]);
    let velocities =
        GoalPoint { velocities: &[1.0, 2.0], time_from_start_nanos: 1, ..GoalPoint::default() };
    let whole = GoalPoint { positions: &[1.0, 2.0], ..velocities };
    assert_eq!(planned(at(0.0), &joints, &[]).unwrap(), None);
    assert_eq!(planned(at(0.0), &[], &[GoalPoint::default()]).unwrap(), None);
    assert_eq!(planned(at(0.0), &joints, &[GoalPoint::default(), velocities]).unwrap(), None);
    let plan = planned(at(3.0), &joints, &[whole]).unwrap().unwrap();
    assert_eq!(
        (plan.header.stamp, plan.points[0].positions.as_slice()),
        (at(3.0), &[1.0, 2.0][..])
    );
}

#[test]
fn a_first_point_ahead_is_reached_from_where_the_joints_are() {
    let measured = |name: &str| (name != "unknown").then_some(0.5);
    let mut ahead = trajectory(&["a", "b"], &[(2.0, &[1.0, 2.0])]);
    from_here(&mut ahead, measured);
    assert_eq!(ahead, trajectory(&["a", "b"], &[(0.0, &[0.5, 0.5]), (2.0, &[1.0, 2.0])]));
    for mut unchanged in [ahead.clone(), trajectory(&["a", "unknown"], &[(2.0, &[1.0, 2.0])])] {
        let before = unchanged.clone();
        from_here(&mut unchanged, measured);
        assert_eq!(unchanged, before);
    }
}

#[test]
fn a_gripper_command_is_a_motion_of_its_fingers() {
    let joints = vec![("left".to_owned(), 1.0), ("right".to_owned(), -0.5)];
    let fingers = Fingers { joints, speed: 0.1 };
    let measured = |name: &str| Some(if name == "left" { 0.02 } else { 0.0 });
    let plan = fingers.moved_to(0.04, measured).unwrap();
    assert_eq!(plan, trajectory(&["left", "right"], &[(0.0, &[0.02, 0.0]), (0.2, &[0.04, -0.02])]));
    let blind = fingers.moved_to(0.04, |_| None).unwrap();
    assert_eq!(blind.points.len(), 1);
    assert_eq!(blind.points[0].positions, [0.04, -0.02]);
    let there = fingers.moved_to(0.0, |_| Some(0.0)).unwrap();
    assert_eq!(there.points[1].time_from_start_nanos, 1);
    let refused = fingers.moved_to(f64::NAN, measured).unwrap_err().to_string();
    assert!(refused.contains("the gripper is sent to NaN"));
    // Forever is a long time, and no overflow.
    assert!(fingers.moved_to(f64::MAX, measured).unwrap().points[1].time_from_start_nanos > 0);
}
