//! What each check announces, and how good that is.

use std::fmt;

use forecloud::engine::motion_class::MotionClass;
use forecloud::engine::rollout_input::StepState;
use forecloud::predict::contacts::ContactSettings;
use forecloud::predict::predictor::Prediction;

use nalgebra::Point3;

use super::truth::Touches;
use super::{AHEAD_SECS, LOOK_SECS, TOUCH_M};

/// Distances that count as a contact for checks without a sigma (mm).
const MARGINS_MM: [u32; 6] = [5, 10, 20, 30, 50, 80];
/// What counts as a touch of the prediction (mm).
const TOUCH_MM: [u32; 3] = [3, 5, 10];
/// What checks without a prediction take for the robot (m).
const PADDING_M: f32 = 0.02;
/// Thresholds of the probability (%).
const THRESHOLDS: [u32; 10] = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90];

/// A check with its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// The prediction, where this counts as a touch (mm), from a probability on (%).
    Forecast(u32, u32),
    /// The prediction without its sigma, within a distance (mm).
    Expected(u32),
    /// The cloud as it is now, within a distance (mm).
    Present(u32),
    /// The cloud as it goes on, within a distance (mm).
    GoesOn(u32),
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forecast(mm, percent) => write!(f, "prediction, {mm} mm, {percent} %"),
            Self::Expected(mm) => write!(f, "prediction, {mm} mm"),
            Self::Present(mm) => write!(f, "present cloud, {mm} mm"),
            Self::GoesOn(mm) => write!(f, "constant velocity, {mm} mm"),
        }
    }
}

/// A link that is announced to touch something.
pub type Alarm = String;

/// What each method announces of a frame.
pub fn alarms(prediction: &Prediction, start: &StepState) -> Vec<(Method, Vec<Alarm>)> {
    let mut found = Vec::new();
    let least = THRESHOLDS[0] as f32 / 100.0;
    for touch_mm in TOUCH_MM {
        let touch_m = touch_mm as f32 / 1e3;
        let settings = ContactSettings { min_probability: least, touch_m };
        let told = prediction.contacts(&settings).contacts;
        for percent in THRESHOLDS {
            let likely = told.iter().filter(|told| told.probability >= percent as f32 / 100.0);
            let links = likely.map(|told| told.link.clone()).collect();
            found.push((Method::Forecast(touch_mm, percent), links));
        }
    }
    let mut plain = prediction.clone();
    plain.sigmas = Default::default();
    within(&plain, Method::Expected, &mut found);
    leave_out_robot(&mut plain);
    // Goes on and does nothing else.
    for situation in plain.situations.iter_mut().filter(|of| **of == MotionClass::Moving) {
        *situation = MotionClass::Flying;
    }
    let robot: Vec<bool> = plain.situations.iter().map(|s| *s == MotionClass::Robot).collect();
    let is_robot = |i: usize| robot[i];
    for (i, velocity) in start.velocities.iter().enumerate().filter(|(i, _)| !is_robot(*i)) {
        let known = start.velocity_known[i] >= 0.5;
        let way = if known { *velocity } else { [0.0; 3] };
        plain.displacements.iter_mut().for_each(|step| step[i] = way);
    }
    within(&plain, Method::GoesOn, &mut found);
    for i in (0..start.velocities.len()).filter(|&i| !is_robot(i)) {
        plain.displacements.iter_mut().for_each(|step| step[i] = [0.0; 3]);
    }
    within(&plain, Method::Present, &mut found);
    found
}

/// Takes all that is near to a link now for the robot, as filters before such checks do.
fn leave_out_robot(plain: &mut Prediction) {
    let Some(robot) = plain.links.robot.clone() else { return };
    let poses = plain.links.rows().next().unwrap_or_default().to_vec();
    for (p, situation) in plain.particles.positions.iter().zip(&mut plain.situations) {
        let is_near = poses.iter().enumerate().any(|(link, pose)| {
            let there = pose.inverse_transform_point(&Point3::from(*p)).coords.into();
            robot.distance_m(link, &there).is_some_and(|distance| distance < PADDING_M)
        });
        if is_near {
            *situation = MotionClass::Robot;
        }
    }
}

/// What comes within each margin.
fn within(plain: &Prediction, method: fn(u32) -> Method, found: &mut Vec<(Method, Vec<Alarm>)>) {
    for mm in MARGINS_MM {
        let settings = ContactSettings { touch_m: mm as f32 / 1e3, min_probability: 0.5 };
        let told = plain.contacts(&settings).contacts;
        found.push((method(mm), told.into_iter().map(|contact| contact.link).collect()));
    }
}

/// How good announcements are.
#[derive(Debug, Default)]
pub struct Score {
    n_contacts: usize,
    n_announced: usize,
    n_false: usize,
    secs: f64,
}

impl Score {
    /// Adds a recording: `alarms` of the predictions at `times`.
    pub fn add(&mut self, touches: &Touches, alarms: &[Vec<Alarm>], times: &[f64], secs: f64) {
        let begun = &touches.begun;
        self.secs += secs;
        for (link, _, at) in begun {
            let in_time = times.iter().rposition(|&t| t <= at - AHEAD_SECS + 1e-6);
            let Some(frame) = in_time else { continue };
            self.n_contacts += 1;
            self.n_announced += usize::from(alarms[frame].contains(link));
        }
        let mut links: Vec<&String> = alarms.iter().flatten().collect();
        links.sort_unstable();
        links.dedup();
        for link in links {
            let mut frame = 0;
            while frame < alarms.len() {
                if !alarms[frame].contains(link) {
                    frame += 1;
                    continue;
                }
                let first = frame;
                while frame < alarms.len() && alarms[frame].contains(link) {
                    frame += 1;
                }
                let (from, to) = (times[first], times[frame - 1] + LOOK_SECS);
                // What the recording does not show may be true.
                let is_shown = times.last().is_some_and(|last| to <= *last);
                // Also one that touches already.
                let is_true = touches.least_m(link, from, to + 0.1) <= TOUCH_M;
                self.n_false += usize::from(is_shown && !is_true);
            }
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100.0 * self.n_announced as f64 / self.n_contacts.max(1) as f64;
        let rate = 60.0 * self.n_false as f64 / self.secs.max(1e-9);
        write!(f, "{} | {share:.0} % | {rate:.1}", self.n_contacts)
    }
}
