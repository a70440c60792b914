//! All that the newest prediction started from, to roll out candidate plans from there.

use std::sync::Arc;

use crate::engine::model::Model;
use crate::engine::rollout_input::{RolloutInput, history_index};
use crate::message::Stamp;
use crate::predict::known_motion::KnownMotionSettings;
use crate::predict::prediction::Prediction;
use crate::predict::robot_forecast::RobotForecast;
use crate::robot::kinematics::Robot;
use crate::vision::cloud::Workspace;
use crate::{Error, Result};

/// All that a prediction started from: made by [`crate::predict::predictor::Predictor::snapshot`].
#[derive(Clone)]
pub struct Snapshot {
    /// The model that predicts.
    pub model: Arc<Model>,
    /// The robot, where the model takes one.
    pub robot: Option<Arc<Robot>>,
    /// Where the robot goes without a candidate.
    pub robot_forecast: RobotForecast,
    /// Box of the particles.
    pub workspace: Workspace,
    /// Point of the world frame that positions of `scene` are told from (m).
    pub origin: [f32; 3],
    /// What is not left to the model.
    pub knows: KnownMotionSettings,
    /// Particles and what is known of them, with the robot's.
    pub scene: RolloutInput,
    /// The prediction without its displacements.
    pub prediction: Prediction,
    /// Width and height of the depth image of each camera; none of those that are not there.
    pub image_sizes: Vec<Option<[u32; 2]>>,
}

impl Snapshot {
    /// Stamp of the frame.
    pub fn stamp(&self) -> Stamp {
        self.prediction.stamp
    }

    /// Number of particles.
    pub fn n_particles(&self) -> usize {
        self.prediction.particles.len()
    }

    /// Tokens of a pass, with the robot's.
    pub(crate) fn n_tokens(&self) -> usize {
        let start = &self.scene.start;
        let n_others = start.positions.len() + start.history_positions.len();
        n_others + 3 * self.model.config.n_kinematic
    }

    /// The robot, where it is part of the frame.
    ///
    /// # Errors
    /// [`Error::Plan`] says why there is none.
    pub fn robot(&self) -> Result<&Arc<Robot>> {
        let Some(robot) = self.robot.as_ref().filter(|_| self.model.config.n_kinematic > 0) else {
            let problem = "the model takes no robot, so its predictions don't depend on a plan";
            return Err(Error::Plan { problem: problem.into() });
        };
        if !self.robot_forecast.has_robot() {
            let problem = "the robot was not part of the newest frame: its joint states or its place came too late, or not \
                           at all";
            return Err(Error::Plan { problem: problem.into() });
        }
        Ok(robot)
    }

    /// Joints now (rad or m), in the robot's order.
    pub fn joints(&self) -> &[f64] {
        &self.robot_forecast.joints
    }

    /// With `n` of the particles, spread evenly over their order, and as large a share of the history's;
    /// all of them if there are fewer. Roll-outs of it are faster, and coarser.
    pub fn thinned(&self, n: usize) -> Self {
        let n_all = self.n_particles();
        let mut thin = self.clone();
        // Nobody needs it again.
        thin.prediction.history.clear();
        if n >= n_all || n == 0 {
            return thin;
        }
        let chosen = self.kept(n);
        let start = &mut thin.scene.start;
        pick(&mut start.positions, &chosen);
        pick(&mut start.velocities, &chosen);
        pick(&mut start.extrapolated_motion, &chosen);
        pick(&mut start.bodies, &chosen);
        pick(&mut start.body_of, &chosen);
        pick(&mut start.velocity_known, &chosen);
        pick(&mut start.colors, &chosen);
        pick(&mut thin.scene.on_links, &chosen);
        pick(&mut thin.scene.evidence, &chosen);
        let n_history = start.history_positions.len();
        let m = (n_history * n).div_ceil(n_all);
        let of_history: Vec<usize> = (0..m).map(|j| history_index(j, m, n_history)).collect();
        pick(&mut start.history_positions, &of_history);
        pick(&mut start.history_colors, &of_history);
        // Numbers of bodies are fewer than particles.
        for (i, body) in start.body_of.iter_mut().enumerate() {
            if *body as usize >= n {
                *body = crate::vision::motion::NO_BODY;
                // What no plan can end, as it is told by body.
                thin.scene.evidence.get_mut(i).into_iter().for_each(|known| *known = None);
            }
        }
        start.body_motions.truncate(n);
        let particles = &mut thin.prediction.particles;
        pick(&mut particles.positions, &chosen);
        pick(&mut particles.colors, &chosen);
        pick(&mut particles.sources, &chosen);
        pick(&mut thin.prediction.situations, &chosen);
        pick(&mut thin.prediction.objects.number_of, &chosen);
        pick(&mut thin.prediction.objects.kinds, &chosen);
        thin
    }

    /// Which of the particles [`Self::thinned`] keeps, ascending.
    pub(crate) fn kept(&self, n: usize) -> Vec<usize> {
        let n_all = self.n_particles();
        let n = if n == 0 { n_all } else { n.min(n_all) };
        (0..n).map(|j| history_index(j, n, n_all)).collect()
    }
}

/// Keeps those of the numbers `chosen`, ascending; nothing of what is not known.
fn pick<T: Copy>(values: &mut Vec<T>, chosen: &[usize]) {
    if !values.is_empty() {
        *values = chosen.iter().filter_map(|&i| values.get(i).copied()).collect();
    }
}
