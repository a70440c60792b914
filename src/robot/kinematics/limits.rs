//! How far and how fast joints go.

use std::f64::consts::{PI, TAU};

use super::Robot;

/// Limits of a joint, as the robot's description has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JointLimits {
    /// Least position (rad or m); minus infinity where there is none.
    pub lower: f64,
    /// Greatest position (rad or m).
    pub upper: f64,
    /// Greatest speed (rad/s or m/s); infinity where it is not told.
    pub speed: f64,
    /// Whether it slides (m) and does not turn (rad).
    pub slides: bool,
    /// Whether it turns without end (URDF: `continuous`), so that drivers may wrap its position at ±π.
    pub wraps: bool,
}

impl JointLimits {
    /// None.
    pub const NONE: Self = Self {
        lower: f64::NEG_INFINITY,
        upper: f64::INFINITY,
        speed: f64::INFINITY,
        slides: false,
        wraps: false,
    };

    /// Unit of its positions.
    pub fn unit(&self) -> &'static str {
        if self.slides { "m" } else { "rad" }
    }

    /// From one position to another (rad or m): the short way round where the joint wraps.
    pub fn way(&self, from: f64, to: f64) -> f64 {
        let way = to - from;
        match self.wraps && way.is_finite() && way.abs() > PI {
            true => (way + PI).rem_euclid(TAU) - PI,
            false => way,
        }
    }
}

impl Robot {
    /// Limits of the independent joints, in the order of [`Robot::joint_names`].
    pub fn limits(&self) -> &[JointLimits] {
        &self.limits
    }
}

/// Of the joints `names`. Limits that make no sense are none, and those of mimicking joints are not
/// looked at.
pub(super) fn of_joints(urdf: &urdf_rs::Robot, names: &[String]) -> Vec<JointLimits> {
    let of_joint = |name: &String| {
        let Some(joint) = urdf.joints.iter().find(|joint| joint.name == *name) else {
            return JointLimits::NONE;
        };
        let told = &joint.limit;
        let wraps = joint.joint_type == urdf_rs::JointType::Continuous;
        let is_bound =
            !wraps && told.lower.is_finite() && told.upper.is_finite() && told.lower < told.upper;
        let (lower, upper) = match is_bound {
            true => (told.lower, told.upper),
            false => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let is_told = told.velocity.is_finite() && told.velocity > 0.0;
        let speed = if is_told { told.velocity } else { f64::INFINITY };
        let slides = joint.joint_type == urdf_rs::JointType::Prismatic;
        JointLimits { lower, upper, speed, slides, wraps }
    };
    names.iter().map(of_joint).collect()
}
