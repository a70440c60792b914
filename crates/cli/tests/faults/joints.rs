//! Joint states, plans and robot descriptions that do not fit.

use super::intake::Intake;
use super::stream::{self, JOINT_NAMES, JOINTS, Message, PLAN, ROBOT};

/// Frame `i` with other joint positions, under `names`.
fn frame_with_joints(i: u64, names: &[&str], positions: &[f64]) -> Vec<Message> {
    let replaced = |message: Message| match message.topic == JOINTS {
        true => stream::joints(stamp_of(&message), names, positions),
        false => message,
    };
    stream::frame(i).into_iter().map(replaced).collect()
}

/// The stamp of a little-endian message that begins with a header.
fn stamp_of(message: &Message) -> i64 {
    let number = |at: usize| {
        let bytes = message.bytes[at..at + 4].try_into().expect("four bytes");
        i64::from(i32::from_le_bytes(bytes))
    };
    number(4) * 1_000_000_000 + number(8)
}

#[test]
fn joints_that_are_not_sent_are_waited_for_named_and_taken_back() {
    let mut intake = Intake::after(5);
    for i in 5..15 {
        intake.take_all(stream::frame(i).into_iter().filter(|m| m.topic != JOINTS));
    }
    // Each waits for them, and then goes without the robot.
    let counts = intake.counts();
    assert!((9..=10).contains(&counts.frames_without_robot), "{counts:?}");
    assert!(intake.reported(&["without the robot", "'turn'", JOINTS]), "{:?}", intake.problems);
    assert!(intake.take_frames(15..20) >= 3);
}

#[test]
fn joints_that_are_no_numbers_are_counted_and_bridged() {
    let mut intake = Intake::after(5);
    let odd = |i: u64| stream::joints(stream::stamp(i) - 1, &JOINT_NAMES, &[0.0, f64::NAN]);
    for i in 5..15 {
        intake.take(&odd(i));
        assert!(intake.take_all(stream::frame(i)).is_some());
    }
    assert_eq!(intake.counts().bad_messages, 10);
    assert!(intake.reported(&["NaN of joint 'slide'"]), "{:?}", intake.problems);
}

#[test]
fn joints_of_another_robot_are_named_and_taken_for_none() {
    let mut intake = Intake::after(5);
    for i in 5..10 {
        intake.take_all(frame_with_joints(i, &["turn", "elbow"], &[0.0, 0.0]));
    }
    assert!(intake.counts().frames_without_robot >= 4, "{:?}", intake.counts());
    assert!(intake.reported(&["without the robot", "'slide'"]), "{:?}", intake.problems);
    assert!(intake.take_frames(10..15) >= 3, "{:?}", intake.problems);
}

#[test]
fn another_publisher_of_joints_that_the_robot_lacks_is_not_waited_for() {
    let mut intake = Intake::after(5);
    intake.take(&stream::joints(stream::stamp(4), &["gripper"], &[f64::NAN]));
    assert_eq!(intake.take_frames(5..40), 35, "{:?}", intake.problems);
    assert_eq!((intake.counts().joints_ignored, intake.counts().n_dropped()), (1, 0));
}

#[test]
fn joints_that_jump_are_taken_as_measured_or_rejected_but_never_published_unbounded() {
    for position in [3.0, -1e3, 1e18, -1e30, 1e300, f64::MAX] {
        let mut intake = Intake::after(5);
        for i in 5..15 {
            let at = if i % 2 == 0 { position } else { 0.0 };
            intake.take_all(frame_with_joints(i, &JOINT_NAMES, &[at, at]));
        }
        // `Intake` holds every prediction to finite numbers.
        assert_eq!(intake.counts().frames, 15);
        assert!(intake.take_frames(15..20) >= 3, "{position}: {:?}", intake.problems);
    }
}

#[test]
fn plans_that_make_no_sense_are_counted() {
    let mut intake = Intake::after(5);
    let mut plan = stream::plan(stream::stamp(5));
    let n = plan.bytes.len();
    plan.bytes[n - 8..].fill(0); // the last point at time zero: times do not ascend
    intake.take(&plan);
    assert_eq!(intake.counts().bad_messages, 1);
    assert!(intake.reported(&[PLAN, "times must ascend"]), "{:?}", intake.problems);
    assert_eq!(intake.take_frames(5..10), 5);
}

#[test]
fn a_broken_robot_description_leaves_the_good_one_in_use() {
    let mut intake = Intake::after(5);
    for (i, broken) in (5..).zip(["", "<robot name='half'><link", "no XML at all", "<robot/>"]) {
        intake.take(&stream::text(ROBOT, broken));
        assert!(intake.take_all(stream::frame(i)).is_some(), "{broken}: {:?}", intake.problems);
    }
    assert_eq!(intake.n_robots_refused, 4);
    assert!(intake.reported(&["robot description (URDF)"]), "{:?}", intake.problems);
    // The good one again is a new start, as any change of the robot is.
    intake.take(&stream::robot_description());
    assert_eq!(intake.take_frames(9..15), 5);
}
