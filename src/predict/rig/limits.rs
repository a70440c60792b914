//! Whether joints are within the robot's limits.

use std::f64::consts::TAU;

use super::item::{Item, Verdict};
use crate::robot::kinematics::Robot;

/// What the item of joints' limits is called.
pub const LIMITS: &str = "joint limits";
/// Joints may be so far beyond their limits: turning (rad), sliding (m). Fingers that press on something are.
const BEYOND: [f64; 2] = [0.15, 0.02];

/// Largest position of a turning joint (rad), of the lowest and highest of each joint in the robot's order.
pub fn largest_turn(robot: &Robot, ranges: &[Option<[f64; 2]>]) -> f64 {
    let turning = robot.limits().iter().zip(ranges).filter(|(limits, _)| !limits.slides);
    turning.flat_map(|(_, range)| *range).flatten().fold(0.0, |most, q| most.max(q.abs()))
}

/// Whether joint positions are within the robot's limits: lowest and highest of each joint that came, in the
/// robot's order; none where it did not come.
pub fn limits_item(robot: &Robot, ranges: &[Option<[f64; 2]>]) -> Item {
    let what = LIMITS;
    let (mut beyond, mut far) = (Vec::new(), Vec::new());
    let joints = robot.joint_names().iter().zip(robot.limits()).zip(ranges);
    for ((name, limits), range) in joints {
        let Some([low, high]) = *range else { continue };
        let (unit, slides) = (limits.unit(), limits.slides);
        let slack = BEYOND[usize::from(slides)];
        if low < limits.lower - slack || high > limits.upper + slack {
            beyond.push(format!(
                "{name} {low:.2} to {high:.2} {unit} (limits {:.2} to {:.2})",
                limits.lower, limits.upper
            ));
        }
        if !slides && low.abs().max(high.abs()) > 2.0 * TAU {
            far.push(name.as_str());
        }
    }
    let n = robot.joint_names().len();
    match (beyond.is_empty(), far.is_empty()) {
        (true, true) => Item::ok(what, format!("{n} joints within them")),
        (false, false) => Item::wrong(
            Verdict::Fail,
            what,
            beyond.join("; "),
            "joint positions in degrees or in encoder counts",
            "publish joint states in radians and metres (REP 103)",
        ),
        (true, false) => Item::wrong(
            Verdict::Warn,
            what,
            format!("{}: more than two turns", far.join(", ")),
            "joint positions in degrees, or a joint that turns on and on",
            "publish joint states in radians (REP 103)",
        ),
        (false, true) => Item::wrong(
            Verdict::Warn,
            what,
            beyond.join("; "),
            "the description is of another robot or its limits are wrong, or the joints' zeros are",
            "compare the description's limits with the driver's",
        ),
    }
    .value("n_beyond", beyond.len() as f64)
}
