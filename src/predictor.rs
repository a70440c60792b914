//! The way of the data, from a frame to the predicted motion of every particle.
//!
//! Time: the paper's t-1 is the frame at hand, t-2 the history frame one step back, and t the
//! first step ahead (GRF masking, section 4.4 and appendix C.3).

use std::collections::VecDeque;
use std::time::Instant;

use crate::cloud::{Cloud, Workspace};
use crate::config::PredictorConfig;
use crate::frames::Frame;
use crate::kinematics::{JointOrder, Robot};
use crate::message::Stamp;
use crate::model::{Mode, Model, Rollout, Scene};
use crate::motion::MotionEstimator;
use crate::particles::Particles;
use crate::plan::{self, Horizon};
use crate::{Error, Result};

/// Observations kept to find the one a step back: at 60 frames/s, a step of a quarter second.
const MAX_OBSERVATIONS: usize = 16;

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
    /// The history particles that the model saw (m).
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

/// What is remembered of a frame: all that later predictions need of it.
#[derive(Debug, Default, Clone)]
struct Observation {
    stamp: Stamp,
    particles: Particles,
    /// A denser sample, to estimate motion from.
    cloud: Particles,
    /// Measured joints in the robot's order.
    joints: Vec<f64>,
    /// Kinematic particles at the measured joints.
    kinematic: Vec<[f32; 3]>,
}

/// Predicts frame after frame; the same for node, tool and tests.
pub struct Predictor {
    model: Model,
    config: PredictorConfig,
    workspace: Workspace,
    robot: Option<Robot>,
    order: Option<(std::sync::Arc<[String]>, JointOrder)>,
    cloud: Cloud,
    observations: VecDeque<Observation>,
    motion: MotionEstimator,
    joint_velocities: Vec<f64>,
    joints_ahead: Vec<f64>,
    scene: Scene,
    rollout: Rollout,
    prediction: Prediction,
}

impl Predictor {
    /// A predictor that runs `model`.
    ///
    /// # Errors
    /// [`Error::Config`] if a setting makes no sense.
    pub fn new(model: Model, config: PredictorConfig) -> Result<Self> {
        config.validate()?;
        Ok(Self {
            workspace: config.workspace.unwrap_or(model.config.workspace),
            rollout: Rollout::new(model.config.rollout(), Mode::Inference),
            model,
            config,
            robot: None,
            order: None,
            cloud: Cloud::default(),
            observations: VecDeque::new(),
            motion: MotionEstimator::default(),
            joint_velocities: Vec::new(),
            joints_ahead: Vec::new(),
            scene: Scene::default(),
            prediction: Prediction::default(),
        })
    }

    /// Takes the robot's description; its warnings are worth logging.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str) -> Result<&[String]> {
        let robot = Robot::from_urdf(urdf, self.model.config.n_kinematic, world_frame)?;
        self.order = None;
        self.observations.clear();
        Ok(&self.robot.insert(robot).warnings)
    }

    /// Predicts from `frame`; nothing while there is no history frame one step back.
    ///
    /// # Errors
    /// [`Error::NoRobot`] before [`Predictor::set_robot`], and what makes this frame unusable;
    /// the next one starts afresh.
    pub fn step(&mut self, frame: &Frame) -> Result<Option<&Prediction>> {
        let start = Instant::now();
        if self.observations.back().is_some_and(|last| last.stamp >= frame.stamp) {
            self.observations.clear(); // time was set back
        }
        let now = self.observe(frame)?;
        let Some(history) = self.one_step_back(now.stamp) else {
            self.remember(now);
            return Ok(None);
        };
        self.scene.set_particles(&now.particles, &history.particles, self.model.config.n_history);
        if self.model.config.n_motion > 0 {
            let clouds = [&history.cloud, &now.cloud];
            self.scene.set_motion(&mut self.motion, &now.particles, clouds);
        }
        self.forecast_robot(&now, &history, frame)?;
        let particles_ms = milliseconds_since(start);

        let start = Instant::now();
        self.rollout.run(&self.model.weights, &self.scene, self.config.horizon)?;
        self.collect(&now, &history);
        let predict_ms = milliseconds_since(start);
        self.prediction.timings = Timings { particles_ms, predict_ms };
        self.observations.push_back(history);
        self.remember(now);
        Ok(Some(&self.prediction))
    }

    /// Whether [`Predictor::step`] would find the history frame of a frame of `stamp`.
    pub fn has_history(&self, stamp: Stamp) -> bool {
        self.find_history(stamp).is_some()
    }

    /// Takes a frame that is not predicted from, so that later ones find their history.
    ///
    /// # Errors
    /// As [`Predictor::step`].
    pub fn recall(&mut self, frame: &Frame) -> Result<()> {
        if self.observations.iter().all(|known| known.stamp != frame.stamp) {
            let observation = self.observe(frame)?;
            self.remember(observation);
        }
        Ok(())
    }

    /// Frame → cloud in the world frame → sampled particles, and the robot's.
    fn observe(&mut self, frame: &Frame) -> Result<Observation> {
        let mut now = if self.observations.len() >= MAX_OBSERVATIONS {
            self.observations.pop_front().unwrap_or_default()
        } else {
            Observation::default()
        };
        now.stamp = frame.stamp;
        self.cloud.from_cameras(&frame.cameras, &self.workspace, None)?;
        let n = match self.config.n_particles {
            0 => self.model.config.n_particles,
            n => n,
        };
        now.particles.sample(
            &self.cloud,
            n,
            self.config.seed,
            frame.stamp.nanos(),
            &self.workspace,
        );
        now.cloud.sample(
            &self.cloud,
            self.model.config.n_motion,
            self.config.seed,
            frame.stamp.nanos(),
            &self.workspace,
        );
        if now.particles.len() <= self.model.config.k {
            let (needed, got) = (self.model.config.k + 1, now.particles.len());
            return Err(Error::TooFewPoints { needed, got });
        }
        if self.model.config.n_kinematic > 0 {
            let robot = self.robot.as_mut().ok_or(Error::NoRobot)?;
            let names = &frame.joints.names;
            if self.order.as_ref().is_none_or(|(known, _)| known != names) {
                self.order = Some((names.clone(), robot.order(names)?));
            }
            if let Some((_, order)) = &self.order {
                order.apply(&frame.joints.positions, &mut now.joints)?;
            }
            robot.place(&now.joints, &mut now.kinematic)?;
        }
        Ok(now)
    }

    /// Takes out the observation whose stamp lies nearest to one step back, within the tolerance.
    fn one_step_back(&mut self, now: Stamp) -> Option<Observation> {
        self.observations.remove(self.find_history(now)?)
    }

    fn find_history(&self, now: Stamp) -> Option<usize> {
        let wanted = now.plus_secs(-self.model.config.step_secs);
        let miss = |o: &Observation| o.stamp.abs_diff(wanted);
        let (index, nearest) = self.observations.iter().enumerate().min_by_key(|(_, o)| miss(o))?;
        let tolerance = Stamp::from_secs(self.config.history_tolerance_secs).nanos();
        (miss(nearest) <= tolerance.unsigned_abs()).then_some(index)
    }

    fn remember(&mut self, observation: Observation) {
        self.observations.push_back(observation);
        self.observations.make_contiguous().sort_by_key(|o| o.stamp);
    }

    /// Kinematic particles one step back, now, and at each step ahead, where the plan leads.
    fn forecast_robot(
        &mut self,
        now: &Observation,
        history: &Observation,
        frame: &Frame,
    ) -> Result<()> {
        let config = &self.model.config;
        let rows = &mut self.scene.kinematic;
        rows.resize_with(self.config.horizon + 2, Vec::new);
        rows[0].clone_from(&history.kinematic);
        rows[1].clone_from(&now.kinematic);
        let Some(robot) = self.robot.as_mut().filter(|_| config.n_kinematic > 0) else {
            return Ok(());
        };
        let elapsed_secs = now.stamp.secs_since(history.stamp);
        plan::velocities(&now.joints, &history.joints, elapsed_secs, &mut self.joint_velocities)?;
        let horizon = Horizon {
            step_secs: config.step_secs,
            n_steps: self.config.horizon,
            lag_secs: config.plan_lag_secs,
        };
        plan::forecast(
            &now.joints,
            robot.joint_names(),
            Some(&self.joint_velocities),
            &frame.plan,
            now.stamp,
            &horizon,
            &mut self.joints_ahead,
        )?;
        let ahead = self.joints_ahead.chunks_exact(now.joints.len().max(1));
        ahead.zip(&mut rows[2..]).try_for_each(|(joints, row)| robot.place(joints, row))
    }

    fn collect(&mut self, now: &Observation, history: &Observation) {
        let prediction = &mut self.prediction;
        prediction.stamp = now.stamp;
        prediction.particles.clone_from(&now.particles);
        prediction.history_stamp = history.stamp;
        prediction.history.clone_from(&self.scene.start.history_positions);
        prediction.displacements.resize_with(self.config.horizon, Vec::new);
        for (t, displacements) in prediction.displacements.iter_mut().enumerate() {
            displacements.clear();
            displacements.extend_from_slice(self.rollout.displacements(t));
        }
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
