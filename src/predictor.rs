//! The way of the data, from a frame to the predicted motion of every particle.
//!
//! Time: the paper's t-1 is the frame at hand, t-2 the history frame one step back, and t the
//! first step ahead (GRF masking, section 4.4 and appendix C.3).

use std::time::Instant;

use crate::Result;
use crate::config::PredictorConfig;
use crate::frames::Frame;
use crate::graph::walks::WalkSeed;
use crate::message::Stamp;
use crate::model::{Mode, Model, Rollout, Scene};
use crate::motion::MotionEstimator;
use crate::observation::{Memory, Observer};
use crate::particles::Particles;

/// Predicted motion of the particles of one frame, in the world frame.
#[derive(Debug, Clone, Default)]
pub struct Prediction {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Particles in the frame (m), `[n]`, and what was seen there.
    pub particles: Particles,
    /// Displacement of each particle in each step (m): `[horizon][n]`, from where the step before
    /// left it.
    pub displacements: Vec<Vec<[f32; 3]>>,
    /// Stamp of the history frame, about one step back.
    pub history_stamp: Stamp,
    /// The history frame's cloud, as densely as it was kept (m).
    pub history: Vec<[f32; 3]>,
    /// What the prediction took.
    pub timings: Timings,
}

/// Milliseconds of the stages of one prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Timings {
    /// Clouds, sampling and the robot's particles.
    pub particles_ms: f64,
    /// Graph and model, all steps.
    pub predict_ms: f64,
}

/// Predicts frame after frame; the same for node, tool and tests.
pub struct Predictor {
    model: Model,
    config: PredictorConfig,
    observer: Observer,
    memory: Memory,
    motion: MotionEstimator,
    scene: Scene,
    rollout: Rollout,
    prediction: Prediction,
}

impl Predictor {
    /// A predictor that runs `model`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if a setting makes no sense.
    pub fn new(model: Model, config: PredictorConfig) -> Result<Self> {
        config.validate()?;
        Ok(Self {
            observer: Observer::new(model.config, config),
            memory: Memory::new(model.config.step_secs, config.history_tolerance_secs),
            motion: MotionEstimator::default(),
            scene: Scene::default(),
            rollout: Rollout::new(model.config.rollout(), Mode::Inference),
            prediction: Prediction::default(),
            model,
            config,
        })
    }

    /// Takes the robot's description; its warnings are worth logging.
    ///
    /// # Errors
    /// As [`crate::kinematics::Robot::from_urdf`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str) -> Result<&[String]> {
        // A description that can't be used changes nothing.
        let warnings = self.observer.set_robot(urdf, world_frame)?;
        self.memory.clear();
        Ok(warnings)
    }

    /// Predicts from `frame`; nothing while there is no history frame one step back.
    ///
    /// # Errors
    /// [`crate::Error::NoRobot`] before [`Predictor::set_robot`], and what makes this frame
    /// unusable; the next one starts afresh.
    pub fn step(&mut self, frame: &Frame) -> Result<Option<&Prediction>> {
        let start = Instant::now();
        let config = &self.model.config;
        self.memory.follow(frame.stamp);

        // Images → cloud in the world frame → particles at t-1; the robot's at its joints.
        let mut now = self.memory.take_spare();
        self.observer.observe(frame, &mut now)?;
        let Some(history) = self.memory.one_step_back(now.stamp) else {
            self.memory.remember(now);
            return Ok(None);
        };
        // Particles of t-2, motion since then, and the robot's particles at t-2, t-1, t, …
        self.scene.set_particles(&now.particles, &history.particles, config.n_history);
        if config.n_motion > 0 {
            let clouds = [&history.cloud, &now.cloud];
            self.scene.set_motion(&mut self.motion, &now.particles, clouds);
        }
        self.scene.walk_seed = WalkSeed { seed: self.config.seed, stamp_ns: now.stamp.nanos() };
        self.observer.forecast(history, &now, frame, &mut self.scene.kinematic)?;
        let seen = if config.n_motion > 0 { &history.cloud } else { &history.particles };
        self.prediction.history.clone_from(&seen.positions);
        self.prediction.history_stamp = history.stamp;
        let particles_ms = milliseconds_since(start);

        // Each step: tokens → k-NN graph → walks and loads (Algorithm 2, enumerated) → Interlacer
        // (Eq. 28 in its local layers) → Δx; then again from where the particles went.
        let start = Instant::now();
        self.rollout.run(&self.model.weights, &self.scene, self.config.horizon)?;

        let prediction = &mut self.prediction;
        prediction.stamp = now.stamp;
        prediction.particles.clone_from(&now.particles);
        prediction.displacements.resize_with(self.config.horizon, Vec::new);
        for (t, displacements) in prediction.displacements.iter_mut().enumerate() {
            displacements.clear();
            displacements.extend_from_slice(self.rollout.displacements(t));
        }
        prediction.timings = Timings { particles_ms, predict_ms: milliseconds_since(start) };
        self.memory.remember(now);
        Ok(Some(&self.prediction))
    }

    /// Whether [`Predictor::step`] would find the history frame of a frame of `stamp`.
    pub fn has_history(&self, stamp: Stamp) -> bool {
        self.memory.one_step_back(stamp).is_some()
    }

    /// Takes a frame that is not predicted from, so that later ones find their history.
    ///
    /// # Errors
    /// As [`Predictor::step`].
    pub fn recall(&mut self, frame: &Frame) -> Result<()> {
        if !self.memory.knows(frame.stamp) {
            let mut observation = self.memory.take_spare();
            self.observer.observe(frame, &mut observation)?;
            self.memory.remember(observation);
        }
        Ok(())
    }

    /// The model that runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The settings.
    pub fn config(&self) -> &PredictorConfig {
        &self.config
    }
}

fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
