//! What a robot touches things with: the ends of its arms.

use nalgebra::{Point3, Vector3};

use crate::kinematics::Robot;
use crate::{Error, Result};

/// The end of an arm.
#[derive(Debug, Clone)]
pub(super) struct Tool {
    /// The link that is led; fingers keep their places on it.
    pub link: usize,
    /// The point of it that is led, in its frame (m).
    pub tip: Point3<f64>,
    /// Surface about the tip, in its frame (m).
    pub surface: Vec<Point3<f64>>,
    /// All its surface, in its frame (m).
    pub whole: Vec<Point3<f64>>,
    /// Joints that move it and may.
    pub joints: Vec<usize>,
}

/// Surface nearer to the tip than this counts as the tip's (m).
const ABOUT_M: f64 = 0.06;
/// What is no higher above the tip than this is the tip's (m).
const TIP_M: f64 = 0.03;
/// How far the tip is to be ahead of what is higher up (m), and the farthest that a tool is tilted for it (rad).
const LEAD_M: f64 = 0.015;
const MAX_LEAN: f64 = 0.35;
/// Share of the surface that is the tip: the farthest out.
const TIP_SHARE: usize = 12;

/// The tools of these links, all ends of arms if there are none, that the joints `active` move; `robot`
/// as it was placed last.
///
/// # Errors
/// [`Error::Plan`] names a link that the robot lacks, that has no surface, or that no joint moves.
pub(super) fn tools(robot: &Robot, links: &[String], active: &[usize]) -> Result<Vec<Tool>> {
    let wrong = |problem: String| Err(Error::Plan { problem });
    let mut ends: Vec<usize> = Vec::new();
    for name in links {
        match robot.link_number(name) {
            Some(link) => ends.push(link),
            None => {
                let known = robot.link_names().join(", ");
                return wrong(format!("the robot has no link '{name}'; its links are: {known}"));
            }
        }
    }
    if links.is_empty() {
        ends = ends_of(robot);
    }
    let mut tools = Vec::new();
    for link in ends {
        match tool(robot, link, active) {
            Some(tool) => tools.push(tool),
            None if links.is_empty() => {}
            None => {
                let name = &robot.link_names()[link];
                return wrong(format!(
                    "link '{name}' can't be a tool: it has no surface, or none of joint_names moves it"
                ));
            }
        }
    }
    if tools.is_empty() {
        return wrong("none of joint_names moves an end of an arm: name others".into());
    }
    Ok(tools)
}

/// Links at the ends of arms; of fingers the hand that they are on.
fn ends_of(robot: &Robot) -> Vec<usize> {
    let surfaces: Vec<usize> = robot.surfaces().map(|(link, _)| link).collect();
    let is_below = |link: usize, above: usize| {
        let mut at = link;
        while at != 0 && at != above {
            at = robot.parent_of(at);
        }
        at == above && link != above
    };
    let is_end = |&link: &usize| !surfaces.iter().any(|&other| is_below(other, link));
    let ends: Vec<usize> = surfaces.iter().copied().filter(is_end).collect();
    let mut led: Vec<usize> = Vec::new();
    for &end in &ends {
        let parent = robot.parent_of(end);
        let has_sibling =
            ends.iter().any(|&other| other != end && robot.parent_of(other) == parent);
        // Arms on one base are no fingers.
        let is_hand = has_sibling && !robot.joints_to(parent).is_empty();
        led.push(if is_hand { parent } else { end });
    }
    led.sort_unstable();
    led.dedup();
    led
}

fn tool(robot: &Robot, link: usize, active: &[usize]) -> Option<Tool> {
    let joints: Vec<usize> =
        robot.joints_to(link).into_iter().filter(|joint| active.contains(joint)).collect();
    let from_world = robot.pose_of(link)?.inverse();
    let mut points: Vec<Point3<f64>> = Vec::new();
    for (other, surface) in robot.surfaces() {
        let mut at = other;
        while at != 0 && at != link {
            at = robot.parent_of(at);
        }
        if at == link {
            let pose = from_world * robot.pose_of(other)?;
            points.extend(surface.iter().map(|p| pose * p));
        }
    }
    if joints.is_empty() || points.is_empty() {
        return None;
    }
    let n = points.len() as f64;
    let middle: Vector3<f64> = points.iter().map(|p| p.coords).sum::<Vector3<f64>>() / n;
    let axis = middle.try_normalize(1e-6).unwrap_or(Vector3::z());
    points.sort_by(|a, b| b.coords.dot(&axis).total_cmp(&a.coords.dot(&axis)));
    let at_end = &points[..points.len().div_ceil(TIP_SHARE)];
    let sum: Vector3<f64> = at_end.iter().map(|p| p.coords).sum();
    let tip = Point3::from(sum / at_end.len() as f64);
    let surface = points.iter().copied().filter(|p| (p - tip).norm() < ABOUT_M).collect();
    Some(Tool { link, tip, surface, whole: points, joints })
}

/// How far a tool is tilted (rad), its upper part away from where it goes to, so that what it pushes meets
/// the tip and not what is higher up: a tall thing that is pushed at its top falls over, or stands up again
/// when the tool goes away. `surface` is from the tip, as it would be upright: m along the way, and m up; up
/// to `reach_m` above the tip something is pushed.
pub(super) fn lean(surface: impl Iterator<Item = (f64, f64)> + Clone, reach_m: f64) -> f64 {
    let low = surface.clone().filter(|&(_, up)| up.abs() < TIP_M);
    let front = low.map(|(along, _)| along).fold(0.0, f64::max);
    let high = surface.filter(|&(_, up)| up >= TIP_M && up < reach_m + TIP_M);
    let angle = |(along, up): (f64, f64)| (along + LEAD_M - front).atan2(up);
    high.map(angle).fold(0.0, f64::max).min(MAX_LEAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_higher_up_is_tilted_back_behind_the_tip() {
        let finger = [(0.012, 0.0), (0.013, 0.02)];
        let palm = [(0.02, 0.08), (0.018, 0.1)];
        let hand = || finger.into_iter().chain(palm);
        let tilted = |(along, up): (f64, f64), lean: f64| along * lean.cos() - up * lean.sin();
        let by = lean(hand(), 0.12);
        assert!(by > 0.1 && by < MAX_LEAN, "{by}");
        let tip = tilted(finger[0], by);
        for point in palm {
            assert!(tilted(point, by) < tip - 0.5 * LEAD_M, "{point:?}");
        }
        // What is pushed doesn't reach up to the palm.
        assert_eq!(lean(hand(), 0.04), 0.0);
        assert_eq!(lean(finger.into_iter(), 0.12), 0.0, "nothing is higher up");
        // A palm far ahead is tilted as far as a hand is.
        assert_eq!(lean(finger.into_iter().chain([(0.2, 0.08)]), 0.12), MAX_LEAN);
        // One far behind needs no tilting.
        assert_eq!(lean(finger.into_iter().chain([(-0.1, 0.08)]), 0.12), 0.0);
        assert_eq!(lean(std::iter::empty(), 0.12), 0.0);
    }
}
