//! An explanation in words: evidence, cause and remedy.

use super::RigWatch;
use super::explain::{Cause, Explanation};

/// Way of a tip for which a turn stands (m).
const REACH_M: f64 = 0.4;
/// Causes that take away nearly as much are named with the best (share of its gain).
const ALIKE: f64 = 0.85;

/// By how far a cause moves what it is about (m), about.
pub(super) fn way_m(found: &Explanation) -> f64 {
    let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
    match found.cause {
        Cause::Robot | Cause::Camera(_) => norm(&found.by[..3]).max(REACH_M * norm(&found.by[3..])),
        Cause::Origin(_) => norm(&found.by),
        Cause::Zero(_) => REACH_M * norm(&found.by),
        // At 0.3 m/s.
        Cause::Time => 0.3 * norm(&found.by),
    }
}

/// What an explanation says: evidence, cause and remedy.
pub(super) fn told(
    watch: &RigWatch,
    all: &[Explanation],
    best: &Explanation,
) -> (String, String, String) {
    let (cause, remedy) = name(watch, best);
    let others = all.iter().filter(|e| e.cause != best.cause && e.saved >= ALIKE * best.saved);
    let others: Vec<String> = others.take(2).map(|other| name(watch, other).0).collect();
    let or = match others.is_empty() {
        true => String::new(),
        false => format!("; nearly as well: {}", others.join("; ")),
    };
    let text =
        format!("moved by {} it fits better: {:.0} % less misfit{or}", by(best), 100.0 * best.gain);
    (text, cause, remedy)
}

fn by(found: &Explanation) -> String {
    let mm = |values: &[f64]| {
        let parts: Vec<String> = values.iter().map(|x| format!("{:.0}", 1e3 * x)).collect();
        parts.join(", ")
    };
    match found.cause {
        Cause::Robot | Cause::Camera(_) => {
            let turn = found.by[3..].iter().map(|x| x * x).sum::<f64>().sqrt();
            format!("{} mm along x, y, z and {:.1} degrees", mm(&found.by[..3]), turn.to_degrees())
        }
        Cause::Origin(_) => format!("{} mm along its x, y, z", mm(&found.by)),
        Cause::Zero(_) => {
            format!("{:.1} degrees (or {:.0} mm)", found.by[0].to_degrees(), 1e3 * found.by[0])
        }
        Cause::Time => format!("{:.0} ms of its motion", 1e3 * found.by[0]),
    }
}

fn name(watch: &RigWatch, found: &Explanation) -> (String, String) {
    let robot = watch.robot();
    let link = |node: usize| {
        robot.and_then(|robot| robot.link_names().get(node)).map_or("?", String::as_str)
    };
    match found.cause {
        Cause::Robot => {
            let or = if watch.cameras().len() == 1 { ", or the camera" } else { "" };
            (
                format!("where the robot stands{or}"),
                "measure where its base stands, and calibrate the cameras to it (hand-eye calibration)".into(),
            )
        }
        Cause::Camera(camera) => {
            let name = watch.cameras().get(camera).map_or("?", String::as_str);
            (
                format!("the place of camera '{name}' (its transform)"),
                format!("calibrate '{name}' again (docs/src/guide/cameras.md)"),
            )
        }
        Cause::Origin(node) => {
            let parent = robot.map_or(0, |robot| robot.parent_of(node));
            (
                format!(
                    "where '{}' sits on '{}' in the description: a wrong length or offset",
                    link(node),
                    link(parent)
                ),
                format!("correct the origin of the joint that holds '{}'", link(node)),
            )
        }
        Cause::Zero(joint) => {
            let joint =
                robot.and_then(|robot| robot.joint_names().get(joint)).map_or("?", String::as_str);
            (
                format!("the zero of joint '{joint}'"),
                format!("calibrate the zero (homing offset) of '{joint}'"),
            )
        }
        Cause::Time => (
            "the joints' time: clocks that differ".into(),
            "synchronise the clocks (chrony, PTP), and let drivers stamp when they measure".into(),
        ),
    }
}
