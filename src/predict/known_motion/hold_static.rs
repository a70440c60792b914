//! What rests stays at rest until something comes near that moves, or the robot.
//!
//! A model that has learnt that things fall lets things fall that hang, stand on shelves or are
//! shelves, wherever it has not seen such things rest. That nothing starts by itself needs no learning:
//! a particle whose motion is known to be none moves in the first step in which the robot, or a
//! particle that moves by then, is near it. From that step on it is the model's.

use crate::base::geometry::{Nearest, Vec3, add, length, squared_distance};
use crate::engine::rollout_input::{RolloutInput, is_still};

/// Motion in a step from which on a particle sets others in motion (m).
const MOVES_M: f32 = 0.002;
/// How near that is (m): more than particles of one body lie apart, and more than a contact that the
/// clouds place badly.
const NEAR_M: f32 = 0.05;
/// Times between the beginning and the end of a step at which what moves is looked at, both included.
const MOMENTS: [f32; 3] = [0.0, 0.5, 1.0];

/// Holds particles at rest; its vectors are kept from one prediction to the next.
#[derive(Debug, Default)]
pub struct HoldStatic {
    /// Whether each particle is held, `[n]`.
    held: Vec<bool>,
    /// Where each particle is before the step at hand (m), `[n]`.
    positions: Vec<Vec3>,
    /// Particles that were set free in the round before.
    freed: Vec<u32>,
    /// Those that are held, and where they are.
    waiting: Vec<u32>,
    queries: Vec<Vec3>,
    nearest: Vec<u32>,
    /// What sets free (m), and the search among it.
    movers: Vec<Vec3>,
    search: Nearest,
}

impl HoldStatic {
    /// Sets the displacements `[n_steps][n]` of what rests in `scene` to zero, until it is set free.
    /// Each step depends on those before it alone. Particles of unknown motion are never held.
    ///
    /// Returns how many particles are held in all steps.
    pub fn hold(&mut self, scene: &RolloutInput, displacements: &mut [Vec<Vec3>]) -> usize {
        let start = &scene.start;
        let motions = start.velocities.iter().zip(&start.velocity_known);
        self.held.clear();
        self.held.extend(motions.map(|(v, &known)| is_still(v, known)));
        let evidence = self.held.iter_mut().zip(&scene.evidence);
        evidence.for_each(|(held, known)| *held |= known.is_some_and(|known| known.has_rested));
        self.positions.clone_from(&start.positions);
        for (step, displacements) in displacements.iter_mut().enumerate() {
            // The robot after this step, and before the first one as it is now: that is what the step
            // before looked at, and what is still held has not moved since.
            let first = if step == 0 { 1 } else { step + 2 };
            let rows = scene.kinematic.iter().take(step + 3).skip(first);
            self.movers.clear();
            self.movers.extend(rows.flatten());
            // What moves of itself, or was set free.
            self.freed.clear();
            self.freed.extend((0..self.held.len() as u32).filter(|&i| !self.held[i as usize]));
            loop {
                self.add_freed(displacements);
                if !self.set_free() {
                    break;
                }
                self.movers.clear();
            }
            let held = displacements.iter_mut().zip(&self.held).filter(|(_, held)| **held);
            held.for_each(|(displacement, _)| *displacement = [0.0; 3]);
            self.positions.iter_mut().zip(&*displacements).for_each(|(x, way)| add(x, way));
        }
        self.held.iter().filter(|held| **held).count()
    }

    /// Adds the ways of those that were set free to the movers.
    fn add_freed(&mut self, displacements: &[Vec3]) {
        for &i in &self.freed {
            let (position, way) = (self.positions[i as usize], displacements[i as usize]);
            if length(&way) >= MOVES_M {
                let at =
                    |share: f32| std::array::from_fn(|axis| position[axis] + share * way[axis]);
                self.movers.extend(MOMENTS.map(at));
            }
        }
    }

    /// Sets free what a mover is near; whether there was any.
    fn set_free(&mut self) -> bool {
        self.freed.clear();
        if self.movers.is_empty() {
            return false;
        }
        self.waiting.clear();
        self.waiting.extend((0..self.held.len() as u32).filter(|&i| self.held[i as usize]));
        self.queries.clear();
        self.queries.extend(self.waiting.iter().map(|&i| self.positions[i as usize]));
        self.nearest.clear();
        self.nearest.resize(self.queries.len(), 0);
        self.search.rebuild(&self.movers);
        // Of what is farther off, any is as good: it is too far. A little more, as roundings differ.
        self.search.find_within(1.01 * NEAR_M, self.nearest.iter_mut().zip(&self.queries));
        for ((&i, query), &nearest) in self.waiting.iter().zip(&self.queries).zip(&self.nearest) {
            if squared_distance(query, &self.movers[nearest as usize]) < NEAR_M * NEAR_M {
                self.held[i as usize] = false;
                self.freed.push(i);
            }
        }
        !self.freed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of particles 2 cm apart along x, which all fall by 4 cm a step as the model has it.
    fn row(n: usize) -> (RolloutInput, Vec<Vec<Vec3>>) {
        let mut scene = RolloutInput::default();
        scene.start.positions = (0..n).map(|i| [0.02 * i as f32, 0.0, 0.5]).collect();
        scene.start.velocities = vec![[0.0, 0.001, 0.0]; n];
        scene.start.velocity_known = vec![1.0; n];
        scene.kinematic = vec![vec![]; 5];
        (scene, vec![vec![[0.0, 0.0, -0.04]; n]; 3])
    }

    fn moved(displacements: &[Vec<Vec3>]) -> Vec<usize> {
        let moves = |d: &&Vec3| **d != [0.0; 3];
        displacements.iter().map(|step| step.iter().filter(moves).count()).collect()
    }

    #[test]
    fn nothing_starts_by_itself() {
        let (scene, mut displacements) = row(9);
        assert_eq!(HoldStatic::default().hold(&scene, &mut displacements), 9);
        assert_eq!(moved(&displacements), [0, 0, 0]);
    }

    #[test]
    fn what_moves_or_is_not_known_to_rest_is_the_models_and_moves_what_it_touches() {
        for (velocity, known) in [([0.0, 0.0, -0.01], 1.0), ([0.0; 3], 0.0)] {
            let (mut scene, mut displacements) = row(9);
            (scene.start.velocities[0], scene.start.velocity_known[0]) = (velocity, known);
            // A gap that nothing bridges.
            scene.start.positions[6..].iter_mut().for_each(|x| x[0] += 0.2);
            assert_eq!(HoldStatic::default().hold(&scene, &mut displacements), 3);
            assert_eq!(moved(&displacements), [6, 6, 6], "the whole body in the same step");
        }
    }

    #[test]
    fn what_is_near_but_stays_passes_nothing_on() {
        // A table under the one that moves: the model lets it rest.
        let (mut scene, mut displacements) = row(9);
        scene.start.velocities[0] = [0.0, 0.0, -0.01];
        displacements.iter_mut().for_each(|step| step[1..].fill([0.0, 0.0, -0.0005]));
        assert_eq!(HoldStatic::default().hold(&scene, &mut displacements), 6);
        assert_eq!(moved(&displacements), [3, 3, 3]);
    }

    #[test]
    fn the_robot_sets_free_when_it_comes() {
        let (mut scene, mut displacements) = row(9);
        let hand = |x: f32| vec![[x, 0.0, 0.5], [9.0, 9.0, 9.0]];
        // One step back, now, and after each step.
        scene.kinematic = [-0.9, -0.7, -0.5, -0.3, -0.04].map(hand).to_vec();
        let whole = displacements.clone();
        assert_eq!(HoldStatic::default().hold(&scene, &mut displacements), 0);
        assert_eq!(moved(&displacements), [0, 0, 9]);
        // A shorter roll-out is the beginning of the longer one.
        let mut short = whole[..2].to_vec();
        HoldStatic::default().hold(&scene, &mut short);
        assert_eq!(short, displacements[..2]);
    }

    #[test]
    fn one_that_flies_by_between_two_steps_is_seen() {
        let (mut scene, mut displacements) = row(3);
        scene.start.positions[0] = [-0.1, 0.0, 0.5];
        scene.start.velocities[0] = [0.2, 0.0, 0.0];
        displacements.iter_mut().for_each(|step| step[0] = [0.26, 0.0, 0.0]);
        assert_eq!(HoldStatic::default().hold(&scene, &mut displacements), 0);
        assert_eq!(moved(&displacements), [3, 3, 3]);
    }
}
