//! What would the scene do if the robot did something else? Candidate plans, rolled out from where
//! the newest prediction started, beside the predictor and without touching it.

mod batch;
mod candidate_rollout;
mod device_batch;
mod free_air;
mod on_device;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::backend::Device;
use crate::engine::model::Model;
use crate::message::JointTrajectory;
use crate::planner::costs::{Goal, Judge, Sight};
use crate::predict::config::PredictorConfig;
use crate::predict::prediction::{Prediction, Timings, milliseconds_since};
use crate::{Error, Result};

pub use crate::predict::snapshot::Snapshot;
pub use batch::Candidate;
use candidate_rollout::CandidateRollout;
pub(crate) use free_air::Seen;
use on_device::OnDevice;

/// Particles of the roll-outs that plans are judged by, unless another number is asked for.
pub const PLAN_PARTICLES: usize = 512;

impl Snapshot {
    /// A goal in this frame.
    ///
    /// # Errors
    /// As [`Judge::new`].
    pub fn judge(&self, goal: &Goal) -> Result<Judge> {
        Judge::new(goal, &self.sight())
    }

    fn sight(&self) -> Sight<'_> {
        let particles = &self.prediction.particles;
        Sight {
            positions: &particles.positions,
            sources: &particles.sources,
            image_sizes: &self.image_sizes,
            body_of: &self.scene.start.body_of,
            on_links: &self.scene.on_links,
            workspace: &self.workspace,
        }
    }

    /// A goal in this frame, with what its plans are rolled out from: [`PLAN_PARTICLES`] of the particles,
    /// or all where the target would lose its own.
    ///
    /// The target is chosen once, of all particles: of those that are left, the body nearest to a place may
    /// be another one.
    ///
    /// # Errors
    /// As [`Judge::new`].
    pub fn for_plans(&self, goal: &Goal, n_particles: usize) -> Result<(Self, Judge)> {
        let judge = self.judge(goal)?;
        let thin = self.thinned(n_particles);
        let kept = self.kept(n_particles).into_iter();
        let is_target = kept.map(|i| judge.target().binary_search(&(i as u32)).is_ok());
        match Judge::of_target(goal, &thin.sight(), &is_target.collect::<Vec<_>>()) {
            Ok(of_thin) => Ok((thin, of_thin)),
            Err(_) => Ok((self.thinned(0), judge)),
        }
    }
}

/// Rolls out candidate plans, on threads of its own.
pub struct Candidates {
    threads: rayon::ThreadPool,
    roller: CandidateRollout,
    /// A thread for each of the plans that are rolled out side by side.
    workers: Vec<(rayon::ThreadPool, CandidateRollout)>,
    on_device: OnDevice,
    /// Longest time that one piece of work of the last [`Candidates::evaluate`] took.
    slowest: Duration,
}

impl Candidates {
    /// With `n_threads` threads; 0 takes one per CPU.
    ///
    /// # Errors
    /// [`Error::Config`] if they can't be started.
    pub fn new(n_threads: usize) -> Result<Self> {
        Self::on(Device::Cpu, n_threads)
    }

    /// As [`Candidates::new`], with `device` for the model's part of [`Candidates::evaluate`]. It is opened
    /// when the first plans come, or by [`Candidates::open`].
    ///
    /// # Errors
    /// As there.
    pub fn on(device: Device, n_threads: usize) -> Result<Self> {
        let threads = pool(n_threads, "plan")?;
        let workers = (0..threads.current_num_threads())
            .map(|i| Ok((pool(1, &format!("plan {i}, worker"))?, CandidateRollout::default())));
        let workers = workers.collect::<Result<_>>()?;
        let on_device = OnDevice::new(device);
        let (roller, slowest) = (CandidateRollout::default(), Duration::ZERO);
        Ok(Self { workers, threads, roller, on_device, slowest })
    }

    /// Opens the device for `model`, which snapshots will have, so that the first plans need not wait for it.
    ///
    /// # Errors
    /// [`Error::Device`] if a GPU that was asked for can't be used.
    pub fn open(&mut self, model: &Arc<Model>) -> Result<()> {
        let (threads, on_device) = (&self.threads, &mut self.on_device);
        threads.install(|| on_device.open(model))
    }

    /// As [`Candidates::on`], with `opened` for the model of `snapshot`.
    #[cfg(test)]
    pub(crate) fn opened(
        device: Device,
        snapshot: &Snapshot,
        opened: Box<dyn crate::engine::backend::SideBySide>,
    ) -> Result<Self> {
        let mut candidates = Self::on(device, 2)?;
        candidates.on_device.set_opened(&snapshot.model, opened);
        Ok(candidates)
    }

    /// What [`Candidates::evaluate`] runs on, for people, and why that is the CPU where a GPU was tried:
    /// the CPU until it is opened.
    pub fn device(&self) -> String {
        self.on_device.describe()
    }

    /// How long what [`Candidates::evaluate`] begins may go on: the longest that a plan, or a batch of a
    /// GPU, took in the last one.
    pub(crate) fn slowest(&self) -> Duration {
        self.slowest
    }

    /// The threads, for what else is done for plans between roll-outs.
    pub(crate) fn threads(&self) -> &rayon::ThreadPool {
        &self.threads
    }

    /// `n_steps` steps from `snapshot` on, if the robot follows `candidate`; joints that it leaves
    /// out move as in the prediction (see [`crate::robot::plan::with_candidate`]).
    ///
    /// The particles are those of the prediction, in their order; with the plan that the prediction
    /// had, the displacements are the same bit for bit.
    ///
    /// # Errors
    /// [`Error::Config`] for a number of steps that a prediction can't have, [`Error::Plan`] for a
    /// candidate that can't be followed.
    pub fn predict(
        &mut self,
        snapshot: &Snapshot,
        candidate: JointTrajectory,
        n_steps: usize,
    ) -> Result<Prediction> {
        let start = Instant::now();
        PredictorConfig { horizon: n_steps, ..PredictorConfig::default() }.validate()?;
        let roller = &mut self.roller;
        roller.start(snapshot)?;
        roller.place(snapshot, candidate, n_steps, 0)?;
        let particles_ms = milliseconds_since(start);
        let start = Instant::now();
        let mut prediction = snapshot.prediction.clone();
        roller.place_links(snapshot, &mut prediction.links)?;
        self.threads.install(|| roller.run(snapshot, n_steps, &mut prediction))?;
        let timings = Timings { particles_ms, predict_ms: milliseconds_since(start) };
        Ok(Prediction { timings, ..prediction })
    }
}

fn pool(n_threads: usize, name: &str) -> Result<rayon::ThreadPool> {
    let name = name.to_owned();
    rayon::ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .thread_name(move |i| format!("{name} {i}"))
        .build()
        .map_err(|error| Error::Config {
            key: "plan_threads".into(),
            problem: format!("{n_threads} threads can't be started: {error}"),
        })
}
