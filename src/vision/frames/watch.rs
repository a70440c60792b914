//! Which cameras are left out at present, and what to do about it; what images were lost.

use super::images::Losses;
use super::{CameraInput, CameraTopics, Frames, ProblemKind};
use crate::message::Stamp;

/// Images further apart do not belong into one frame: half of a model's usual step.
const MAX_TOLERANCE_SECS: f64 = 0.05;

/// What is known of the cameras' silence.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Oldest image since all cameras were silent.
    start: Option<Stamp>,
    pub(super) absent: Vec<bool>,
    /// Whether it was told that a camera is too slow for the timeout.
    told_slow: Vec<bool>,
    /// How far the last shot of each camera lay behind the newest image, nanoseconds.
    lags: Vec<u64>,
}

impl Watch {
    pub(super) fn new(n_cameras: usize) -> Self {
        let no = vec![false; n_cameras];
        Self { start: None, absent: no.clone(), told_slow: no, lags: vec![0; n_cameras] }
    }

    /// Time starts anew.
    pub(super) fn forget_times(&mut self) {
        self.start = None;
    }

    /// Notes an image; `newest`: of those before it.
    pub(super) fn note_image(&mut self, stamp: Stamp, newest: Option<Stamp>, timeout: u64) {
        let is_pause = |newest| stamp > newest && stamp.abs_diff(newest) > timeout;
        if newest.is_none_or(is_pause) {
            self.start = Some(stamp);
        }
        self.start.get_or_insert(stamp);
    }

    pub(super) fn note_shot(&mut self, camera: usize, stamp: Stamp, newest: Option<Stamp>) {
        let newest = newest.filter(|&newest| newest > stamp);
        self.lags[camera] = newest.map_or(0, |newest| newest.abs_diff(stamp));
    }
}

impl Frames {
    /// Tells of cameras that fell silent, and of those that are back.
    pub(super) fn watch_cameras(&mut self) {
        let (Some(newest), Some(start)) = (self.newest_image(), self.watch.start) else { return };
        let timeout = self.timeout;
        let is_long = |since: Stamp| newest > since && newest.abs_diff(since) > timeout;
        let mut went = Vec::new();
        for camera in 0..self.watch.absent.len() {
            let last = self.sets.newest(camera);
            match self.watch.absent[camera] {
                false if is_long(last.max(Some(start)).unwrap_or(start)) => {
                    self.watch.absent[camera] = true;
                    went.push(camera);
                }
                true if last.is_some_and(|last| !is_long(last)) => {
                    self.watch.absent[camera] = false;
                    let name = self.config.topics.cameras[camera].name.clone();
                    self.tell(format!("camera '{name}' sends again: back in the frames"));
                }
                true if !self.watch.told_slow[camera]
                    && self.sets.slow_period(camera).is_some() =>
                {
                    self.watch.told_slow[camera] = true;
                    let problem = self.absence(camera, newest);
                    self.problems.note(ProblemKind::LeftOut, problem);
                }
                _ => {}
            }
        }
        if !went.is_empty() {
            self.counts.cameras_left_out += went.len() as u64;
            let problems: Vec<String> = went.into_iter().map(|i| self.absence(i, newest)).collect();
            self.problems.note(ProblemKind::LeftOut, problems.join("; "));
        }
    }

    /// Something to tell that is no problem.
    pub(super) fn tell(&mut self, news: String) {
        let before = self.news.take().map(|before| before + "; ");
        self.news = Some(before.unwrap_or_default() + &news);
    }

    /// Why a camera is left out, with the remedy.
    fn absence(&self, camera: usize, newest: Stamp) -> String {
        let topics = &self.config.topics.cameras[camera];
        let timeout_secs = self.config.camera_timeout_secs;
        let streams = match topics.input {
            CameraInput::Points => vec![(&topics.points, 1)],
            input if !input.has_color() => vec![(&topics.depth, 1)],
            _ => vec![(&topics.color, 0), (&topics.depth, 1)],
        };
        let is_silent = |i: usize| {
            let last = self.newest[2 * camera + i];
            last.is_none_or(|last| newest > last && newest.abs_diff(last) > self.timeout)
        };
        let silent = streams.into_iter().filter(|(_, i)| is_silent(*i));
        let silent: Vec<&str> = silent.map(|(name, _)| name.as_str()).collect();
        let refused = silent.iter().find_map(|topic| Some((topic, self.problems.refused(topic)?)));
        let lag = self.watch.lags[camera];
        let cause = if lag > self.timeout {
            let lag_secs = lag as f64 * 1e-9;
            format!("its stamps lie {lag_secs:.1} s behind other ones: synchronise the clocks")
        } else if let Some(period) = self.sets.slow_period(camera) {
            let (period_secs, enough_secs) = (round_up_secs(period), round_up_secs(2 * period));
            format!("it sends every {period_secs} s: set camera_timeout_secs to {enough_secs}")
        } else if let Some((topic, (why, n))) = refused {
            format!("{n} messages came on {topic} and were refused: {why}")
        } else if !silent.is_empty() {
            format!(
                "nothing readable came on {} for {timeout_secs} s (camera_timeout_secs): check its driver, \
                 and the name with `ros2 topic list`",
                silent.join(" and ")
            )
        } else {
            self.unpaired_images(camera)
        };
        let others = self.watch.absent.iter().any(|absent| !absent);
        let after = if others { "frames go on without it" } else { "no frames until it sends" };
        format!("camera '{}' is left out, {after}: {cause}", topics.name)
    }

    fn losses(&self) -> impl Iterator<Item = &Losses> {
        self.pairers.iter().map(|pairer| &pairer.losses).chain([&self.sets.losses])
    }

    pub(super) fn n_unpaired(&self) -> u64 {
        self.losses().map(|losses| losses.unpaired).sum()
    }

    /// Counts what the pairers lost, and tells why.
    pub(super) fn count_losses(&mut self, camera: usize) {
        let unpaired = self.n_unpaired();
        self.counts.images_surplus = self.losses().map(|losses| losses.surplus).sum();
        if self.counts.dropped_unpaired == unpaired {
            return;
        }
        self.counts.dropped_unpaired = unpaired;
        let of_sets = self.sets.losses.unpaired;
        let problem = match self.n_unpaired_shots == of_sets {
            true => self.unpaired_images(camera),
            false => self.unpaired_shots(),
        };
        self.problems.note(ProblemKind::Unpaired, problem);
        self.n_unpaired_shots = of_sets;
    }

    fn unpaired_images(&self, camera: usize) -> String {
        let CameraTopics { name, color, depth, .. } = &self.config.topics.cameras[camera];
        let pairer = &self.pairers[camera];
        let silent = [color, depth].into_iter().zip(pairer.newest());
        let silent = silent.filter(|(_, newest)| newest.is_none()).map(|(topic, _)| topic).next();
        let tolerance_secs = self.config.tolerance_secs;
        match (silent, self.closest(pairer.losses.closest)) {
            (Some(topic), _) => match self.problems.refused(topic) {
                Some((why, n)) => format!(
                    "images of camera '{name}' found no partners: {n} messages came on {topic} and \
                     were refused: {why}"
                ),
                None => format!(
                    "images of camera '{name}' found no partners: nothing has come on {topic}; check \
                     that it is published (ros2 topic list)"
                ),
            },
            (None, Some((ms, secs))) => format!(
                "colour and depth of camera '{name}' found no partners within {tolerance_secs} s: \
                 closest pair {ms} ms apart: {}",
                remedy(secs, "images")
            ),
            (None, None) => format!(
                "images of camera '{name}' found no partners within {tolerance_secs} s: check \
                 that {color} and {depth} lose no images (ros2 topic hz)"
            ),
        }
    }

    fn unpaired_shots(&self) -> String {
        let name = |camera: usize| &self.config.topics.cameras[camera].name;
        let [a, b] = self.sets.apart.unwrap_or_default().map(name);
        let tolerance_secs = self.config.tolerance_secs;
        match self.closest(self.sets.losses.closest) {
            Some((ms, secs)) => format!(
                "cameras '{a}' and '{b}' have no images within {tolerance_secs} s of each other: \
                 closest pair {ms} ms apart: {}",
                remedy(secs, "cameras")
            ),
            None => format!(
                "images of camera '{a}' found none of camera '{b}' within {tolerance_secs} s: \
                 check that its topics lose no images (ros2 topic hz)"
            ),
        }
    }

    /// A distance as milliseconds, and as seconds rounded up, if it is too far.
    fn closest(&self, nanos: Option<u64>) -> Option<(String, f64)> {
        let nanos = nanos.filter(|&nanos| nanos > self.tolerance)?;
        Some((format!("{:.1}", nanos as f64 * 1e-6), round_up_secs(nanos)))
    }
}

/// To a tenth of a millisecond.
fn round_up_secs(nanos: u64) -> f64 {
    nanos.div_ceil(100_000) as f64 / 1e4
}

/// What to do about images that are `secs` apart.
fn remedy(secs: f64, what: &str) -> String {
    match secs {
        ..=MAX_TOLERANCE_SECS => {
            format!("raise tolerance_secs above {secs} or synchronise the {what}")
        }
        ..=1.0 => format!(
            "too far for one frame, as things move in between: synchronise the {what}, or let all \
             of them stamp by one clock when the image is taken"
        ),
        _ => "one of them is stamped by another clock, or not at all: see to its driver".into(),
    }
}
