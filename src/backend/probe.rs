//! Whether a device computes what the CPU does: tried on a small scene when it is opened, since wrong
//! numbers tell nobody that they are wrong.

use super::Rollouts;
use crate::graph::random::{draw, uniform};
use crate::graph::walks::WalkSeed;
use crate::model::rollout::Scene;
use crate::model::tokens::StepState;
use crate::model::{Model, Rollout};
use crate::{Error, Result};

type Vec3 = [f32; 3];

/// Particles, history particles and points on the robot: no block of threads divides them.
const SIZES: [usize; 3] = [149, 67, 37];
/// Steps: the second one starts from what the device left of the first.
const N_STEPS: usize = 2;
/// Largest difference, as a share of the longest displacement; and the same in metres where nothing
/// moves. The devices' arithmetic differs by less than a tenth of it.
const TOLERANCE: f32 = 1e-3;
const LEAST_M: f32 = 1e-6;

/// Holds `device` to `cpu` on a scene of its own; both are of `model`.
///
/// # Errors
/// [`Error::Device`] if they differ, or the device fails.
pub(super) fn probe(model: &Model, cpu: &mut Rollout, device: &mut dyn Rollouts) -> Result<()> {
    let scene = scene(model);
    if cpu.run(&model.weights, &scene, N_STEPS).is_err() {
        // Nothing to compare with: what is wrong with the model is told when it predicts.
        return Ok(());
    }
    device.run_while(&scene, N_STEPS, &mut |_| true)?;
    let (mut off_m, mut longest_m) = (0.0f32, 0.0f32);
    for t in 0..N_STEPS {
        for (wanted, got) in cpu.displacements(t).iter().zip(device.displacements(t)) {
            for (wanted, got) in wanted.iter().zip(got) {
                let difference = (wanted - got).abs();
                // Not f32::max, which takes NaN for nothing: here it stays.
                let is_least = difference <= off_m || off_m.is_nan();
                off_m = if is_least { off_m } else { difference };
                longest_m = longest_m.max(wanted.abs());
            }
        }
    }
    if off_m <= TOLERANCE * longest_m + LEAST_M {
        return Ok(());
    }
    let problem = format!(
        "computes other displacements than the CPU on a scene to try it with (off by {:.3} mm, the \
         longest is {:.3} mm): it is not used; take device: cpu, and look with benches/gpu/run for \
         what is wrong",
        1e3 * off_m,
        1e3 * longest_m
    );
    Err(Error::Device { device: device.name().to_owned(), problem })
}

/// A seeded scene in the middle of the model's workspace.
fn scene(model: &Model) -> Scene {
    let config = &model.config;
    let [n, n_history, n_robot] = SIZES;
    let n_robot = if config.n_kinematic > 0 { n_robot } else { 0 };
    let center = config.rollout().frame.center_m;
    let number = |i: usize, stream: u64| uniform(draw(1, 0, i as u64, stream)) - 0.5;
    let vectors = |count: usize, scale: f32, stream: u64| -> Vec<Vec3> {
        (0..count)
            .map(|i| std::array::from_fn(|axis| scale * number(3 * i + axis, stream)))
            .collect()
    };
    let places = |count: usize, stream: u64| -> Vec<Vec3> {
        let offsets = vectors(count, 0.3, stream);
        offsets.iter().map(|o| std::array::from_fn(|axis| center[axis] + o[axis])).collect()
    };
    let colors = |count: usize, stream: u64| -> Vec<Vec3> {
        vectors(count, 1.0, stream).iter().map(|color| color.map(|c| c + 0.5)).collect()
    };
    let robot = places(n_robot, 6);
    let kinematic = (0..N_STEPS + 2).map(|t| {
        let shifted = robot.iter().map(|p| [p[0] + 0.01 * t as f32, p[1], p[2] - 0.005 * t as f32]);
        shifted.collect()
    });
    let start = StepState {
        positions: places(n, 1),
        velocities: vectors(n, 0.04, 2),
        onward: vectors(n, 0.04, 3),
        bodies: (0..n).map(|i| std::array::from_fn(|c| number(32 * i + c, 4))).collect(),
        velocity_known: (0..n).map(|i| (i % 3).min(1) as f32).collect(),
        colors: colors(n, 5),
        history_positions: places(n_history, 7),
        history_colors: colors(n_history, 8),
        kinematic_links: (0..n_robot as u32).map(|i| i / 9).collect(),
        kinematic_stride: config.kinematic_detail,
        ..StepState::default()
    };
    Scene { start, kinematic: kinematic.collect(), walk_seed: WalkSeed::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::weights::initial_weights;
    use crate::model::{Layout, Mode, ModelConfig};

    /// The CPU, with `fault` added to a coordinate of a particle in the last step.
    struct Faulty {
        model: Model,
        cpu: Rollout,
        fault: f32,
        last: Vec<Vec3>,
    }

    impl Rollouts for Faulty {
        fn run_while(
            &mut self,
            scene: &Scene,
            n_steps: usize,
            goes_on: &mut dyn FnMut(usize) -> bool,
        ) -> Result<()> {
            self.cpu.run_while(&self.model.weights, scene, n_steps, goes_on)?;
            self.last = self.cpu.displacements(n_steps - 1).to_vec();
            self.last[77][1] += self.fault;
            Ok(())
        }

        fn displacements(&self, t: usize) -> &[Vec3] {
            if t + 1 == self.cpu.n_steps() { &self.last } else { self.cpu.displacements(t) }
        }

        fn n_steps(&self) -> usize {
            self.cpu.n_steps()
        }

        fn name(&self) -> &str {
            "faulty"
        }
    }

    fn probe_with(config: ModelConfig, fault: f32) -> Result<()> {
        let weights = initial_weights(&Layout::new(config.interlacer()), 1);
        let model = Model::new(config, weights).unwrap();
        let rollout = || Rollout::new(config.rollout(), Mode::Inference);
        let mut device = Faulty { model: model.clone(), cpu: rollout(), fault, last: Vec::new() };
        probe(&model, &mut rollout(), &mut device)
    }

    #[test]
    fn a_device_that_computes_something_else_is_not_trusted() {
        let usual = ModelConfig { width: 8, n_heads: 2, n_blocks: 1, ..ModelConfig::default() };
        for config in [usual, ModelConfig { n_kinematic: 0, ..usual }] {
            probe_with(config, 0.0).unwrap();
            probe_with(config, 1e-7).unwrap();
            for fault in [1e-3, -1e-3, f32::NAN, f32::INFINITY] {
                let message = probe_with(config, fault).unwrap_err().to_string();
                assert!(message.starts_with("faulty: computes other"), "{message}");
                assert!(message.contains("device: cpu"), "{message}");
            }
        }
    }
}
