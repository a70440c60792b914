//! What lies on the robot goes with it: known, not predicted.
//!
//! The plan tells where each link will be, and a particle that lies on a link's surface is carried by
//! it through the whole roll-out. Which ones do is decided once a frame, by distance and by motion:
//! what moved otherwise than the link in the step before is something that the link is near to, and so
//! is what lies on the plane below.

use crate::base::geometry::{RigidMotion, Vec3, add, follow_some_links, length, minus};
use crate::engine::scene::Scene;
use crate::robot::kinematics::NO_LINK;

/// How far a particle's motion may differ from its link's (m), and by which share of it.
const DIFFERS_M: f32 = 0.004;
const DIFFERS_SHARE: f32 = 0.3;
/// What lies less high above the support plane, or below it, is the plane's (m).
const CLEARANCE_M: f32 = 0.008;
/// Points of a link from which its motion can be told.
const MIN_POINTS: usize = 4;

/// Carries particles; its vectors are kept from one prediction to the next.
#[derive(Debug, Default)]
pub struct Carried {
    /// Link of each particle, `[n]`; [`NO_LINK`] of those that are predicted.
    links: Vec<u32>,
    /// Points of each link.
    n_points: Vec<u32>,
    /// Whether a particle may lie on each link, or does.
    carry: Vec<bool>,
    back: Vec<RigidMotion>,
    /// Motion of each link that carries from now to before the step at hand, and to its end.
    start: Vec<RigidMotion>,
    end: Vec<RigidMotion>,
}

impl Carried {
    /// Replaces the displacements `[n_steps][n]` of what lies on a link of the robot in `scene` by the
    /// link's. Each step depends on the plan alone.
    ///
    /// Returns how many particles are carried.
    pub fn carry(&mut self, scene: &Scene, displacements: &mut [Vec<Vec3>]) -> usize {
        self.decide(scene);
        let of_points = &scene.start.kinematic_links;
        let [_, now, ahead @ ..] = &scene.kinematic[..] else { return 0 };
        self.carry.clear();
        self.carry.resize(self.n_points.len(), false);
        let mut n_carried = 0;
        for &link in self.links.iter().filter(|link| **link != NO_LINK) {
            self.carry[link as usize] = true;
            n_carried += 1;
        }
        if n_carried == 0 {
            return 0;
        }
        self.start.clear();
        for (displacements, row) in displacements.iter_mut().zip(ahead) {
            follow_some_links(of_points, now, row, |link| self.carry[link], &mut self.end);
            let rows = displacements.iter_mut().zip(&self.links).zip(&scene.start.positions);
            for ((displacement, &link), p) in rows.filter(|((_, link), _)| **link != NO_LINK) {
                let there = self.end[link as usize].motion_of(p);
                let before = self.start.get(link as usize).map(|motion| motion.motion_of(p));
                *displacement = minus(&there, &before.unwrap_or_default());
            }
            std::mem::swap(&mut self.start, &mut self.end);
        }
        n_carried
    }

    /// Whether each particle of the last call is carried, `[n]`.
    pub fn are_carried(&self) -> impl Iterator<Item = bool> {
        self.links.iter().map(|link| *link != NO_LINK)
    }

    fn decide(&mut self, scene: &Scene) {
        let start = &scene.start;
        self.links.clone_from(&scene.on_links);
        self.links.resize(start.positions.len(), NO_LINK);
        let [before, now, ..] = &scene.kinematic[..] else { return self.links.fill(NO_LINK) };
        self.n_points.clear();
        for &link in &start.kinematic_links {
            self.n_points.resize(self.n_points.len().max(link as usize + 1), 0);
            self.n_points[link as usize] += 1;
        }
        self.carry.clear();
        self.carry.resize(self.n_points.len(), false);
        for &link in &self.links {
            if let Some(carry) = self.carry.get_mut(link as usize) {
                *carry = true;
            }
        }
        let carry = |link: usize| self.carry[link];
        follow_some_links(&start.kinematic_links, now, before, carry, &mut self.back);
        let motions = start.velocities.iter().zip(&start.velocity_known);
        for ((link, p), (motion, known)) in self.links.iter_mut().zip(&start.positions).zip(motions)
        {
            let n_points = self.n_points.get(*link as usize).copied().unwrap_or(0);
            if (n_points as usize) < MIN_POINTS {
                *link = NO_LINK;
                continue;
            }
            // From now to one step back, so the other way round.
            let mut differs = self.back[*link as usize].motion_of(p);
            let reach_m = DIFFERS_M + DIFFERS_SHARE * length(&differs);
            add(&mut differs, motion);
            let is_below = scene.start.support_m.is_some_and(|z| p[2] - z < CLEARANCE_M);
            if is_below || (*known >= 0.5 && length(&differs) > reach_m) {
                *link = NO_LINK;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two links of four points: one stays, one goes along x, faster and faster; of the particles one
    /// lies on each, one near each.
    fn scene() -> (Scene, Vec<Vec<Vec3>>) {
        let corners = [[0.0, 0.0, 0.5], [0.1, 0.0, 0.5], [0.0, 0.1, 0.5], [0.0, 0.0, 0.6]];
        let row = |x: f32| -> Vec<Vec3> {
            corners.iter().copied().chain(corners.map(|c| [c[0] + 1.0 + x, c[1], c[2]])).collect()
        };
        let mut scene = Scene { on_links: vec![0, 1, NO_LINK, 1], ..Scene::default() };
        scene.start.kinematic_links = vec![0, 0, 0, 0, 1, 1, 1, 1];
        scene.start.positions =
            vec![[0.05, 0.0, 0.5], [1.05, 0.0, 0.5], [0.5, 0.0, 0.5], [1.0, 0.1, 0.51]];
        scene.start.velocities = vec![[0.0; 3], [0.02, 0.0, 0.0], [0.02, 0.0, 0.0], [0.0; 3]];
        scene.start.velocity_known = vec![1.0; 4];
        scene.kinematic = [-0.02, 0.0, 0.03, 0.07].map(row).to_vec();
        (scene, vec![vec![[9.0; 3]; 4]; 2])
    }

    #[test]
    fn what_lies_on_a_link_goes_with_it_and_what_is_near_does_not() {
        let (scene, mut displacements) = scene();
        let mut carried = Carried::default();
        assert_eq!(carried.carry(&scene, &mut displacements), 2);
        assert!(carried.are_carried().eq([true, true, false, false]));
        for (step, along) in [0.03, 0.04].into_iter().enumerate() {
            let expected = [[0.0; 3], [along, 0.0, 0.0], [9.0; 3], [9.0; 3]];
            for (got, expected) in displacements[step].iter().zip(expected) {
                assert!(length(&minus(got, &expected)) < 1e-6, "{got:?} {expected:?}");
            }
        }
    }

    #[test]
    fn an_unknown_motion_is_no_objection_and_what_lies_on_the_plane_stays_there() {
        let (mut scene, mut displacements) = scene();
        scene.start.velocity_known[3] = 0.0;
        assert_eq!(Carried::default().carry(&scene, &mut displacements), 3);
        scene.start.support_m = Some(0.495);
        assert_eq!(Carried::default().carry(&scene, &mut displacements), 1);
    }

    #[test]
    fn too_few_points_to_tell_a_motion_from_and_no_robot_carry_nothing() {
        let (mut scene, mut displacements) = scene();
        scene.start.kinematic_links = vec![0, 0, 0, 0, 1, 1, 2, 2];
        assert_eq!(Carried::default().carry(&scene, &mut displacements), 1);
        scene.kinematic.iter_mut().for_each(Vec::clear);
        scene.start.kinematic_links.clear();
        assert_eq!(Carried::default().carry(&scene, &mut displacements), 0);
        scene.on_links.clear();
        assert_eq!(Carried::default().carry(&scene, &mut displacements), 0);
    }
}
