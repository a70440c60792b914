//! Transforms that are lost, wrong or late.

use super::intake::Intake;
use super::stream::{self, Message, OPTICAL, TF, TF_STATIC};

/// The messages of frame `i` without those of `/tf`.
fn without_tf(i: u64) -> impl Iterator<Item = Message> {
    stream::frame(i).into_iter().filter(|message| message.topic != TF)
}

fn link(topic: &'static str, parent: &str, child: &str, i: u64) -> Message {
    stream::transform(topic, parent, child, [0.0, 0.0, 1.0], stream::stamp(i))
}

/// Where the right camera is in the frame that `messages` complete, in metres.
fn right_camera(intake: &mut Intake, messages: impl IntoIterator<Item = Message>) -> [f64; 3] {
    let mut frames = messages.into_iter().filter_map(|m| intake.frames.push_raw(m.topic, &m.bytes));
    frames.next().expect("a frame").cameras[1].world_from_camera.translation.vector.into()
}

#[test]
fn frames_wait_for_a_lost_transform_then_go_and_come_back_with_it() {
    let mut intake = Intake::after(5);
    (5..15).for_each(|i| drop(intake.take_all(without_tf(i))));
    // The last one still waits.
    let counts = intake.counts();
    assert_eq!((counts.dropped_no_tf, counts.frames), (9, 5), "{counts:?}");
    assert!(intake.reported(&[OPTICAL[1], "newest sample", "is its publisher running"]));
    // It does, between the samples around the gap; only its history is missing.
    assert_eq!(intake.take_frames(15..20), 5, "{:?}", intake.problems);
    assert_eq!(intake.n_without_history, 2);
}

#[test]
fn a_transform_may_come_up_to_a_frame_late() {
    let mut intake = Intake::after(5);
    for i in 5..10 {
        let late = intake.take_all(without_tf(i).chain([stream::mast(stream::stamp(i))]));
        assert!(late.is_some(), "later than the images");
    }
    intake.take_all(without_tf(10));
    // As long as frames wait: of the next one, some joint states have come.
    let later = without_tf(11).take(3);
    assert!(intake.take_all(later.chain([stream::mast(stream::stamp(10))])).is_some());
    assert_eq!(intake.counts().n_dropped(), 0, "{:?}", intake.problems);
}

#[test]
fn nothing_is_extrapolated_into_the_future_or_the_past() {
    // Of the time at which a frame is wanted, there are samples only later, or only earlier.
    for (known, missing) in [(1, 0), (4, 5)] {
        let mut intake = Intake::after(0);
        intake.take(&stream::mast(stream::stamp(known)));
        intake.take_all(without_tf(missing).chain(without_tf(missing + 1)));
        assert_eq!(intake.counts().dropped_no_tf, 1, "{:?}", intake.problems);
        let side = if known > missing { "oldest sample" } else { "newest sample" };
        assert!(intake.reported(&[OPTICAL[1], side]), "{:?}", intake.problems);
    }
}

#[test]
fn a_frame_that_is_its_own_parent_is_refused_and_named() {
    for topic in [TF, TF_STATIC] {
        let mut intake = Intake::after(5);
        for (parent, child) in [("world", "world"), ("/world", "world"), ("", "world")] {
            intake.take(&link(topic, parent, child, 4));
        }
        assert_eq!(intake.counts().bad_messages, 3);
        assert!(intake.reported(&["'world'", "two different names"]), "{:?}", intake.problems);
        assert_eq!(intake.take_frames(5..10), 5);
    }
}

#[test]
fn a_loop_is_named_and_ends_with_who_publishes_it() {
    let mut intake = Intake::after(5);
    for i in 5..10 {
        intake.take(&link(TF, OPTICAL[1], "world", i));
        intake.take_all(stream::frame(i));
    }
    assert!(intake.counts().dropped_no_tf >= 4, "{:?}", intake.counts());
    assert!(intake.reported(&["its own ancestor", "two nodes publish a loop"]));
    // Its last transform is forgotten ten seconds later.
    assert_eq!(intake.take_frames(10..100), 0);
    assert!(intake.take_frames(100..120) >= 8, "{:?}", intake.problems.last());
}

#[test]
fn a_camera_that_changes_its_parent_moves_there() {
    let mut intake = Intake::after(5);
    intake.take(&link(TF, "elsewhere", OPTICAL[1], 5));
    intake.take_all(without_tf(5).chain(without_tf(6)));
    assert!(intake.reported(&["no path", "elsewhere", "static_transform_publisher"]));
    assert_eq!(intake.counts().dropped_no_tf, 1);
    assert!(intake.take_frames(7..12) >= 4, "{:?}", intake.problems);
}

#[test]
fn quaternions_are_normalised_or_refused() {
    let pose = |quaternion: [f64; 4]| {
        let at = stream::stamp(5);
        stream::rotated_transform(TF, "world", OPTICAL[1], [0.25, 0.0, 1.0], quaternion, at)
    };
    let mut expected = Intake::after(5);
    let expected = expected.take_all([pose([1.0, 0.0, 0.0, 0.0])].into_iter().chain(without_tf(5)));
    let mut intake = Intake::after(5);
    let got = intake.take_all([pose([2.5, 0.0, 0.0, 0.0])].into_iter().chain(without_tf(5)));
    let positions = |prediction: Option<_>| {
        let prediction: forecloud::predict::predictor::Prediction =
            prediction.expect("a prediction");
        prediction.particles.positions
    };
    assert_eq!(positions(got), positions(expected));

    let mut intake = Intake::after(5);
    for quaternion in [[0.0; 4], [f64::NAN, 0.0, 0.0, 1.0], [0.0, f64::INFINITY, 0.0, 0.0]] {
        intake.take(&pose(quaternion));
    }
    assert_eq!(intake.counts().bad_messages, 3);
    assert!(intake.reported(&["/tf", "quaternion is zero: publish w = 1"]));
    let mast = [stream::mast(stream::stamp(5))];
    let [x, ..] = right_camera(&mut intake, mast.into_iter().chain(without_tf(5)));
    assert!(x.abs() < 0.02, "the good pose, not a refused one: {x}");
}
