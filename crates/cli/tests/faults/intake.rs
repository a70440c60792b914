//! From messages to predictions, as node and tool do it.
#![allow(dead_code)]

use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::vision::frames::{Frame, FrameCounts, Frames, FramesConfig};
use std::sync::Arc;

use super::stream::{self, Message};

/// What became of one message.
#[derive(Debug)]
pub enum Outcome {
    /// It completed no frame.
    Nothing,
    /// It completed a frame that has no history.
    NoHistory,
    /// It completed a frame that was predicted from.
    Predicted(Box<Prediction>),
    /// It completed a frame that could not be predicted from, and why.
    Rejected(String),
}

/// Frames and a predictor, and what came of them.
pub struct Intake {
    pub frames: Frames,
    pub predictor: Predictor,
    robot: Option<Arc<str>>,
    /// Predictions, frames without history, frames that were rejected.
    pub n_predicted: u64,
    pub n_without_history: u64,
    pub n_rejected: u64,
    /// Robot descriptions that were refused.
    pub n_robots_refused: u64,
    /// Everything that was told, in order.
    pub problems: Vec<String>,
}

impl Intake {
    pub fn new() -> Self {
        Self::of(stream::model())
    }

    pub fn of(model: Model) -> Self {
        let config = PredictorConfig { horizon: 2, ..PredictorConfig::default() };
        Self {
            frames: Frames::new(FramesConfig::default()),
            predictor: Predictor::new(model, config).expect("a model that can be used"),
            robot: None,
            n_predicted: 0,
            n_without_history: 0,
            n_rejected: 0,
            n_robots_refused: 0,
            problems: Vec::new(),
        }
    }

    /// After `n` good frames, the first of them number 0.
    pub fn after(n: u64) -> Self {
        let mut intake = Self::new();
        intake.take_all(stream::start());
        intake.take_frames(0..n);
        assert_eq!((intake.n_predicted, intake.n_rejected), (n.saturating_sub(1), 0));
        assert_eq!(intake.counts().n_dropped(), 0, "{:?}", intake.problems);
        intake
    }

    /// Takes the good messages of frames; the number of predictions.
    pub fn take_frames(&mut self, frames: std::ops::Range<u64>) -> u64 {
        let before = self.n_predicted;
        frames.for_each(|i| drop(self.take_all(stream::frame(i))));
        self.n_predicted - before
    }

    /// Takes messages; the last prediction from them.
    pub fn take_all(&mut self, messages: impl IntoIterator<Item = Message>) -> Option<Prediction> {
        let mut last = None;
        for message in messages {
            if let Outcome::Predicted(prediction) = self.take(&message) {
                last = Some(*prediction);
            }
        }
        last
    }

    pub fn take(&mut self, message: &Message) -> Outcome {
        let frame = self.frames.push_raw(message.topic, &message.bytes);
        self.problems.extend(self.frames.take_problem());
        if let Some(urdf) = self.frames.robot_description()
            && self.robot.as_ref() != Some(urdf)
        {
            self.robot = Some(urdf.clone());
            if let Err(error) = self.predictor.set_robot(urdf, "world") {
                self.n_robots_refused += 1;
                self.problems.push(error.to_string());
            }
        }
        let mut outcome = Outcome::Nothing;
        let mut next = frame;
        while let Some(frame) = next {
            outcome = self.step(&frame);
            next = self.frames.take_frame();
        }
        outcome
    }

    fn step(&mut self, frame: &Frame) -> Outcome {
        match self.predictor.step(frame) {
            Ok(Some(prediction)) => {
                assert!(is_finite(prediction), "what is not finite must not be published");
                self.n_predicted += 1;
                Outcome::Predicted(Box::new(prediction.clone()))
            }
            Ok(None) => {
                self.n_without_history += 1;
                Outcome::NoHistory
            }
            Err(error) => {
                self.n_rejected += 1;
                self.problems.push(error.to_string());
                Outcome::Rejected(error.to_string())
            }
        }
    }

    pub fn counts(&self) -> FrameCounts {
        *self.frames.counts()
    }

    /// Whether a problem was told that holds all of `texts`.
    pub fn reported(&self, texts: &[&str]) -> bool {
        self.problems.iter().any(|problem| texts.iter().all(|text| problem.contains(text)))
    }
}

pub fn is_finite(prediction: &Prediction) -> bool {
    let steps = prediction.displacements.iter().chain([&prediction.particles.positions]);
    steps.flatten().flatten().all(|value| value.is_finite())
}
