//! What each particle does when a roll-out starts, as far as its start tells, and of the robot whether a plan
//! tells of a step.

use serde::{Deserialize, Serialize};

use crate::engine::scene::StepState;
use crate::predict::rest::is_still;
use crate::vision::motion::is_free;

/// What a particle does when a roll-out starts; of the robot also whether a plan tells of the step at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// It lies on a link of the robot, which carries it.
    Robot,
    /// It is known to rest.
    Resting,
    /// It moves, or nothing is known of its motion.
    Moving,
    /// As moving, and its body touches neither the support plane nor the robot, as far as is seen.
    Flying,
    /// It lies on a link of the robot, and no plan tells of the step at hand. Of single steps alone: at the
    /// start such a particle is one of the robot.
    Unplanned,
}

impl Situation {
    /// All of them, in the order of a calibration's factors.
    pub const ALL: [Self; 5] =
        [Self::Robot, Self::Resting, Self::Moving, Self::Flying, Self::Unplanned];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Robot => "robot",
            Self::Resting => "resting",
            Self::Moving => "moving",
            Self::Flying => "flying",
            Self::Unplanned => "unplanned",
        }
    }

    /// What it is in `step` (0-based) of a roll-out, if plans tell of its first `n_planned` steps.
    pub fn in_step(self, step: usize, n_planned: usize) -> Self {
        if self == Self::Robot && step >= n_planned { Self::Unplanned } else { self }
    }

    /// Those of all particles of `start`, of which those that the robot carries are `carried`.
    pub fn of_all(start: &StepState, carried: impl Iterator<Item = bool>, out: &mut Vec<Self>) {
        out.clear();
        let carried = carried.chain(std::iter::repeat(false));
        out.extend((0..start.positions.len()).zip(carried).map(|(i, is_carried)| {
            if is_carried {
                Self::Robot
            } else if is_still(&start.velocities[i], start.velocity_known[i]) {
                Self::Resting
            } else if start.bodies.get(i).is_some_and(is_free) {
                Self::Flying
            } else {
                Self::Moving
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vision::motion::N_BODY_FEATURES;

    #[test]
    fn situations_are_told_by_the_start() {
        let mut free = [0.0; N_BODY_FEATURES];
        free[16] = 1.0;
        let mut low = free;
        low[6] = 1.0;
        let start = StepState {
            positions: vec![[0.0; 3]; 5],
            velocities: vec![[0.0; 3], [0.0; 3], [0.01, 0.0, 0.0], [0.01, 0.0, 0.0], [0.0; 3]],
            velocity_known: vec![1.0, 1.0, 1.0, 1.0, 0.0],
            bodies: vec![free, free, free, low, low],
            ..StepState::default()
        };
        let mut found = Vec::new();
        Situation::of_all(&start, [true].into_iter(), &mut found);
        use Situation::{Flying, Moving, Resting, Robot};
        assert_eq!(found, [Robot, Resting, Flying, Moving, Moving]);
    }
}
