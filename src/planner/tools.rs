//! What a robot touches things with: the ends of its arms.

use nalgebra::{Point3, UnitQuaternion, Vector3};

use crate::robot::kinematics::Robot;
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
    /// Joints that move it and may.
    pub joints: Vec<usize>,
    /// Unit vector from the last joint before it to the tip, in its frame; none where they lie together.
    pub pointing: Option<Vector3<f64>>,
}

/// Surface nearer to the tip than this counts as the tip's (m).
const ABOUT_M: f64 = 0.06;
/// How far a tool that pushes leans (rad): what is 8 cm above its tip is 3 cm behind it.
const LEAN: f64 = 0.35;
/// A tool points down if its direction goes down by more than this share: by more than 30 degrees.
const DOWN: f64 = 0.5;
/// Distance of joint and tip from which on they tell a direction (m).
const APART_M: f64 = 0.02;
/// Share of the surface that is the tip: the farthest out.
const TIP_SHARE: usize = 12;

/// The tools of these links, all ends of arms if there are none, that the joints `active` move; `robot`
/// as it was placed last.
///
/// # Errors
/// [`Error::Config`] names a link that the robot lacks, that has no surface, or that no joint moves.
pub(super) fn tools(robot: &Robot, links: &[String], active: &[usize]) -> Result<Vec<Tool>> {
    let ends = match links.is_empty() {
        true => ends_of(robot),
        false => links_of(robot, links)?,
    };
    let mut tools = Vec::new();
    for link in ends {
        match tool(robot, link, active) {
            Some(tool) => tools.push(tool),
            None if links.is_empty() => {}
            None => {
                let name = &robot.link_names()[link];
                let problem = format!(
                    "link '{name}' can't be a tool: it has no surface, or none of joint_names moves it"
                );
                return Err(Error::Config { key: "tool_links".into(), problem });
            }
        }
    }
    if tools.is_empty() {
        let problem = "none of them moves an end of an arm: name others".into();
        return Err(Error::Config { key: "joint_names".into(), problem });
    }
    Ok(tools)
}

/// Numbers of the robot's links of these names.
///
/// # Errors
/// [`Error::Config`] of one that the robot lacks.
pub(super) fn links_of(robot: &Robot, wanted: &[String]) -> Result<Vec<usize>> {
    let number = |name: &String| {
        robot.link_number(name).ok_or_else(|| {
            let known = robot.link_names().join(", ");
            let problem = format!("the robot has no link '{name}'; its links are: {known}");
            Error::Config { key: "tool_links".into(), problem }
        })
    };
    wanted.iter().map(number).collect()
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
    points.retain(|p| (p - tip).norm() < ABOUT_M);
    let joint = robot.pose_of(robot.jointed(link))?.translation.vector;
    let pointing = (tip - from_world * Point3::from(joint)).try_normalize(APART_M);
    Some(Tool { link, tip, surface: points, joints, pointing })
}

impl Tool {
    /// As it was `turned` for a push along a horizontal unit vector, and now leans: its upper part is
    /// behind its tip. What is tall is pushed by the tip so, and not at its top by the palm, where it would
    /// fall over, or stand up again when the tool goes away.
    ///
    /// A tool that points forward stays as it is: its rear would go down, into what things stand on.
    pub fn leaning(
        &self,
        turned: UnitQuaternion<f64>,
        along: &Vector3<f64>,
    ) -> UnitQuaternion<f64> {
        if self.pointing.is_some_and(|pointing| (turned * pointing).z > -DOWN) {
            return turned;
        }
        UnitQuaternion::from_scaled_axis(along.cross(&Vector3::z()) * LEAN) * turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_the_tip_leans_away_from_where_it_pushes() {
        for angle in [0.0, 1.0, -2.5] {
            let along = Vector3::new(f64::cos(angle), f64::sin(angle), 0.0);
            // A hand that points down: its frame's -z is up.
            let turned = UnitQuaternion::from_scaled_axis(Vector3::x() * std::f64::consts::PI);
            // One whose joint is at its tip is led like one that points down.
            for pointing in [Some(Vector3::z()), Some(Vector3::new(0.6, 0.0, 0.8)), None] {
                let palm = tool(pointing).leaning(turned, &along) * Vector3::new(0.0, 0.0, -0.08);
                assert!((palm.dot(&along) + 0.08 * LEAN.sin()).abs() < 1e-12, "{palm}");
                assert!((palm.z - 0.08 * LEAN.cos()).abs() < 1e-12, "{palm}");
            }
        }
    }

    #[test]
    fn what_points_forward_or_up_does_not_lean() {
        let along = Vector3::x();
        let turned = UnitQuaternion::from_scaled_axis(Vector3::x() * std::f64::consts::PI);
        for pointing in [Vector3::x(), Vector3::new(0.9, 0.0, 0.1), -Vector3::z()] {
            assert_eq!(tool(Some(pointing)).leaning(turned, &along), turned);
        }
    }

    fn tool(pointing: Option<Vector3<f64>>) -> Tool {
        let (tip, surface) = (Point3::origin(), Vec::new());
        Tool { link: 1, tip, surface, joints: vec![0], pointing }
    }

    /// An arm whose last joint turns a tool that is fixed to its link: a bar along x.
    #[test]
    fn a_tool_points_from_the_last_joint_to_its_tip() {
        let bar = |name: &str, length: f64| {
            format!(
                "<link name='{name}'><visual><origin xyz='{} 0 0'/><geometry><box size='{length} \
                 0.02 0.02'/></geometry></visual></link>",
                0.5 * length
            )
        };
        let joint = |name: &str, kind: &str, parent: &str, child: &str, x: f64| {
            format!(
                "<joint name='{name}' type='{kind}'><parent link='{parent}'/><child link='{child}'/>\
                 <origin xyz='{x} 0 0'/><axis xyz='0 0 1'/><limit lower='-2' upper='2' effort='1' \
                 velocity='1'/></joint>"
            )
        };
        let urdf = format!(
            "<robot name='r'><link name='world'/>{}{}{}{}{}{}</robot>",
            bar("upper", 0.3),
            bar("lower", 0.2),
            bar("tip", 0.1),
            joint("shoulder", "revolute", "world", "upper", 0.0),
            joint("elbow", "revolute", "upper", "lower", 0.3),
            joint("flange", "fixed", "lower", "tip", 0.2),
        );
        let mut robot = Robot::from_urdf(&urdf, 96, "world").unwrap();
        robot.place(&[0.0, 0.3], &mut Vec::new()).unwrap();
        let tools = tools(&robot, &["tip".into()], &[0, 1]).unwrap();
        let pointing = tools[0].pointing.unwrap();
        assert!((pointing - Vector3::x()).norm() < 0.1, "{pointing}");
        assert_eq!(robot.link_names()[robot.jointed(tools[0].link)], "lower");
    }
}
