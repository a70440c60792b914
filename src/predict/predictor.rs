//! The way of the data, from a frame to the predicted motion of every particle.
//!
//! Time: the paper's t-1 is the frame at hand, t-2 the history frame one step back, and t the
//! first step ahead (GRF masking, section 4.4 and appendix C.3).

mod observe;
mod setup;
mod state;

use std::sync::Arc;
use std::time::Instant;

use crate::Result;
use crate::engine::backend::Backend;
use crate::engine::graph::walks::WalkSeed;
use crate::engine::model::Model;
use crate::engine::rollout_input::{RolloutInput, StepState};
use crate::predict::config::PredictorConfig;
use crate::predict::deadline::Pace;
use crate::predict::history::History;
use crate::predict::known_motion::{KnownMotion, KnownMotionSettings};
use crate::predict::last_miss::LastMiss;
use crate::predict::moving_camera::{MovingCamera, rest_unseen};
use crate::predict::moving_world::{ROBOT_M, Sights, common_motion};
use crate::predict::objects::ObjectTracker;
use crate::predict::observation::{Observation, Observer};
use crate::predict::outlines::Outlines;
use crate::predict::prediction::milliseconds_since;
use crate::predict::robot_forecast::{RobotNow, steps_of};
use crate::predict::robot_reach::RobotReach;
use crate::vision::cloud::Place;
use crate::vision::frames::Frame;
use crate::vision::motion::MotionEstimator;

pub use crate::predict::prediction::{Prediction, Timings};

/// Predicts frame after frame; the same for node, tool and tests.
pub struct Predictor {
    model: Arc<Model>,
    config: PredictorConfig,
    observer: Observer,
    /// Where the box of the newest frame is, and what the model takes for the origin there.
    place: Place,
    history: History,
    moving_camera: MovingCamera,
    motion: MotionEstimator,
    input: RolloutInput,
    backend: Backend,
    known_motion: KnownMotion,
    outlines: Outlines,
    last_miss: LastMiss,
    robot_reach: RobotReach,
    objects: ObjectTracker,
    prediction: Prediction,
    /// Whether `input` is what `prediction` started from.
    is_predicted: bool,
    /// As [`crate::predict::snapshot::Snapshot::image_sizes`].
    image_sizes: Vec<Option<[u32; 2]>>,
    pace: Pace,
}

impl Predictor {
    /// Predicts from `frame`; nothing while there is no history frame of the same cameras one step
    /// back.
    ///
    /// # Errors
    /// [`crate::Error::NoRobot`] if the settings require one and [`Predictor::set_robot`] was not called,
    /// [`crate::Error::History`] if the history is a kept frame that is unusable, and what makes this frame
    /// unusable; the next one starts afresh.
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
        // Images → cloud in the world frame → particles at t-1; the robot's at its joints.
        self.history.follow(frame.stamp);
        self.place = self.place_of(frame);
        let mut now = self.observe(frame)?;
        now.outlines.extend(self.outlines.look(&now, self.history.outlined(&now)));
        // What was seen one step back → motion since then; the plan → the robot in each step ahead.
        let is_ready = self.look_back(&now).and_then(|()| self.set_input(&now, frame));
        if !matches!(is_ready, Ok(true)) {
            self.history.remember(now);
            return is_ready.map(|_| None);
        }
        let particles_ms = milliseconds_since(start);

        let start = Instant::now();
        // Each step: tokens → k-NN graph → walks and loads (Algorithm 2, enumerated) → Interlacer
        // (of GRF models Eq. 28 in the local layers) → Δx; then again from where the particles went.
        self.roll_out(whole, start)?;
        // What lies on the robot goes with it, what went on against the last predictions goes on, and what
        // rests stays at rest until something comes near.
        self.finish(&mut now);
        self.prediction.timings = Timings { particles_ms, predict_ms: milliseconds_since(start) };
        self.history.remember(now);
        self.note_image_sizes(frame);
        self.is_predicted = true;
        Ok(Some(&self.prediction))
    }

    /// Takes the particles of t-2, motion since then, and the robot's particles at t-2, t-1, t, …; whether
    /// there is a history.
    fn set_input(&mut self, now: &Observation, frame: &Frame) -> Result<bool> {
        let Some(history) = self.history.before(now) else { return Ok(false) };
        let (model, input) = (&self.model.config, &mut self.input);
        self.is_predicted = false;
        // Without what a camera that moved only seems to see move: the errors of its pose, the border.
        let both = self.moving_camera.compare(history.into(), now.into());
        self.prediction.pose_error = both.taken;
        input.set_particles(&now.particles, both.particles, model.n_history);
        input.on_links.clone_from(&now.on_links);
        self.prediction.step_secs = model.step_secs;
        let seen = (frame, &self.place);
        self.observer.forecast(history, now, seen, input, &mut self.prediction.links)?;
        if model.n_motion > 0 {
            // Seen from the robot as it was at the history frame, told as of one step.
            let robot_then = Some(&history.kinematic[..]);
            let clouds = (both.clouds, both.camera_moved);
            input.set_motion(&mut self.motion, &now.particles, clouds, robot_then);
            let StepState { velocities, velocity_known, .. } = &mut input.start;
            rest_unseen(both.unseen, velocities, velocity_known);
            input.scale_motion(steps_of(model, now.stamp.secs_since(history.stamp)) as f32);
            // What its ends tell of the motion of something over some steps, where two frames tell less.
            self.outlines.correct(now, &mut input.start);
            // Whether the world frame moves, as that of a base does.
            input.world_motion_m = common_motion(input, |motion| {
                let robot = RobotNow::new(&self.prediction.links, ROBOT_M);
                let back = self.history.steps_back(now, Sights::steps_back(motion));
                back.is_some_and(|(then, n)| now.sights.rest((&then.sights, n), motion, &robot))
            });
        }
        let seen = if model.n_motion > 0 { both.cloud } else { both.particles };
        self.prediction.history.clone_from(&seen.positions);
        self.prediction.history_stamp = history.stamp;
        self.look_at_last_miss(now);
        self.input.set_origin(&self.place.origin);
        self.robot_reach.end_evidence(&mut self.input);
        self.input.walk_seed = WalkSeed { seed: self.config.seed, stamp_ns: now.stamp.nanos() };
        Ok(true)
    }

    /// How what was predicted about one step ago turned out: that tells what goes on.
    fn look_at_last_miss(&mut self, now: &Observation) {
        let Self { input, last_miss, prediction, history, moving_camera, .. } = self;
        let past = history.predicted(now.stamp);
        prediction.held_against = past.map(|(past, _)| past.stamp);
        let seen = past.filter(|(past, _)| past.stamp == prediction.history_stamp);
        // As tf has it now.
        let corrected = seen.and_then(|(past, _)| moving_camera.corrected(&past.particles));
        let past = past.map(|(past, steps)| {
            let positions = corrected.unwrap_or(&past.particles.positions);
            (positions, &past.outlook, steps as f32)
        });
        let RolloutInput { start, kinematic, evidence, .. } = input;
        prediction.outcomes = last_miss.look(start, kinematic, past, evidence);
    }

    /// Displacements, of as many steps as there is time for.
    fn roll_out(&mut self, whole: Instant, start: Instant) -> Result<()> {
        let Self { model, config, input, backend, pace, prediction, .. } = self;
        let is_slowed = pace.is_slowed();
        let mut run = pace.start(whole, start);
        let goes_on = |n_done| run.goes_on(n_done, Instant::now());
        backend.run_while(&model.weights, input, config.horizon, goes_on)?;
        pace.end(&run, backend.n_steps(), Instant::now());
        prediction.is_cut = is_slowed || backend.n_steps() < config.horizon;
        prediction.set_displacements((0..backend.n_steps()).map(|t| backend.displacements(t)));
        Ok(())
    }

    /// What is known of the motion without the model, and how sure all of it is.
    fn finish(&mut self, now: &mut Observation) {
        let Self { model, config, input, backend, known_motion, last_miss, prediction, .. } = self;
        prediction.stamp = now.stamp;
        prediction.seed = config.seed;
        prediction.particles.clone_from(&now.particles);
        known_motion.apply(KnownMotionSettings::from(&*config), input, prediction);
        let told = (0..backend.n_steps()).map_while(|t| backend.sigmas(t));
        prediction.set_sigmas(told, model.calibration.as_ref());
        prediction.widen_by(&input.evidence);
        prediction.widen_sigmas();
        let bodies = (&input.start.body_of[..], &*last_miss);
        now.outlook.take(known_motion.said(), bodies, prediction);
        self.follow_objects(now);
    }

    /// Which object each particle is of, under numbers that stay.
    fn follow_objects(&mut self, now: &Observation) {
        let Self { model, input, objects, prediction, .. } = self;
        let Prediction { displacements, situations, objects: map, .. } = prediction;
        let ahead = (&displacements[..], model.config.step_secs);
        objects.follow(now, &input.start, situations, ahead, map);
    }
}
