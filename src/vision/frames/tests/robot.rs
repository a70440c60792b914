//! Frames with a robot, without one, and with one that comes late.

use super::*;
use crate::message::TfMessage;

/// A robot whose root tf must place, and one link on a planar joint.
const URDF: &str = r#"<robot name="r"><link name="foot"/><link name="cart"/><link name="arm"/>
  <joint name="slide" type="planar"><parent link="foot"/><child link="cart"/></joint>
  <joint name="a" type="continuous"><parent link="cart"/><child link="arm"/></joint></robot>"#;

fn optional() -> Frames {
    ready_with(FramesConfig::default())
}

fn at(i: i64) -> i64 {
    START_NS + i * PERIOD_NS
}

/// The frames that the images of time `i` complete.
fn see(frames: &mut Frames, i: i64) -> Vec<Frame> {
    images(at(i)).map(|input| push(frames, input)).into_iter().flatten().collect()
}

fn pose(parent: &str, child: &str, nanos: i64, x: f64) -> TfMessage {
    let parent_from_child = Isometry3::translation(x, 0.0, 0.0);
    let (header, child_frame_id) = (header(nanos, parent), child.into());
    TfMessage { transforms: vec![TransformStamped { header, child_frame_id, parent_from_child }] }
}

#[test]
fn frames_go_on_without_a_robot_and_wait_once() {
    let mut frames = optional();
    // The first frame waits for the second, as joints may be on their way.
    assert!(see(&mut frames, 0).is_empty());
    assert_eq!(see(&mut frames, 1).len(), 1);
    let problem = frames.take_problem().expect("a warning");
    assert!(problem.contains("without the robot") && problem.contains("robot: none"), "{problem}");
    for i in 2..5 {
        let made = see(&mut frames, i);
        assert!(made.iter().all(|frame| frame.robot.is_none()));
        assert!(!made.is_empty(), "{i}");
    }
    assert!(frames.take_problem().is_none(), "one warning");
    let counts = frames.counts();
    assert_eq!((counts.frames_without_robot, counts.n_dropped()), (counts.frames, 0));
}

#[test]
fn a_robot_that_comes_late_is_taken_up() {
    let mut frames = optional();
    see(&mut frames, 0);
    see(&mut frames, 1);
    see(&mut frames, 2);
    frames.take_problem();
    push(&mut frames, Input::RobotDescription(URDF.into()));
    push(&mut frames, joint("a", at(3), 0.5));
    // Its joints come, but not yet where it stands.
    assert!(see(&mut frames, 3).iter().all(|frame| frame.robot.is_none()));
    push(&mut frames, Input::TfStatic(pose("world", "foot", 0, 2.0)));
    push(&mut frames, Input::Tf(pose("foot", "cart", at(3), 0.0)));
    push(&mut frames, Input::Tf(pose("foot", "cart", at(5), 1.0)));
    push(&mut frames, joint("a", at(4), 0.5));
    let frame = see(&mut frames, 4).pop().expect("a frame");
    let mount = &frame.robot.as_ref().expect("the robot").mount;
    assert_eq!(mount.root.map(|root| root.translation.x), Some(2.0));
    assert!((mount.free[0].translation.x - 0.5).abs() < 1e-9, "at the frame's time: {mount:?}");
    assert!(frames.take_news().is_some_and(|news| news.contains("include the robot from")));
}

#[test]
fn a_robot_that_falls_silent_is_missed_and_then_left_out() {
    let mut frames = optional();
    push(&mut frames, Input::RobotDescription(URDF.into()));
    push(&mut frames, Input::TfStatic(pose("world", "foot", 0, 2.0)));
    push(&mut frames, Input::TfStatic(pose("foot", "cart", 0, 0.0)));
    push(&mut frames, joint("a", at(0), 0.5));
    let with_robot = see(&mut frames, 0);
    assert!(with_robot.iter().all(|frame| frame.robot.is_some()) && with_robot.len() == 1);
    let mut made: Vec<Frame> = (1..70).flat_map(|i| see(&mut frames, i)).collect();
    // For five seconds it counts as late.
    let first = made.remove(0);
    assert!(first.robot.is_none() && (first.stamp.nanos() - at(50)).abs() <= 2 * PERIOD_NS);
    assert!((48..=51).contains(&frames.counts().dropped_no_joints), "{:?}", frames.counts());
}

#[test]
fn a_robot_that_is_required_or_none_is_so() {
    let mut frames = ready();
    assert!((0..3).all(|i| see(&mut frames, i).is_empty()));
    assert_eq!(frames.counts().dropped_no_joints, 2);
    let config = FramesConfig { robot: RobotMode::None, ..FramesConfig::default() };
    let names: Vec<String> = config.specs().into_iter().map(|spec| spec.name).collect();
    assert!(!names.iter().any(|name| name.contains("joint") || name.contains("robot")));
    assert!(names.iter().any(|name| name == "/tf"));
    let mut frames = ready_with(config);
    push(&mut frames, joint("a", at(0), 0.5));
    let made = see(&mut frames, 0);
    assert!(made.len() == 1 && made[0].robot.is_none(), "at once");
    assert_eq!(frames.counts().frames_without_robot, 0);
    let required = |mode| {
        let config = FramesConfig { robot: mode, ..FramesConfig::default() };
        config.specs().iter().any(|spec| spec.name == "/joint_states" && spec.required)
    };
    assert!(required(RobotMode::Required) && !required(RobotMode::Optional));
}
