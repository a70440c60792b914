//! What a replay found in one recording, and all of them pooled.
//!
//! Sums are kept recording by recording and added in the order of the recordings, so that a replay
//! that was shared out to many machines comes to the same figures, to the last digit, as one alone.

use serde::{Deserialize, Serialize};

use crate::coverage::Coverage;
use crate::hindsight::Findings;
use crate::method::Method;
use crate::metrics::Scores;
use crate::published::Comparison;
use crate::replay::{BagResult, Failure, SkippedBag};
use crate::report::{Device, Report};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Timings;
use forecloud::vision::cloud::{SensorNoise, Workspace};
use forecloud::vision::frames::FramesConfig;
use forecloud::{Error, Result};
use forecloud_bag::shards::{Joined, Outcome};

/// What a replay is of, beside its recordings: parts of one report have the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Version of Forecloud.
    pub version: String,
    /// Hash of the model.
    pub model_hash: String,
    /// Length of a step (s).
    pub step_secs: f64,
    /// History particles of the model.
    pub n_history: usize,
    /// Robot particles of the model at one time.
    pub n_kinematic: usize,
    /// The box that the model was trained in (world frame, m).
    pub trained_workspace: Workspace,
    /// Settings of the predictor, as they were asked for.
    pub config: PredictorConfig,
    /// How messages become frames.
    pub frames: FramesConfig,
    /// Noise that is added to the depth images.
    pub noise: Option<SensorNoise>,
    /// Whether recordings are taken as if they had no truth.
    pub ignores_truth: bool,
}

/// What a replay found in one recording.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What became of it.
    pub bag: BagResult,
    /// Errors of each of [`Method::ALL`].
    pub scores: [Scores; Method::ALL.len()],
    /// How sure predictions were.
    pub coverage: Coverage,
    /// Predictions held against what was seen later, where there is no truth.
    pub findings: Option<Findings>,
    /// Frames that could not be predicted, or judged, by cause.
    pub failures: Vec<Failure>,
    /// What each prediction took.
    pub timings: Vec<Timings>,
    /// Fewest and most scene particles of a frame.
    pub n_particles: Option<[usize; 2]>,
    /// Whether the box is what the cameras see, rather than the model's.
    pub follows_cameras: bool,
    /// What it ran on.
    pub device: Device,
}

/// All parts of a report, pooled in their order.
pub(super) struct Pool<'a> {
    pub(super) terms: &'a Terms,
    pub(super) parts: &'a [Part],
    pub(super) skipped: &'a [SkippedBag],
    pub(super) published: Option<&'a Comparison>,
    pub(super) scores: [Scores; Method::ALL.len()],
    pub(super) coverage: Coverage,
    pub(super) findings: Option<Findings>,
    pub(super) failures: Vec<Failure>,
    pub(super) timings: Vec<Timings>,
    pub(super) n_particles: Option<[usize; 2]>,
}

impl<'a> Pool<'a> {
    pub(super) fn new(
        terms: &'a Terms,
        parts: &'a [Part],
        skipped: &'a [SkippedBag],
        published: Option<&'a Comparison>,
    ) -> Self {
        let mut pool = Self {
            terms,
            parts,
            skipped,
            published,
            scores: Default::default(),
            coverage: Coverage::default(),
            findings: None,
            failures: Vec::new(),
            timings: Vec::new(),
            n_particles: None,
        };
        parts.iter().for_each(|part| pool.add(part));
        pool
    }

    fn add(&mut self, part: &Part) {
        self.scores.iter_mut().zip(&part.scores).for_each(|(own, scores)| own.merge(scores));
        self.coverage.merge(&part.coverage);
        if let Some(findings) = &part.findings {
            self.findings.get_or_insert_default().merge(findings.clone());
        }
        for failure in &part.failures {
            match self.failures.iter_mut().find(|own| own.cause == failure.cause) {
                Some(own) => own.count += failure.count,
                None => self.failures.push(failure.clone()),
            }
        }
        self.timings.extend_from_slice(&part.timings);
        if let Some([least, most]) = part.n_particles {
            let [a, b] = self.n_particles.unwrap_or([least, most]);
            self.n_particles = Some([a.min(least), b.max(most)]);
        }
    }

    pub(super) fn bags(&self) -> impl DoubleEndedIterator<Item = &'a BagResult> + use<'a> {
        self.parts.iter().map(|part| &part.bag)
    }

    /// The box of the last recording (world frame, m); of none, the one that would be.
    pub(super) fn workspace(&self) -> Workspace {
        let usual = self.terms.config.workspace.unwrap_or(self.terms.trained_workspace);
        self.parts.last().map_or(usual, |part| part.bag.survey.workspace)
    }

    pub(super) fn follows_cameras(&self) -> bool {
        self.parts.iter().any(|part| part.follows_cameras)
    }

    /// What all parts ran on; several machines are all named.
    pub(super) fn device(&self) -> Device {
        let mut cpus: Vec<&str> = Vec::new();
        let mut n_threads = 0;
        for part in self.parts {
            if !cpus.contains(&part.device.cpu.as_str()) {
                cpus.push(&part.device.cpu);
            }
            n_threads = n_threads.max(part.device.n_threads);
        }
        match cpus.is_empty() {
            true => Device::this(),
            false => Device { cpu: cpus.join("; "), n_threads },
        }
    }
}

impl Report {
    /// The report of a replay whose shards were joined: that of the same recordings replayed together, to
    /// the last digit, but for what measures time.
    ///
    /// # Errors
    /// [`Error::Shards`] if they are no shards of a replay of this version, or hold what can't be.
    pub fn of_shards(joined: &Joined) -> Result<Self> {
        let wrong = |problem: String| Error::Shards { problems: vec![problem] };
        let manifest = &joined.manifest;
        if manifest.command != "replay" {
            return Err(wrong(format!("of `forecloud {}`, not of a replay", manifest.command)));
        }
        let terms = Terms::deserialize(&manifest.terms)
            .map_err(|error| wrong(format!("settings of another version: {error}")))?;
        let own = env!("CARGO_PKG_VERSION");
        if terms.version != own {
            let problem = format!("of version {}, this is {own}: use the same", terms.version);
            return Err(wrong(problem));
        }
        terms.config.validate()?;
        let (mut parts, mut skipped) = (Vec::new(), Vec::new());
        for (path, outcome) in &joined.outcomes {
            match outcome {
                Outcome::Skipped(reason) => {
                    skipped.push(SkippedBag { path: path.clone(), reason: reason.clone() });
                }
                Outcome::Result(result) => {
                    let part = Part::deserialize(result).map_err(|error| error.to_string());
                    let part = part.and_then(|part| {
                        let checked = part.validate(terms.config.horizon);
                        checked.map(|()| part).map_err(|error| error.to_string())
                    });
                    parts.push(part.map_err(|told| wrong(format!("{}: {told}", path.display())))?);
                }
            }
        }
        let report = Self::of_parts(&terms, &parts, &skipped);
        Ok(Self { model_path: manifest.model_path.clone(), ..report })
    }
}

impl Part {
    /// Checks what was read from a file: figures that can't be of a replay of `horizon` steps.
    ///
    /// # Errors
    /// [`Error::Part`] names what can't be.
    pub fn validate(&self, horizon: usize) -> Result<()> {
        let tallies = self.findings.as_ref().is_none_or(|findings| {
            findings.steps.len() <= horizon && findings.tallies.can_be(horizon)
        });
        for (what, is_right) in [
            ("errors", self.scores.iter().all(|scores| scores.can_be(horizon))),
            ("sigmas", self.coverage.can_be(horizon)),
            ("what was seen later", tallies),
            ("timings", self.timings.iter().all(|time| time.predict_ms.is_finite())),
        ] {
            if !is_right {
                return Err(Error::Part { what });
            }
        }
        Ok(())
    }
}
