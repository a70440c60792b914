//! The links of a robot in an order in which parents come first.

use super::urdf_error;
use crate::base::error::Result;
use nalgebra::{Isometry3, Translation3, Unit, UnitQuaternion, Vector3};
use std::collections::HashMap;
use urdf_rs::JointType;

/// How the position of a joint follows from the independent joints: `factor * q[joint] + offset`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drive {
    pub joint: usize,
    pub factor: f64,
    pub offset: f64,
}

/// What a joint does to its child link.
#[derive(Debug, Clone, Copy)]
pub(super) enum Motion {
    Fixed,
    Turn(Unit<Vector3<f64>>, Drive),
    Slide(Unit<Vector3<f64>>, Drive),
    /// As tf says: floating and planar joints, by their number among those.
    Free(usize),
}

/// A link and the joint that holds it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Index in the robot description's links.
    pub link: usize,
    /// Index of the parent in [`Tree::nodes`]; the root is its own parent.
    pub parent: usize,
    /// Maps the joint's frame into the parent link's frame, at position 0.
    pub origin: Isometry3<f64>,
    pub motion: Motion,
    /// Whether a joint between the root and this link moves.
    pub moves: bool,
}

/// Kinematic tree of a robot; the root is node 0.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub nodes: Vec<Node>,
    /// Names of the independent joints, in the order of the description.
    pub joint_names: Vec<String>,
    /// Floating and planar joints.
    pub n_free: usize,
}

impl Tree {
    pub(super) fn new(robot: &urdf_rs::Robot) -> Result<Self> {
        let links = indices("link", robot.links.iter().map(|link| &link.name))?;
        let joints = indices("joint", robot.joints.iter().map(|joint| &joint.name))?;
        let (parent_joints, children) = connect(robot, &links)?;
        let root = find_root(robot, &parent_joints)?;
        let is_own = |joint: &&urdf_rs::Joint| {
            is_moving(joint) && joint.mimic.is_none() && !is_left_to_tf(joint)
        };
        let names = robot.joints.iter().filter(is_own).map(|joint| joint.name.clone());
        let joint_names: Vec<String> = names.collect();
        let free: HashMap<&str, usize> =
            joint_names.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
        let motions = robot.joints.iter().map(|joint| motion(robot, joint, &joints, &free));
        let motions = motions.collect::<Result<Vec<_>>>()?;
        let mut nodes = breadth_first(robot, &links, &children, &motions, root)?;
        let mut n_free = 0;
        for node in &mut nodes {
            if let Motion::Free(number) = &mut node.motion {
                *number = n_free;
                n_free += 1;
            }
        }
        Ok(Self { nodes, joint_names, n_free })
    }
}

impl Node {
    /// Whether it hangs on a floating or planar joint.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.motion, Motion::Free(_))
    }

    /// Maps this link's frame into its parent's, with the independent joints at `positions` and the
    /// floating and planar ones at `free`.
    pub(super) fn parent_from_link(
        &self,
        positions: &[f64],
        free: &[Isometry3<f64>],
    ) -> Isometry3<f64> {
        let value = |drive: Drive| drive.factor * positions[drive.joint] + drive.offset;
        let joint = match self.motion {
            Motion::Fixed => return self.origin,
            // tf tells the whole of it.
            Motion::Free(number) => return free.get(number).copied().unwrap_or(self.origin),
            Motion::Turn(axis, drive) => Isometry3::from_parts(
                Translation3::identity(),
                UnitQuaternion::from_axis_angle(&axis, value(drive)),
            ),
            Motion::Slide(axis, drive) => Isometry3::from_parts(
                Translation3::from(axis.into_inner() * value(drive)),
                UnitQuaternion::identity(),
            ),
        };
        self.origin * joint
    }
}

/// Nodes from the root outwards.
fn breadth_first(
    robot: &urdf_rs::Robot,
    links: &HashMap<&str, usize>,
    children: &[Vec<usize>],
    motions: &[Motion],
    root: usize,
) -> Result<Vec<Node>> {
    let (origin, motion) = (Isometry3::identity(), Motion::Fixed);
    let mut nodes = vec![Node { link: root, parent: 0, origin, motion, moves: false }];
    let mut next = 0;
    while let Some(node) = nodes.get(next).cloned() {
        for &joint in &children[node.link] {
            let motion = motions[joint];
            nodes.push(Node {
                link: links[robot.joints[joint].child.link.as_str()],
                parent: next,
                origin: isometry(&robot.joints[joint].origin),
                motion,
                moves: node.moves || !matches!(motion, Motion::Fixed),
            });
        }
        next += 1;
    }
    if nodes.len() < robot.links.len() {
        let problem = "some links form a loop: a robot must be a tree";
        return Err(urdf_error(problem));
    }
    Ok(nodes)
}

/// The description's pose (roll, pitch, yaw about fixed axes) as a transform.
pub(super) fn isometry(pose: &urdf_rs::Pose) -> Isometry3<f64> {
    let ([x, y, z], [roll, pitch, yaw]) = (*pose.xyz, *pose.rpy);
    let rotation = UnitQuaternion::from_euler_angles(roll, pitch, yaw);
    Isometry3::from_parts(Translation3::new(x, y, z), rotation)
}

fn indices<'a>(
    what: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<HashMap<&'a str, usize>> {
    let mut map = HashMap::new();
    for (i, name) in names.enumerate() {
        if map.insert(name.as_str(), i).is_some() {
            return Err(urdf_error(format!("two {what}s are named '{name}'")));
        }
    }
    Ok(map)
}

/// For each link: the joint that holds it, and the joints to its children.
type Connections = (Vec<Option<usize>>, Vec<Vec<usize>>);

fn connect(robot: &urdf_rs::Robot, links: &HashMap<&str, usize>) -> Result<Connections> {
    let mut parents = vec![None; robot.links.len()];
    let mut children = vec![Vec::new(); robot.links.len()];
    for (i, joint) in robot.joints.iter().enumerate() {
        let find = |name: &String| {
            let unknown =
                || format!("joint '{}' names link '{name}', which is missing", joint.name);
            links.get(name.as_str()).copied().ok_or_else(|| urdf_error(unknown()))
        };
        let (parent, child) = (find(&joint.parent.link)?, find(&joint.child.link)?);
        children[parent].push(i);
        if let Some(other) = parents[child].replace(i) {
            let other: &urdf_rs::Joint = &robot.joints[other];
            return Err(urdf_error(format!(
                "link '{}' hangs on two joints, '{}' and '{}': a robot must be a tree",
                joint.child.link, other.name, joint.name
            )));
        }
    }
    Ok((parents, children))
}

fn find_root(robot: &urdf_rs::Robot, parent_joints: &[Option<usize>]) -> Result<usize> {
    let is_root = |&i: &usize| parent_joints[i].is_none();
    let roots: Vec<usize> = (0..robot.links.len()).filter(is_root).collect();
    match roots[..] {
        [root] => Ok(root),
        [] if robot.links.is_empty() => Err(urdf_error("it has no links")),
        [] => Err(urdf_error("its links form a loop: a robot must be a tree")),
        [first, second, ..] => Err(urdf_error(format!(
            "{} links hang on no joint ('{}', '{}', …): join them to one root by fixed joints",
            roots.len(),
            robot.links[first].name,
            robot.links[second].name
        ))),
    }
}

/// Whether a joint has more than one position, which joint states can't tell.
fn is_left_to_tf(joint: &urdf_rs::Joint) -> bool {
    matches!(joint.joint_type, JointType::Floating | JointType::Planar)
}

fn is_moving(joint: &urdf_rs::Joint) -> bool {
    joint.joint_type != JointType::Fixed
}

/// Motion of `joint` after checking its numbers.
fn motion(
    robot: &urdf_rs::Robot,
    joint: &urdf_rs::Joint,
    joints: &HashMap<&str, usize>,
    free: &HashMap<&str, usize>,
) -> Result<Motion> {
    let name = &joint.name;
    let pose = joint.origin.xyz.iter().chain(joint.origin.rpy.iter());
    if pose.chain(joint.axis.xyz.iter()).any(|value| !value.is_finite()) {
        return Err(urdf_error(format!("joint '{name}' has numbers that are not finite")));
    }
    if !is_moving(joint) {
        return Ok(Motion::Fixed);
    }
    if is_left_to_tf(joint) {
        // Numbered once their order is known.
        return Ok(Motion::Free(0));
    }
    let drive = drive(robot, joint, joints, free)?;
    let Some(axis) = Unit::try_new(Vector3::from(*joint.axis.xyz), 1e-9) else {
        return Err(urdf_error(format!("joint '{name}' has a zero axis")));
    };
    match joint.joint_type {
        JointType::Revolute | JointType::Continuous => Ok(Motion::Turn(axis, drive)),
        JointType::Prismatic => Ok(Motion::Slide(axis, drive)),
        ref other => Err(urdf_error(format!(
            "joint '{name}' is {other:?}: only fixed, revolute, continuous, prismatic, floating \
             and planar joints are supported"
        ))),
    }
}

/// Follows mimic joints to the independent joint that drives `joint`.
fn drive<'a>(
    robot: &'a urdf_rs::Robot,
    mut joint: &'a urdf_rs::Joint,
    joints: &HashMap<&str, usize>,
    free: &HashMap<&str, usize>,
) -> Result<Drive> {
    let (mut factor, mut offset) = (1.0, 0.0);
    // More steps than joints: a circle.
    for _ in 0..robot.joints.len() {
        let Some(mimic) = &joint.mimic else { break };
        let own = mimic.multiplier.unwrap_or(1.0);
        offset += factor * mimic.offset.unwrap_or(0.0);
        factor *= own;
        let Some(&leader) = joints.get(mimic.joint.as_str()) else {
            let problem =
                format!("joint '{}' mimics '{}', which is missing", joint.name, mimic.joint);
            return Err(urdf_error(problem));
        };
        joint = &robot.joints[leader];
    }
    if !factor.is_finite() || !f64::is_finite(offset) {
        return Err(urdf_error(format!("mimic of joint '{}' is not finite", joint.name)));
    }
    match free.get(joint.name.as_str()) {
        Some(&joint) => Ok(Drive { joint, factor, offset }),
        None => {
            let problem =
                format!("joint '{}' is mimicked, but is fixed or mimics in a circle", joint.name);
            Err(urdf_error(problem))
        }
    }
}
