//! Predictions that wait for what is seen later, where no truth is known: for pages and pictures.

use crate::baselines;
use forecloud::Result;
use forecloud::base::geometry::{PointTree, Vec3};
use forecloud::message::Stamp;
use forecloud::predict::predictor::Prediction;

/// Points seen farther than this from all that was seen before tell that something moved (m):
/// a few times the distance of neighbouring particles.
pub(super) const CHANGED_M: f32 = 0.03;

/// What a prediction starts from, and what it says.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// Particles (m), `[n]`.
    pub positions: Vec<Vec3>,
    /// Their colours, 0..1.
    pub colors: Vec<Vec3>,
    /// Predicted displacements (m), `[n_steps][n]`.
    pub displacements: Vec<Vec<Vec3>>,
    /// Displacement in each step at constant velocity as estimated (m), `[n]`.
    pub estimated: Option<Vec<Vec3>>,
}

impl Start {
    /// Of a prediction with steps of `step_secs`.
    pub(super) fn of(prediction: &Prediction, step_secs: f64) -> Self {
        // A prediction without usable history has no such baseline.
        let estimated = baselines::of_prediction(prediction, step_secs, 1);
        Self {
            positions: prediction.particles.positions.clone(),
            colors: prediction.particles.colors.clone(),
            displacements: prediction.displacements.clone(),
            estimated: estimated.ok().and_then(|mut steps| steps.pop()),
        }
    }

    /// Predicted positions now and after each step (m), `[n_steps + 1][n]`.
    pub(super) fn predicted(&self) -> Vec<Vec<Vec3>> {
        let mut predicted = vec![self.positions.clone()];
        for moves in &self.displacements {
            let last = predicted.last().into_iter().flatten().zip(moves);
            let next = last.map(|(x, d)| std::array::from_fn(|axis| x[axis] + d[axis])).collect();
            predicted.push(next);
        }
        predicted
    }
}

/// Points seen after a step.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Where (m).
    pub positions: Vec<Vec3>,
    /// Colours, 0..1.
    pub colors: Vec<Vec3>,
    /// How far the frame misses the end of the step (s).
    pub miss_secs: f64,
}

/// A prediction, and what was seen after each of its steps.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// What was predicted.
    pub start: Start,
    /// `[n_steps]`; none where no frame shows the end of the step.
    pub seen: Vec<Option<Seen>>,
}

impl Expected {
    /// The last step (0-based) whose end was seen, and what was.
    pub(super) fn last(&self) -> Option<(usize, &Seen)> {
        self.seen.iter().enumerate().rev().find_map(|(step, seen)| Some((step, seen.as_ref()?)))
    }

    /// Summed distance of what was seen last to what was there at the start, where it exceeds
    /// [`CHANGED_M`] (m); none if nothing was seen later.
    ///
    /// # Errors
    /// As [`PointTree::new`].
    pub(super) fn activity_m(&self) -> Result<Option<f64>> {
        let Some((_, last)) = self.last() else { return Ok(None) };
        let before = PointTree::new(&self.start.positions)?;
        let distances = last.positions.iter().filter_map(|x| before.distance_m(x));
        let far = distances.filter(|&distance_m| distance_m > CHANGED_M);
        Ok(Some(far.map(f64::from).sum()))
    }
}

/// Predictions of one recording that wait.
#[derive(Debug, Clone)]
pub(super) struct Later {
    step_secs: f64,
    horizon: usize,
    tolerance_secs: f64,
    waiting: Vec<Expected>,
}

impl Later {
    /// For predictions of `horizon` steps; a frame shows the end of one if it misses it by no more
    /// than the tolerance.
    pub(super) fn new(step_secs: f64, horizon: usize, tolerance_secs: f64) -> Self {
        Self { step_secs, horizon, tolerance_secs, waiting: Vec::new() }
    }

    /// Takes one more prediction; those that wait no longer.
    pub(super) fn watch(&mut self, prediction: &Prediction) -> Vec<Expected> {
        let stamp = prediction.stamp;
        let is_back = self.waiting.last().is_some_and(|last| last.stamp >= stamp);
        // Time was set back.
        let mut done = if is_back { self.end() } else { Vec::new() };
        self.see(prediction);
        let reach_secs = self.horizon as f64 * self.step_secs + self.tolerance_secs;
        let waits = |waiting: &Expected| stamp.secs_since(waiting.stamp) < reach_secs;
        let n_done = self.waiting.iter().take_while(|waiting| !waits(waiting)).count();
        done.extend(self.waiting.drain(..n_done));
        self.wait(prediction);
        done
    }

    /// Ends the recording: nothing waits any longer.
    pub(super) fn end(&mut self) -> Vec<Expected> {
        std::mem::take(&mut self.waiting)
    }

    /// Shows the particles of a frame, which are points seen then, to the predictions that wait.
    fn see(&mut self, now: &Prediction) {
        for waiting in &mut self.waiting {
            let elapsed_secs = now.stamp.secs_since(waiting.stamp);
            let step = (elapsed_secs / self.step_secs).round();
            let miss_secs = (elapsed_secs - step * self.step_secs).abs();
            if step < 1.0 || miss_secs > self.tolerance_secs {
                continue;
            }
            let Some(seen) = waiting.seen.get_mut(step as usize - 1) else { continue };
            if seen.as_ref().is_none_or(|other| miss_secs < other.miss_secs) {
                let particles = &now.particles;
                let (positions, colors) = (particles.positions.clone(), particles.colors.clone());
                *seen = Some(Seen { positions, colors, miss_secs });
            }
        }
    }

    /// Lets a prediction wait, one in each step, so that few are held.
    fn wait(&mut self, prediction: &Prediction) {
        let stamp = prediction.stamp;
        let step_secs = self.step_secs - self.tolerance_secs;
        if self.waiting.last().is_none_or(|last| stamp.secs_since(last.stamp) >= step_secs) {
            let start = Start::of(prediction, self.step_secs);
            let seen = vec![None; prediction.displacements.len()];
            self.waiting.push(Expected { stamp, start, seen });
        }
    }
}
