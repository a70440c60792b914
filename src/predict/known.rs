//! What is known of a scene's future is not left to the model: what lies on the robot goes with it, and
//! what rests stays at rest; and what is unlike all that the model knows is left to it in part alone.

use crate::predict::carried::Carried;
use crate::predict::config::PredictorConfig;
use crate::engine::model::Model;
use crate::predict::novelty::{Novelty, Unlike};
use crate::predict::prediction::Prediction;
use crate::predict::rest::Rest;
use crate::engine::scene::Scene;
use crate::predict::situation::Situation;

/// Which of it is made use of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knows {
    /// See [`PredictorConfig::hold_at_rest`].
    pub rest: bool,
    /// See [`PredictorConfig::carry_robot`].
    pub robot: bool,
    /// See [`PredictorConfig::lean_when_unlike`].
    pub unlike: bool,
}

impl From<&PredictorConfig> for Knows {
    fn from(config: &PredictorConfig) -> Self {
        Self {
            rest: config.hold_at_rest,
            robot: config.carry_robot,
            unlike: config.lean_when_unlike,
        }
    }
}

/// Puts what is known in the place of what is predicted; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Known {
    carried: Carried,
    rest: Rest,
    novelty: Novelty,
}

impl Known {
    /// Replaces the displacements of what is known of `scene`, and those that `model` knows too little
    /// of; says what each particle does at the start, and how unlike it is. Each step depends on those
    /// before it alone.
    pub fn apply(
        &mut self,
        knows: Knows,
        model: &Model,
        scene: &Scene,
        prediction: &mut Prediction,
    ) {
        let Prediction { displacements, situations, n_planned, seen, unlike, .. } = prediction;
        if knows.robot {
            self.carried.carry(scene, displacements);
        }
        let carried = self.carried.are_carried().filter(|_| knows.robot);
        Situation::of_all(&scene.start, carried, situations);
        *n_planned = scene.n_planned.min(displacements.len());
        let frame = model.config.frame();
        let place = (frame.center_m, frame.half_side_m);
        self.novelty.look(&scene.start, situations, place, seen);
        let familiar = model.calibration.as_ref().and_then(|known| known.familiar.as_ref());
        match familiar {
            Some(familiar) => self.novelty.judge(familiar, &scene.start, seen, unlike),
            None => unlike.clone_from(&Unlike::default()),
        }
        if let Some(familiar) = familiar.filter(|_| knows.unlike) {
            self.novelty.lean(familiar, seen, situations, unlike, displacements);
        }
        if knows.rest {
            self.rest.hold(scene, displacements);
        }
    }

    /// Takes the model's word `[n_steps][n]` for how far off each position may be (m), after
    /// [`Known::apply`].
    pub fn tell_sigmas<'a>(
        &self,
        told: impl Iterator<Item = &'a [f32]>,
        model: &Model,
        prediction: &mut Prediction,
    ) {
        prediction.set_sigmas(told, model.calibration.as_ref());
        self.novelty.widen(&mut prediction.sigmas);
    }
}
