//! Recordings played to the predictor, in-process, each prediction held against the truth.

use std::mem::{Discriminant, discriminant};
use std::path::{Path, PathBuf};

use crate::config::PredictorConfig;
use crate::eval::published::{self, Published};
use crate::eval::{Scores, TrueMotion, baselines};
use crate::frames::{Frame, FrameCounts, FramesConfig};
use crate::message::Stamp;
use crate::model::Model;
use crate::predictor::{Prediction, Predictor, Timings};
use crate::recording::{BodyIds, Recording, Truth};
use crate::{Error, Result};

/// Whose prediction it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The model, in this process.
    Model,
    /// What a node published.
    Node,
    /// Nothing moves.
    NothingMoves,
    /// Constant velocity, estimated from the nearest history particle.
    VelocityEstimated,
    /// Constant velocity, the true one of the step before (privileged).
    VelocityTrue,
}

impl Method {
    /// All methods, in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::Model, Self::Node, Self::NothingMoves, Self::VelocityEstimated, Self::VelocityTrue];
}

/// What became of one recording.
#[derive(Debug, Clone, serde::Serialize)]
pub struct BagResult {
    /// The recording.
    pub path: PathBuf,
    /// Its task; none if it has no truth.
    pub task: Option<String>,
    /// Frames that were predicted.
    pub n_predicted: u64,
    /// Of those: frames that were held against the truth.
    pub n_evaluated: u64,
    /// Frames without a history frame one step back.
    pub n_without_history: u64,
    /// What became of its messages.
    pub frames: FrameCounts,
    /// Why the last frame that was dropped was dropped.
    pub last_problem: Option<String>,
}

/// Frames that could not be predicted for one cause.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Message of the first one.
    pub first: String,
    /// How many there were.
    pub count: u64,
    cause: Discriminant<Error>,
}

/// One frame as it was replayed.
#[derive(Debug)]
pub struct Replayed<'a> {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// The recording's task.
    pub task: Option<&'a str>,
    /// What the model predicts; none without history or after a failure.
    pub prediction: Option<&'a Prediction>,
    /// What truly happens to the predicted particles; none if the recording does not tell.
    pub truth: Option<&'a TrueMotion>,
}

/// Plays recordings and keeps what comes of it.
pub struct Replay {
    pub(super) model: Model,
    pub(super) config: PredictorConfig,
    frames: FramesConfig,
    pub(super) published: Option<Published>,
    pub(super) scores: [Scores; Method::ALL.len()],
    pub(super) bags: Vec<BagResult>,
    pub(super) failures: Vec<Failure>,
    pub(super) timings: Vec<Timings>,
    pub(super) n_particles: Option<[usize; 2]>,
}

impl Replay {
    /// A replay of `model`; `published` are predictions to compare with, of one recording.
    pub fn new(
        model: Model,
        config: PredictorConfig,
        frames: FramesConfig,
        published: Option<Published>,
    ) -> Self {
        let (bags, failures, timings) = (Vec::new(), Vec::new(), Vec::new());
        let scores = Default::default();
        let n_particles = None;
        Self { model, config, frames, published, scores, bags, failures, timings, n_particles }
    }

    /// Plays one recording; `watch` sees each frame.
    ///
    /// Frames that can't be predicted are counted and kept by cause.
    ///
    /// # Errors
    /// As [`Recording::open`], [`Predictor::new`] and [`Predictor::set_robot`].
    pub fn add(&mut self, recording: &Recording, mut watch: impl FnMut(&Replayed)) -> Result<()> {
        let mut predictor = Predictor::new(self.model.clone(), self.config)?;
        if let Some(urdf) = recording.robot_description()? {
            for warning in predictor.set_robot(&urdf, &self.frames.world_frame)? {
                tracing::warn!("{}: {warning}", recording.bag().path().display());
            }
        }
        let truth = recording.truth();
        let task = truth.map(|truth| truth.task.as_str());
        let mut bag = BagResult::new(recording.bag().path(), task);
        let (frames, last_problem) = recording.play(|frame, ids| -> Result<()> {
            let prediction = self.predict(&mut predictor, &frame, &mut bag);
            let known = truth.zip(ids.as_ref());
            let motion = match (prediction, known) {
                (Some(prediction), Some(known)) => self.judge(prediction, known)?,
                (Some(prediction), None) => {
                    self.compare(prediction, None)?;
                    None
                }
                (None, _) => None,
            };
            bag.n_evaluated += u64::from(motion.is_some());
            watch(&Replayed { stamp: frame.stamp, task, prediction, truth: motion.as_ref() });
            Ok(())
        })?;
        self.bags.push(BagResult { frames, last_problem, ..bag });
        Ok(())
    }

    /// The configuration of the frames.
    pub fn frames_config(&self) -> &FramesConfig {
        &self.frames
    }

    fn predict<'p>(
        &mut self,
        predictor: &'p mut Predictor,
        frame: &Frame,
        bag: &mut BagResult,
    ) -> Option<&'p Prediction> {
        match predictor.step(frame) {
            Ok(Some(prediction)) => {
                bag.n_predicted += 1;
                self.timings.push(prediction.timings);
                let n = prediction.particles.len();
                let [least, most] = self.n_particles.unwrap_or([n, n]);
                self.n_particles = Some([least.min(n), most.max(n)]);
                Some(prediction)
            }
            Ok(None) => {
                bag.n_without_history += 1;
                None
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    fn fail(&mut self, error: &Error) {
        let cause = discriminant(error);
        match self.failures.iter_mut().find(|failure| failure.cause == cause) {
            Some(failure) => failure.count += 1,
            None => self.failures.push(Failure { first: error.to_string(), count: 1, cause }),
        }
    }

    /// Errors of the model and of the baselines; none if the truth does not reach this frame.
    fn judge(
        &mut self,
        prediction: &Prediction,
        (truth, ids): (&Truth, &BodyIds),
    ) -> Result<Option<TrueMotion>> {
        self.compare(prediction, Some((truth, ids)))?;
        let (step_secs, horizon) = (self.model.config.step_secs, self.config.horizon);
        let particles = &prediction.particles;
        let points = (particles.positions.as_slice(), particles.sources.as_slice());
        let motion = TrueMotion::follow(truth, ids, points, prediction.stamp, step_secs, horizon);
        let Some(motion) = motion else { return Ok(None) };
        let now = &particles.positions;
        let elapsed_steps = prediction.stamp.secs_since(prediction.history_stamp) / step_secs;
        let estimated =
            baselines::estimated_velocity(&prediction.history, now, elapsed_steps as f32, horizon)?;
        let still = baselines::nothing_moves(now.len(), horizon);
        let privileged = baselines::constant_velocity(&motion.back, now, horizon);
        for (method, displacements) in [
            (Method::Model, &prediction.displacements),
            (Method::NothingMoves, &still),
            (Method::VelocityEstimated, &estimated),
            (Method::VelocityTrue, &privileged),
        ] {
            self.scores[method as usize].add(&truth.task, displacements, &motion)?;
        }
        Ok(Some(motion))
    }

    /// Holds what the node published against `prediction`, and against the truth.
    fn compare(
        &mut self,
        prediction: &Prediction,
        known: Option<(&Truth, &BodyIds)>,
    ) -> Result<()> {
        let node = self.published.as_mut().and_then(|node| node.compare(prediction));
        let (Some(node), Some((truth, ids))) = (node, known) else { return Ok(()) };
        let (positions, stamp) = (published::positions(node), prediction.stamp);
        let points = (positions.as_slice(), node.sources.as_slice());
        let (step_secs, n_steps) = (f64::from(node.step_secs), node.n_steps as usize);
        let motion = TrueMotion::follow(truth, ids, points, stamp, step_secs, n_steps);
        if let Some(motion) = motion {
            let displacements = published::displacements(node);
            self.scores[Method::Node as usize].add(&truth.task, &displacements, &motion)?;
        }
        Ok(())
    }
}

impl BagResult {
    fn new(path: &Path, task: Option<&str>) -> Self {
        Self {
            path: path.to_owned(),
            task: task.map(str::to_owned),
            n_predicted: 0,
            n_evaluated: 0,
            n_without_history: 0,
            frames: FrameCounts::default(),
            last_problem: None,
        }
    }
}
