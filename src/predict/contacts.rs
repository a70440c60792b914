//! Contacts to come between the robot's links, as its plan leads them, and the scene, as it is predicted.
//!
//! **Distance.** Each particle goes straight from step to step in the frame of a link, whose surface stands
//! still there; the way is walked in strides that are never longer than the distance, so that nothing is
//! stepped over. Only pairs whose swept boxes meet are looked at. What does not fly goes two ways, as it is
//! predicted, and staying where it is: what it is predicted to do may be what the touch does to it (a box that is
//! pushed keeps its distance from the hand), and a hand that moves may stop. Not so an object that moves beside the
//! robot, which may carry it, nor what is within [`OWN_M`] of the robot: there it may be the robot that is seen.
//!
//! **Probability.** The error of a position is taken as isotropic; its length R is within `sigma` in 50 % and
//! within `sigma_90` in 90 % of all cases, evenly spread in between: 50 % over 0..sigma, 40 % over
//! sigma..sigma_90, 10 % over sigma_90..2 sigma_90. Along one direction an error of length R, whichever way it
//! points, is uniform on -R..R (Archimedes), so that a surface at the gap g (the distance less
//! [`ContactSettings::touch_m`]) is reached with
//!
//! P(g) = ∫ max(0, 1 - g / R) / 2 dF(R), and P(-g) = 1 - P(g).
//!
//! Particles of one object and steps of one roll-out share their error: an object that comes two centimetres
//! farther does so with all its particles. So those of a pair are not independent trials, and its probability
//! is the greatest of them, which also is the least that it can be.
//!
//! **What is no contact to come.** Particles that lie on a link and go with it. A pair of link and object that
//! touch now, within [`TOUCHES_NOW_M`]; of the scene without numbers, only what is within [`AROUND_TOUCH_M`] of
//! where it touches now. And what the link comes no nearer to, by [`APPROACH_M`]: what stands beside a resting
//! robot, or is held by its gripper.

mod pairs;
mod way;

use serde::{Deserialize, Serialize};

use crate::base::geometry::Vec3;
use crate::predict::prediction::Prediction;

/// A link and what is no farther from it than this touch now (m): what depth and calibration are good for.
pub const TOUCHES_NOW_M: f32 = 0.008;
/// What is this near to any link now (m) may be seen of the robot: it is not taken to stay in a link's way.
pub const OWN_M: f32 = 0.02;
/// About where the scene touches a link now, this far is no contact to come (m).
pub const AROUND_TOUCH_M: f32 = 0.1;
/// A link that comes no nearer to a particle than by this does not approach it (m).
pub const APPROACH_M: f32 = 0.006;

/// What counts as a contact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContactSettings {
    /// Distance of a particle from a link's surface that counts as a touch (m): particles are samples, and
    /// what is seen of a thing is not all of it.
    pub touch_m: f32,
    /// Contacts that are less probable are left out.
    pub min_probability: f32,
}

impl Default for ContactSettings {
    fn default() -> Self {
        Self { touch_m: 0.005, min_probability: 0.05 }
    }
}

impl ContactSettings {
    /// Checks all values.
    ///
    /// # Errors
    /// [`crate::Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> crate::Result<()> {
        crate::predict::config::check("touch_m", self.touch_m, 0.001..=0.5, " m")?;
        crate::predict::config::check("min_probability", self.min_probability, 0.0..=1.0, "")
    }
}

/// A link of the robot and a part of the scene that may touch.
#[derive(Debug, Clone, PartialEq)]
pub struct Contact {
    /// Name of the link.
    pub link: String,
    /// Number of the object; none of the scene that has no numbers.
    pub object: Option<u64>,
    /// Time from the frame's stamp until the expected ways touch, or where they don't, until they are
    /// nearest (s).
    pub time_secs: f32,
    /// Smallest distance of the expected ways (m).
    pub min_distance_m: f32,
    /// Where that particle is then (world frame, m).
    pub place: Vec3,
    /// Probability of a touch within the prediction; of models that don't tell sigma, 1 where the expected
    /// ways touch, else 0.
    pub probability: f32,
}

/// Contacts to come, the most probable first: one for each link and object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contacts {
    /// Whether the prediction has the robot; without, nothing is known.
    pub has_robot: bool,
    /// How far the prediction looks ahead (s).
    pub horizon_secs: f32,
    /// The contacts.
    pub contacts: Vec<Contact>,
}

impl Prediction {
    /// Contacts to come between the robot and the scene; none without a robot, and
    /// [`Contacts::has_robot`] says so.
    pub fn contacts(&self, settings: &ContactSettings) -> Contacts {
        pairs::find(self, settings)
    }
}

/// Probability that a position at `gap_m` before a surface (behind it where negative) is beyond it, if half of
/// its errors are within the first of `radii` and nine of ten within the second (m).
pub fn touch_probability(gap_m: f32, radii: [f32; 2]) -> f32 {
    let gap = gap_m.abs();
    // Exact at 0, where the logarithm below has no value.
    let beyond = if gap < 1e-6 { 0.5 } else { beyond(gap, radii) };
    if gap_m > 0.0 { beyond } else { 1.0 - beyond }
}

/// The integral of the module's head, for a gap greater than 0.
fn beyond(gap: f32, [half, nine]: [f32; 2]) -> f32 {
    let half = half.max(1e-4);
    let nine = nine.max(1.001 * half);
    let pieces = [(0.0, half, 0.5), (half, nine, 0.4), (nine, FARTHEST * nine, 0.1)];
    let of = |(from, to, share): (f32, f32, f32)| {
        let low = from.max(gap);
        if low >= to {
            return 0.0;
        }
        0.5 * share * ((to - low) - gap * (to / low).ln()) / (to - from)
    };
    pieces.into_iter().map(of).sum()
}

/// The greatest error, as a multiple of `sigma_90`.
const FARTHEST: f32 = 2.0;

#[cfg(test)]
pub(super) mod tests;
