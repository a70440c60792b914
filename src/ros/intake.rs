//! From subscriptions to the mailbox: decodes and pairs every message, and says what is missing.

use std::time::{Duration, Instant};

use super::mailbox::{Mailbox, Parcel};
use super::problems::Problems;
use crate::frames::{Frame, FrameCounts, Frames};

/// First time without a frame after which the silent topics are named; doubles each time.
const FIRST_SILENCE: Duration = Duration::from_secs(5);

/// Frames in the making.
pub struct Intake<'a> {
    frames: Frames,
    mailbox: &'a Mailbox<Frame>,
    problems: Problems,
    /// Each subscribed topic, and whether a message came on it since the last frame.
    heard: Vec<(String, bool)>,
    decode_time: Duration,
    last_frame: Instant,
    silence: Duration,
}

impl<'a> Intake<'a> {
    /// `required`: the topics without which there is no frame.
    pub fn new(frames: Frames, required: Vec<String>, mailbox: &'a Mailbox<Frame>) -> Self {
        Self {
            frames,
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
            self.post(frame, arrived);
        }
    }

    fn post(&mut self, frame: Frame, arrived: Instant) {
        let decode_ms = std::mem::take(&mut self.decode_time).as_secs_f32() * 1e3;
        let counts = *self.frames.counts();
        self.mailbox.put_frame(Parcel { frame, arrived, decode_ms, counts, n_replaced: 0 });
        self.last_frame = arrived;
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
