//! Shots of all cameras, put together by stamp; cameras that fell silent are left out.
//!
//! The first camera that is there is the reference: each of its shots becomes a set if all other
//! cameras that are there have one near it. Whether a camera is there at a stamp follows from what
//! it sent until some time before: all of that has come, whatever the order in which messages
//! arrive within a frame's time, so the sets don't depend on that order.

use super::images::{Losses, Shot};
use super::stream::{Nearest, Stamped, Stream};
use crate::message::Stamp;

/// Share of the timeout that has passed before a shot counts for whether its camera is there: more
/// than messages are late, and no multiple of the usual frame periods.
const HINDSIGHT: f64 = 0.23;

/// Shots of the cameras that are there, all within the tolerance of `stamp`.
pub(super) struct ShotSet {
    /// That of the reference's shot.
    pub(super) stamp: Stamp,
    /// With the camera's number, ascending.
    pub(super) shots: Vec<(usize, Shot)>,
}

impl ShotSet {
    pub(super) fn n_images(&self) -> u64 {
        self.shots.iter().map(|(_, shot)| shot.n_images()).sum()
    }
}

/// Shots that wait for those of the other cameras.
pub(super) struct SetPairer {
    streams: Vec<Stream<Shot>>,
    tolerance: u64,
    timeout: u64,
    /// Oldest shot since all cameras were silent.
    start: Option<Stamp>,
    pub(super) losses: Losses,
    /// The two cameras whose shots were lost last.
    pub(super) apart: Option<[usize; 2]>,
}

/// What a shot is good for.
enum Verdict {
    /// It makes a set with these shots: camera and index.
    Complete(Vec<(usize, usize)>),
    /// Another camera has nothing near it.
    Reject,
    Wait,
    /// It belongs to a set of another camera, if to any.
    NoReference,
}

impl SetPairer {
    /// Pairs shots within `tolerance`, and leaves out cameras that are silent for longer than
    /// `timeout`; nanoseconds.
    pub(super) fn new(n_cameras: usize, tolerance: u64, timeout: u64, max_pending: usize) -> Self {
        let streams = (0..n_cameras).map(|_| Stream::new(max_pending)).collect();
        let (start, losses, apart) = (None, Losses::default(), None);
        Self { streams, tolerance, timeout, start, losses, apart }
    }

    pub(super) fn set_times(&mut self, tolerance: u64, timeout: u64) {
        (self.tolerance, self.timeout) = (tolerance, timeout);
    }

    /// Adds a shot of `camera`; false if one of its stamp has come already.
    pub(super) fn push(&mut self, camera: usize, shot: Shot) -> bool {
        let stamp = shot.stamp();
        let newest = self.streams.iter().filter_map(Stream::newest).max();
        self.start = match (self.start, newest) {
            (Some(start), Some(newest)) if stamp <= newest || !self.is_long(newest, stamp) => {
                // A late one may be older, but not one from before a pause.
                Some(if self.is_long(stamp, start) { start } else { start.min(stamp) })
            }
            _ => Some(stamp),
        };
        match self.streams[camera].push(shot) {
            Ok(lost) => {
                lost.into_iter().for_each(|lost| self.lose(camera, &lost));
                true
            }
            Err(_) => false,
        }
    }

    /// The oldest complete set; older shots go. `finished`: nothing more will come.
    pub(super) fn next(&mut self, finished: bool) -> Option<ShotSet> {
        'again: loop {
            let mut order: Vec<(Stamp, usize, usize)> = Vec::new();
            for (camera, stream) in self.streams.iter().enumerate() {
                let stamps = stream.waiting().map(Stamped::stamp).enumerate();
                order.extend(stamps.map(|(i, stamp)| (stamp, camera, i)));
            }
            order.sort_unstable();
            for (stamp, camera, i) in order {
                match self.judge(stamp, camera, finished) {
                    Verdict::Complete(mut chosen) => {
                        chosen.insert(0, (camera, i));
                        return Some(self.complete(stamp, &chosen));
                    }
                    Verdict::Reject => {
                        if let Some(lost) = self.streams[camera].discard(i) {
                            self.lose(camera, &lost);
                        }
                        continue 'again;
                    }
                    Verdict::Wait | Verdict::NoReference => {}
                }
            }
            return None;
        }
    }

    /// Newest shot of a camera, if it sends: not if it is the only one for longer than the timeout.
    pub(super) fn newest(&self, camera: usize) -> Option<Stamp> {
        let stream = &self.streams[camera];
        stream.newest().filter(|&newest| self.is_steady(stream, newest))
    }

    /// Nanoseconds between the shots of a camera, if these are too many for the timeout.
    pub(super) fn slow_period(&self, camera: usize) -> Option<u64> {
        let longest = (self.timeout as f64 * (1.0 - HINDSIGHT)) as u64;
        self.streams[camera].period(3).filter(|&period| period > longest)
    }

    /// Forgets all times.
    pub(super) fn clear(&mut self) {
        self.give_up();
        self.streams.iter_mut().for_each(Stream::forget);
        (self.start, self.losses.closest) = (None, None);
    }

    /// Counts all that waits as unpaired.
    pub(super) fn give_up(&mut self) {
        for camera in 0..self.streams.len() {
            while let Some(lost) = self.streams[camera].discard(0) {
                self.lose_unpaired(camera, &lost);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn n_held(&self) -> u64 {
        self.streams.iter().flat_map(Stream::waiting).map(Stamped::n_images).sum()
    }

    /// Whether `later` lies behind `earlier` by more than the timeout.
    fn is_long(&self, earlier: Stamp, later: Stamp) -> bool {
        later > earlier && later.abs_diff(earlier) > self.timeout
    }

    /// Whether the shot of `stamp` is not the first one after a silence.
    fn is_steady(&self, stream: &Stream<Shot>, stamp: Stamp) -> bool {
        let Some(start) = self.start.filter(|&start| start <= stamp) else { return true };
        let before = stream.last_before(stamp).filter(|&before| before >= start);
        !self.is_long(start, stamp) || before.is_some_and(|before| !self.is_long(before, stamp))
    }

    /// Whether a camera is there at `stamp`: by its shots up to [`HINDSIGHT`] before.
    fn is_there(&self, camera: usize, stamp: Stamp) -> bool {
        let Some(start) = self.start.filter(|&start| start <= stamp) else { return false };
        let hindsight = (self.timeout as f64 * HINDSIGHT) as i64;
        let until = Stamp::from_nanos(stamp.nanos().saturating_sub(hindsight));
        let stream = &self.streams[camera];
        match stream.last_before(until) {
            Some(last) if last >= start => {
                !self.is_long(last, stamp) && self.is_steady(stream, last)
            }
            None if stream.has_forgotten() => true,
            _ => !self.is_long(start, stamp),
        }
    }

    fn judge(&self, stamp: Stamp, camera: usize, finished: bool) -> Verdict {
        let is_there = |camera: usize| self.is_there(camera, stamp);
        if !is_there(camera) || (0..camera).any(is_there) {
            return Verdict::NoReference;
        }
        let (mut chosen, mut is_open) = (Vec::new(), false);
        for other in (camera + 1..self.streams.len()).filter(|&other| is_there(other)) {
            match self.streams[other].nearest(stamp, self.tolerance, finished) {
                Nearest::At(i) if !self.belongs_to_next(stamp, camera, (other, i)) => {
                    chosen.push((other, i));
                }
                Nearest::At(_) | Nearest::Nothing => return Verdict::Reject,
                Nearest::Wait => is_open = true,
            }
        }
        if is_open { Verdict::Wait } else { Verdict::Complete(chosen) }
    }

    fn belongs_to_next(&self, stamp: Stamp, camera: usize, (other, i): (usize, usize)) -> bool {
        let shot = self.streams[other].waiting().nth(i).map(Stamped::stamp);
        shot.is_some_and(|shot| self.streams[camera].next_is_nearer(stamp, shot))
    }

    fn complete(&mut self, stamp: Stamp, chosen: &[(usize, usize)]) -> ShotSet {
        let take = |&(camera, i): &(usize, usize)| Some((camera, self.streams[camera].take(i)?));
        let shots: Vec<_> = chosen.iter().filter_map(take).collect();
        self.losses.closest = None;
        for camera in 0..self.streams.len() {
            let own = shots.iter().find(|(own, _)| *own == camera);
            let until = own.map_or(stamp, |(_, shot)| shot.stamp());
            while let Some(lost) = self.streams[camera].pop_before(until) {
                self.lose(camera, &lost);
            }
        }
        ShotSet { stamp, shots }
    }

    fn lose(&mut self, camera: usize, shot: &Shot) {
        let (stamp, n_images) = (shot.stamp(), shot.n_images());
        let mut others = self.streams.iter().enumerate().filter(|(other, _)| *other != camera);
        if others.any(|(_, other)| other.explains(stamp, self.tolerance)) {
            self.losses.surplus += n_images;
        } else {
            self.lose_unpaired(camera, shot);
        }
    }

    fn lose_unpaired(&mut self, camera: usize, shot: &Shot) {
        let (stamp, n_images) = (shot.stamp(), shot.n_images());
        let others = || self.streams.iter().enumerate().filter(|(other, _)| *other != camera);
        let distances = others().filter_map(|(i, other)| Some((other.unused_distance(stamp)?, i)));
        let closest = distances.min();
        let partner = closest.map(|(_, i)| i).or_else(|| others().map(|(i, _)| i).next());
        self.apart = partner.map(|partner| [camera, partner]);
        self.losses.unpaired(n_images, closest.map(|(distance, _)| distance));
    }
}
