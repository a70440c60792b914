//! What is known of one subscribed topic: its messages, and who publishes it.

use std::collections::VecDeque;
use std::time::Duration;

use super::recent::{Recent, WINDOW};
use super::said::Said;
use forecloud::message::Stamp;

/// Time without a message after which a topic is silent.
pub const SILENCE: Duration = Duration::from_secs(2);
/// Arrivals that are kept of a topic: five seconds at 100 Hz.
const MAX_ARRIVALS: usize = 512;
/// Differences of stamps that a period is estimated from, at least.
const MIN_DIFFERENCES: usize = 4;
/// A longer gap between two stamps is a pause of the source, not a loss (seconds).
const MAX_GAP_SECS: f64 = 1.0;

/// What the messages of a topic are to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Images or clouds, raw or compressed.
    Images,
    /// Calibration of a camera.
    Calibration,
    /// Measured joints.
    Joints,
    /// Planned joints.
    Plan,
    /// The robot's description.
    Robot,
    /// Transforms.
    Transforms,
}

impl Kind {
    /// By the type of the messages.
    pub fn of(message_type: &str) -> Self {
        match message_type {
            "sensor_msgs/msg/CameraInfo" => Self::Calibration,
            "sensor_msgs/msg/JointState" => Self::Joints,
            "trajectory_msgs/msg/JointTrajectory" => Self::Plan,
            "std_msgs/msg/String" => Self::Robot,
            "tf2_msgs/msg/TFMessage" => Self::Transforms,
            _ => Self::Images,
        }
    }
}

/// One who publishes a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publisher {
    /// Full name of its node.
    pub node: String,
    /// What is wrong with it for the subscription, with the remedy; none if nothing is.
    pub mismatch: Option<String>,
}

/// One subscribed topic.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name in the configuration.
    pub key: String,
    /// Its name after remaps.
    pub name: String,
    /// What its messages are to the node.
    pub kind: Kind,
    /// Whether there is no frame without it.
    pub required: bool,
    /// Who publishes it; none before the first look.
    pub publishers: Option<Vec<Publisher>>,
    /// Messages that could not be used.
    pub bad: Recent,
    /// What was wrong with them.
    pub said: Said,
    /// Size of the largest message, bytes.
    pub largest_bytes: usize,
    /// Messages so far.
    pub n_messages: u64,
    /// Time of the last message.
    pub last: Option<Duration>,
    arrivals: VecDeque<(Duration, Stamp)>,
}

/// Messages of the last seconds that did not reach the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    /// How many are missing.
    pub lost: u64,
    /// How many came.
    pub came: u64,
}

impl Topic {
    /// A topic without a message yet.
    pub fn new(key: &str, name: &str, message_type: &str, required: bool) -> Self {
        Self {
            key: key.to_owned(),
            name: name.to_owned(),
            kind: Kind::of(message_type),
            required,
            publishers: None,
            bad: Recent::default(),
            said: Said::default(),
            largest_bytes: 0,
            n_messages: 0,
            last: None,
            arrivals: VecDeque::new(),
        }
    }

    /// Whether its silence is worth telling where its messages are wanted.
    pub fn is_needed(&self) -> bool {
        self.required || self.kind == Kind::Joints
    }

    /// Notes a message of `n_bytes`.
    pub fn heard(&mut self, now: Duration, stamp: Option<Stamp>, n_bytes: usize) {
        self.n_messages += 1;
        self.last = Some(now);
        self.largest_bytes = self.largest_bytes.max(n_bytes);
        if !matches!(self.kind, Kind::Images | Kind::Calibration) {
            return;
        }
        let old = |&(at, _): &(Duration, Stamp)| at + WINDOW < now;
        while self.arrivals.len() == MAX_ARRIVALS || self.arrivals.front().is_some_and(old) {
            self.arrivals.pop_front();
        }
        self.arrivals.extend(stamp.map(|stamp| (now, stamp)));
    }

    /// Whether no message came for [`SILENCE`]; a calibration needs to come only once.
    pub fn is_silent(&self, now: Duration) -> bool {
        match self.last {
            Some(_) if self.kind == Kind::Calibration => false,
            last => now.saturating_sub(last.unwrap_or_default()) > SILENCE,
        }
    }

    /// Messages a second over the last seconds.
    pub fn rate_hz(&self, now: Duration) -> f64 {
        let mut recent = self.recent(now).map(|&(at, _)| at);
        let (first, n) = (recent.next(), recent.clone().count());
        let span_secs = first.map_or(0.0, |first| {
            recent.next_back().unwrap_or(first).saturating_sub(first).as_secs_f64()
        });
        if span_secs > 0.0 { n as f64 / span_secs } else { 0.0 }
    }

    /// What got lost of the last seconds, as far as it can be told.
    ///
    /// Gaps in the stamps against their own period; and if `reference` (small messages that come
    /// with each of these: the camera's calibration) came more often, the difference.
    pub fn loss(&self, now: Duration, reference: Option<&Topic>) -> Loss {
        let came = self.recent(now).count() as u64;
        let n_reference = reference.map_or(0, |topic| topic.recent(now).count() as u64);
        // One may be under way.
        let by_reference = n_reference.saturating_sub(came + 1);
        Loss { came, lost: self.lost_in_gaps(now).max(by_reference) }
    }

    fn lost_in_gaps(&self, now: Duration) -> u64 {
        let mut stamps: Vec<Stamp> = self.recent(now).map(|&(_, stamp)| stamp).collect();
        // What came out of order has come; time that was set back starts anew.
        let goes_back = |a: &Stamp, b: &Stamp| a.secs_since(*b) > MAX_GAP_SECS;
        let runs = stamps.chunk_by_mut(|a, b| !goes_back(a, b));
        let gaps = runs.flat_map(|run| {
            run.sort_unstable();
            run.windows(2).map(|pair| pair[1].secs_since(pair[0])).collect::<Vec<_>>()
        });
        let gaps: Vec<f64> = gaps.filter(|secs| (1e-6..=MAX_GAP_SECS).contains(secs)).collect();
        if gaps.len() < MIN_DIFFERENCES {
            return 0;
        }
        // A low quantile: what a period is also where every second message is lost.
        let mut sorted = gaps.clone();
        let (_, &mut period, _) = sorted.select_nth_unstable_by(gaps.len() / 5, f64::total_cmp);
        gaps.iter().map(|gap| ((gap / period).round() as u64).saturating_sub(1)).sum()
    }

    fn recent(&self, now: Duration) -> impl DoubleEndedIterator<Item = &(Duration, Stamp)> + Clone {
        self.arrivals.iter().filter(move |(at, _)| *at + WINDOW >= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    /// Messages of `period_secs` from `start_secs` on, but for those that `lost` picks.
    fn played(topic: &mut Topic, period_secs: f64, n: usize, lost: impl Fn(usize) -> bool) {
        for i in (0..n).filter(|&i| !lost(i)) {
            let secs = i as f64 * period_secs;
            topic.heard(at(secs), Some(Stamp::from_secs(1e9 + secs)), 100);
        }
    }

    fn images() -> Topic {
        Topic::new("/a/image", "/b", "sensor_msgs/msg/Image", true)
    }

    #[test]
    fn silence_is_two_seconds_without_a_message() {
        let mut topic = images();
        assert!(!topic.is_silent(at(2.0)));
        assert!(topic.is_silent(at(2.1)));
        topic.heard(at(3.0), None, 10);
        assert!(!topic.is_silent(at(5.0)) && topic.is_silent(at(5.1)));
        let mut once = Topic::new("/a/camera_info", "/c", "sensor_msgs/msg/CameraInfo", true);
        assert!(once.is_silent(at(2.1)));
        once.heard(at(3.0), None, 10);
        assert!(!once.is_silent(at(1000.0)));
    }

    #[test]
    fn gaps_in_the_stamps_are_losses() {
        for (lost, n_lost) in [
            (&(|_| false) as &dyn Fn(usize) -> bool, 0),
            (&|i| i == 5 || i == 11 || i == 12, 3),
            (&|i| i % 2 == 1, 0),       // half the rate for all we can see
            (&|i| i % 10 % 3 == 1, 12), // 1, 4, 7 of each ten
        ] {
            let mut topic = images();
            played(&mut topic, 0.1, 40, lost);
            assert_eq!(topic.loss(at(4.0), None).lost, n_lost);
        }
    }

    #[test]
    fn what_comes_out_of_order_is_not_lost() {
        let mut topic = images();
        for i in 0..40 {
            // Each two change places.
            let secs = 0.1 * f64::from(i ^ 1);
            topic.heard(at(0.1 * f64::from(i)), Some(Stamp::from_secs(1e9 + secs)), 1);
        }
        assert_eq!(topic.loss(at(4.0), None), Loss { lost: 0, came: 40 });
    }

    #[test]
    fn a_pause_jitter_and_time_set_back_are_no_losses() {
        let mut topic = images();
        let stamps = [0.0, 0.1, 0.21, 0.3, 0.39, 0.5, 3.0, 3.1, 3.2, 0.1, 0.2, 0.3, 0.42];
        for (i, secs) in stamps.into_iter().enumerate() {
            topic.heard(at(0.1 * i as f64), Some(Stamp::from_secs(1e9 + secs)), 1);
        }
        assert_eq!(topic.loss(at(1.3), None), Loss { lost: 0, came: 13 });
        assert_eq!(topic.loss(at(20.0), None), Loss::default());
    }

    #[test]
    fn messages_that_come_with_lost_ones_tell_of_them() {
        let (mut topic, mut info) =
            (images(), Topic::new("/a/camera_info", "/c", "sensor_msgs/msg/CameraInfo", true));
        played(&mut topic, 0.1, 40, |i| i % 20 != 0);
        played(&mut info, 0.1, 40, |_| false);
        assert_eq!(topic.loss(at(4.0), Some(&info)), Loss { lost: 37, came: 2 });
        assert_eq!(info.loss(at(4.0), Some(&topic)).lost, 0);
    }

    #[test]
    fn rates_and_sizes() {
        let mut topic = images();
        assert_eq!(topic.rate_hz(at(1.0)), 0.0);
        played(&mut topic, 0.1, 200, |_| false);
        assert!((topic.rate_hz(at(20.0)) - 10.0).abs() < 0.01);
        topic.heard(at(20.0), None, 7);
        assert_eq!((topic.largest_bytes, topic.n_messages), (100, 201));
        assert!(topic.arrivals.len() < 60);
    }
}
