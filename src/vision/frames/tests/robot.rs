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
    // The first frame waits, as joints may be on their way; the second does not.
    assert!(see(&mut frames, 0).is_empty());
    assert_eq!(see(&mut frames, 1).len(), 2);
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
    let made: Vec<Frame> = (1..70).flat_map(|i| see(&mut frames, i)).collect();
    assert!(made.len() >= 68 && made.iter().all(|frame| frame.robot.is_none()));
    // For five seconds it counts as late.
    let counts = frames.counts();
    assert_eq!((counts.frames_without_robot, counts.n_dropped()), (made.len() as u64, 0));
    assert!((48..=51).contains(&counts.frames_robot_late), "{counts:?}");
}

/// Takes messages at the times (ms from the start) at which they arrive.
fn arrive(frames: &mut Frames, inputs: Vec<(i64, Input)>) -> Vec<Frame> {
    let mut made = Vec::new();
    for (ms, input) in inputs {
        let arrived = Stamp::from_nanos(ms * 1_000_000);
        made.extend(frames.pass_time(arrived));
        made.extend(push(frames, input));
        made.extend(std::iter::from_fn(|| frames.take_frame()));
    }
    made
}

/// Images at 30 Hz that arrive 5 ms late, and joint states at 100 Hz that arrive `late_ms` late.
fn with_late_joints(frames: &mut Frames, late_ms: i64) -> Vec<Frame> {
    push(frames, Input::RobotDescription(URDF.replace("planar", "fixed")));
    push(frames, Input::TfStatic(pose("world", "foot", 0, 2.0)));
    let mut inputs = Vec::new();
    for i in 0..60 {
        let ms = 33 * i;
        inputs.extend(images(START_NS + ms * 1_000_000).map(|input| (ms + 5, input)));
    }
    for i in -1..200 {
        let ms = 10 * i + 3;
        inputs.push((ms + late_ms, joint("a", START_NS + ms * 1_000_000, 0.5)));
    }
    inputs.sort_by_key(|(ms, _)| *ms);
    arrive(frames, inputs)
}

#[test]
fn frames_wait_for_joints_as_long_as_the_patience_says() {
    for mode in [RobotMode::Optional, RobotMode::Required] {
        let config = FramesConfig { robot: mode, ..FramesConfig::default() };
        let mut frames = ready_with(config.clone());
        let made = with_late_joints(&mut frames, 80);
        assert!(made.len() >= 57, "{mode:?}: {:?}", frames.counts());
        assert!(made.iter().all(|frame| frame.robot.is_some()), "{mode:?}");
        // Beyond it they go without the robot, or are dropped; the remedy has the lag.
        let mut frames = ready_with(config);
        let made = with_late_joints(&mut frames, 150);
        let without = made.iter().filter(|frame| frame.robot.is_none()).count() as u64;
        let counts = *frames.counts();
        match mode {
            RobotMode::Required => assert!(counts.dropped_no_joints > 50, "{counts:?}"),
            _ => assert!(without > 50 && counts.frames_robot_late > 50, "{counts:?}"),
        }
        let problem = frames.take_problem().expect("a problem");
        assert!(
            problem.contains("after the images, which wait 0.1 s: set patience_secs"),
            "{problem}"
        );
    }
}

#[test]
fn a_joint_that_the_robot_lacks_is_ignored_and_one_that_it_has_is_not() {
    let state = |names: &[&str], positions: &[f64], nanos| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let (header, positions) = (header(nanos, ""), positions.to_vec());
        Input::JointState(JointState { header, names, positions, ..JointState::default() })
    };
    let mut frames = optional();
    push(&mut frames, Input::RobotDescription(URDF.replace("planar", "fixed")));
    push(&mut frames, Input::TfStatic(pose("world", "foot", 0, 2.0)));
    push(&mut frames, state(&["wheel", "a"], &[f64::NAN, 0.5], at(0)));
    // Another order, and another publisher of something else.
    push(&mut frames, state(&["a", "wheel"], &[0.7, f64::NAN], at(1)));
    push(&mut frames, state(&["gripper"], &[0.1], at(0)));
    let made = see(&mut frames, 0);
    assert_eq!(joints(&made[0]).positions, [0.5]);
    assert_eq!(*joints(&made[0]).names, ["a"]);
    assert_eq!(joints(&see(&mut frames, 1)[0]).positions, [0.7]);
    let counts = *frames.counts();
    assert_eq!((counts.joints_ignored, counts.bad_messages), (2, 0));
    push(&mut frames, state(&["a"], &[f64::NAN], at(2)));
    assert_eq!(frames.counts().bad_messages, 1);
    assert!(frames.take_problem().is_some_and(|problem| problem.contains("NaN of joint 'a'")));
}

#[test]
fn a_continuous_joint_is_interpolated_the_short_way_round() {
    for (kind, between) in [("continuous", std::f64::consts::PI), ("revolute", 0.0)] {
        let mut frames = optional();
        let urdf = URDF.replace("planar", "fixed").replace(
            "type=\"continuous\"><parent",
            &format!("type=\"{kind}\"><limit lower=\"-4\" upper=\"4\" effort=\"1\" velocity=\"9\"/><parent"),
        );
        push(&mut frames, Input::RobotDescription(urdf));
        push(&mut frames, Input::TfStatic(pose("world", "foot", 0, 2.0)));
        push(&mut frames, joint("a", at(0) - 10, 3.1));
        push(&mut frames, joint("a", at(0) + 10, -3.1));
        let made = see(&mut frames, 0);
        assert!((joints(&made[0]).positions[0] - between).abs() < 1e-9, "{kind}: {made:?}");
    }
}

#[test]
fn two_sources_of_a_joint_that_contradict_each_other_are_named() {
    let run = |source: fn(i64) -> f64| {
        let mut frames = optional();
        for i in 0..20 {
            push(&mut frames, joint("a", at(i), 0.8));
            push(&mut frames, joint("a", at(i) + 10_000_000, source(i)));
        }
        let warnings: Vec<String> = frames.take_warnings().collect();
        (frames.counts().joint_contradictions, warnings)
    };
    let (n, warnings) = run(|_| 0.0);
    assert!(n > 30 && warnings.len() == 1, "{n}, {warnings:?}");
    let parts =
        ["two sources on /joint_states", "'a' is at 0.800", "at 0.000", "ros2 topic info -v"];
    assert!(parts.iter().all(|part| warnings[0].contains(part)), "{warnings:?}");
    // One joint that shakes a little, or jumps once.
    assert_eq!(run(|i| if i % 2 == 0 { 0.805 } else { 0.795 }), (0, vec![]));
    assert_eq!(run(|i| if i == 7 { 0.0 } else { 0.8 }).1, Vec::<String>::new());
    // Of one time: the first counts.
    let mut frames = optional();
    push(&mut frames, joint("a", at(0), 0.8));
    push(&mut frames, joint("a", at(0), 0.1));
    assert_eq!(frames.counts().joint_contradictions, 1);
    assert_eq!(joints(&see(&mut frames, 0)[0]).positions, [0.8]);
}

#[test]
fn another_description_counts_from_then_on_and_is_told() {
    let mut frames = optional();
    push(&mut frames, Input::RobotDescription(URDF.into()));
    push(&mut frames, joint("a", at(0), 0.5));
    assert!(frames.take_warnings().next().is_none());
    let other = URDF.replace("\"a\"", "\"b\"").replace("planar", "fixed");
    push(&mut frames, Input::RobotDescription(other.clone()));
    assert!(frames.take_warnings().any(|text| text.contains("another robot description")));
    assert_eq!(frames.counts().robot_changes, 1);
    push(&mut frames, Input::TfStatic(pose("world", "foot", 0, 2.0)));
    push(&mut frames, joint("b", at(1), 0.25));
    let frame = see(&mut frames, 1).pop().expect("a frame");
    assert_eq!(frame.robot_description.as_deref(), Some(other.as_str()));
    assert_eq!(*joints(&frame).names, ["b"]);
    // The same again is no news.
    push(&mut frames, Input::RobotDescription(other));
    assert_eq!(frames.counts().robot_changes, 1);
}

#[test]
fn plans_that_are_announced_belong_to_a_frame_until_another_takes_their_place() {
    let starts = |frame: &Frame| -> Vec<i64> {
        frame.plan.iter().map(|plan| (plan.header.stamp.nanos() - START_NS) / 1_000_000).collect()
    };
    let frame = |plans: &[i64]| {
        let mut frames = optional();
        push(&mut frames, joint("a", at(0), 0.5));
        for ms in plans {
            push(&mut frames, plan(START_NS + ms * 1_000_000));
        }
        see(&mut frames, 0).pop().expect("a frame")
    };
    assert_eq!(starts(&frame(&[-500, 450])), [-500, 450]);
    assert_eq!(starts(&frame(&[-500, 450, 20_000])), [-500, 450], "too late to matter");
    // Whoever plans anew drops what was announced; a little disorder is none.
    assert_eq!(starts(&frame(&[-500, 450, 100])), [-500, 100]);
    assert_eq!(starts(&frame(&[-500, 110, 100])), [-500, 100, 110]);
    let many: Vec<i64> = (-20..0).chain(1..20).collect();
    assert_eq!(starts(&frame(&many)), (-8..0).chain(1..9).collect::<Vec<_>>());
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

#[test]
fn links_are_looked_up_under_the_prefix_of_their_frames() {
    let prefixed = |world: &str| FramesConfig {
        frame_prefix: "robot_1/".into(),
        world_frame: world.into(),
        ..FramesConfig::default()
    };
    for (world, root) in [("map", "foot"), ("foot", "foot")] {
        // tf's `foot` is no link of this robot, whose own is `robot_1/foot`.
        let mut frames = Frames::new(prefixed(world));
        push(&mut frames, Input::RobotDescription(URDF.into()));
        let mounting = &frames.robot.outline().expect("an outline").mounting;
        assert_eq!(mounting.root, Some(format!("robot_1/{root}")));
        assert_eq!(mounting.free, [["robot_1/foot".to_owned(), "robot_1/cart".to_owned()]]);
    }
    let mut frames = Frames::new(prefixed("/robot_1/foot"));
    push(&mut frames, Input::RobotDescription(URDF.into()));
    assert!(frames.robot.is_rooted_in_world());
    assert_eq!(FramesConfig::default().world_link(), "world");
}

#[test]
fn the_robot_of_the_prefix_is_placed_not_another_of_the_same_links() {
    let config = FramesConfig { frame_prefix: "robot_2/".into(), ..FramesConfig::default() };
    let mut frames = ready_with(config);
    push(&mut frames, Input::RobotDescription(URDF.replace("planar", "fixed")));
    push(&mut frames, Input::TfStatic(pose("world", "foot", 0, 1.0)));
    push(&mut frames, Input::TfStatic(pose("world", "robot_1/foot", 0, 2.0)));
    push(&mut frames, Input::TfStatic(pose("world", "robot_2/foot", 0, 3.0)));
    push(&mut frames, joint("a", at(0), 0.5));
    let frame = see(&mut frames, 0).pop().expect("a frame");
    let mount = frame.robot.expect("the robot").mount;
    assert_eq!(mount.root.map(|root| root.translation.x), Some(3.0));
}
