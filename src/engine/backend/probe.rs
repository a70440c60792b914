//! Whether a device computes what the CPU does: tried on a small image and a small scene when it is opened, since wrong
//! numbers tell nobody that they are wrong.

use std::sync::Arc;

use nalgebra::{Isometry3, Translation3, UnitQuaternion};

use super::{BatchRollout, RawSampler, Rollouts};
use crate::base::geometry::{RigidMotion, Vec3};
use crate::base::random::{draw, uniform};
use crate::engine::model::{Model, Rollout};
use crate::engine::rollout_input::{RolloutInput, StepState};
use crate::message::{CameraInfo, Header, Image};
use crate::vision::cloud::Workspace;
use crate::vision::frames::{CameraFrame, ColorView, View};
use crate::vision::motion::NO_BODY;
use crate::vision::particles::{CpuSampler, ParticleSampler, Particles, Sampling};
use crate::{Error, Result};

/// Particles, history particles and points on the robot: no block of threads divides them.
const SIZES: [usize; 3] = [149, 67, 37];
/// Particles of the draws that are tried: some of the image's, and all.
const N_DRAWN: [usize; 2] = [131, 4096];
/// Largest difference, as a share of the longest displacement or sigma; and the same in metres where
/// nothing moves. The devices' arithmetic differs by less than a tenth of it.
const TOLERANCE: f32 = 1e-3;
const LEAST_M: f32 = 1e-6;

/// Holds `device` to `cpu` on a scene of its own; both are of `model`.
///
/// # Errors
/// [`Error::Device`] if they differ, or the device fails.
pub(super) fn probe(model: &Model, cpu: &mut Rollout, device: &mut dyn Rollouts) -> Result<()> {
    // Two passes or more: each starts from what the device left of the one before.
    let n_steps = model.config.steps_per_pass + 1;
    let scene = scene(model, n_steps);
    if cpu.run(&model.weights, &scene, n_steps).is_err() {
        // Nothing to compare with: what is wrong with the model is told when it predicts.
        return Ok(());
    }
    device.run_while(&scene, n_steps, &mut |_| true)?;
    let mut compared = Compared::default();
    for t in 0..n_steps {
        compared.add([cpu.displacements(t), device.displacements(t)]);
        compared.add_sigmas([cpu.sigmas(t), device.sigmas(t)]);
    }
    compared.check(device.name())
}

/// As [`probe`], of scenes that are rolled out side by side, for one step and for two passes.
///
/// # Errors
/// As there.
pub(super) fn probe_batch(
    model: &Model,
    cpu: &mut Rollout,
    device: &mut BatchRollout,
) -> Result<()> {
    let n_steps = [model.config.steps_per_pass + 1, 1, model.config.steps_per_pass + 1];
    let mut scenes = n_steps.map(|n_steps| (scene(model, n_steps), n_steps));
    // Other scenes: a part that is computed from another one's numbers differs.
    for (i, (scene, _)) in scenes.iter_mut().enumerate() {
        let shift = 0.01 * i as f32;
        scene.start.positions.iter_mut().step_by(2).for_each(|p| p[0] += shift);
        scene.start.velocities.iter_mut().for_each(|v| *v = v.map(|x| x * (1.0 - 10.0 * shift)));
        scene.kinematic.iter_mut().flatten().for_each(|p| p[1] += shift);
    }
    if scenes.iter().any(|(scene, n_steps)| cpu.run(&model.weights, scene, *n_steps).is_err()) {
        return Ok(());
    }
    device.run(&scenes.each_ref().map(|(scene, n_steps)| (scene, *n_steps)))?;
    let mut compared = Compared::default();
    for ((scene, n_steps), there) in scenes.iter().zip(device.scenes()) {
        cpu.run(&model.weights, scene, *n_steps)?;
        for t in 0..*n_steps {
            compared.add([cpu.displacements(t), there.displacements(t)]);
            compared.add_sigmas([cpu.sigmas(t), there.sigmas(t)]);
        }
    }
    compared.check(device.name())
}

/// The CPU's numbers and a device's.
#[derive(Default)]
struct Compared {
    displacements: Difference,
    sigmas: Difference,
}

impl Compared {
    fn add(&mut self, [wanted, got]: [&[Vec3]; 2]) {
        self.displacements.add(wanted.as_flattened(), got.as_flattened());
    }

    fn add_sigmas(&mut self, both: [Option<&[f32]>; 2]) {
        let [wanted, got] = both.map(Option::unwrap_or_default);
        self.sigmas.add(wanted, got);
    }

    fn check(&self, name: &str) -> Result<()> {
        for (what, found) in [("displacements", &self.displacements), ("sigmas", &self.sigmas)] {
            if !found.is_small() {
                let problem = format!(
                    "computes other {what} than the CPU on a scene to try it with (off by {:.3} mm, \
                     the longest is {:.3} mm): it is not used; take device: cpu, and look with \
                     benches/gpu/run for what is wrong",
                    1e3 * found.off_m,
                    1e3 * found.longest_m
                );
                return Err(Error::Device { device: name.to_owned(), problem });
            }
        }
        Ok(())
    }
}

/// How far numbers (m) differ, and how long the longest is.
#[derive(Default)]
struct Difference {
    off_m: f32,
    longest_m: f32,
}

impl Difference {
    /// Numbers that one lacks are off by infinity.
    fn add(&mut self, wanted: &[f32], got: &[f32]) {
        if wanted.len() != got.len() {
            self.off_m = f32::INFINITY;
        }
        for (wanted, got) in wanted.iter().zip(got) {
            let difference = (wanted - got).abs();
            // Not f32::max, which takes NaN for nothing: here it stays.
            let is_least = difference <= self.off_m || self.off_m.is_nan();
            self.off_m = if is_least { self.off_m } else { difference };
            self.longest_m = self.longest_m.max(wanted.abs());
        }
    }

    fn is_small(&self) -> bool {
        self.off_m <= TOLERANCE * self.longest_m + LEAST_M
    }
}

/// Holds the particles that `device`, of this `name`, draws to the CPU's: they are the same to the bit.
///
/// # Errors
/// [`Error::Device`] if they differ, or the device fails.
pub(super) fn probe_sampler(device: &mut dyn RawSampler, name: &str) -> Result<()> {
    let cameras = cameras();
    let workspace = Workspace { min: [-0.6; 3], max: [0.6, 0.5, 1.3] };
    let sampling = Sampling { seed: 7, stamp_ns: 11, workspace, support_stride: 3 };
    let [mut wanted, mut got] = [(); 2].map(|()| [Particles::default(), Particles::default()]);
    let (mut cpu, n) = (CpuSampler::default(), N_DRAWN);
    let [first, second] = &mut wanted;
    cpu.sample(&cameras, &sampling, [(first, n[0]), (second, n[1])])?;
    let raw = cpu.optics().raw(&cameras)?;
    let [first, second] = &mut got;
    device.sample(&raw, &sampling, [(first, n[0]), (second, n[1])])?;
    let is_alike = |(wanted, got): (&Particles, &Particles)| {
        wanted.positions == got.positions
            && wanted.colors == got.colors
            && wanted.sources == got.sources
            && wanted.support_m == got.support_m
    };
    if wanted.iter().zip(&got).all(is_alike) {
        return Ok(());
    }
    let problem = "draws other particles than the CPU from an image to try it with: it is not used; \
                   take device: cpu, and look with benches/gpu/run for what is wrong";
    Err(Error::Device { device: name.to_owned(), problem: problem.into() })
}

/// A camera with distortion that looks down on a table with something on it.
fn cameras() -> Vec<CameraFrame> {
    let [width, height] = [61, 43];
    let image = |encoding: &str, n_bytes: u32, data: Vec<u8>| Image {
        width,
        height,
        encoding: encoding.into(),
        is_bigendian: false,
        step: n_bytes * width,
        data,
        header: Header::default(),
    };
    let random = |i: u32, stream: u64| uniform(draw(2, 0, i.into(), stream));
    let depth_mm = |i: u32| match random(i, 0) {
        x if x < 0.1 => 0,
        x if x < 0.5 => 1200,
        _ => (1000.0 + 200.0 * random(i, 1)) as u16,
    };
    let depth = (0..width * height).flat_map(|i| depth_mm(i).to_le_bytes()).collect();
    let color = (0..3 * width * height).map(|i| (256.0 * random(i, 2)) as u8).collect();
    let info = Arc::new(CameraInfo {
        header: Header::default(),
        width,
        height,
        distortion_model: "plumb_bob".into(),
        d: vec![0.05, -0.02, 0.001, -0.001, 0.0],
        k: [60.0, 0.0, 30.0, 0.0, 60.0, 21.0, 0.0, 0.0, 1.0],
        r: [0.0; 9],
        p: [0.0; 12],
    });
    let view = View::Depth {
        depth: image("16UC1", 2, depth),
        info: info.clone(),
        color: Some(ColorView { image: image("bgr8", 3, color), info, color_from_depth: None }),
    };
    // Optical frame: z forward, which is down here.
    let down = UnitQuaternion::from_euler_angles(std::f64::consts::PI, 0.0, 0.0);
    let world_from_camera = Isometry3::from_parts(Translation3::new(0.05, 0.1, 1.2), down);
    vec![CameraFrame { camera: 3, view, world_from_camera }]
}

/// A seeded scene in the middle of the model's workspace, for `n_steps` steps.
fn scene(model: &Model, n_steps: usize) -> RolloutInput {
    let config = &model.config;
    let [n, n_history, n_robot] = SIZES;
    let n_robot = if config.n_kinematic > 0 { n_robot } else { 0 };
    let center = config.rollout().tokens.frame.center_m;
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
    let kinematic = (0..config.reach(n_steps) + 2).map(|t| {
        let shifted = robot.iter().map(|p| [p[0] + 0.01 * t as f32, p[1], p[2] - 0.005 * t as f32]);
        shifted.collect()
    });
    // Bodies: one that turns, and others that fall and land on what rests, which is every fourth particle.
    let mut velocities = vectors(n, 0.04, 2);
    velocities.iter_mut().step_by(4).for_each(|v| *v = [0.0; 3]);
    let body = |i: usize| if i % 7 == 3 { NO_BODY } else { (i % 5) as u32 };
    let before = places(5, 9);
    let after: Vec<Vec3> =
        before.iter().map(|p| [p[0] + 0.2 * (p[1] - center[1]), p[1], p[2] + 0.01]).collect();
    let turn = RigidMotion::fit(&before, &after);
    let start = StepState {
        positions: places(n, 1),
        velocities,
        body_of: (0..n).map(body).collect(),
        body_motions: vec![Some(turn), None],
        support_m: Some(center[2] - 0.12),
        extrapolated_motion: vectors(n, 0.04, 3),
        bodies: (0..n).map(|i| std::array::from_fn(|c| number(32 * i + c, 4))).collect(),
        velocity_known: (0..n).map(|i| (i % 3).min(1) as f32).collect(),
        colors: colors(n, 5),
        history_positions: places(n_history, 7),
        history_colors: colors(n_history, 8),
        kinematic_links: (0..n_robot as u32).map(|i| i / 9).collect(),
        kinematic_stride: config.kinematic_detail,
        ..StepState::default()
    };
    RolloutInput { start, kinematic: kinematic.collect(), ..RolloutInput::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::weights::initial_weights;
    use crate::engine::model::{Layout, Mode, ModelConfig};
    use crate::vision::cloud::raw::RawCamera;

    /// The CPU, with `fault` added to a coordinate of a particle in the last step, or to its sigma.
    struct Faulty {
        model: Model,
        cpu: Rollout,
        fault: f32,
        is_of_sigma: bool,
        last: Vec<Vec3>,
        last_sigmas: Option<Vec<f32>>,
    }

    impl Rollouts for Faulty {
        fn run_while(
            &mut self,
            scene: &RolloutInput,
            n_steps: usize,
            goes_on: &mut dyn FnMut(usize) -> bool,
        ) -> Result<()> {
            self.cpu.run_while(&self.model.weights, scene, n_steps, goes_on)?;
            self.last = self.cpu.displacements(n_steps - 1).to_vec();
            self.last_sigmas = self.cpu.sigmas(n_steps - 1).map(<[f32]>::to_vec);
            match &mut self.last_sigmas {
                Some(sigmas) if self.is_of_sigma => sigmas[77] += self.fault,
                _ => self.last[77][1] += self.fault,
            }
            Ok(())
        }

        fn displacements(&self, t: usize) -> &[Vec3] {
            if t + 1 == self.cpu.n_steps() { &self.last } else { self.cpu.displacements(t) }
        }

        fn sigmas(&self, t: usize) -> Option<&[f32]> {
            let is_last = t + 1 == self.cpu.n_steps();
            if is_last { self.last_sigmas.as_deref() } else { self.cpu.sigmas(t) }
        }

        fn n_steps(&self) -> usize {
            self.cpu.n_steps()
        }

        fn name(&self) -> &str {
            "faulty"
        }
    }

    /// The CPU on the probe's image, with `fault` done to its second draw.
    struct FaultySampler(fn(&mut Particles));

    impl RawSampler for FaultySampler {
        fn sample(
            &mut self,
            raw: &[RawCamera],
            sampling: &Sampling,
            samples: [(&mut Particles, usize); 2],
        ) -> Result<()> {
            assert_eq!(raw.len(), 1);
            let [first, (second, n)] = samples;
            CpuSampler::default().sample(&cameras(), sampling, [first, (&mut *second, n)])?;
            assert!(second.support_m.is_some() && second.len() > 1000, "it tries what there is");
            (self.0)(second);
            Ok(())
        }
    }

    #[test]
    fn a_device_that_draws_other_particles_is_not_trusted() {
        probe_sampler(&mut FaultySampler(|_| {}), "good").unwrap();
        let faults: [fn(&mut Particles); 5] = [
            |particles| particles.sources.swap(0, 1),
            |particles| particles.positions[7][2] += 1e-6,
            |particles| particles.positions[7][0] = f32::NAN,
            |particles| particles.colors[3][1] += 1.0 / 255.0,
            |particles| particles.support_m = None,
        ];
        for fault in faults {
            let message = probe_sampler(&mut FaultySampler(fault), "bad").unwrap_err().to_string();
            assert!(message.starts_with("bad: draws other particles"), "{message}");
        }
    }

    fn probe_with(config: ModelConfig, fault: f32, is_of_sigma: bool) -> Result<()> {
        let weights = initial_weights(&Layout::new(config.interlacer()), 1);
        let model = Model::new(config, weights).unwrap();
        let rollout = || Rollout::new(config.rollout(), Mode::Inference);
        let (last, last_sigmas) = (Vec::new(), None);
        let (cpu, model_there) = (rollout(), model.clone());
        let mut device = Faulty { model: model_there, cpu, fault, is_of_sigma, last, last_sigmas };
        probe(&model, &mut rollout(), &mut device)
    }

    #[test]
    fn a_device_that_computes_something_else_is_not_trusted() {
        let usual = ModelConfig { width: 8, n_heads: 2, n_blocks: 1, ..ModelConfig::default() };
        let no_robot = ModelConfig { n_kinematic: 0, ..usual };
        let silent = ModelConfig { tells_sigma: false, ..usual.with_steps_per_pass(1) };
        let whole = usual.with_steps_per_pass(3);
        for (config, is_of_sigma) in
            [(usual, false), (usual, true), (no_robot, false), (silent, false), (whole, true)]
        {
            probe_with(config, 0.0, is_of_sigma).unwrap();
            probe_with(config, 1e-7, is_of_sigma).unwrap();
            let told = if is_of_sigma { "sigmas" } else { "displacements" };
            for fault in [1e-3, -1e-3, f32::NAN, f32::INFINITY] {
                let message = probe_with(config, fault, is_of_sigma).unwrap_err().to_string();
                assert!(
                    message.starts_with(&format!("faulty: computes other {told}")),
                    "{message}"
                );
                assert!(message.contains("device: cpu"), "{message}");
            }
        }
    }
}
