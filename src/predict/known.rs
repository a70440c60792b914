//! What is known of a scene's future is not left to the model: what lies on the robot goes with it, and
//! what rests stays at rest.

use crate::engine::scene::Scene;
use crate::predict::carried::Carried;
use crate::predict::config::PredictorConfig;
use crate::predict::prediction::Prediction;
use crate::predict::rest::Rest;
use crate::predict::situation::Situation;

/// Which of it is made use of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knows {
    /// See [`PredictorConfig::hold_at_rest`].
    pub rest: bool,
    /// See [`PredictorConfig::carry_robot`].
    pub robot: bool,
}

impl From<&PredictorConfig> for Knows {
    fn from(config: &PredictorConfig) -> Self {
        Self { rest: config.hold_at_rest, robot: config.carry_robot }
    }
}

/// Puts what is known in the place of what is predicted; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Known {
    carried: Carried,
    rest: Rest,
}

impl Known {
    /// Replaces the displacements of what is known of `scene`; says what each particle does at the start.
    /// Each step depends on those before it alone.
    pub fn apply(&mut self, knows: Knows, scene: &Scene, prediction: &mut Prediction) {
        let Prediction { displacements, situations, n_planned, .. } = prediction;
        if knows.robot {
            self.carried.carry(scene, displacements);
        }
        let carried = self.carried.are_carried().filter(|_| knows.robot);
        Situation::of_all(&scene.start, carried, situations);
        *n_planned = scene.n_planned.min(displacements.len());
        if knows.rest {
            self.rest.hold(scene, displacements);
        }
    }
}
