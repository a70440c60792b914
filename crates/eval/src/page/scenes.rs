//! Which frames the page shows: of each recording those in which most happens, within a budget.

use crate::later::{Expected, Later, Start};
use crate::metrics::{Class, distance_m};
use crate::page::scene::Scene;
use crate::replay::Replayed;
use forecloud::Result;
use forecloud::message::Stamp;
use forecloud::predict::predictor::Prediction;
use forecloud::vision::cloud::Workspace;

/// Frames of one recording that are shown at most.
const MAX_OF_RECORDING: usize = 6;
/// Motion of the robot counts so much less than that of objects.
const ROBOT_WEIGHT: f64 = 1e-3;

/// What the scenes of a page have in common.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Length of a step (s).
    pub step_secs: f64,
    /// Steps of a prediction.
    pub horizon: usize,
    /// How far a frame may miss the end of a step (s).
    pub tolerance_secs: f64,
    /// Box of the particles (m).
    pub workspace: Workspace,
    /// Bytes that all scenes may take.
    pub budget_bytes: usize,
}

/// When a recording was made: first and last stamp.
pub type Span = [Stamp; 2];

/// Collects the most active frames of recordings.
pub struct Scenes {
    setting: Setting,
    /// Of recordings that have ended, the best first.
    kept: Vec<(usize, Scene)>,
    /// Of the recording that is played.
    current: Vec<Scene>,
    later: Later,
    spans: Vec<Option<Span>>,
    span: Option<Span>,
}

impl Scenes {
    /// Nothing yet.
    pub fn new(setting: Setting) -> Self {
        let Setting { step_secs, horizon, tolerance_secs, .. } = setting;
        let later = Later::new(step_secs, horizon, tolerance_secs);
        let (kept, current) = Default::default();
        Self { setting, kept, current, later, spans: Vec::new(), span: None }
    }

    /// Takes another box of the particles (m) from now on: between two recordings.
    pub fn set_workspace(&mut self, workspace: Workspace) {
        self.setting.workspace = workspace;
    }

    /// Looks at one more frame of the recording at hand.
    ///
    /// # Errors
    /// As [`forecloud::base::geometry::PointTree::new`].
    pub fn watch(&mut self, frame: &Replayed) -> Result<()> {
        let stamp = frame.stamp;
        let [first, last] = self.span.unwrap_or([stamp, stamp]);
        self.span = Some([first.min(stamp), last.max(stamp)]);
        let Some(prediction) = frame.prediction else { return Ok(()) };
        if frame.task.is_some() {
            return self.take_known(frame, prediction);
        }
        let done = self.later.watch(prediction);
        self.take_seen(done)
    }

    /// Ends the recording at hand.
    ///
    /// # Errors
    /// As [`Scenes::watch`].
    pub fn end_recording(&mut self) -> Result<()> {
        let done = self.later.end();
        self.take_seen(done)?;
        let recording = self.spans.len();
        self.spans.push(self.span.take());
        // The most active of each recording first, then the second of each; what does not fit now
        // does not fit later either.
        self.current.sort_by(|a, b| b.activity.total_cmp(&a.activity).then(a.stamp.cmp(&b.stamp)));
        for (rank, mut scene) in self.current.drain(..).enumerate() {
            scene.rank = rank;
            self.kept.push((recording, scene));
        }
        self.kept.sort_by(|(a_bag, a), (b_bag, b)| {
            let by_activity = b.activity.total_cmp(&a.activity);
            a.rank.cmp(&b.rank).then(by_activity).then(a_bag.cmp(b_bag))
        });
        let mut n_bytes = 0;
        let fits = |(_, scene): &&(usize, Scene)| {
            n_bytes += scene.json.len();
            n_bytes <= self.setting.budget_bytes
        };
        let n_fitting = self.kept.iter().take_while(fits).count();
        self.kept.truncate(n_fitting);
        Ok(())
    }

    /// The chosen scenes, by recording and time; each with the number of its recording.
    pub fn chosen(&self) -> Vec<(usize, &Scene)> {
        let mut chosen: Vec<_> = self.kept.iter().map(|(bag, scene)| (*bag, scene)).collect();
        chosen.sort_by_key(|(bag, scene)| (*bag, scene.stamp));
        chosen
    }

    /// First and last stamp of each recording's frames; none without frames.
    pub fn spans(&self) -> &[Option<Span>] {
        &self.spans
    }

    /// What the scenes have in common.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    fn take_known(&mut self, frame: &Replayed, prediction: &Prediction) -> Result<()> {
        let Some(truth) = frame.truth else { return Ok(()) };
        let (Some(first), Some(last)) = (truth.positions.first(), truth.positions.last()) else {
            return Ok(());
        };
        let moves = |i: usize| truth.classes.iter().any(|classes| classes[i] == Class::Moving);
        let is_robot = |i: usize| truth.classes.first().is_some_and(|c| c[i] == Class::Robot);
        let ways = first.iter().zip(last).map(|(from, to)| distance_m(from, to)).enumerate();
        let weighted = ways.map(|(i, way_m)| match (moves(i), is_robot(i)) {
            (true, _) => way_m,
            (false, true) => ROBOT_WEIGHT * way_m,
            (false, false) => 0.0,
        });
        let activity = weighted.sum();
        if self.is_welcome(prediction.stamp, activity) {
            let start = Start::of(prediction, self.setting.step_secs);
            self.keep(Scene::known(&self.setting, prediction.stamp, activity, &start, truth)?);
        }
        Ok(())
    }

    /// Makes scenes of predictions that have seen what came later.
    fn take_seen(&mut self, done: Vec<Expected>) -> Result<()> {
        for done in done {
            let Some(activity) = done.activity_m()? else { continue };
            if self.is_welcome(done.stamp, activity) {
                let (start, seen) = (&done.start, &done.seen);
                self.keep(Scene::seen(&self.setting, done.stamp, activity, start, seen)?);
            }
        }
        Ok(())
    }

    /// Whether a scene would be kept beside those that are.
    fn is_welcome(&self, stamp: Stamp, activity: f64) -> bool {
        let mut near = self.current.iter().filter(|scene| self.overlap(scene.stamp, stamp));
        let least = self.current.iter().map(|scene| scene.activity).fold(f64::INFINITY, f64::min);
        let has_near = near.clone().next().is_some();
        near.all(|scene| scene.activity < activity)
            && (has_near || self.current.len() < MAX_OF_RECORDING || least < activity)
    }

    /// Keeps a welcome scene in the place of those that overlap with it, or of the least active.
    fn keep(&mut self, scene: Scene) {
        let (stamp, span_secs) = (scene.stamp, self.span_secs());
        self.current.retain(|other| !is_near(other.stamp, stamp, span_secs));
        self.current.push(scene);
        if self.current.len() > MAX_OF_RECORDING {
            let least = (0..self.current.len())
                .min_by(|&a, &b| self.current[a].activity.total_cmp(&self.current[b].activity));
            least.map(|index| self.current.remove(index));
        }
    }

    fn overlap(&self, a: Stamp, b: Stamp) -> bool {
        is_near(a, b, self.span_secs())
    }

    /// Two scenes nearer than this show the same motion (s).
    fn span_secs(&self) -> f64 {
        self.setting.horizon as f64 * self.setting.step_secs - self.setting.tolerance_secs
    }
}

fn is_near(a: Stamp, b: Stamp, span_secs: f64) -> bool {
    (a.abs_diff(b) as f64) < 1e9 * span_secs
}

#[cfg(test)]
mod tests;
