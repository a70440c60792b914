//! What is known of a scene's future is not left to the model: what lies on the robot goes with it, what
//! went on against what was predicted goes on, and what rests stays at rest.

mod fading;
mod goes_on;
mod hold_static;
mod robot_attached;

use crate::engine::rollout_input::RolloutInput;

use crate::predict::config::PredictorConfig;
use crate::predict::prediction::Prediction;

use crate::engine::motion_class::MotionClass;
use crate::predict::track_record::Said;

use goes_on::GoesOn;
pub use hold_static::HoldStatic;
use robot_attached::RobotAttached;

/// Which of it is made use of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownMotionSettings {
    /// See [`PredictorConfig::hold_at_rest`].
    pub rest: bool,
    /// See [`PredictorConfig::carry_robot`].
    pub robot: bool,
}

impl From<&PredictorConfig> for KnownMotionSettings {
    fn from(config: &PredictorConfig) -> Self {
        Self { rest: config.hold_at_rest, robot: config.carry_robot }
    }
}

/// Puts what is known in the place of what is predicted; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct KnownMotion {
    carried: RobotAttached,
    goes_on: GoesOn,
    rest: HoldStatic,
}

impl KnownMotion {
    /// Replaces the displacements of what is known of `scene`; says what each particle does at the start.
    /// Each step depends on those before it alone.
    pub fn apply(
        &mut self,
        knows: KnownMotionSettings,
        scene: &RolloutInput,
        prediction: &mut Prediction,
    ) {
        prediction.world_motion_m = scene.world_motion_m;
        // Where the world frame moves, nothing that seems to rest in it does.
        let holds_still = knows.rest && prediction.world_motion_m.is_none();
        let Prediction { displacements, situations, n_planned, .. } = prediction;
        if knows.robot {
            self.carried.carry(scene, displacements);
        }
        let carried = self.carried.are_carried().filter(|_| knows.robot);
        MotionClass::of_all(&scene.start, carried, situations);
        self.goes_on.mix(scene, situations, displacements);
        *n_planned = scene.n_planned.min(displacements.len());
        if holds_still {
            self.rest.hold(scene, displacements);
        }
    }

    /// What was said of the first steps of the last call, `[n]`, before the records counted: by the model, and if
    /// each goes on.
    pub fn said(&self) -> &[Said] {
        self.goes_on.said()
    }
}
