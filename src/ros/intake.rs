//! From subscriptions to the mailbox: decodes and pairs every message, and says what is missing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::mailbox::{Mailbox, Parcel};
use super::problems::Problems;
use crate::frames::{Frame, FrameCounts, Frames, Role};
use crate::message::Stamp;

/// First time without a frame after which the silent topics are named; doubles each time.
const FIRST_SILENCE: Duration = Duration::from_secs(5);

/// Frames in the making.
pub struct Intake<'a> {
    frames: Frames,
    mailbox: &'a Mailbox<Frame>,
    problems: Problems,
    /// Each subscribed topic, and whether a message came on it since the last frame.
    heard: Vec<(String, bool)>,
    arrivals: Arrivals,
    decode_time: Duration,
    last_frame: Instant,
    silence: Duration,
}

impl<'a> Intake<'a> {
    /// `required`: the topics without which there is no frame.
    pub fn new(frames: Frames, required: Vec<String>, mailbox: &'a Mailbox<Frame>) -> Self {
        let specs = frames.config().topics.specs().into_iter();
        let images = specs.filter(|spec| {
            spec.role == Role::Images && spec.message_type != "sensor_msgs/msg/CameraInfo"
        });
        let arrivals = Arrivals::of(images.map(|spec| spec.name));
        Self {
            frames,
            arrivals,
            mailbox,
            problems: Problems::default(),
            heard: required.into_iter().map(|topic| (topic, false)).collect(),
            decode_time: Duration::ZERO,
            last_frame: Instant::now(),
            silence: FIRST_SILENCE,
        }
    }

    /// Takes a serialized message of `topic`.
    pub fn take(&mut self, topic: &str, bytes: &[u8]) {
        let arrived = Instant::now();
        tracing::trace!("{topic}: {} bytes", bytes.len());
        if let Some((_, heard)) = self.heard.iter_mut().find(|(name, _)| name == topic) {
            *heard = true;
        }
        self.arrivals.note(topic, bytes, arrived);
        let before = *self.frames.counts();
        let robot_before = self.frames.robot_description().cloned();
        let frame = self.frames.push_raw(topic, bytes);
        self.decode_time += arrived.elapsed();

        if let Some(problem) = self.frames.take_problem() {
            let cause = cause(&before, self.frames.counts(), topic);
            self.problems.warn(&cause, problem);
        }
        if let Some(urdf) = self.frames.robot_description()
            && robot_before.as_ref() != Some(urdf)
        {
            self.mailbox.put_robot(urdf.to_string());
        }
        if let Some(frame) = frame {
            self.post(frame);
        }
    }

    fn post(&mut self, frame: Frame) {
        let decode_ms = std::mem::take(&mut self.decode_time).as_secs_f32() * 1e3;
        let counts = *self.frames.counts();
        let now = Instant::now();
        // Not the message that completed the frame: that may be a joint state much later.
        let cameras = frame.cameras.iter();
        let images = cameras.flat_map(|camera| [Some(camera.stamp()), camera.color_stamp()]);
        let arrived = self.arrivals.last(images.flatten()).unwrap_or(now);
        self.mailbox.put_frame(Parcel { frame, arrived, decode_ms, counts, n_replaced: 0 });
        self.last_frame = now;
        self.silence = FIRST_SILENCE;
        self.heard.iter_mut().for_each(|(_, heard)| *heard = false);
    }

    /// Names the topics that keep frames from being made, after some time without any.
    pub fn watch_silence(&mut self) {
        let waited = self.last_frame.elapsed();
        if waited < self.silence {
            return;
        }
        self.silence = 2 * waited;
        let silent: Vec<&str> = self
            .heard
            .iter()
            .filter(|(_, heard)| !heard)
            .map(|(topic, _)| topic.as_str())
            .collect();
        let secs = waited.as_secs();
        if silent.is_empty() {
            tracing::warn!("no complete frame for {secs} s, though messages come on all topics");
        } else {
            tracing::warn!(
                "no frame for {secs} s: no message on {}. Remedy: start what publishes them, or \
                 remap the topics; if `ros2 topic hz` sees large images that the node does not, \
                 run the publisher with the DDS profile config/fastdds_large_clouds.xml",
                silent.join(", ")
            );
        }
    }
}

/// When the latest images came.
struct Arrivals {
    topics: Vec<String>,
    /// In the order of arrival; at most [`MAX_ARRIVALS`] for each topic.
    images: VecDeque<(Stamp, Instant)>,
}

/// More than the images of one topic that wait for partners.
const MAX_ARRIVALS: usize = 16;

impl Arrivals {
    fn of(topics: impl Iterator<Item = String>) -> Self {
        Self { topics: topics.collect(), images: VecDeque::new() }
    }

    /// Notes the arrival of `bytes`, if `topic` is one of images.
    fn note(&mut self, topic: &str, bytes: &[u8], arrived: Instant) {
        if !self.topics.iter().any(|name| name == topic) {
            return;
        }
        if let Some(stamp) = header_stamp(bytes) {
            if self.images.len() == MAX_ARRIVALS * self.topics.len() {
                self.images.pop_front();
            }
            self.images.push_back((stamp, arrived));
        }
    }

    /// The latest arrival of an image of one of `stamps`.
    fn last(&self, stamps: impl Iterator<Item = Stamp>) -> Option<Instant> {
        let of = |stamp| self.images.iter().rev().find(|image| image.0 == stamp);
        stamps.filter_map(of).map(|image| image.1).max()
    }
}

/// The stamp of the header with which a serialized message begins: 4 bytes of encapsulation (the
/// second one is odd where numbers are little endian), seconds, nanoseconds.
fn header_stamp(bytes: &[u8]) -> Option<Stamp> {
    let &[_, kind, _, _, a, b, c, d, e, f, g, h] = bytes.first_chunk()?;
    let (secs, nanos) = ([a, b, c, d], [e, f, g, h]);
    Some(match kind & 1 {
        1 => Stamp::from_parts(i32::from_le_bytes(secs), u32::from_le_bytes(nanos)),
        _ => Stamp::from_parts(i32::from_be_bytes(secs), u32::from_be_bytes(nanos)),
    })
}

/// Which kind of problem was counted: what warnings are throttled by.
fn cause(before: &FrameCounts, after: &FrameCounts, topic: &str) -> String {
    let kinds = [
        ("no calibration", before.dropped_no_info, after.dropped_no_info),
        ("no transform", before.dropped_no_tf, after.dropped_no_tf),
        ("no joints", before.dropped_no_joints, after.dropped_no_joints),
        ("sizes", before.dropped_mismatched, after.dropped_mismatched),
        ("time jump", before.time_jumps, after.time_jumps),
        ("late", before.dropped_late, after.dropped_late),
        ("unpaired", before.dropped_unpaired, after.dropped_unpaired),
    ];
    match kinds.into_iter().find(|(_, before, after)| after > before) {
        Some((kind, ..)) => kind.to_owned(),
        None => format!("bad message on {topic}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(secs: i32, nanos: u32) -> Vec<u8> {
        [&[0, 1, 0, 0][..], &secs.to_le_bytes(), &nanos.to_le_bytes(), b"and more"].concat()
    }

    #[test]
    fn a_frame_arrived_with_its_last_image() {
        let mut arrivals = Arrivals::of(["/color".into(), "/depth".into()].into_iter());
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (topic, stamp, ms) in [
            ("/color", image(7, 8), 1),
            ("/depth", image(7, 9), 2),
            ("/color", image(8, 8), 3),
            ("/joint_states", image(7, 9), 4),
        ] {
            arrivals.note(topic, &stamp, at(ms));
        }
        let stamps = |nanos: &[u32]| nanos.iter().map(|&n| Stamp::from_parts(7, n)).collect();
        let last = |stamps: Vec<Stamp>| arrivals.last(stamps.into_iter());
        assert_eq!(last(stamps(&[8, 9])), Some(at(2)));
        assert_eq!(last(stamps(&[8])), Some(at(1)));
        assert_eq!(last(stamps(&[1])), None);
    }

    #[test]
    fn arrivals_are_bounded_and_time_may_go_back() {
        let mut arrivals = Arrivals::of(["/color".into()].into_iter());
        let now = Instant::now();
        (0..100).for_each(|i| arrivals.note("/color", &image(1000 - i, 0), now));
        arrivals.note("/color", b"short", now);
        assert_eq!(arrivals.images.len(), MAX_ARRIVALS);
        assert_eq!(arrivals.last([Stamp::from_parts(901, 0)].into_iter()), Some(now));
    }

    #[test]
    fn both_byte_orders_give_the_stamp() {
        let stamp = Some(Stamp::from_parts(7, 8));
        assert_eq!(header_stamp(&image(7, 8)), stamp);
        assert_eq!(header_stamp(&[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8]), stamp);
        assert_eq!(header_stamp(&image(7, 8)[..11]), None);
    }
}
