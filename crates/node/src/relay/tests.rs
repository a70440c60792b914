//! What needs no other process; tests/ros/test_plan_relay.py has the rest.

use std::collections::BTreeMap;

use r2r::ParameterValue as P;
use r2r::WrappedTypesupport;
use r2r::control_msgs::action::{FollowJointTrajectory, GripperCommand};
use r2r::sensor_msgs::msg::JointState;
use r2r::trajectory_msgs::msg::JointTrajectoryPoint;

use super::super::trajectory::trajectory_message;
use super::action::{Measured, Relayed};
use super::parameters::{Config, Kind, configure};
use forecloud::robot::relay::Fingers;

fn configured(given: &[(&str, P)]) -> anyhow::Result<Config> {
    let given: BTreeMap<String, P> =
        given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    configure(&given)
}

fn texts(texts: &[&str]) -> P {
    P::StringArray(texts.iter().map(|&text| text.to_owned()).collect())
}

fn text(text: &str) -> P {
    P::String(text.to_owned())
}

#[test]
fn the_defaults_are_those_of_the_file() {
    let file = include_str!("../../../../config/plan_relay.yaml");
    let value = |name: &str| {
        let line = file.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name} is not in the file")).to_owned()
    };
    let config = configured(&[]).unwrap();
    let controller = &config.controllers[0];
    assert_eq!(value("controllers"), "[joint_trajectory_controller]");
    assert_eq!(controller.action, "joint_trajectory_controller/follow_joint_trajectory");
    let offered =
        format!("joint_trajectory_controller/{}/follow_joint_trajectory", value("prefix"));
    assert_eq!((config.controllers.len(), &controller.offered), (1, &offered));
    assert_eq!(value("speed_scaling_topic"), format!("{:?}", config.speed_scaling_topic));
    assert_eq!(value("full_speed"), format!("{:?}", config.full_speed));
    let secs = config.timeout.as_secs_f64();
    assert_eq!(value("controller_timeout_secs"), format!("{secs:?}"));
    assert_eq!(value("use_sim_time"), config.use_sim_time.to_string());
}

#[test]
fn arms_and_grippers_are_named_each() {
    let config = configured(&[
        ("controllers", texts(&["arm", "/left/hand"])),
        ("prefix", text("seen")),
        ("/left/hand.type", text("GripperCommand")),
        ("/left/hand.joints", texts(&["a", "b"])),
        ("/left/hand.scales", P::IntegerArray(vec![1, -1])),
        ("/left/hand.speed", P::Double(0.2)),
        ("arm.action", text("follow")),
        ("qos_overrides./tf.depth", P::Integer(3)),
    ])
    .unwrap();
    let [arm, hand] = &config.controllers[..] else { panic!("{config:?}") };
    assert_eq!((arm.action.as_str(), arm.offered.as_str()), ("arm/follow", "arm/seen/follow"));
    assert_eq!(arm.kind, Kind::Trajectory);
    assert_eq!(hand.offered, "/left/hand/seen/gripper_cmd");
    let joints = vec![("a".to_owned(), 1.0), ("b".to_owned(), -1.0)];
    assert_eq!(hand.kind, Kind::Gripper(Fingers { joints, speed: 0.2 }));
}

#[test]
fn wrong_parameters_are_named_with_what_is_right() {
    let gripper = ("joint_trajectory_controller.type", text("GripperCommand"));
    for (given, words) in [
        (
            vec![("controlers", texts(&["a"]))],
            "`controlers` is unknown. Known parameters: controllers, ",
        ),
        (vec![("arm.type", text("x"))], "`arm.type` is unknown"),
        (vec![("controllers", texts(&[]))], "give 1 to 32"),
        (vec![("controllers", text("a"))], "`controllers` must be a list of strings"),
        (vec![("controllers", texts(&["a", "b", "a"]))], "has 'a' twice (entry 3)"),
        (vec![("prefix", text("/x"))], "`prefix` is '/x'"),
        (vec![("prefix", text(""))], "`prefix` is ''"),
        (vec![("full_speed", P::Double(0.0))], "`full_speed` must be a number from"),
        (vec![("controller_timeout_secs", P::Double(f64::NAN))], "from 0.5 to 3600"),
        (vec![("use_sim_time", P::Integer(1))], "true or false"),
        (vec![gripper.clone()], "`joint_trajectory_controller.joints` is empty"),
        (
            vec![
                gripper,
                ("joint_trajectory_controller.joints", texts(&["a"])),
                ("joint_trajectory_controller.scales", P::DoubleArray(vec![1.0, 2.0])),
            ],
            "must be 1 finite numbers",
        ),
        (
            vec![("joint_trajectory_controller.type", text("Gripper"))],
            "use FollowJointTrajectory or GripperCommand",
        ),
    ] {
        let error = configured(&given).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

fn goal() -> FollowJointTrajectory::Goal {
    let mut goal = FollowJointTrajectory::Goal::default();
    goal.trajectory.joint_names = vec!["a".into()];
    goal.trajectory.header.stamp.sec = 7;
    let mut point = JointTrajectoryPoint { positions: vec![1.0], ..Default::default() };
    point.time_from_start.nanosec = 500_000_000;
    goal.trajectory.points = vec![point];
    goal
}

#[test]
fn a_goal_becomes_a_motion_from_where_the_joints_are_and_a_message() {
    let mut measured = Measured::default();
    let state = |name: &str, position| JointState {
        name: vec![name.into()],
        position: vec![position],
        ..JointState::default()
    };
    measured.take(state("a", 0.25));
    measured.take(state("a", f64::NAN));
    let seven = forecloud::message::Stamp::from_parts(7, 0);
    let motion = FollowJointTrajectory::Action::motion(&goal(), &(), &measured).unwrap().unwrap();
    let message = trajectory_message(&motion);
    assert_eq!((message.header.stamp.sec, &message.joint_names), (7, &vec!["a".to_owned()]));
    // The node reads it as it was meant.
    let bytes = message.to_serialized_bytes().unwrap();
    // Fast DDS estimates the length of what it serializes aside: some bytes too many.
    let decode = |n| forecloud::message::JointTrajectory::decode(&bytes[..n]).ok();
    let read = (0..=bytes.len()).find_map(decode).unwrap();
    assert_eq!((read.header.stamp, read.points[1].time_from_start_nanos), (seven, 500_000_000));
    let points = message.points.iter().map(|p| (p.positions[0], p.time_from_start.nanosec));
    assert_eq!(points.collect::<Vec<_>>(), [(0.25, 0), (1.0, 500_000_000)]);
    // What is remembered is bounded.
    (0..5000).for_each(|i| measured.take(state(&i.to_string(), 1.0)));
    assert_eq!((measured.of("100"), measured.of("4000")), (Some(1.0), None));
}

#[test]
fn what_is_not_planned_with_is_bounded_too() {
    let wrong: [fn(&mut FollowJointTrajectory::Goal); 3] = [
        |goal| goal.path_tolerance.resize_with(129, Default::default),
        |goal| goal.component_goal_tolerance.resize_with(641, Default::default),
        |goal| goal.multi_dof_trajectory.points.resize_with(100_001, Default::default),
    ];
    for spoil in wrong {
        let mut goal = goal();
        spoil(&mut goal);
        let error = FollowJointTrajectory::Action::motion(&goal, &(), &Measured::default());
        assert!(error.unwrap_err().to_string().contains("at most"));
    }
    let fingers = Fingers { joints: vec![("a".into(), 1.0)], speed: 1.0 };
    let mut goal = GripperCommand::Goal::default();
    goal.command.position = f64::INFINITY;
    let error = GripperCommand::Action::motion(&goal, &fingers, &Measured::default());
    assert!(error.unwrap_err().to_string().contains("inf"));
}
