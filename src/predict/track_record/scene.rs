//! What became of the model's words in the whole scene: a thing that is new is taken for one of those around it.

use super::{TrackRecord, WORD_NOISE_M};

/// Steps that count. With those that a word takes to come, it is less than two seconds.
const STEPS: usize = 15;
/// Way (m), times particles, that is taken to have come as the model said, besides what did.
const NOISE_M: f32 = 1.0;

/// How far what the model said of [`super::LAG`] steps came, of all that the robot does not move.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SceneRecord {
    /// Of each step, the newest first: the way that came along what was said, and that which was said (m), both
    /// summed over particles.
    steps: [[f32; 2]; STEPS],
}

impl SceneRecord {
    /// Begins a step.
    pub fn begin(&mut self) {
        self.steps.rotate_right(1);
        self.steps[0] = [0.0; 2];
    }

    /// Adds what was found in this step of a body of `n` particles; what was said to move by millimetres tells nothing
    /// of what moves.
    pub fn add(&mut self, body: &TrackRecord, n: u32) {
        let [came, said] = body.steps[0].gain;
        let said_m = said.sqrt();
        if said_m > WORD_NOISE_M {
            self.steps[0][0] += n as f32 * came / said_m;
            self.steps[0][1] += n as f32 * said_m;
        }
    }

    /// What share of the model's word for [`super::LAG`] steps comes: 1 where nothing is known, and 0 at least.
    pub fn share(&self) -> f32 {
        let sum = |k: usize| self.steps.iter().map(|step| step[k]).sum::<f32>();
        ((sum(0) + NOISE_M) / (sum(1) + NOISE_M)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LAG, Seen};
    use super::*;
    use crate::base::geometry::Vec3;

    /// A body of which the model says that it goes `said` (m) in each step, and which goes `came`.
    fn body(said: f32, came: f32) -> TrackRecord {
        let along = |x: f32| -> Vec3 { [x, 0.0, 0.0] };
        let said = [[along(said); LAG], [along(came); LAG]];
        let mut record = TrackRecord::default();
        (0..LAG).for_each(|_| {
            record.add(&Seen { motion: along(came), said, squares: [0.0; 3], ..Seen::default() })
        });
        record
    }

    /// The scene of one body of a hundred particles, after `n_steps`.
    fn scene(body: &TrackRecord, n_steps: usize) -> SceneRecord {
        let mut scene = SceneRecord::default();
        for _ in 0..n_steps {
            scene.begin();
            scene.add(body, 100);
        }
        scene
    }

    #[test]
    fn what_never_comes_is_soon_not_believed_of_new_things_either() {
        assert_eq!(SceneRecord::default().share(), 1.0);
        assert!(scene(&body(0.02, 0.0), 5).share() < 0.1);
        assert!(scene(&body(0.02, 0.02), 5).share() > 0.999);
        assert_eq!(scene(&body(0.02, 0.04), 5).share(), 1.0, "more came");
        assert_eq!(scene(&body(0.003, 0.0), 9).share(), 1.0, "millimetres tell nothing");
        let new = body(0.003, 0.0);
        let (alone, among) = (new.keeps(1.0), new.keeps(scene(&body(0.02, 0.0), 5).share()));
        assert!(among < 0.1 && among < alone, "{among} {alone}");
        assert_eq!(TrackRecord::default().keeps(0.1), 0.0, "nothing is known of it but that");
    }

    #[test]
    fn what_was_said_longer_ago_changes_no_bit() {
        let (early, late) = (body(0.02, 0.0), body(0.013, 0.012));
        let mut long = scene(&early, 9);
        for _ in 0..STEPS {
            long.begin();
            long.add(&late, 100);
        }
        assert_eq!(long, scene(&late, STEPS));
    }
}
