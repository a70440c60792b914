//! What can be asked of a predictor.

use std::sync::Arc;

use super::{Prediction, Predictor};
use crate::engine::backend::Backend;
use crate::engine::model::Model;
use crate::predict::config::PredictorConfig;
use crate::predict::known_motion::KnownMotionSettings;
use crate::predict::snapshot::Snapshot;
use crate::vision::cloud::Place;
use crate::vision::frames::Frame;
use crate::{Error, Result};

impl Predictor {
    /// A copy of what the newest prediction started from, to roll out candidate plans from there.
    ///
    /// # Errors
    /// [`Error::NoRobot`] or [`Error::NoPrediction`] if there is none.
    pub fn snapshot(&self) -> Result<Snapshot> {
        if !self.is_predicted {
            return Err(self.observer.check_robot().err().unwrap_or(Error::NoPrediction));
        }
        let mut scene = self.input.clone();
        // What the present plan reaches, another one may not.
        self.last_miss.tell(&scene.start.body_of, &mut scene.evidence);
        Ok(Snapshot {
            model: self.model.clone(),
            robot: self.observer.robot().cloned(),
            robot_forecast: self.observer.robot_forecast().clone(),
            workspace: self.place.workspace,
            origin: self.place.origin,
            knows: KnownMotionSettings::from(&self.config),
            scene,
            prediction: self.prediction.without_displacements(),
            image_sizes: self.image_sizes.clone(),
        })
    }

    /// The newest prediction; none before there is one, or once what it started from was forgotten.
    pub fn prediction(&self) -> Option<&Prediction> {
        self.is_predicted.then_some(&self.prediction)
    }

    /// Whether what was observed one step before `frame`, by the same cameras, is its history.
    pub fn has_history(&self, frame: &Frame) -> bool {
        let has_robot = self.observer.sees_robot(frame);
        self.history.one_step_back(frame.stamp, frame.camera_numbers(), has_robot).is_some()
    }

    /// The frames that are kept, oldest first.
    pub fn kept(&self) -> impl Iterator<Item = &Frame> {
        self.history.kept()
    }

    /// Whether predictions from `frame` have the robot: its description and joints are there.
    pub fn sees_robot(&self, frame: &Frame) -> bool {
        self.observer.sees_robot(frame)
    }

    /// Whether a frame was seen one step before `frame`, by whichever cameras: a history it is only
    /// if they are the same.
    pub fn has_frame_before(&self, frame: &Frame) -> bool {
        self.history.is_one_step_back(frame.stamp)
    }

    /// The model that runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The same, as its snapshots share it.
    pub fn shared_model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The box that the newest frame was predicted in, in the world frame (m), and what the model took for the
    /// origin; before there is one, where the settings put it.
    pub fn place(&self) -> &Place {
        &self.place
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
