//! The way of the data, from a frame to the predicted motion of every particle.
//!
//! Time: the paper's t-1 is the frame at hand, t-2 the history frame one step back, and t the
//! first step ahead (GRF masking, section 4.4 and appendix C.3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::backend::Backend;
use crate::engine::graph::walks::WalkSeed;
use crate::engine::model::Model;
use crate::engine::rollout_input::RolloutInput;
use crate::predict::config::PredictorConfig;
use crate::predict::deadline::{Deadline, Pace};
use crate::predict::known_motion::{KnownMotion, KnownMotionSettings};
use crate::predict::last_miss::LastMiss;
use crate::predict::observation::{Memory, Observer, steps_of};
use crate::predict::prediction::milliseconds_since;
use crate::predict::snapshot::Snapshot;
use crate::robot::kinematics::MeshSearch;
use crate::vision::frames::Frame;
use crate::vision::motion::MotionEstimator;
use crate::{Error, Result};

pub use crate::predict::prediction::{Prediction, Timings};

/// Predicts frame after frame; the same for node, tool and tests.
pub struct Predictor {
    model: Arc<Model>,
    config: PredictorConfig,
    observer: Observer,
    memory: Memory,
    motion: MotionEstimator,
    scene: RolloutInput,
    backend: Backend,
    known: KnownMotion,
    last_miss: LastMiss,
    prediction: Prediction,
    /// Whether `scene` is what `prediction` started from.
    is_predicted: bool,
    /// As [`Snapshot::image_sizes`].
    image_sizes: Vec<Option<[u32; 2]>>,
    pace: Pace,
}

impl Predictor {
    /// A predictor that runs `model`.
    ///
    /// # Errors
    /// [`Error::Config`] if a setting makes no sense, and as [`Backend::new`].
    pub fn new(model: impl Into<Arc<Model>>, config: PredictorConfig) -> Result<Self> {
        let mut model = model.into();
        config.validate_for(&model.config)?;
        if let Some(secs) = config.plan_lag_secs.filter(|&secs| secs != model.config.plan_lag_secs)
        {
            Arc::make_mut(&mut model).config.plan_lag_secs = secs;
        }
        Ok(Self {
            observer: Observer::new(model.config, config),
            memory: Memory::new(model.config.step_secs, config.history_tolerance_secs),
            motion: MotionEstimator::default(),
            scene: RolloutInput::default(),
            backend: Backend::new(&model, config.device)?,
            known: KnownMotion::default(),
            last_miss: LastMiss::default(),
            prediction: Prediction::default(),
            is_predicted: false,
            image_sizes: Vec::new(),
            pace: Pace::new(config.deadline(&model.config)),
            model,
            config,
        })
    }

    /// Where the meshes of robots that come from now on are looked for; else as
    /// [`MeshSearch::default`].
    pub fn set_meshes(&mut self, meshes: MeshSearch) {
        self.observer.set_meshes(meshes);
    }

    /// Takes the robot's description; its warnings are worth logging.
    ///
    /// # Errors
    /// As [`crate::robot::kinematics::Robot::from_urdf`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str) -> Result<&[String]> {
        // A description that can't be used changes nothing.
        let warnings = self.observer.set_robot(urdf, world_frame)?;
        self.memory.clear();
        self.is_predicted = false;
        Ok(warnings)
    }

    /// Takes new settings, from the next frame on; forgets the frames that they make unusable as
    /// history, which only another workspace does.
    ///
    /// # Errors
    /// [`Error::Config`] if a setting makes no sense, and as [`Backend::new`]; nothing has changed then.
    pub fn set_config(&mut self, config: PredictorConfig) -> Result<()> {
        config.validate_for(&self.model.config)?;
        if config.device != self.config.device {
            self.backend = Backend::new(&self.model, config.device)?;
        }
        let workspace = |config: &PredictorConfig| config.workspace_of(&self.model.config);
        if workspace(&config) != workspace(&self.config) {
            self.memory.clear();
        }
        self.memory.set_tolerance(config.history_tolerance_secs);
        self.observer.set_config(config);
        self.pace = Pace::new(config.deadline(&self.model.config));
        self.config = config;
        Ok(())
    }

    /// Forgets all frames, as after a jump of the scene or of time; returns how many there were.
    pub fn forget(&mut self) -> usize {
        self.is_predicted = false;
        self.memory.clear()
    }

    /// Lets memory grow and code come in before the first prediction, which takes twice as long as later ones
    /// without: predicts from `frame` as if all had rested, and forgets all frames. Afterwards it predicts
    /// as one that has seen nothing.
    ///
    /// # Errors
    /// As [`Predictor::step`].
    pub fn warm_up(&mut self, frame: &Frame) -> Result<()> {
        self.observer.check_robot()?;
        let deadline = self.config.deadline(&self.model.config);
        self.forget();
        self.pace = Pace::new(Deadline { time: Duration::ZERO, ..deadline });
        let mut before = frame.clone();
        before.stamp = frame.stamp.plus_secs(-self.model.config.step_secs);
        let done = self.recall(&before).and_then(|()| self.step(frame).map(|_| ()));
        self.forget();
        self.pace = Pace::new(deadline);
        done
    }

    /// Predicts from `frame`; nothing while there is no history frame of the same cameras one step
    /// back.
    ///
    /// # Errors
    /// [`Error::NoRobot`] if the settings require one and [`Predictor::set_robot`] was not called, and
    /// what makes this frame unusable; the next one starts afresh.
    pub fn step(&mut self, frame: &Frame) -> Result<Option<&Prediction>> {
        self.step_in_time(frame, Instant::now())
    }

    /// As [`Predictor::step`], for a frame that was `whole` then: shorter, and of fewer
    /// particles, where the deadline of the settings asks for it.
    ///
    /// # Errors
    /// As [`Predictor::step`].
    pub fn step_in_time(&mut self, frame: &Frame, whole: Instant) -> Result<Option<&Prediction>> {
        let start = Instant::now();
        let config = &self.model.config;
        self.memory.follow(frame.stamp);

        // Images → cloud in the world frame → particles at t-1; the robot's at its joints.
        let mut now = self.memory.take_spare();
        self.observer.observe(frame, self.pace.n_particles(), &mut self.backend, &mut now)?;
        let (cameras, has_robot) = (now.cameras.iter().copied(), !now.kinematic.is_empty());
        let Some(history) = self.memory.one_step_back(now.stamp, cameras, has_robot) else {
            self.memory.remember(now);
            return Ok(None);
        };
        // Particles of t-2, motion since then, and the robot's particles at t-2, t-1, t, …
        self.is_predicted = false;
        self.scene.set_particles(&now.particles, &history.particles, config.n_history);
        self.scene.on_links.clone_from(&now.on_links);
        self.observer.forecast(history, &now, frame, &mut self.scene)?;
        if config.n_motion > 0 {
            let clouds = [&history.cloud, &now.cloud];
            // Seen from the robot as it was at the history frame, told as of one step.
            let robot_then = Some(&history.kinematic[..]);
            self.scene.set_motion(&mut self.motion, &now.particles, clouds, robot_then);
            let steps = steps_of(config, now.stamp.secs_since(history.stamp));
            if steps != 1.0 {
                self.scene.scale_motion(steps as f32);
            }
        }
        // How the prediction of one step back turned out, which tells of what goes on.
        self.prediction.held_against = None;
        self.prediction.outcomes = Default::default();
        if let Some((past, steps)) = self.memory.predicted(now.stamp) {
            let RolloutInput { start, records, .. } = &mut self.scene;
            let before = (&past.particles.positions[..], &past.outlook, steps as f32);
            self.prediction.outcomes = self.last_miss.look(start, &now.kinematic, before, records);
            self.prediction.held_against = Some(past.stamp);
        }
        self.scene.set_origin(&self.config.origin);
        self.scene.walk_seed = WalkSeed { seed: self.config.seed, stamp_ns: now.stamp.nanos() };
        let seen = if config.n_motion > 0 { &history.cloud } else { &history.particles };
        self.prediction.history.clone_from(&seen.positions);
        self.prediction.history_stamp = history.stamp;
        let particles_ms = milliseconds_since(start);

        // Each step: tokens → k-NN graph → walks and loads (Algorithm 2, enumerated) → Interlacer
        // (of GRF models Eq. 28 in the local layers) → Δx; then again from where the particles went.
        let start = Instant::now();
        let is_slowed = self.pace.is_slowed();
        let mut run = self.pace.start(whole, start);
        let (weights, scene) = (&self.model.weights, &self.scene);
        let goes_on = |n_done| run.goes_on(n_done, Instant::now());
        self.backend.run_while(weights, scene, self.config.horizon, goes_on)?;
        self.pace.end(&run, self.backend.n_steps(), Instant::now());

        let prediction = &mut self.prediction;
        prediction.stamp = now.stamp;
        prediction.is_cut = is_slowed || self.backend.n_steps() < self.config.horizon;
        prediction.seed = self.config.seed;
        prediction.particles.clone_from(&now.particles);
        prediction.displacements.resize_with(self.backend.n_steps(), Vec::new);
        for (t, displacements) in prediction.displacements.iter_mut().enumerate() {
            displacements.clear();
            displacements.extend_from_slice(self.backend.displacements(t));
        }
        // What lies on the robot goes with it, and what rests stays at rest until something comes near.
        self.known.apply(KnownMotionSettings::from(&self.config), &self.scene, prediction);
        let told = (0..self.backend.n_steps()).map_while(|t| self.backend.sigmas(t));
        prediction.set_sigmas(told, self.model.calibration.as_ref());
        prediction.widen_sigmas();
        prediction.widen_by(&self.scene.records);
        now.outlook.take(self.known.said(), &self.scene.records, prediction);
        prediction.timings = Timings { particles_ms, predict_ms: milliseconds_since(start) };
        self.memory.remember(now);
        self.image_sizes.clear();
        for camera in &frame.cameras {
            let n_known = self.image_sizes.len().max(camera.camera + 1);
            self.image_sizes.resize(n_known, None);
            self.image_sizes[camera.camera] = camera.image_size();
        }
        self.is_predicted = true;
        Ok(Some(&self.prediction))
    }

    /// A copy of what the newest prediction started from, to roll out candidate plans from there.
    ///
    /// # Errors
    /// [`Error::NoRobot`] or [`Error::NoPrediction`] if there is none.
    pub fn snapshot(&self) -> Result<Snapshot> {
        if !self.is_predicted {
            return Err(self.observer.check_robot().err().unwrap_or(Error::NoPrediction));
        }
        Ok(Snapshot {
            model: self.model.clone(),
            robot: self.observer.robot().cloned(),
            course: self.observer.course().clone(),
            workspace: self.config.workspace_of(&self.model.config),
            origin: self.config.origin,
            knows: KnownMotionSettings::from(&self.config),
            scene: self.scene.clone(),
            prediction: self.prediction.without_displacements(),
            image_sizes: self.image_sizes.clone(),
        })
    }

    /// Whether [`Predictor::step`] would find the history frame of `frame`.
    pub fn has_history(&self, frame: &Frame) -> bool {
        let has_robot = self.observer.sees_robot(frame);
        self.memory.one_step_back(frame.stamp, frame.camera_numbers(), has_robot).is_some()
    }

    /// Whether predictions from `frame` have the robot: its description and joints are there.
    pub fn sees_robot(&self, frame: &Frame) -> bool {
        self.observer.sees_robot(frame)
    }

    /// Whether a frame was seen one step before `frame`, by whichever cameras: a history it is only
    /// if they are the same.
    pub fn has_frame_before(&self, frame: &Frame) -> bool {
        self.memory.is_one_step_back(frame.stamp)
    }

    /// Takes a frame that is not predicted from, so that later ones find their history.
    ///
    /// # Errors
    /// As [`Predictor::step`].
    pub fn recall(&mut self, frame: &Frame) -> Result<()> {
        if !self.memory.knows(frame.stamp) {
            let mut observation = self.memory.take_spare();
            let n = self.pace.n_particles();
            self.observer.observe(frame, n, &mut self.backend, &mut observation)?;
            self.memory.remember(observation);
        }
        Ok(())
    }

    /// The model that runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The same, as its snapshots share it.
    pub fn shared_model(&self) -> &Arc<Model> {
        &self.model
    }

    /// What the model runs on.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The settings.
    pub fn config(&self) -> &PredictorConfig {
        &self.config
    }
}
