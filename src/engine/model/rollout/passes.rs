//! The passes of a roll-out, whatever computes the model: tokens before it, motions behind it, and on
//! to the next pass.

use super::{N_OUTPUTS, RolloutConfig};
use crate::base::geometry::Vec3;
use crate::engine::model::tokens::{N_CANDIDATES, TokenConfig, Tokens};
use crate::engine::ops::motion_head::motion_head_forward;
use crate::engine::rollout_input::{RolloutInput, StepState};
use crate::{Error, Result};

/// Sigma of an output of 0 (m), and how far the logarithm goes from there.
const USUAL_SIGMA_M: f32 = 5e-3;
pub(super) const MAX_LOG_SIGMA: f32 = 5.0;

/// One pass's state and results.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub state: StepState,
    pub tokens: Tokens,
    /// The model's outputs; behind the head, of the steps that are kept, shares of the candidates, tanh of
    /// the residual and the log of sigma: `[n, steps_per_pass, n_step_outputs]`. Training, which goes back through
    /// all of it, keeps all steps.
    pub head: Vec<f32>,
    /// `[n, steps_per_pass]`; of the steps that are kept, what else is there means nothing.
    pub mixed: Vec<Vec3>,
    /// `[replan_interval][n]`.
    pub displacements: Vec<Vec<Vec3>>,
    /// `[steps_per_pass][n]`; empty of models that don't tell, and of steps that a pass before told of.
    pub sigmas: Vec<Vec<f32>>,
}

/// What a roll-out is on every device, but for the model between tokens and outputs; keeps all
/// buffers between calls.
#[derive(Debug)]
pub(super) struct Passes {
    config: RolloutConfig,
    pub(super) all: Vec<Pass>,
    n_steps: usize,
}

impl Passes {
    /// Passes of models of `config`.
    pub fn new(config: RolloutConfig) -> Self {
        Self { config, all: Vec::new(), n_steps: 0 }
    }

    /// Predicts `n_steps` steps of `scene`, but ends after the first pass behind which `goes_on` (told
    /// the number of steps done) is false. `forward` (told the pass's number) makes of its tokens the
    /// model's outputs `[n_scene, n_outputs]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `scene.kinematic` does not reach to the end of the last pass,
    /// [`Error::NonFinite`] if a displacement is not finite, or as [`Tokens::encode`] and `forward`.
    pub fn run_while(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        mut goes_on: impl FnMut(usize) -> bool,
        mut forward: impl FnMut(usize, &Tokens, &mut Vec<f32>) -> Result<()>,
    ) -> Result<()> {
        for index in 0..self.begin(scene, n_steps)? {
            self.encode(scene, index)?;
            let (tokens, outputs) = self.tokens_and_outputs(index);
            forward(index, tokens, outputs)?;
            let n_done = self.read(index)?;
            if !goes_on(n_done) {
                self.n_steps = n_done;
                break;
            }
        }
        Ok(())
    }

    /// Begins a roll-out of `n_steps` steps of `scene`; tells its passes, each of which is
    /// [`Self::encode`], the model on [`Self::tokens_and_outputs`], and [`Self::read`].
    ///
    /// # Errors
    /// [`Error::Shape`] if `scene.kinematic` does not reach to the end of the last pass.
    fn begin(&mut self, scene: &RolloutInput, n_steps: usize) -> Result<usize> {
        let (n_passes, expected) = (self.config.n_passes(n_steps), self.config.n_rows(n_steps));
        let got = scene.kinematic.len();
        if got < expected {
            return Err(Error::Shape { what: "rows of kinematic particles", expected, got });
        }
        self.n_steps = n_steps;
        self.all.resize_with(self.all.len().max(n_passes), Pass::default);
        Ok(n_passes)
    }

    /// Makes the tokens of pass `index`, from where the one before led.
    ///
    /// # Errors
    /// As [`Tokens::encode`].
    fn encode(&mut self, scene: &RolloutInput, index: usize) -> Result<()> {
        let RolloutConfig { replan_interval, tokens: TokenConfig { steps_per_pass, .. }, .. } =
            self.config;
        let (before, rest) = self.all.split_at_mut(index);
        let pass = &mut rest[0];
        match before.last() {
            None => pass.state.start_from(&scene.start),
            Some(before) => before.lead_on(replan_interval, &mut pass.state),
        }
        let rows = &scene.kinematic[index * replan_interval..][..steps_per_pass + 2];
        pass.state.kinematic.resize_with(rows.len(), Vec::new);
        for (particles, given) in pass.state.kinematic.iter_mut().zip(rows) {
            particles.clone_from(given);
        }
        pass.tokens.encode(&pass.state, &self.config.tokens)
    }

    /// Reads the outputs of pass `index`; tells how many steps are done.
    ///
    /// # Errors
    /// [`Error::NonFinite`] if a displacement is not finite.
    fn read(&mut self, index: usize) -> Result<usize> {
        let tells = |j| self.config.first_look(index * self.config.replan_interval + j) == index;
        let told: Vec<bool> = (0..self.config.tokens.steps_per_pass).map(tells).collect();
        self.all[index].read_outputs(&self.config, &told)?;
        Ok(((index + 1) * self.config.replan_interval).min(self.n_steps))
    }

    /// Tokens of pass `index`, and where the model's outputs `[n_scene, n_outputs]` of them belong.
    fn tokens_and_outputs(&mut self, index: usize) -> (&Tokens, &mut Vec<f32>) {
        let Pass { tokens, head, .. } = &mut self.all[index];
        (tokens, head)
    }

    /// As [`super::Rollout::displacements`].
    pub fn displacements(&self, t: usize) -> &[Vec3] {
        let replan_interval = self.config.replan_interval;
        &self.all[t / replan_interval].displacements[t % replan_interval]
    }

    /// As [`super::Rollout::sigmas`]: by the pass that looked at step `t` first. One that looks again
    /// knows no more of how far off its own start is.
    pub fn sigmas(&self, t: usize) -> Option<&[f32]> {
        let first = self.config.first_look(t);
        self.all[first].sigmas.get(t - first * self.config.replan_interval).map(Vec::as_slice)
    }

    /// Steps of the last run.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }
}

impl Pass {
    /// Writes where the first `replan_interval` steps have led into `state`, but for the robot's particles.
    pub(super) fn lead_on(&self, replan_interval: usize, state: &mut StepState) {
        state.advance(&self.state, &self.displacements[..replan_interval]);
    }

    /// From the model's outputs to the displacements of each step that is kept, and the sigmas of those
    /// that are `told` of, `[steps_per_pass]`.
    fn read_outputs(&mut self, config: &RolloutConfig, told: &[bool]) -> Result<()> {
        let (steps_per_pass, width) = (config.tokens.steps_per_pass, config.n_step_outputs());
        self.mixed.resize(self.tokens.n_scene * steps_per_pass, [0.0; 3]);
        let outputs = self.head.chunks_exact_mut(width * steps_per_pass);
        let candidates = self.tokens.candidates.chunks_exact(N_CANDIDATES * steps_per_pass);
        for ((head, candidates), mixed) in
            outputs.zip(candidates).zip(self.mixed.chunks_exact_mut(steps_per_pass))
        {
            let mixed = &mut mixed[..config.replan_interval];
            let candidates = &candidates[..N_CANDIDATES * mixed.len()];
            motion_head_forward(&mut head[..width * mixed.len()], width, candidates, mixed);
            if !mixed.as_flattened().iter().all(|d| d.is_finite()) {
                let what = "predicted motion (check the model file and the joint states)";
                return Err(Error::NonFinite { what });
            }
        }
        self.displacements.resize_with(config.replan_interval, Vec::new);
        for (j, displacements) in self.displacements.iter_mut().enumerate() {
            displacements.clear();
            displacements.extend(self.mixed.iter().skip(j).step_by(steps_per_pass));
        }
        if config.tells_sigma() {
            self.sigmas.resize_with(steps_per_pass, Vec::new);
            for ((j, sigmas), told) in self.sigmas.iter_mut().enumerate().zip(told) {
                sigmas.clear();
                let rows = self.head.chunks_exact(width).skip(j).step_by(steps_per_pass);
                sigmas.extend(rows.filter(|_| *told).map(|row| sigma_of(row[N_OUTPUTS])));
            }
        }
        Ok(())
    }
}

/// Sigma (m) of an output; 34 micrometres to 0.74 m.
fn sigma_of(output: f32) -> f32 {
    USUAL_SIGMA_M * output.clamp(-MAX_LOG_SIGMA, MAX_LOG_SIGMA).exp()
}
