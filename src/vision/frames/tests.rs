mod cameras;
mod inputs;
mod place;
mod robot;
mod views;

use super::*;
use crate::message::Image;
use crate::message::{CameraInfo, Header, JointState, JointTrajectory};
use crate::message::{TrajectoryPoint, TransformStamped};
use crate::robot::kinematics::RobotMode;
use nalgebra::{Isometry3, Translation3, UnitQuaternion};
use std::collections::HashMap;

const PERIOD_NS: i64 = 100_000_000;
const START_NS: i64 = 1_000_000_000_000;

fn header(nanos: i64, frame_id: &str) -> Header {
    Header { stamp: Stamp::from_nanos(nanos), frame_id: frame_id.into() }
}

fn optical(camera: usize) -> String {
    format!("camera_{camera}_optical_frame")
}

fn image(camera: usize, nanos: i64, encoding: &str) -> Image {
    Image {
        header: header(nanos, &optical(camera)),
        height: 1,
        width: 2,
        encoding: encoding.into(),
        is_bigendian: false,
        step: 6,
        data: vec![0; 6],
    }
}

fn color(camera: usize, nanos: i64) -> Input {
    Input::Color { camera, image: image(camera, nanos, "rgb8") }
}

fn depth(camera: usize, nanos: i64) -> Input {
    Input::Depth { camera, image: image(camera, nanos, "16UC1") }
}

fn info(camera: usize, width: u32) -> Input {
    let info = CameraInfo {
        header: header(0, &optical(camera)),
        height: 1,
        width,
        distortion_model: String::new(),
        d: vec![],
        k: [1.0; 9],
        r: [0.0; 9],
        p: [0.0; 12],
    };
    Input::ColorInfo { camera, info: Arc::new(info) }
}

fn joint(name: &str, nanos: i64, position: f64) -> Input {
    Input::JointState(JointState {
        header: header(nanos, ""),
        names: vec![name.into()],
        positions: vec![position],
        ..JointState::default()
    })
}

fn plan(nanos: i64) -> Input {
    let point = TrajectoryPoint { positions: vec![1.0], time_from_start_nanos: 0 };
    let header = header(nanos, "");
    Input::Plan(JointTrajectory { header, joint_names: vec!["a".into()], points: vec![point] })
}

fn transform(camera: usize, nanos: i64, x: f64) -> TfMessage {
    let transform = TransformStamped {
        header: header(nanos, "world"),
        child_frame_id: optical(camera),
        parent_from_child: Isometry3::from_parts(
            Translation3::new(x, 0.0, 0.0),
            UnitQuaternion::identity(),
        ),
    };
    TfMessage { transforms: vec![transform] }
}

fn joints(frame: &Frame) -> &Joints {
    &frame.robot.as_ref().expect("a robot").joints
}

/// Two cameras whose poses and calibrations are known; a robot is required.
fn ready() -> Frames {
    ready_with(FramesConfig { robot: RobotMode::Required, ..FramesConfig::default() })
}

fn ready_with(config: FramesConfig) -> Frames {
    let mut frames = Frames::new(config);
    for camera in 0..2 {
        push(&mut frames, info(camera, 2));
        push(&mut frames, Input::TfStatic(transform(camera, 0, camera as f64)));
    }
    frames
}

fn push(frames: &mut Frames, input: Input) -> Option<Frame> {
    frames.push(input).expect("a camera that is there")
}

/// Adds messages that complete no frame.
fn push_incomplete(frames: &mut Frames, inputs: impl IntoIterator<Item = Input>) {
    for input in inputs {
        assert!(push(frames, input).is_none());
    }
}

fn images(nanos: i64) -> [Input; 4] {
    [color(0, nanos), depth(0, nanos), color(1, nanos), depth(1, nanos)]
}

/// The plans that have started; of others, those count that have come.
fn started(frame: &Frame) -> Vec<&JointTrajectory> {
    let plans = frame.plan.iter().filter(|plan| plan.header.stamp <= frame.stamp);
    plans.map(|plan| &**plan).collect()
}

/// The messages of `n` frames as a recording has them: joints at 50 Hz, a plan per frame.
fn recording(n: i64) -> Vec<Input> {
    let mut inputs = Vec::new();
    for i in 0..n {
        let stamp = START_NS + i * PERIOD_NS;
        inputs.push((stamp - 30_000_000, plan(stamp)));
        inputs.extend(images(stamp).map(|input| (stamp + 10_000_000, input)));
        for j in 0..5 {
            let at = stamp + 7_000_000 + j * 20_000_000;
            inputs.push((at, joint("a", at, (at - START_NS) as f64)));
        }
    }
    inputs.sort_by_key(|&(log_time, _)| log_time);
    inputs.into_iter().map(|(_, input)| input).collect()
}

fn run(frames: &mut Frames, inputs: Vec<Input>) -> Vec<Frame> {
    let mut made: Vec<_> = inputs.into_iter().filter_map(|input| push(frames, input)).collect();
    made.extend(frames.finish());
    made
}

#[test]
fn frames_pair_images_joints_poses_and_plans() {
    let mut frames = ready();
    let made = run(&mut frames, recording(12));
    // No joint state comes before the first frame, and 7 ms after it is within the tolerance
    // only once the frame is overdue.
    assert_eq!(made.len(), 12, "{:?}", frames.last_problem());
    for (i, frame) in made.iter().enumerate() {
        let since_start = i as i64 * PERIOD_NS;
        assert_eq!(frame.stamp.nanos(), START_NS + since_start);
        let x = frame.cameras.iter().map(|camera| camera.world_from_camera.translation.x);
        assert_eq!(x.collect::<Vec<_>>(), [0.0, 1.0]);
        let expected = if i == 0 { 7e6 } else { since_start as f64 };
        assert!((joints(frame).positions[0] - expected).abs() < 1.0, "{:?}", frame.robot);
        let plans = started(frame);
        assert_eq!(plans.last().map(|plan| plan.header.stamp), Some(frame.stamp));
        assert_eq!(plans.len(), (i + 1).min(8));
        assert!(frame.plan.is_sorted_by_key(|plan| plan.header.stamp));
    }
    assert_eq!(*frames.counts(), FrameCounts { frames: 12, ..FrameCounts::default() });
}

#[test]
fn the_order_of_arrival_within_a_frame_changes_nothing() {
    let expected = run(&mut ready(), recording(6));
    let mut inputs = recording(6);
    for window in inputs.chunks_mut(4) {
        window.reverse();
    }
    let got = run(&mut ready(), inputs);
    assert_eq!(got.len(), expected.len());
    for (a, b) in expected.iter().zip(&got) {
        assert_eq!((a.stamp, &a.robot, started(a)), (b.stamp, &b.robot, started(b)));
    }
}

#[test]
fn an_exact_joint_state_is_taken_as_it_is() {
    let mut frames = ready();
    push(&mut frames, joint("a", START_NS - 5, 1.0));
    push_incomplete(&mut frames, images(START_NS));
    let frame = push(&mut frames, joint("a", START_NS, 0.3)).expect("a frame");
    assert_eq!(joints(&frame).positions, [0.3]);
}

#[test]
fn arm_and_gripper_may_publish_apart() {
    let mut frames = ready();
    push(&mut frames, joint("arm", START_NS - 10, 1.0));
    push(&mut frames, joint("gripper", START_NS - 10, 3.0));
    push_incomplete(&mut frames, images(START_NS));
    assert!(push(&mut frames, joint("arm", START_NS + 10, 2.0)).is_none());
    let frame = push(&mut frames, joint("gripper", START_NS + 30, 7.0)).expect("a frame");
    assert_eq!(*joints(&frame).names, ["arm", "gripper"]);
    assert_eq!(joints(&frame).positions, [1.5, 4.0]);
}

#[test]
fn a_late_joint_state_is_replaced_by_the_last_one_within_the_tolerance() {
    for (age_ns, made) in [(20_000_000, true), (21_000_000, false)] {
        let mut frames = ready();
        push(&mut frames, joint("a", START_NS - age_ns, 1.0));
        push_incomplete(&mut frames, images(START_NS));
        let next = images(START_NS + PERIOD_NS).map(|input| push(&mut frames, input));
        assert_eq!(next.iter().flatten().count(), usize::from(made));
        assert_eq!(frames.counts().dropped_no_joints, u64::from(!made));
        if !made {
            let problem = frames.take_problem().expect("a problem");
            assert!(problem.contains("/joint_states"), "{problem}");
        }
    }
}

#[test]
fn images_pair_within_the_tolerance_only() {
    for (offset_ns, made) in [(20_000_000, true), (-20_000_000, true), (21_000_000, false)] {
        let mut frames = ready();
        push(&mut frames, joint("a", START_NS, 1.0));
        push(&mut frames, joint("a", START_NS + PERIOD_NS, 1.0));
        let inputs = vec![
            color(0, START_NS + 1),
            depth(0, START_NS),
            color(1, START_NS + offset_ns),
            depth(1, START_NS),
        ];
        assert_eq!(run(&mut frames, inputs).len(), usize::from(made), "{offset_ns}");
    }
}

#[test]
fn images_without_partners_are_bounded_and_counted() {
    let mut frames = ready();
    for i in 0..20 {
        push(&mut frames, depth(0, START_NS + i * PERIOD_NS));
    }
    assert_eq!(frames.counts().dropped_unpaired, 12);
    let problem = frames.last_problem().expect("a problem");
    assert!(problem.contains("nothing has come on /camera_left/color/image_raw"), "{problem}");
    // The newest depth image is still there.
    let last = START_NS + 19 * PERIOD_NS;
    push(&mut frames, joint("a", last, 1.0));
    let rest = vec![color(0, last), color(1, last), depth(1, last)];
    assert_eq!(run(&mut frames, rest).len(), 1);
    // Those that waited are from before the first colour image.
    assert_eq!((frames.counts().dropped_unpaired, frames.counts().images_surplus), (12, 7));
}

#[test]
fn the_first_cause_is_kept_and_told_before_what_follows_from_it() {
    let mut frames = Frames::new(FramesConfig::default());
    let topic = "/camera_left/color/camera_info";
    for i in 0..5 {
        for input in images(START_NS + i * PERIOD_NS) {
            push(&mut frames, input);
        }
        assert!(frames.push_raw(topic, &[0_u8, 1, 0, 0, 1][..]).is_none());
    }
    let problems = frames.problems();
    assert_eq!((problems[0].kind, problems[0].count), (ProblemKind::BadMessage, 5));
    assert!(problems[0].first.starts_with(topic), "{problems:?}");
    // The first frame was dropped before anything came; the others' calibrations were refused.
    let calibrations: Vec<&Problem> =
        problems.iter().filter(|problem| problem.kind == ProblemKind::Calibration).collect();
    assert!(
        calibrations.iter().any(|problem| problem.first.contains("were refused: ")),
        "{problems:?}"
    );
    assert!(problems.is_sorted_by_key(|problem| problem.kind));
}

#[test]
fn what_is_missing_is_counted_with_its_remedy() {
    let mut frames = Frames::new(FramesConfig::default());
    let feed = |frames: &mut Frames, i: i64| {
        let stamp = START_NS + i * PERIOD_NS;
        push(frames, joint("a", stamp, 1.0));
        images(stamp).map(|input| push(frames, input)).into_iter().flatten().count()
    };
    assert_eq!(feed(&mut frames, 0) + feed(&mut frames, 1), 0);
    assert_eq!(frames.counts().dropped_no_info, 1);
    assert!(frames.take_problem().expect("a problem").contains("/camera_left/color/camera_info"));
    push(&mut frames, info(0, 2));
    push(&mut frames, info(1, 2));
    assert_eq!(feed(&mut frames, 2), 0);
    assert_eq!(frames.counts().dropped_no_tf, 1);
    let problem = frames.take_problem().expect("a problem");
    assert!(problem.contains("static_transform_publisher"), "{problem}");
    push(&mut frames, Input::TfStatic(transform(0, 0, 0.0)));
    assert!(push(&mut frames, Input::TfStatic(transform(1, 0, 0.0))).is_some());
    push(&mut frames, info(1, 3));
    assert_eq!(feed(&mut frames, 3), 0);
    assert_eq!(frames.counts().dropped_mismatched, 1);
}

#[test]
fn a_moving_camera_is_looked_up_at_the_stamp() {
    let mut frames = ready();
    push(&mut frames, Input::Tf(transform(1, START_NS - 10, 0.0)));
    push(&mut frames, joint("a", START_NS, 1.0));
    push_incomplete(&mut frames, images(START_NS));
    let frame = push(&mut frames, Input::Tf(transform(1, START_NS + 30, 4.0))).expect("a frame");
    assert!((frame.cameras[1].world_from_camera.translation.x - 1.0).abs() < 1e-12);
}

#[test]
fn a_world_frame_that_tf_carries_along_with_a_camera_is_told() {
    // odom → world, on which both cameras stand.
    let told = |way_m: fn(i64) -> f64| {
        let mut frames = ready_with(FramesConfig { robot: RobotMode::None, ..Default::default() });
        let mut first = None;
        for i in 0..12 {
            let mut moved = transform(0, START_NS + i * PERIOD_NS, way_m(i));
            moved.transforms[0].header.frame_id = "odom".into();
            moved.transforms[0].child_frame_id = "world".into();
            push(&mut frames, Input::Tf(moved));
            images(START_NS + i * PERIOD_NS)
                .into_iter()
                .for_each(|input| drop(push(&mut frames, input)));
            first = first.or(frames.moving_world().map(|_| i));
        }
        assert_eq!(frames.counts().frames, 12);
        let found = frames.moving_world().map(|carried| carried.above.clone());
        frames.forget();
        assert_eq!(frames.moving_world(), None, "time starts anew");
        (first, found)
    };
    assert_eq!(told(|i| 0.016 * i as f64), (Some(4), Some("odom".into())));
    assert_eq!(told(|_| 0.5), (None, None));
    assert_eq!(told(|i| if i < 6 { 0.0 } else { 0.3 }), (None, None), "a correction");
}

#[test]
fn a_recording_that_starts_anew_gives_frames_again() {
    let mut frames = ready();
    assert_eq!(run(&mut frames, recording(13)).len(), 13);
    let moved = recording(13).into_iter().map(|input| match input {
        Input::JointState(mut state) => {
            state.positions[0] += 1e9;
            Input::JointState(state)
        }
        other => other,
    });
    let again = run(&mut frames, moved.collect());
    assert_eq!(frames.counts().time_jumps, 1, "{:?}", frames.counts());
    assert_eq!(again.len(), 13, "{:?} {:?}", frames.counts(), frames.last_problem());
    let expected = run(&mut ready(), recording(13));
    for (a, b) in expected.iter().zip(&again) {
        // Nothing of the first run is left; the plan before the jump was seen went with it.
        assert_eq!(a.stamp, b.stamp);
        assert!((joints(b).positions[0] - joints(a).positions[0] - 1e9).abs() < 1.0, "{b:?}");
        let plans = a.plan.iter().filter(|plan| plan.header.stamp.nanos() > START_NS);
        assert!(plans.eq(b.plan.iter()), "{:?}", b.plan);
    }
}

#[test]
fn old_images_give_no_frame() {
    let mut frames = ready();
    assert_eq!(run(&mut frames, recording(5)).len(), 5);
    for input in images(START_NS + 3 * PERIOD_NS + 1) {
        assert!(push(&mut frames, input).is_none());
    }
    assert_eq!(frames.counts().dropped_late, 1);
}

#[test]
fn a_plan_that_starts_now_gets_the_newest_stamp() {
    let mut frames = ready();
    push(&mut frames, joint("a", START_NS, 1.0));
    push(&mut frames, plan(0));
    let made = run(&mut frames, images(START_NS).into());
    assert_eq!(made[0].plan[0].header.stamp.nanos(), START_NS);
}

#[test]
fn messages_that_cannot_be_used_are_counted() {
    let mut frames = ready();
    assert!(frames.push_raw("/joint_states", &[0, 1, 0, 0, 9]).is_none());
    assert!(frames.push_raw("/unknown", &[]).is_none());
    let mut own_parent = transform(0, 0, 0.0);
    own_parent.transforms[0].child_frame_id = "/world".into();
    push(&mut frames, Input::Tf(own_parent));
    assert_eq!(frames.counts().bad_messages, 2);
    assert!(frames.push(color(2, 0)).is_err());
}

#[test]
fn every_topic_is_decoded_and_contained() {
    let topics = Topics::default();
    let names = [
        "/camera_left/color/image_raw",
        "/camera_right/depth/image_raw",
        "/camera_right/color/camera_info",
        "/joint_states",
        "/planned_joints",
        "/tf",
        "/tf_static",
        "/robot_description",
    ];
    for name in names {
        assert!(topics.contains(name) && topics.decode(name, &[]).is_some(), "{name}");
    }
    assert!(!topics.contains("/truth/bodies") && topics.decode("/truth/bodies", &[]).is_none());
}
