//! What would the scene do if the robot did something else? Candidate plans, rolled out from where
//! the newest prediction started, beside the predictor and without touching it.

use std::sync::Arc;
use std::time::Instant;

use crate::cloud::Workspace;
use crate::config::PredictorConfig;
use crate::kinematics::Robot;
use crate::known::{Known, Knows};
use crate::message::{JointTrajectory, Stamp};
use crate::model::{Mode, Model, ModelConfig, Rollout};
use crate::observation::Course;
use crate::plan::with_candidate;
use crate::prediction::{Prediction, Timings, milliseconds_since};
use crate::scene::Scene;
use crate::{Error, Result};

/// All that a prediction started from: made by [`crate::predictor::Predictor::snapshot`].
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
}

/// Rolls out candidate plans, on threads of its own.
pub struct Candidates {
    threads: rayon::ThreadPool,
    /// With the configuration that it was made for.
    rollout: Option<(ModelConfig, Rollout)>,
    joints_ahead: Vec<f64>,
    known: Known,
}

impl Candidates {
    /// With `n_threads` threads; 0 takes one per CPU.
    ///
    /// # Errors
    /// [`Error::Config`] if they can't be started.
    pub fn new(n_threads: usize) -> Result<Self> {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|i| format!("plan {i}"))
            .build()
            .map_err(|error| Error::Config {
                key: "plan_threads".into(),
                problem: format!("{n_threads} threads can't be started: {error}"),
            })?;
        Ok(Self { threads, rollout: None, joints_ahead: Vec::new(), known: Known::default() })
    }

    /// `n_steps` steps from `snapshot` on, if the robot follows `candidate`; joints that it leaves
    /// out move as in the prediction (see [`with_candidate`]).
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
        let config = snapshot.model.config;
        let Some(robot) = snapshot.robot.as_ref().filter(|_| config.n_kinematic > 0) else {
            let problem = "the model takes no robot, so its predictions don't depend on a plan";
            return Err(Error::Plan { problem: problem.into() });
        };
        let (mut robot, course) = (Robot::clone(robot), &snapshot.course);
        if !course.has_robot() {
            let problem = "the robot was not part of the newest frame: see why in the diagnostics";
            return Err(Error::Plan { problem: problem.into() });
        }
        let horizon = config.horizon(n_steps);
        let names = robot.joint_names();
        let plan = with_candidate(&course.plan, candidate, names, course.stamp, &horizon)?;
        let mut scene = snapshot.scene.clone();
        let (joints, workspace) = (&mut self.joints_ahead, &snapshot.workspace);
        course.place_robot(&plan, &mut robot, &horizon, workspace, joints, &mut scene)?;
        scene.set_robot_origin(&snapshot.origin);
        let particles_ms = milliseconds_since(start);

        let start = Instant::now();
        let rollout = match &mut self.rollout {
            Some((known, rollout)) if *known == config => rollout,
            other => &mut other.insert((config, Rollout::new(config.rollout(), Mode::Inference))).1,
        };
        self.threads.install(|| rollout.run(&snapshot.model.weights, &scene, n_steps))?;
        let displacements = (0..n_steps).map(|t| rollout.displacements(t).to_vec());
        let mut prediction =
            Prediction { displacements: displacements.collect(), ..snapshot.prediction.clone() };
        self.known.apply(snapshot.knows, &snapshot.model, &scene, &mut prediction);
        let sigmas = (0..n_steps).map_while(|t| rollout.sigmas(t));
        self.known.tell_sigmas(sigmas, &snapshot.model, &mut prediction);
        let timings = Timings { particles_ms, predict_ms: milliseconds_since(start) };
        Ok(Prediction { timings, ..prediction })
    }
}
