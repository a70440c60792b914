//! From subscriptions to the mailbox: decodes and pairs every message, and notes what is missing.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::health::{Cause, Health};
use super::mailbox::{FrameJob, Mailbox, Refusal};
use super::problems::Problems;
use forecloud::message::{Stamp, TransformStamped};
use forecloud::vision::cloud::{Leveled, level_camera};
use forecloud::vision::frames::{
    Frame, FrameCounts, Frames, FramesConfig, Problem, ProblemKind, Role,
};

/// Frames in the making.
pub struct Intake<'a> {
    frames: Frames,
    mailbox: &'a Mailbox<Frame>,
    health: &'a Health,
    problems: Problems,
    arrivals: Arrivals,
    decode_time: Duration,
    /// Arrivals are counted from here.
    start: Instant,
    /// That of a camera that was placed here, for others, and since when.
    leveled: Option<(TransformStamped, Instant)>,
    /// Whether another node tells where that camera is.
    is_withdrawn: bool,
    /// Whether the statuses say that the world frame moves, and whether it was logged.
    is_world_moving: bool,
    is_moving_logged: bool,
}

/// How long a camera's made-up place is kept from other nodes: a robot that is still starting may tell
/// the true one, and what is latched can't be taken back from those who heard it.
const LEVELED_HOLD: Duration = Duration::from_secs(5);

impl<'a> Intake<'a> {
    /// Leaves frames in `mailbox`, and notes in `health` what comes and what is missing.
    pub fn new(frames: Frames, mailbox: &'a Mailbox<Frame>, health: &'a Health) -> Self {
        let specs = frames.config().specs().into_iter();
        let images = specs.filter(|spec| {
            spec.role == Role::Images && spec.message_type != "sensor_msgs/msg/CameraInfo"
        });
        let arrivals = Arrivals::of(images.map(|spec| spec.name));
        Self {
            frames,
            arrivals,
            mailbox,
            health,
            problems: Problems::default(),
            decode_time: Duration::ZERO,
            start: Instant::now(),
            leveled: None,
            is_withdrawn: false,
            is_world_moving: false,
            is_moving_logged: false,
        }
    }

    /// Makes frames with the robot description again that is used, where a newer one can't be.
    pub fn take_refusals(&mut self, refusals: &Receiver<Refusal>) {
        for Refusal { refused, in_use } in refusals.try_iter() {
            self.frames.take_back_description(&refused, &in_use);
        }
    }

    /// Takes a serialized message of `topic`.
    pub fn take(&mut self, topic: &str, bytes: Vec<u8>) {
        let arrived = Instant::now();
        tracing::trace!("{topic}: {} bytes", bytes.len());
        let stamp = header_stamp(&bytes);
        self.health.note(|facts, now| facts.heard(now, topic, stamp, bytes.len()));
        self.arrivals.note(topic, &bytes, arrived);
        let before = *self.frames.counts();
        let robot_before = self.frames.robot_description().cloned();
        let since_start = Stamp::from_nanos(self.nanos_at(arrived));
        let frame = self.frames.push_raw_at(topic, bytes, since_start);
        if let Some(Leveled { transform, news }) = level_camera(&mut self.frames) {
            let secs = LEVELED_HOLD.as_secs();
            tracing::warn!("{news}. Other nodes are told in {secs} s, unless one tells otherwise");
            self.leveled = Some((transform, arrived));
        }
        if self.frames.take_withdrawn() {
            (self.leveled, self.is_withdrawn) = (None, true);
        }
        self.decode_time += arrived.elapsed();
        self.report(&before, topic);
        if self.frames.counts().time_jumps > before.time_jumps {
            self.mailbox.order(|orders| orders.jumped = true);
        }
        if let Some(urdf) = self.frames.robot_description()
            && robot_before.as_ref() != Some(urdf)
        {
            let urdf = urdf.to_string();
            self.mailbox.order(|orders| orders.robot = Some(urdf));
        }
        self.post_all(frame);
    }

    /// Lets time pass: what waited long enough for joints and transforms goes without.
    pub fn pass_time(&mut self) {
        let now = Stamp::from_nanos(self.nanos_at(Instant::now()));
        let before = *self.frames.counts();
        let frame = self.frames.pass_time(now);
        self.report(&before, "");
        self.post_all(frame);
    }

    fn nanos_at(&self, at: Instant) -> i64 {
        i64::try_from(at.saturating_duration_since(self.start).as_nanos()).unwrap_or(i64::MAX)
    }

    /// Notes and logs what came up since `before`, with a message of `topic`.
    fn report(&mut self, before: &FrameCounts, topic: &str) {
        self.health.note(|facts, _| facts.absent_cameras(self.frames.absent_cameras()));
        self.watch_world();
        let problems = self.frames.take_problems();
        if !problems.is_empty() {
            self.report_problems(before, topic, &problems);
        }
        if let Some(news) = self.frames.take_news() {
            tracing::info!("{news}");
        }
        let warnings: Vec<String> = self.frames.take_warnings().collect();
        for warning in warnings {
            self.problems.warn(&format!("input: {warning:.40}"), warning);
        }
    }

    /// Notes whether tf says that the world frame moves, and logs that once.
    fn watch_world(&mut self) {
        let moving = self.frames.moving_world();
        if moving.is_some() == self.is_world_moving {
            return;
        }
        self.is_world_moving = moving.is_some();
        let text = moving.map(|carried| {
            format!(
                "the world frame moves: {carried}. All that stands there seems to move then, and nothing is \
                 held at rest. Remedy: set world_frame to {}; with workspace_frame '{}' the box still goes along",
                carried.instead(),
                carried.frame
            )
        });
        if let Some(text) = text.as_ref().filter(|_| !self.is_moving_logged) {
            tracing::warn!("{text}");
            self.is_moving_logged = true;
        }
        self.health.note(|facts, _| facts.moving_world = text);
    }

    fn post_all(&mut self, mut frame: Option<Frame>) {
        while let Some(next) = frame {
            self.post(next);
            frame = self.frames.take_frame();
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
        let waited_ms = now.saturating_duration_since(arrived).as_secs_f32() * 1e3;
        let job = FrameJob { frame, arrived, whole: now, decode_ms, counts, n_replaced: 0 };
        self.mailbox.put_frame(job);
        self.health.note(|facts, now| facts.frame(now, waited_ms));
    }

    /// Where a camera is that was placed by what it sees, for others: once, and only after nobody has told
    /// otherwise for a while.
    pub fn take_leveled(&mut self) -> Option<TransformStamped> {
        let is_due = |(_, since): &mut (_, Instant)| since.elapsed() >= LEVELED_HOLD;
        self.leveled.take_if(is_due).map(|(transform, _)| transform)
    }

    /// Whether that is no longer so, as another node tells where the camera is: once.
    pub fn is_leveled_withdrawn(&mut self) -> bool {
        std::mem::take(&mut self.is_withdrawn)
    }

    /// Takes other tolerances; topics stay as they are.
    pub fn set_config(&mut self, config: FramesConfig) {
        self.frames.set_config(config);
    }

    /// Forgets all that has a time, and has the predicting thread do so too; returns the number of
    /// images that waited.
    pub fn reset(&mut self) -> u64 {
        self.mailbox.reset();
        self.frames.forget()
    }

    /// As [`Intake::reset`], for a clock that was set back.
    pub fn time_jumped(&mut self, from: Stamp, to: Stamp) {
        let problem = format!("/clock went back from {from} s to {to} s: starting over");
        self.mailbox.reset();
        self.frames.time_jumped(problem);
        if let Some(problem) = self.frames.take_problem() {
            self.health.note(|facts, now| facts.trouble(now, Cause::TimeJump, 1, &problem));
            self.problems.warn("TimeJump", problem);
        }
    }

    /// Notes and logs what was counted since `before`, with what was said of it, causes first.
    fn report_problems(&mut self, before: &FrameCounts, topic: &str, problems: &[Problem]) {
        let after = self.frames.counts();
        let mut counted = counted(before, after);
        let mut n_bad = after.bad_messages - before.bad_messages;
        let mut problems: Vec<&Problem> = problems.iter().collect();
        problems.sort_by_key(|problem| problem.kind);
        for Problem { kind, first: text, .. } in problems {
            let Some(cause) = cause_of(*kind) else {
                let n_bad = std::mem::take(&mut n_bad);
                self.health.note(|facts, now| facts.bad_message(now, topic, n_bad, text));
                self.problems.warn(&format!("bad message on {topic}"), text);
                continue;
            };
            // Several problems of one cause share its count.
            let at = counted.iter().position(|(counted, _)| *counted == cause);
            let n = at.map_or(0, |at| counted.swap_remove(at).1);
            self.health.note(|facts, now| facts.trouble(now, cause, n, text));
            self.problems.warn(&format!("{cause:?}"), text);
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

/// What was counted between the two, and how often; bad messages aside.
fn counted(before: &FrameCounts, after: &FrameCounts) -> Vec<(Cause, u64)> {
    if after.time_jumps > before.time_jumps {
        // Images that waited then are unpaired for that reason only.
        return vec![(Cause::TimeJump, after.time_jumps - before.time_jumps)];
    }
    let counts = [
        (Cause::Calibration, before.dropped_no_info, after.dropped_no_info),
        (Cause::Transform, before.dropped_no_tf, after.dropped_no_tf),
        (Cause::Joints, before.dropped_no_joints, after.dropped_no_joints),
        (Cause::Image, before.dropped_mismatched, after.dropped_mismatched),
        (Cause::Robot, before.frames_without_robot, after.frames_without_robot),
        (Cause::LeftOut, before.cameras_left_out, after.cameras_left_out),
        (Cause::Unpaired, before.dropped_unpaired, after.dropped_unpaired),
        (Cause::Late, before.dropped_late, after.dropped_late),
    ];
    let counts = counts.into_iter().filter(|(_, before, after)| after > before);
    counts.map(|(cause, before, after)| (cause, after - before)).collect()
}

/// What the node counts a problem as; none: as a bad message of its topic.
fn cause_of(kind: ProblemKind) -> Option<Cause> {
    Some(match kind {
        ProblemKind::BadMessage => return None,
        ProblemKind::TimeJump => Cause::TimeJump,
        ProblemKind::Mismatch => Cause::Image,
        ProblemKind::Calibration => Cause::Calibration,
        ProblemKind::Placing | ProblemKind::Transform => Cause::Transform,
        ProblemKind::Joints => Cause::Joints,
        ProblemKind::Robot => Cause::Robot,
        ProblemKind::Unpaired => Cause::Unpaired,
        ProblemKind::LeftOut => Cause::LeftOut,
        ProblemKind::Late => Cause::Late,
    })
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
    fn what_was_counted_is_told_apart() {
        let before = FrameCounts { frames: 7, dropped_unpaired: 2, ..FrameCounts::default() };
        let after = FrameCounts { dropped_unpaired: 5, dropped_no_tf: 1, ..before };
        let both = [(Cause::Transform, 1), (Cause::Unpaired, 3)];
        assert_eq!(counted(&before, &after), both);
        let after = FrameCounts { time_jumps: 1, ..after };
        assert_eq!(counted(&before, &after), [(Cause::TimeJump, 1)]);
        assert_eq!(counted(&before, &before), []);
    }

    #[test]
    fn both_byte_orders_give_the_stamp() {
        let stamp = Some(Stamp::from_parts(7, 8));
        assert_eq!(header_stamp(&image(7, 8)), stamp);
        assert_eq!(header_stamp(&[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8]), stamp);
        assert_eq!(header_stamp(&image(7, 8)[..11]), None);
    }
}
