//! What a predictor is made of and told, between frames.

use std::sync::Arc;
use std::time::Duration;

use super::{Prediction, Predictor};
use crate::Result;
use crate::engine::backend::Backend;
use crate::engine::model::Model;
use crate::engine::rollout_input::RolloutInput;
use crate::predict::config::PredictorConfig;
use crate::predict::deadline::{Deadline, Pace};
use crate::predict::history::History;
use crate::predict::known_motion::KnownMotion;
use crate::predict::last_miss::LastMiss;
use crate::predict::moving_camera::MovingCamera;
use crate::predict::objects::ObjectTracker;
use crate::predict::observation::Observer;
use crate::predict::outlines::Outlines;
use crate::predict::robot_reach::RobotReach;
use crate::robot::kinematics::MeshSearch;
use crate::vision::frames::Frame;
use crate::vision::motion::MotionEstimator;

impl Predictor {
    /// A predictor that runs `model`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if a setting makes no sense, and as [`Backend::new`].
    pub fn new(model: impl Into<Arc<Model>>, config: PredictorConfig) -> Result<Self> {
        let mut model = model.into();
        config.validate_for(&model.config)?;
        if let Some(secs) = config.plan_lag_secs.filter(|&secs| secs != model.config.plan_lag_secs)
        {
            Arc::make_mut(&mut model).config.plan_lag_secs = secs;
        }
        Ok(Self {
            place: config.place_of(&model.config),
            observer: Observer::new(model.config, config),
            history: History::new(model.config.step_secs, config.history_tolerance_secs),
            moving_camera: MovingCamera::default(),
            motion: MotionEstimator::default(),
            input: RolloutInput::default(),
            backend: Backend::new(&model, config.device)?,
            known_motion: KnownMotion::default(),
            outlines: Outlines::default(),
            last_miss: LastMiss::default(),
            robot_reach: RobotReach::default(),
            objects: ObjectTracker::default(),
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
        self.history.clear_observations();
        self.objects.reset();
        self.is_predicted = false;
        Ok(warnings)
    }

    /// Takes new settings, from the next frame on; forgets what was observed in
    /// another workspace.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if a setting makes no sense, and as [`Backend::new`]; nothing has changed then.
    pub fn set_config(&mut self, config: PredictorConfig) -> Result<()> {
        config.validate_for(&self.model.config)?;
        if config.device != self.config.device {
            self.backend = Backend::new(&self.model, config.device)?;
        }
        let workspace = |config: &PredictorConfig| config.workspace_of(&self.model.config);
        if workspace(&config) != workspace(&self.config) {
            self.history.clear_observations();
            self.objects.reset();
        }
        self.history.set_tolerance(config.history_tolerance_secs);
        self.observer.set_config(config);
        self.pace = Pace::new(config.deadline(&self.model.config));
        self.place = config.place_of(&self.model.config);
        self.config = config;
        Ok(())
    }

    /// Keeps a frame that is not predicted from, so that later ones find their history. It is looked at only
    /// where one needs it; of more than [`crate::predict::history::MAX_KEPT`] the oldest goes.
    pub fn keep(&mut self, frame: Frame) {
        self.history.keep(frame);
    }

    /// Forgets all frames, as after a jump of the scene or of time; returns how many there were.
    pub fn forget(&mut self) -> usize {
        self.is_predicted = false;
        self.objects.reset();
        self.history.clear()
    }

    fn forget_observations(&mut self) {
        self.is_predicted = false;
        self.history.clear_observations();
        self.objects.reset();
    }

    /// Lets memory grow and code come in before the first prediction, which takes twice as long as later ones
    /// without: predicts from `frame` as if all had rested, and forgets what was observed. Afterwards it
    /// predicts as one that has seen nothing but the frames that are kept.
    ///
    /// # Errors
    /// As [`Predictor::step`].
    pub fn warm_up(&mut self, frame: &Frame) -> Result<()> {
        self.observer.check_robot()?;
        let deadline = self.config.deadline(&self.model.config);
        self.forget_observations();
        self.pace = Pace::new(Deadline { time: Duration::ZERO, ..deadline });
        let mut before = frame.clone();
        before.stamp = frame.stamp.plus_secs(-self.model.config.step_secs);
        let done = self.observe(&before).and_then(|observation| {
            self.history.remember(observation);
            self.step(frame).map(|_| ())
        });
        self.forget_observations();
        self.pace = Pace::new(deadline);
        done
    }
}
