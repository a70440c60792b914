//! How a link moves with the joints, and the joints that bring it somewhere.

use nalgebra::{Isometry3, Matrix6, Point3, UnitQuaternion, Vector6};

use super::Robot;
use super::tree::Motion;
use crate::Result;

/// Where a point of a link is to be.
#[derive(Debug, Clone, Copy)]
pub struct ReachFor {
    /// Number of the link, in the order of [`Robot::link_poses`].
    pub link: usize,
    /// The point, in the link's frame (m).
    pub point: Point3<f64>,
    /// Where it is to be (world frame, m).
    pub place: Point3<f64>,
    /// How the link is to be turned, if possible.
    pub turned: Option<UnitQuaternion<f64>>,
}

/// Rounds of the search: first with the turn in mind, then without.
const ROUNDS: [usize; 2] = [24, 24];
/// What a radian of the turn counts for (m).
const TURN_M: f64 = 0.08;
/// Damping (m): ways of joints near singular postures stay bounded.
const DAMPING: f64 = 0.02;
/// Longest way of a joint in a round (rad or m).
const LONGEST: f64 = 0.3;
/// Near enough (m).
const NEAR_M: f64 = 1e-3;

impl Robot {
    /// Number of the link of this name, in the order of [`Robot::link_poses`].
    pub fn link_number(&self, name: &str) -> Option<usize> {
        self.link_names.iter().position(|other| other == name)
    }

    /// Names of all links, parents first.
    pub fn link_names(&self) -> &[String] {
        &self.link_names
    }

    /// Number of the parent of a link; the root is its own.
    pub fn parent_of(&self, link: usize) -> usize {
        self.tree.nodes[link].parent
    }

    /// Numbers of the links with particles, as [`Robot::link_poses`] counts, each with its particles in
    /// its frame (m); in the order of [`Robot::links`].
    pub fn surfaces(&self) -> impl Iterator<Item = (usize, &[Point3<f64>])> {
        self.runs.iter().map(|(node, range)| (*node, &self.points[range.clone()]))
    }

    /// Pose of a link, in the world frame, where the robot was placed last.
    pub fn pose_of(&self, link: usize) -> Option<&Isometry3<f64>> {
        self.world_from_link.get(link)
    }

    /// Independent joints between the root and a link.
    pub fn joints_to(&self, link: usize) -> Vec<usize> {
        let mut joints = Vec::new();
        let mut node = link;
        while node != 0 {
            if let Motion::Turn(_, drive) | Motion::Slide(_, drive) = self.tree.nodes[node].motion {
                joints.push(drive.joint);
            }
            node = self.tree.nodes[node].parent;
        }
        joints.sort_unstable();
        joints.dedup();
        joints
    }

    /// The link at or above `link` that has a joint of its own; the root where none has.
    pub fn jointed(&self, link: usize) -> usize {
        let mut node = link;
        while node != 0 && matches!(self.tree.nodes[node].motion, Motion::Fixed | Motion::Free(_)) {
            node = self.tree.nodes[node].parent;
        }
        node
    }

    /// Replaces `columns` by how the point `place` (world frame, m) of a link, and its turn, change with
    /// each joint, where the robot was placed last: `[n_joints]` of (m, rad) per (rad or m).
    pub fn jacobian(&self, link: usize, place: &Point3<f64>, columns: &mut Vec<Vector6<f64>>) {
        columns.clear();
        columns.resize(self.joint_names().len(), Vector6::zeros());
        let mut node = link;
        while node != 0 {
            let pose = &self.world_from_link[node];
            match self.tree.nodes[node].motion {
                Motion::Turn(axis, drive) => {
                    let axis = pose.rotation * axis.into_inner() * drive.factor;
                    let way = axis.cross(&(place.coords - pose.translation.vector));
                    columns[drive.joint] +=
                        Vector6::new(way.x, way.y, way.z, axis.x, axis.y, axis.z);
                }
                Motion::Slide(axis, drive) => {
                    let way = pose.rotation * axis.into_inner() * drive.factor;
                    columns[drive.joint] += Vector6::new(way.x, way.y, way.z, 0.0, 0.0, 0.0);
                }
                Motion::Fixed | Motion::Free(_) => {}
            }
            node = self.tree.nodes[node].parent;
        }
    }

    /// Moves the `active` ones of `joints` until a point of a link is where it is wanted, within the
    /// joints' limits: damped least squares (Wampler 1986; Nakamura and Hanafusa 1986), from `joints` on,
    /// so that near places have near joints. Returns how far it is off in the end (m); a turn that can't
    /// be had with the place is given up.
    ///
    /// # Errors
    /// As [`Robot::place`].
    pub fn reach(
        &mut self,
        wanted: &ReachFor,
        active: &[usize],
        joints: &mut [f64],
    ) -> Result<f64> {
        let mut columns = Vec::new();
        let mut off_m = f64::INFINITY;
        for (phase, rounds) in ROUNDS.into_iter().enumerate() {
            let turn_m = if phase == 0 && wanted.turned.is_some() { TURN_M } else { 0.0 };
            for _ in 0..rounds {
                self.update(joints)?;
                let pose = self.world_from_link[wanted.link];
                let place = pose * wanted.point;
                let off = wanted.place - place;
                off_m = off.norm();
                let turned = wanted.turned.unwrap_or(pose.rotation);
                let turn = (turned * pose.rotation.inverse()).scaled_axis() * turn_m;
                let is_near = off_m < NEAR_M;
                if is_near && (turn_m == 0.0 || turn.norm() < turn_m * 0.05) {
                    return Ok(off_m);
                }
                let mut error = Vector6::zeros();
                error.fixed_rows_mut::<3>(0).copy_from(&off);
                error.fixed_rows_mut::<3>(3).copy_from(&turn);
                self.jacobian(wanted.link, &place, &mut columns);
                for column in &mut columns {
                    column.fixed_rows_mut::<3>(3).scale_mut(turn_m);
                }
                let mut square = Matrix6::identity() * (DAMPING * DAMPING);
                for &j in active {
                    square += columns[j] * columns[j].transpose();
                }
                let Some(solved) = square.cholesky().map(|c| c.solve(&error)) else { break };
                for &j in active {
                    let limits = self.limits[j];
                    let way = columns[j].dot(&solved).clamp(-LONGEST, LONGEST);
                    joints[j] = (joints[j] + way).max(limits.lower).min(limits.upper);
                }
            }
            // The place with as much of the turn as is to be had.
            if off_m < 2.0 * NEAR_M {
                break;
            }
        }
        self.update(joints)?;
        let pose = self.world_from_link[wanted.link];
        Ok((wanted.place - pose * wanted.point).norm())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::{draw, uniform};

    /// A turn, a slide, and a turn that mimics the first one backwards, with an offset.
    const MIMIC: &str = r#"<robot name="r"><link name="world"/>
        <link name="a"><visual><geometry><box size="0.1 0.1 0.1"/></geometry></visual></link>
        <link name="b"><visual><geometry><box size="0.1 0.1 0.1"/></geometry></visual></link>
        <link name="c"><visual><geometry><box size="0.1 0.1 0.1"/></geometry></visual></link>
        <joint name="turn" type="revolute"><parent link="world"/><child link="a"/>
          <axis xyz="0 0 1"/><limit lower="-2" upper="2" effort="1" velocity="3"/></joint>
        <joint name="slide" type="prismatic"><parent link="a"/><child link="b"/>
          <origin xyz="0.3 0 0" rpy="0.3 0.2 0"/><axis xyz="1 0 0"/>
          <limit lower="0" upper="1" effort="1" velocity="0.5"/></joint>
        <joint name="follows" type="revolute"><parent link="b"/><child link="c"/>
          <origin xyz="0.2 0 0.1"/><axis xyz="0 1 0"/><mimic joint="turn" multiplier="-0.5" offset="0.1"/>
          <limit lower="-2" upper="2" effort="1" velocity="3"/></joint></robot>"#;

    fn arms() -> Robot {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/two_arms.urdf");
        Robot::from_urdf(&std::fs::read_to_string(file).unwrap(), 256, "world").unwrap()
    }

    /// Joints within their limits, by number.
    fn posture(robot: &Robot, number: u64) -> Vec<f64> {
        let joint = |(j, limits): (usize, &super::super::JointLimits)| {
            let share = f64::from(uniform(draw(3, 0, number, j as u64)));
            let (lower, upper) = (limits.lower.max(-3.0), limits.upper.min(3.0));
            lower + (0.15 + 0.7 * share) * (upper - lower)
        };
        robot.limits().iter().enumerate().map(joint).collect()
    }

    #[test]
    fn the_jacobian_is_that_of_finite_differences() {
        let mimic = Robot::from_urdf(MIMIC, 64, "world").unwrap();
        for (mut robot, name) in [(mimic, "c"), (arms(), "left_hand")] {
            let link = robot.link_number(name).unwrap();
            let point = Point3::new(0.05, -0.02, 0.1);
            let joints = posture(&robot, 1);
            let mut columns = Vec::new();
            robot.update(&joints).unwrap();
            let pose = *robot.pose_of(link).unwrap();
            robot.jacobian(link, &(pose * point), &mut columns);
            let step = 1e-6;
            for (j, column) in columns.iter().enumerate() {
                let mut there = joints.clone();
                there[j] += step;
                robot.update(&there).unwrap();
                let moved = robot.pose_of(link).unwrap();
                let way = (moved * point - pose * point) / step;
                let turn = (moved.rotation * pose.rotation.inverse()).scaled_axis() / step;
                let error = (column.fixed_rows::<3>(0) - way).norm()
                    + (column.fixed_rows::<3>(3) - turn).norm();
                assert!(error < 1e-4, "joint {j} of {name}: {error}");
            }
        }
    }

    #[test]
    fn places_that_can_be_had_are_reached_as_forward_kinematics_tells() {
        let mut robot = arms();
        let mut n_reached = 0;
        for number in 0..20 {
            let name = ["left_hand", "right_hand"][number as usize % 2];
            let link = robot.link_number(name).unwrap();
            let active = robot.joints_to(link);
            assert_eq!(active.len(), 7);
            let goal = posture(&robot, number);
            let point = Point3::new(0.0, 0.0, 0.1);
            robot.update(&goal).unwrap();
            let wanted = *robot.pose_of(link).unwrap();
            // From a posture near by: the other arm's joints stay.
            let mut joints = goal.clone();
            let off = |j: usize| f64::from(uniform(draw(4, 0, number, j as u64))) - 0.5;
            active.iter().for_each(|&j| joints[j] += 0.5 * off(j));
            let from = joints.clone();
            let place = wanted * point;
            let reach = ReachFor { link, point, place, turned: Some(wanted.rotation) };
            let off_m = robot.reach(&reach, &active, &mut joints).unwrap();
            n_reached += usize::from(off_m < 2e-3);
            let pose = *robot.pose_of(link).unwrap();
            assert!((place - pose * point).norm() - off_m < 1e-9, "it tells how far it is off");
            for (j, limits) in robot.limits().iter().enumerate() {
                let is_within = (limits.lower..=limits.upper).contains(&joints[j]);
                assert!(is_within || joints[j] == from[j]);
                assert!(active.contains(&j) || joints[j] == from[j]);
            }
        }
        assert!(n_reached >= 19, "{n_reached} of 20");
        // What no arm reaches is told to be far off, and nothing breaks.
        let link = robot.link_number("left_hand").unwrap();
        let (point, place) = (Point3::origin(), Point3::new(9.0, 0.0, 0.0));
        let active = robot.joints_to(link);
        let mut joints = posture(&robot, 3);
        let reach = ReachFor { link, point, place, turned: None };
        assert!(robot.reach(&reach, &active, &mut joints).unwrap() > 7.0);
    }
}
