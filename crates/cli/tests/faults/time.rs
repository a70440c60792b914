//! Stamps that are wrong.

use super::intake::Intake;
use super::stream::{self, COLOR, DEPTH, EACH_FRAME, JOINTS, Message, TF};

const YEARS_NS: i64 = 5 * 365 * 86_400 * 1_000_000_000;

/// The messages of frame `i` on `topics`, with other stamps.
fn shifted(i: u64, topics: &[&str], nanos: i64) -> Vec<Message> {
    let of_topics = stream::frame(i).into_iter().filter(|m| topics.contains(&m.topic));
    of_topics.map(|message| message.at(stream::stamp(i) + nanos)).collect()
}

/// Frames of good messages after which predictions must have come again.
const SOON: u64 = 4;

#[test]
fn a_rogue_stamp_years_away_stops_nothing() {
    let each_alone = EACH_FRAME.iter().map(std::slice::from_ref);
    for topics in each_alone.chain([&EACH_FRAME[..]]) {
        for nanos in [YEARS_NS, -YEARS_NS] {
            let mut intake = Intake::after(5);
            intake.take_all(shifted(5, topics, nanos));
            let n_predicted = intake.take_frames(5..5 + SOON);
            // Starting anew costs the history of one step, and the frame that was waiting.
            assert!(n_predicted >= SOON - 2, "{topics:?} by {nanos}: {:?}", intake.problems);
            let n_jumps = intake.counts().time_jumps;
            let is_watched = |topic: &&str| **topic == *JOINTS || topic.ends_with("image_raw");
            if topics.iter().any(is_watched) {
                assert!((1..=2).contains(&n_jumps), "{topics:?}: {n_jumps} jumps");
                assert!(intake.reported(&["went back"]), "{:?}", intake.problems);
            } else {
                assert_eq!(n_jumps, 0, "{topics:?}");
            }
            assert_eq!(intake.take_frames(5 + SOON..20), 15 - SOON, "and then all are predicted");
        }
    }
}

#[test]
fn a_stamp_less_than_a_time_jump_ahead_delays_no_longer_than_that() {
    let each_alone = EACH_FRAME.iter().map(std::slice::from_ref);
    for topics in each_alone.chain([&EACH_FRAME[..]]) {
        let mut intake = Intake::after(5);
        intake.take_all(shifted(5, topics, 900_000_000));
        intake.take_frames(5..15);
        assert_eq!(intake.counts().time_jumps, 0);
        assert!(intake.take_frames(15..20) >= 4, "{topics:?}: {:?}", intake.problems);
    }
}

#[test]
fn stamps_that_jump_back_and_forth_are_counted() {
    let mut intake = Intake::after(5);
    let jumps = 50;
    for i in 0..jumps {
        // Two frames an hour later, two frames in time.
        let frames = 5 + 4 * i..9 + 4 * i;
        for (at, i) in frames.enumerate() {
            let nanos = if at < 2 { 3_600_000_000_000 } else { 0 };
            for message in stream::frame(i) {
                let jumps = message.is_image() || message.topic == TF;
                intake.take(&if jumps { message.at(stream::stamp(i) + nanos) } else { message });
            }
        }
    }
    assert!(intake.counts().time_jumps >= jumps, "{:?}", intake.counts());
    let end = 5 + 4 * jumps;
    assert!(intake.take_frames(end..end + SOON) >= SOON - 2, "{:?}", intake.problems);
}

#[test]
fn messages_that_come_twice_change_nothing() {
    let (mut once, mut twice) = (Intake::after(1), Intake::after(1));
    for i in 1..10 {
        let messages = stream::frame(i);
        let expected = once.take_all(messages.clone()).expect("a prediction");
        let doubled = messages.into_iter().flat_map(|message| [message.clone(), message]);
        let got = twice.take_all(doubled).expect("a prediction");
        assert_eq!(got.displacements, expected.displacements);
        assert_eq!(got.particles.positions, expected.particles.positions);
    }
    // Each of the four images that came twice is counted.
    let counts = twice.counts();
    assert_eq!((counts.frames, counts.bad_messages), (10, 9 * 4), "{counts:?}");
}

#[test]
fn frames_that_come_out_of_order_are_dropped_and_counted() {
    let mut intake = Intake::after(5);
    for i in (5..25).step_by(2) {
        intake.take_all(stream::frame(i + 1));
        assert!(intake.take_all(stream::frame(i)).is_none());
    }
    let counts = intake.counts();
    assert_eq!((counts.dropped_late, counts.time_jumps), (10, 0), "{counts:?}");
    assert!(intake.reported(&["came after those of"]), "{:?}", intake.problems);
    assert!(intake.take_frames(25..30) >= 4);
}

#[test]
fn stamps_of_zero_are_counted_and_named() {
    for (topics, told) in [
        (&[DEPTH[0]][..], &["0.000000000 s came twice"][..]),
        (&[COLOR[0], DEPTH[0], COLOR[1], DEPTH[1]], &["0.000000000"]),
        (&[JOINTS], &["joint", "0.000000000"]),
        (&[TF], &["right_optical", "0.000000000"]),
    ] {
        let mut intake = Intake::after(0);
        let n = 10;
        for i in 0..n {
            for message in stream::frame(i) {
                let is_zero = topics.contains(&message.topic);
                intake.take(&if is_zero { message.at(0) } else { message });
            }
        }
        let counts = intake.counts();
        // A robot whose joints are of another time is left out, not the frames.
        let is_robots = topics == [JOINTS];
        assert_eq!(intake.n_predicted > 0, is_robots, "{topics:?}");
        let n_lost = counts.n_dropped() + counts.time_jumps + counts.frames_without_robot;
        assert!(n_lost >= n - 2, "{topics:?}: {counts:?}");
        assert!(intake.reported(told), "{topics:?}: {:?}", intake.problems);
        // A camera that was left out for it is taken back once it has sent for a while.
        let n_more = 2 * SOON + 10;
        let n_predicted = intake.take_frames(n..n + n_more);
        assert!(n_predicted >= n_more - 8, "{topics:?}: {n_predicted}, {:?}", intake.problems);
    }
}

#[test]
fn a_plan_of_the_far_future_waits_for_its_time() {
    let mut intake = Intake::after(5);
    intake.take(&stream::plan(stream::stamp(4)).at(stream::stamp(4) + YEARS_NS));
    let messages = stream::frame(5).into_iter();
    let mut made = messages.filter_map(|m| intake.frames.push_raw(m.topic, &m.bytes));
    let plan = made.next().expect("a frame").plan;
    assert_eq!(plan.last().expect("a plan").header.stamp.nanos(), stream::stamp(5));
}

#[test]
fn fifteen_frames_a_second_are_predicted_without_tuning() {
    let mut intake = Intake::new();
    intake.take_all(stream::start());
    for i in 0..20 {
        let nanos = stream::START_NS + i as i64 * 66_666_667;
        let messages = stream::frame(i);
        let last_joints = messages.iter().rposition(|m| m.topic == stream::JOINTS);
        let is_kept =
            |at: usize, m: &stream::Message| m.topic != stream::JOINTS || Some(at) == last_joints;
        let kept = messages.into_iter().enumerate().filter(|(at, m)| is_kept(*at, m));
        intake.take_all(kept.map(|(_, message)| message.at(nanos)));
    }
    assert!(intake.n_predicted >= 17, "{} of 20: {:?}", intake.n_predicted, intake.problems);
}
