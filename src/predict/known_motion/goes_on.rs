//! What went on against what was predicted goes on, and what rested against it rests: as far as the last
//! steps tell.

use crate::base::geometry::{RigidMotion, Vec3, add};
use crate::engine::motion_class::MotionClass;
use crate::engine::rollout_input::RolloutInput;
use crate::engine::track_record::{LAG, Said};

/// Moves particles as their bodies moved; its vectors are kept from one prediction to the next.
#[derive(Debug, Default)]
pub struct GoesOn {
    /// Motion of each body in the step at hand, if it goes on.
    bodies: Vec<Option<RigidMotion>>,
    /// Where each particle is before the step at hand if it goes on (m), `[n]`.
    positions: Vec<Vec3>,
    /// Motion in the first steps as the model predicts it, and if each goes on (m), `[n]`.
    said: Vec<Said>,
}

impl GoesOn {
    /// Puts what each particle's record in `scene` asks for in the place of `displacements` `[n_steps][n]`:
    /// so much of them, so much of going on as its body did, so much of rest. What lies on the robot by
    /// `classes` stays as it is. Each step depends on those before it alone.
    pub fn mix(
        &mut self,
        scene: &RolloutInput,
        classes: &[MotionClass],
        displacements: &mut [Vec<Vec3>],
    ) {
        let start = &scene.start;
        self.said.clear();
        // Shorter roll-outs are not held against what comes.
        if displacements.len() >= LAG {
            self.said.resize(start.positions.len(), Said::default());
        }
        self.bodies.clone_from(&start.body_motions);
        self.positions.clone_from(&start.positions);
        for (step, displacements) in displacements.iter_mut().enumerate() {
            for (i, displacement) in displacements.iter_mut().enumerate() {
                let way = self.go_on(scene, i);
                if let Some(said) = self.said.get_mut(i).filter(|_| step < LAG) {
                    (said[0][step], said[1][step]) = (*displacement, way);
                }
                let record = scene.records.get(i).filter(|record| record.is_known());
                let Some(record) = record.filter(|_| classes.get(i) != Some(&MotionClass::Robot))
                else {
                    continue;
                };
                let shares = record.shares();
                for (x, way) in displacement.iter_mut().zip(way) {
                    *x = shares.model * *x + shares.goes_on * way;
                }
            }
            let bodies = self.bodies.iter_mut().flatten();
            bodies.for_each(|motion| *motion = motion.again_on_course());
        }
    }

    /// Moves particle `i` on as its body goes, or as it went itself where it is of none; by how much (m).
    fn go_on(&mut self, scene: &RolloutInput, i: usize) -> Vec3 {
        let start = &scene.start;
        let body = start.body_of.get(i).and_then(|&body| self.bodies.get(body as usize));
        let own = || start.extrapolated_motion.get(i).or_else(|| start.velocities.get(i)).copied();
        let way = match body.and_then(Option::as_ref) {
            Some(body) => body.motion_of(&self.positions[i]),
            None => own().unwrap_or_default(),
        };
        add(&mut self.positions[i], &way);
        way
    }

    /// What was said of the first steps of the last call, `[n]`: by the model, and if each goes on. Empty where
    /// it was shorter.
    pub fn said(&self) -> &[Said] {
        &self.said
    }
}
