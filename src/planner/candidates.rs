//! What would the scene do if the robot did something else? Candidate plans, rolled out from where
//! the newest prediction started, beside the predictor and without touching it.

mod batch;
mod free;
mod lane;
mod on_device;
mod roller;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::backend::Device;
use crate::engine::model::Model;
use crate::engine::scene::{Scene, history_index};
use crate::message::{JointTrajectory, Stamp};
use crate::planner::costs::{Goal, Judge, Sight};
use crate::predict::config::PredictorConfig;
use crate::predict::known::Knows;
use crate::predict::observation::Course;
use crate::predict::prediction::{Prediction, Timings, milliseconds_since};
use crate::robot::kinematics::Robot;
use crate::vision::cloud::Workspace;
use crate::{Error, Result};

pub use batch::Candidate;
pub(crate) use free::Seen;
use on_device::OnDevice;
use roller::Roller;

/// Particles of the roll-outs that plans are judged by, unless another number is asked for.
pub const PLAN_PARTICLES: usize = 512;

/// All that a prediction started from: made by [`crate::predict::predictor::Predictor::snapshot`].
#[derive(Clone)]
pub struct Snapshot {
    /// The model that predicts.
    pub(crate) model: Arc<Model>,
    /// The robot, where the model takes one.
    pub(crate) robot: Option<Arc<Robot>>,
    /// Where the robot goes without a candidate.
    pub(crate) course: Course,
    /// Box of the particles.
    pub(crate) workspace: Workspace,
    /// Point of the world frame that positions of `scene` are told from (m).
    pub(crate) origin: [f32; 3],
    /// What is not left to the model.
    pub(crate) knows: Knows,
    /// Particles and what is known of them, with the robot's.
    pub(crate) scene: Scene,
    /// The prediction without its displacements.
    pub(crate) prediction: Prediction,
    /// Width and height of the depth image of each camera; none of those that are not there.
    pub(crate) image_sizes: Vec<Option<[u32; 2]>>,
}

impl Snapshot {
    /// Stamp of the frame.
    pub fn stamp(&self) -> Stamp {
        self.prediction.stamp
    }

    /// Number of particles.
    pub fn n_particles(&self) -> usize {
        self.prediction.particles.len()
    }

    /// Tokens of a pass, with the robot's.
    fn n_tokens(&self) -> usize {
        let start = &self.scene.start;
        let n_others = start.positions.len() + start.history_positions.len();
        n_others + 3 * self.model.config.n_kinematic
    }

    /// The robot, where it is part of the frame.
    ///
    /// # Errors
    /// [`Error::Plan`] says why there is none.
    pub fn robot(&self) -> Result<&Arc<Robot>> {
        let Some(robot) = self.robot.as_ref().filter(|_| self.model.config.n_kinematic > 0) else {
            let problem = "the model takes no robot, so its predictions don't depend on a plan";
            return Err(Error::Plan { problem: problem.into() });
        };
        if !self.course.has_robot() {
            let problem = "the robot was not part of the newest frame: see why in the diagnostics";
            return Err(Error::Plan { problem: problem.into() });
        }
        Ok(robot)
    }

    /// Joints now (rad or m), in the robot's order.
    pub fn joints(&self) -> &[f64] {
        &self.course.joints
    }

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

    /// With `n` of the particles, spread evenly over their order, and as large a share of the history's;
    /// all of them if there are fewer. Roll-outs of it are faster, and coarser.
    pub fn thinned(&self, n: usize) -> Self {
        let n_all = self.n_particles();
        let mut thin = self.clone();
        // Nobody needs it again.
        thin.prediction.history.clear();
        if n >= n_all || n == 0 {
            return thin;
        }
        let chosen = self.kept(n);
        let start = &mut thin.scene.start;
        pick(&mut start.positions, &chosen);
        pick(&mut start.velocities, &chosen);
        pick(&mut start.onward, &chosen);
        pick(&mut start.bodies, &chosen);
        pick(&mut start.body_of, &chosen);
        pick(&mut start.velocity_known, &chosen);
        pick(&mut start.colors, &chosen);
        pick(&mut thin.scene.on_links, &chosen);
        let n_history = start.history_positions.len();
        let m = (n_history * n).div_ceil(n_all);
        let of_history: Vec<usize> = (0..m).map(|j| history_index(j, m, n_history)).collect();
        pick(&mut start.history_positions, &of_history);
        pick(&mut start.history_colors, &of_history);
        // Numbers of bodies are fewer than particles.
        let bodies = start.body_of.iter_mut().filter(|body| **body as usize >= n);
        bodies.for_each(|body| *body = crate::vision::motion::NO_BODY);
        start.body_motions.truncate(n);
        let particles = &mut thin.prediction.particles;
        pick(&mut particles.positions, &chosen);
        pick(&mut particles.colors, &chosen);
        pick(&mut particles.sources, &chosen);
        pick(&mut thin.prediction.situations, &chosen);
        thin
    }

    /// Which of the particles [`Self::thinned`] keeps, ascending.
    fn kept(&self, n: usize) -> Vec<usize> {
        let n_all = self.n_particles();
        let n = if n == 0 { n_all } else { n.min(n_all) };
        (0..n).map(|j| history_index(j, n, n_all)).collect()
    }
}

/// Keeps those of the numbers `chosen`, ascending; nothing of what is not known.
fn pick<T: Copy>(values: &mut Vec<T>, chosen: &[usize]) {
    if !values.is_empty() {
        *values = chosen.iter().filter_map(|&i| values.get(i).copied()).collect();
    }
}

/// Rolls out candidate plans, on threads of its own.
pub struct Candidates {
    threads: rayon::ThreadPool,
    roller: Roller,
    /// A thread for each of the plans that are rolled out side by side.
    workers: Vec<(rayon::ThreadPool, Roller)>,
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
            .map(|i| Ok((pool(1, &format!("plan {i}, worker"))?, Roller::default())));
        let workers = workers.collect::<Result<_>>()?;
        let on_device = OnDevice::new(device);
        let (roller, slowest) = (Roller::default(), Duration::ZERO);
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

    /// As [`Candidates::on`], with `forward` opened for the model of `snapshot`.
    #[cfg(test)]
    pub(crate) fn opened(
        device: Device,
        snapshot: &Snapshot,
        forward: Box<dyn crate::engine::backend::Forwards>,
    ) -> Result<Self> {
        let mut candidates = Self::on(device, 2)?;
        candidates.on_device.set_opened(&snapshot.model, forward);
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
