//! Predictions judged by what the cameras saw later, where no truth is known.
//!
//! Each prediction waits until the frames come that show the times it tells of. Two measures, both
//! apart for each [`Region`](super::Region): the Chamfer distance to the cloud seen then, and whether the cameras
//! saw through the predicted points.

mod judge;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::observed::{Eye, Observed};
use forecloud::Result;
use forecloud::message::Stamp;
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::frames::Frame;

pub use judge::Group;
pub use tally::{Tallies, Tally};

/// Causes that are kept.
const MAX_PROBLEMS: usize = 8;

/// What hindsight found.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Findings {
    /// Sums over the points.
    pub tallies: Tallies,
    /// Predictions of which at least one step was held against what came later.
    pub n_predictions: u64,
    /// Predictions passed over: frames come faster than steps, and one of each step is taken.
    pub n_between_steps: u64,
    /// Frames that could not be read.
    pub n_unusable: u64,
    /// What became of each step of the predictions, `[horizon]`.
    pub steps: Vec<StepCounts>,
    /// Most cameras of a frame that gave a cloud and no depth image.
    pub n_without_depth: usize,
    /// Whether some camera gave depth images.
    pub has_depth: bool,
    /// Why something is missing, each cause once, the first few.
    pub problems: Vec<String>,
}

/// What became of one step of the predictions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StepCounts {
    /// Predictions for which a frame showed the end of the step.
    pub n_observed: u64,
    /// Predictions for which none did, as frames are missing there.
    pub n_missing_gap: u64,
    /// Predictions for which none did, as the recording ended before (or its time was set back).
    pub n_missing_end: u64,
}

/// A prediction that waits for what it tells of.
struct Expected {
    seen: Arc<Observed>,
    groups: Vec<Group>,
    n_resolved: usize,
    is_judged: bool,
}

/// Judges the predictions of one recording. At most `horizon + 2` frames are held.
pub struct Hindsight {
    step_secs: f64,
    horizon: usize,
    tolerance_secs: f64,
    eye: Eye,
    /// Ascending in time.
    expected: VecDeque<Expected>,
    newest: Option<Arc<Observed>>,
    findings: Findings,
}

impl Hindsight {
    /// Of predictions of `horizon` steps; a frame shows the end of a step if it misses it by no
    /// more than `tolerance_secs`.
    pub fn new(eye: Eye, step_secs: f64, horizon: usize, tolerance_secs: f64) -> Self {
        let steps = vec![StepCounts::default(); horizon];
        let findings = Findings { steps, ..Findings::default() };
        let (expected, newest) = (VecDeque::new(), None);
        Self { step_secs, horizon, tolerance_secs, eye, expected, newest, findings }
    }

    /// Takes another robot from the next frame on.
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str, meshes: &MeshSearch) {
        self.eye.set_robot(urdf, world_frame, meshes);
    }

    /// Takes the next frame and judges what was expected of it.
    ///
    /// A frame that can't be read is counted, with its problem.
    ///
    /// # Errors
    /// [`forecloud::Error::NonFinite`] if a predicted position is not finite.
    pub fn observe(&mut self, frame: &Frame) -> Result<()> {
        if self.newest.as_ref().is_some_and(|newest| frame.stamp <= newest.stamp) {
            self.end()?; // Time was set back.
        }
        let seen = match self.eye.observe(frame) {
            Ok(seen) => Arc::new(seen),
            Err(error) => {
                self.findings.n_unusable += 1;
                self.findings.note(error.to_string());
                return Ok(());
            }
        };
        self.findings.has_depth |= !seen.surfaces.is_empty();
        let n_without_depth = &mut self.findings.n_without_depth;
        *n_without_depth = seen.surfaces.n_without_depth.max(*n_without_depth);
        self.resolve(seen.stamp, Some(&seen))?;
        self.newest = Some(seen);
        Ok(())
    }

    /// Takes what was predicted from the frame observed last, which is that of `stamp`.
    pub fn expect(&mut self, stamp: Stamp, groups: Vec<Group>) {
        let Some(seen) = self.newest.as_ref().filter(|newest| newest.stamp == stamp) else {
            return; // The frame could not be read, and was counted.
        };
        let one_step_ago = stamp.plus_secs(self.tolerance_secs - self.step_secs);
        let last = self.expected.back().map(|last| last.seen.stamp);
        if last.is_some_and(|last| last > one_step_ago) || self.expected.len() > self.horizon {
            self.findings.n_between_steps += 1;
            return;
        }
        let seen = seen.clone();
        self.expected.push_back(Expected { seen, groups, n_resolved: 0, is_judged: false });
    }

    /// Ends the recording: what is still expected is missing.
    ///
    /// # Errors
    /// As [`Hindsight::observe`].
    pub fn finish(mut self) -> Result<Findings> {
        self.end()?;
        if let Some(problem) = self.eye.without_robot.take() {
            self.findings.note(format!("the robot's points are not distinguished: {problem}"));
        }
        Ok(self.findings)
    }

    /// Frames that are held.
    #[cfg(test)]
    fn n_frames(&self) -> usize {
        let newest = self.newest.iter().filter(|newest| {
            self.expected.iter().all(|expected| !Arc::ptr_eq(&expected.seen, newest))
        });
        self.expected.len() + newest.count()
    }

    fn end(&mut self) -> Result<()> {
        self.resolve(Stamp::from_nanos(i64::MAX), None)?;
        self.newest = None;
        Ok(())
    }

    /// Judges all steps that end by `now`, each by the frame nearest to its end: the newest one or
    /// `seen`, which comes after it.
    fn resolve(&mut self, now: Stamp, seen: Option<&Arc<Observed>>) -> Result<()> {
        let tolerance = Stamp::from_secs(self.tolerance_secs).nanos().unsigned_abs();
        for expected in &mut self.expected {
            let start = &expected.seen;
            while expected.n_resolved < self.horizon {
                let step = expected.n_resolved;
                let end = start.stamp.plus_secs((step + 1) as f64 * self.step_secs);
                if end > now {
                    break;
                }
                expected.n_resolved += 1;
                let frames = self.newest.iter().chain(seen);
                let later = frames.filter(|frame| frame.stamp > start.stamp);
                let nearest = later.min_by_key(|frame| frame.stamp.abs_diff(end));
                let counts = &mut self.findings.steps[step];
                match nearest.filter(|frame| frame.stamp.abs_diff(end) <= tolerance) {
                    Some(then) => {
                        counts.n_observed += 1;
                        self.findings.n_predictions += u64::from(!expected.is_judged);
                        expected.is_judged = true;
                        let pair = (start.as_ref(), then.as_ref());
                        let (groups, workspace) = (&expected.groups, self.eye.workspace());
                        judge::judge(pair, groups, step, workspace, &mut self.findings.tallies)?;
                    }
                    None if seen.is_some() => counts.n_missing_gap += 1,
                    None => counts.n_missing_end += 1,
                }
            }
        }
        self.expected.retain(|expected| expected.n_resolved < self.horizon);
        Ok(())
    }
}

impl Findings {
    /// Takes all that `other` found.
    pub fn merge(&mut self, other: Self) {
        self.tallies.merge(&other.tallies);
        self.n_predictions += other.n_predictions;
        self.n_between_steps += other.n_between_steps;
        self.n_unusable += other.n_unusable;
        self.steps.resize_with(self.steps.len().max(other.steps.len()), StepCounts::default);
        for (own, counts) in self.steps.iter_mut().zip(&other.steps) {
            own.n_observed += counts.n_observed;
            own.n_missing_gap += counts.n_missing_gap;
            own.n_missing_end += counts.n_missing_end;
        }
        self.n_without_depth = self.n_without_depth.max(other.n_without_depth);
        self.has_depth |= other.has_depth;
        other.problems.into_iter().for_each(|problem| self.note(problem));
    }

    fn note(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}
