//! What the predicting thread notes and logs: why a frame gave no prediction, and what looks wrong.

use std::time::{Duration, Instant};

use super::super::health::Cause;
use super::super::outside;
use super::Worker;
use forecloud::Error;
use forecloud::message::Stamp;
use forecloud::vision::frames::Frame;

/// Time between two looks at where the points outside of the workspace are.
const LOOK_OUTSIDE: Duration = Duration::from_secs(2);

impl Worker {
    pub(super) fn trouble(&mut self, cause: Cause, text: String) {
        self.health.note(|facts, now| facts.trouble(now, cause, 1, &text));
        self.problems.warn(&format!("{cause:?}"), text);
    }

    /// Notes, logs and returns why a frame gave no prediction.
    pub(super) fn reject(&mut self, error: &Error, frame: &Frame) -> String {
        self.counts.rejected += 1;
        let text = format!("no prediction for this frame: {error}");
        let cause = match error {
            // The status of the robot description says it.
            Error::NoRobot => {
                self.problems.warn("no robot", &text);
                return text;
            }
            Error::TooFewPoints { .. } => Cause::Workspace,
            Error::Device { .. } => Cause::Device,
            Error::MissingJoints { .. } => Cause::Joints,
            Error::Encoding { .. } | Error::ImageSize { .. } | Error::Camera { .. } => Cause::Image,
            _ => Cause::Rejected,
        };
        let text = match cause {
            Cause::Workspace => format!("{text}. {}", self.points_outside(frame)),
            _ => text,
        };
        self.trouble(cause, text.clone());
        text
    }

    /// Where the points of `frame` are, or of one shortly before: it takes a while to tell.
    fn points_outside(&mut self, frame: &Frame) -> &str {
        let known = self.outside.take().filter(|(at, _)| at.elapsed() < LOOK_OUTSIDE);
        let known = known.unwrap_or_else(|| {
            let workspace = &self.predictor.place().workspace;
            let text = outside::describe(&frame.cameras, workspace, &self.world_frame);
            (Instant::now(), text)
        });
        &self.outside.insert(known).1
    }

    /// Notes that no frame lies one step before the one of `stamp`, and returns that; warns once frames have
    /// come for more than a step, and still none does.
    pub(super) fn miss_history(&mut self, stamp: Stamp) -> String {
        self.counts.without_history += 1;
        self.health.note(|facts, _| facts.n_without_history += 1);
        let since = self.without_history_since.filter(|since| *since <= stamp).unwrap_or(stamp);
        self.without_history_since = Some(since);
        let step_secs = self.predictor.model().config.step_secs;
        let tolerance_secs = self.predictor.config().history_tolerance_secs;
        if stamp.secs_since(since) > step_secs + tolerance_secs {
            self.trouble(
                Cause::History,
                format!(
                    "no prediction: no frame lies {step_secs} s before the one of {stamp} s, \
                     within {tolerance_secs} s ({} frames without so far). Remedy: images must \
                     come at {} Hz or a multiple of it, or raise history_tolerance_secs",
                    self.counts.without_history,
                    (1.0 / step_secs * 100.0).round() / 100.0
                ),
            );
        }
        Error::NoPrediction.to_string()
    }

    /// Tells what predictions run on, and why without the GPU where there is one.
    pub(super) fn watch_device(&mut self) {
        let backend = self.predictor.backend();
        if backend.name() == self.device {
            return;
        }
        backend.name().clone_into(&mut self.device);
        let missed = backend.missed().map(|why| format!("predictions run on the CPU: {why}"));
        self.health.note(|facts, _| facts.device(&self.device, missed.as_deref()));
        if let Some(text) = missed {
            self.problems.warn("device", text);
        }
    }

    /// Tells where the newest prediction saw the world frame move.
    pub(super) fn watch_world(&mut self) {
        let Some(motion_m) = self.predictor.prediction().and_then(|p| p.world_motion_m) else {
            return;
        };
        let frame = &self.world_frame;
        let text = format!(
            "all that is seen moves alike, by {:.0} mm a step: does the frame '{frame}' move with a base? \
             Nothing is held at rest. Remedy: set world_frame to one that is fixed to the ground, such \
             as odom or map",
            1e3 * motion_m
        );
        self.trouble(Cause::World, text);
    }

    /// Looks at the rig now and then, and notes what was found.
    pub(super) fn watch_rig(&mut self, frame: &Frame) {
        // What is wrong with the frame is told where it is predicted from.
        if let Ok(Some(items)) = self.rig.take(frame) {
            self.health.note(|facts, _| facts.rig = Some(items));
        }
    }
}
