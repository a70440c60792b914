//! The past frames that a prediction needs: the one place that keeps frames.
//!
//! The motion estimate needs the frame one step back. Frames that were predicted from are remembered as what
//! was observed of them. Frames that were passed over (a newer one came, nobody listened) are kept as they
//! came, and observed only where a later one needs them. What the node's mailbox holds is no history: nobody
//! has looked at it yet.

use std::collections::VecDeque;

use crate::message::Stamp;
use crate::predict::observation::Observation;
use crate::vision::frames::Frame;

/// Frames that are kept unobserved, with their images: at 60 frames/s, a step of 0.13 s.
pub const MAX_KEPT: usize = 8;
/// Observations that are remembered: at 60 frames/s, a step of a quarter second.
const MAX_OBSERVATIONS: usize = 16;
/// Half a period of frames whose stamps are not quite regular.
const HALF_A_PERIOD: f64 = 0.55;

/// Past frames, ascending in time.
pub struct History {
    /// Of frames that were looked at.
    observations: VecDeque<Observation>,
    /// Frames that were not.
    kept: VecDeque<Frame>,
    /// An observation that is no longer needed, for its memory.
    spare: Observation,
    step_secs: f64,
    tolerance_secs: f64,
}

impl History {
    /// A history in which the frame `step_secs` back is found within `tolerance_secs`, or within half the
    /// time between two frames.
    pub fn new(step_secs: f64, tolerance_secs: f64) -> Self {
        let (observations, kept) = (VecDeque::new(), VecDeque::new());
        Self { observations, kept, spare: Observation::default(), step_secs, tolerance_secs }
    }

    /// Finds frames within another tolerance from now on.
    pub fn set_tolerance(&mut self, tolerance_secs: f64) {
        self.tolerance_secs = tolerance_secs;
    }

    /// Forgets all frames; returns how many there were.
    pub fn clear(&mut self) -> usize {
        let n_kept = self.kept.drain(..).count();
        self.clear_observations() + n_kept
    }

    /// Forgets what was observed, with another robot or in another workspace: kept frames stay, as they
    /// would be observed anew. Returns how many observations there were.
    pub fn clear_observations(&mut self) -> usize {
        self.observations.drain(..).count()
    }

    /// Forgets what is not before `now`: time was set back. Observations of a time before that are
    /// forgotten, too.
    pub fn follow(&mut self, now: Stamp) {
        if self.observations.back().is_some_and(|last| last.stamp >= now) {
            self.observations.clear();
        }
        self.kept.retain(|kept| kept.stamp < now);
    }

    /// Keeps a frame without looking at it; of too many, the oldest goes.
    pub fn keep(&mut self, frame: Frame) {
        if self.observations.iter().any(|known| known.stamp == frame.stamp) {
            return;
        }
        self.kept.retain(|kept| kept.stamp < frame.stamp);
        if self.kept.len() == MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(frame);
    }

    /// The frames that are kept, oldest first.
    pub fn kept(&self) -> impl Iterator<Item = &Frame> {
        self.kept.iter()
    }

    /// Takes out the kept frame by the same `cameras` that lies nearest to one step before `now`, to be
    /// observed.
    pub fn take_kept(&mut self, now: Stamp, cameras: &[usize]) -> Option<Frame> {
        let wanted = now.plus_secs(-self.step_secs);
        let frames = self.kept.iter().enumerate();
        let alike = frames.filter(|(_, f)| f.camera_numbers().eq(cameras.iter().copied()));
        let (nearest, _) = alike.min_by_key(|(_, f)| f.stamp.abs_diff(wanted))?;
        self.kept.remove(nearest)
    }

    /// Memory for a new observation, best handed back by [`History::remember`].
    pub fn take_spare(&mut self) -> Observation {
        std::mem::take(&mut self.spare)
    }

    /// Remembers an observation; of too many, the oldest goes.
    pub fn remember(&mut self, observation: Observation) {
        let place = self.observations.partition_point(|known| known.stamp <= observation.stamp);
        self.observations.insert(place, observation);
        if self.observations.len() > MAX_OBSERVATIONS {
            self.spare = self.observations.pop_front().unwrap_or_default();
        }
    }

    /// The history of `now`: as [`History::one_step_back`].
    pub fn before(&self, now: &Observation) -> Option<&Observation> {
        self.one_step_back(now.stamp, now.cameras.iter().copied(), !now.kinematic.is_empty())
    }

    /// The observation by the same `cameras` that lies nearest to one step before `now`, within the tolerance:
    /// with or without the robot as now, if there is one, else the other way (joints may come more slowly than
    /// images).
    ///
    /// Where a camera falls out or comes back, surfaces that only it sees vanish or appear, and
    /// those that it shares get sparser or denser: differences that would be taken for motion. So
    /// there is no history across such a change: the next prediction comes one step later.
    pub fn one_step_back(
        &self,
        now: Stamp,
        cameras: impl Iterator<Item = usize> + Clone,
        has_robot: bool,
    ) -> Option<&Observation> {
        let wanted = now.plus_secs(-self.step_secs);
        let tolerance = self.tolerance(now);
        let is_alike = |o: &&Observation| {
            o.cameras.iter().copied().eq(cameras.clone()) && o.stamp.abs_diff(wanted) <= tolerance
        };
        let alike = self.observations.iter().filter(is_alike);
        alike.min_by_key(|o| (o.kinematic.is_empty() == has_robot, o.stamp.abs_diff(wanted)))
    }

    /// The observation that lies nearest to so many steps before `now` by the same cameras, or if there is none, to
    /// fewer, and how many these are.
    pub fn steps_back(&self, now: &Observation, n: usize) -> Option<(&Observation, usize)> {
        let cameras = now.cameras.iter().copied();
        (1..=n).rev().find_map(|n| {
            let after = now.stamp.plus_secs(-self.step_secs * (n - 1) as f64);
            let found = self.one_step_back(after, cameras.clone(), !now.kinematic.is_empty());
            found.map(|found| (found, n))
        })
    }

    /// The observation that was predicted from and lies nearest to one step before `now`, within half a step, and
    /// how many steps it lies back.
    pub fn predicted(&self, now: Stamp) -> Option<(&Observation, f64)> {
        self.predicted_of(now, |_| true)
    }

    /// As [`Self::predicted`], by the same cameras, which stood where they stand now.
    pub fn outlined(&self, now: &Observation) -> Option<(&Observation, f64)> {
        self.predicted_of(now.stamp, |o| o.looked == now.looked && o.cameras == now.cameras)
    }

    fn predicted_of(
        &self,
        now: Stamp,
        is_alike: impl Fn(&Observation) -> bool,
    ) -> Option<(&Observation, f64)> {
        let steps = |o: &Observation| now.secs_since(o.stamp) / self.step_secs;
        let off = |o: &Observation| (steps(o) - 1.0).abs();
        let near = self.observations.iter().filter(|o| o.outlook.is_some() && off(o) <= 0.5);
        let alike = near.filter(|o| is_alike(o));
        alike.min_by(|a, b| off(a).total_cmp(&off(b))).map(|o| (o, steps(o)))
    }

    /// Whether there would be an observation one step before `now` if cameras did not matter.
    pub fn is_one_step_back(&self, now: Stamp) -> bool {
        let wanted = now.plus_secs(-self.step_secs);
        let tolerance = self.tolerance(now);
        self.observations.iter().any(|o| o.stamp.abs_diff(wanted) <= tolerance)
    }

    /// Nanoseconds by which an observation may miss one step before `now`: what the settings say, and half the
    /// frames' period, as no frame of a regular camera is nearer; up to half a step.
    fn tolerance(&self, now: Stamp) -> u64 {
        let before = || self.observations.iter().map(|o| o.stamp).filter(|stamp| *stamp < now);
        let (mut gaps, mut n_gaps) = ([0; MAX_OBSERVATIONS], 0);
        let pairs = before().zip(before().skip(1).chain([now]));
        for (gap, (earlier, later)) in gaps.iter_mut().zip(pairs) {
            *gap = later.abs_diff(earlier);
            n_gaps += 1;
        }
        let gaps = &mut gaps[..n_gaps];
        let middle = gaps.len().saturating_sub(1) / 2;
        let period = if gaps.is_empty() { 0 } else { *gaps.select_nth_unstable(middle).1 };
        let half = (HALF_A_PERIOD * period as f64).min(5e8 * self.step_secs);
        Stamp::from_secs(self.tolerance_secs).nanos().unsigned_abs().max(half as u64)
    }
}
