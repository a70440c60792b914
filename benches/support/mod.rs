//! What the benches share.

// Each takes only a part of it.
#![allow(dead_code, unused_imports)]

mod demo;
mod training;

use std::time::Instant;

use forecloud::base::random::{draw, uniform};
use forecloud::engine::model::weights::initial_weights;
use forecloud::engine::model::{Layout, ModelConfig};
use forecloud::engine::rollout_input::StepState;
use forecloud::vision::particles::Particles;

pub use demo::Demo;
pub use training::{LEARNING_RATE, LOSS_SCALE, Training};

/// Points that turn about the vertical axis: as they were in the step before, as they will be.
pub struct Turning {
    /// Points and their velocities.
    pub state: StepState,
    /// True displacements of each step (m).
    pub targets: Vec<[f32; 3]>,
}

impl Turning {
    /// Exactly `n` particles of the demo, which turn faster and faster about the middle of `model`'s
    /// workspace.
    pub fn new(demo: &Demo, n: usize, model: &ModelConfig) -> anyhow::Result<Self> {
        Ok(Self::of(demo.particles(n)?, model))
    }

    /// The same of these particles.
    pub fn of(particles: Particles, model: &ModelConfig) -> Self {
        let n = particles.len();
        let center = model.rollout().tokens.frame.center_m;
        let turned = |angle: f32| -> Vec<[f32; 3]> {
            let positions = particles.positions.iter();
            positions
                .map(|p| [angle * (center[1] - p[1]), angle * (p[0] - center[0]), 0.0])
                .collect()
        };
        let (velocities, targets) = (turned(0.03), turned(0.05));
        let state = StepState {
            velocities,
            velocity_known: vec![1.0; n],
            positions: particles.positions,
            colors: particles.colors,
            // A pass looks at the robot one step back, now, and after each of its steps: there is none.
            kinematic: vec![vec![]; model.steps_per_pass + 2],
            ..StepState::default()
        };
        Self { state, targets }
    }
}

/// Weights none of which is zero. Where training starts, the head is: no gradient reaches the
/// layers before it.
pub fn weights(layout: &Layout) -> Vec<f32> {
    let mut weights = initial_weights(layout, 1);
    for (w, i) in weights.iter_mut().zip(0u64..) {
        *w += 0.1 * (uniform(draw(1, 0, i, 2)) - 0.5);
    }
    weights
}

/// Milliseconds that `f` takes.
pub fn time_ms<E>(f: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    f()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// The middle one of `times_ms`.
pub fn median(mut times_ms: Vec<f64>) -> f64 {
    times_ms.sort_by(f64::total_cmp);
    times_ms[times_ms.len() / 2]
}
