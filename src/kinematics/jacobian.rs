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
