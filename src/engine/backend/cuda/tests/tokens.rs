//! Tokens of a pass, and what follows from its outputs, against the CPU's.

use super::super::memory::{Arena, Pinned};
use super::super::model::Precision;
use super::super::pass::{Buffers, N_MOTION, Sizes};
use super::super::rollout::{checked_sizes, stage};
use super::rollout::{of, scene, with_bodies};
use super::*;
use crate::base::geometry::{RigidMotion, Vec3};
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::model::tokens::tests::{ONE, THREE};
use crate::engine::model::tokens::{N_CANDIDATES, Tokens};
use crate::engine::model::{Inputs, TokenConfig};
use crate::engine::ops::check::{assert_close, f64s, numbers};
use crate::engine::ops::motion_head::motion_head_forward;
use crate::engine::rollout_input::{RolloutInput, history_index};
use nalgebra::{Matrix3, Vector3};

/// Buffers of a pass with the scene in them.
fn uploaded(memory: &mut Memory, config: &RolloutConfig, scene: &RolloutInput) -> (Buffers, Arena) {
    let sizes = checked_sizes(scene, config, 1, &Sizes::default()).unwrap();
    let mut arena = Arena::new(memory.gpu.clone());
    let (buffers, _) =
        arena.lay_out(|places| Buffers::take(config, Precision::Full, sizes, 1, places)).unwrap();
    let mut pinned = Pinned::new(memory.gpu.clone());
    pinned.reserve(sizes.n_uploaded()).unwrap();
    stage(scene, &sizes, config.n_rows(1), pinned.get_mut(sizes.n_uploaded()));
    memory.gpu.upload(&pinned, buffers.uploaded).unwrap();
    memory.gpu.synchronize().unwrap();
    pinned.get_mut(1)[0] = 1;
    memory.gpu.upload(&pinned, buffers.n_scenes).unwrap();
    memory.gpu.clear(buffers.counters).unwrap();
    memory.gpu.synchronize().unwrap();
    (buffers, arena)
}

/// How far off features may be. Motions are told in 5 cm, so that this is 1.5 micrometres of them: the rounding
/// of places and turns.
const OFF: f32 = 3e-5;
/// The same with links of points nearly on a line: there the CPU's single precision is off by up to 1.6e-5 of a
/// rotation, the device's by 2e-6 (see [`turns_of_links_are_those_of_double_precision`]), which is 1e-4 of 5 cm
/// for what is 0.3 m away.
const THIN_OFF: f32 = 1e-4;

/// Holds tokens of a pass to the CPU's, their features but for `most`.
fn check(config: &RolloutConfig, scene: &RolloutInput, most: f32) {
    let mut start = scene.start.clone();
    start.kinematic = scene.kinematic[..config.tokens.steps_per_pass + 2].to_vec();
    let mut expected = Tokens::default();
    expected.encode(&start, &config.tokens).unwrap();

    let mut memory = Memory::new();
    let (buffers, _arena) = uploaded(&mut memory, config, scene);
    let pass = buffers.pass(config);
    memory.gpu.make_tokens(&pass, 1, buffers.keys, buffers.candidates).unwrap();
    assert_eq!(memory.get(buffers.forward.token_positions), expected.positions.as_flattened());
    let candidates = expected.candidates.as_flattened();
    assert_close(&memory.get(buffers.candidates), &f64s(candidates), 5e-6);
    let features = memory.get(buffers.forward.features);
    // Number by number: a small one is not lost beside large ones.
    let width = config.interlacer.n_features;
    for (i, (got, wanted)) in features.iter().zip(&expected.features).enumerate() {
        let (token, feature) = (i / width, i % width);
        let off = (got - wanted).abs();
        assert!(off <= most + 1e-5 * wanted.abs(), "{feature} of {token}: {got}, not {wanted}");
    }
    assert_eq!(features.len(), expected.features.len());
    assert_eq!(memory.get(buffers.counters), [0, 0]);
}

#[test]
fn tokens_are_the_cpus() {
    let ten = TokenConfig { steps_per_pass: 10, ..THREE };
    let paper = TokenConfig { inputs: Inputs::Paper, ..THREE };
    let cases = [
        (ONE, [37, 11, 5], 2),
        (THREE, [9, 0, 0], 0),
        (ten, [130, 3, 0], 1),
        (ONE, [6, 0, 70], 1),
        (THREE, [90, 51, 259], 8),
        (ten, [141, 22, 67], 8),
        (paper, [45, 11, 5], 2),
    ];
    for (tokens, sizes, stride) in cases {
        for has_bodies in [true, false] {
            let make = if has_bodies { with_bodies } else { scene };
            let mut scene = make(sizes, tokens.steps_per_pass);
            scene.start.kinematic_stride = stride;
            if sizes[0] % 2 == 0 {
                scene.start.extrapolated_motion.clear();
                scene.start.bodies.clear();
            }
            if sizes[2] > 240 {
                // As near as earlier points, on other links.
                scene.kinematic.iter_mut().for_each(|row| row.copy_within(..40, 201));
            }
            let off = if sizes[2] > 240 { THIN_OFF } else { OFF };
            check(&of(8, tokens, 1), &scene, off);
        }
    }
}

/// The rotation that [`RigidMotion::fit`] looks for, found in double precision; how many times as large the
/// rounding of the points' sums is in it, and how many times as long as wide the points lie.
fn rotation_in_double(from: &[Vec3], to: &[Vec3]) -> (Matrix3<f64>, [f64; 2]) {
    let centered = |points: &[Vec3]| -> Vec<Vector3<f64>> {
        let points = points.iter().map(|p| Vector3::from(p.map(f64::from)));
        let center = points.clone().sum::<Vector3<f64>>() / points.len() as f64;
        points.map(|p| p - center).collect()
    };
    let (from, to) = (centered(from), centered(to));
    let scatter: f64 = from.iter().map(|a| a.norm_squared()).sum();
    let pairs = from.iter().zip(&to).map(|(a, b)| b * a.transpose());
    let sums = pairs.sum::<Matrix3<f64>>() + Matrix3::identity() * (1e-4 * scatter);
    let svd = sums.svd(true, true);
    let (u, v_t, sizes) = (svd.u.unwrap(), svd.v_t.unwrap(), svd.singular_values);
    let handedness = (u * v_t).determinant().signum();
    let rotation = u * Matrix3::from_diagonal(&Vector3::new(1.0, 1.0, handedness)) * v_t;
    (rotation, [sizes[0] / (sizes[1] + handedness * sizes[2]), sizes[0] / sizes[1]])
}

/// Of long, thin links the device's turns are nearer to the truth than the CPU's: its eigenvectors of Horn's
/// matrix are off by the rounding times the condition. The CPU's singular vectors are those of MᵀM, in which
/// thin links are as much thinner again.
#[test]
fn turns_of_links_are_those_of_double_precision() {
    let config = of(8, THREE, 1);
    let scene = scene([9, 5, 259], 3);
    let links = &scene.start.kinematic_links;
    let n_links = links[links.len() - 1] as usize + 1;
    let mut memory = Memory::new();
    let (buffers, _arena) = uploaded(&mut memory, &config, &scene);
    let mut pass = buffers.pass(&config);
    let motions = memory.put(&vec![0.0; 4 * n_links * N_MOTION]);
    pass.link_motions = motions.address();
    memory.gpu.make_tokens(&pass, 1, buffers.keys, buffers.candidates).unwrap();
    let mut worst = [0.0f64; 2];
    for (at, motion) in memory.get(motions).chunks(N_MOTION).enumerate() {
        let (time, link) = (at / n_links, at % n_links);
        let [from, to] = [1, if time == 0 { 0 } else { time + 1 }].map(|row: usize| {
            let points = scene.kinematic[row].iter().zip(links);
            let points = points.filter(|(_, of)| **of as usize == link).map(|(p, _)| *p);
            points.collect::<Vec<Vec3>>()
        });
        let (wanted, [condition, slimness]) = rotation_in_double(&from, &to);
        let off = |motion: &[f32]| {
            let of = |c: usize| (f64::from(motion[c]) - wanted[(c / 3, c % 3)]).abs();
            (0..9).map(of).fold(0.0, f64::max)
        };
        let [device, cpu] = [off(motion), off(&RigidMotion::fit(&from, &to).numbers())];
        assert!(device <= 1e-6 * condition, "{device} of link {link} at {time}: {condition}");
        assert!(cpu <= 1e-6 * condition * slimness, "{cpu} of link {link} at {time}: {slimness}");
        worst = [worst[0].max(device), worst[1].max(cpu)];
    }
    // What `THIN_OFF` is for.
    assert!(worst[0] < 3e-6 && worst[1] > 1e-5 && worst[1] < 2e-5, "{worst:?}");
}

/// Bodies that fall, roll on, lie on one another, and are hit: what random clouds seldom show.
#[test]
fn what_falls_lands_and_strikes_is_told_as_on_the_cpu() {
    let ten = TokenConfig { steps_per_pass: 10, ..THREE };
    let mut scene = scene([0, 0, 24], 10);
    let start = &mut scene.start;
    let mut add = |center: Vec3, velocity: Vec3, body: u32| {
        for i in 0..27 {
            let local = [i % 3, i / 3 % 3, i / 9].map(|x| 0.02 * (x as f32 - 1.0));
            start.positions.push(std::array::from_fn(|axis| center[axis] + local[axis]));
            // Turning as well.
            let turn = [-0.3 * local[1], 0.3 * local[0], 0.0];
            let moves = velocity.iter().any(|v| *v != 0.0);
            start.velocities.push(std::array::from_fn(|axis| {
                if moves { velocity[axis] + turn[axis] } else { 0.0 }
            }));
            start.body_of.push(body);
        }
    };
    add([0.1, 0.0, 0.12], [0.1, 0.02, 0.0], 0);
    add([0.35, 0.05, 0.021], [0.0; 3], 1);
    add([0.35, 0.05, 0.081], [0.0; 3], 3);
    add([-0.2, -0.1, 0.4], [0.03, 0.0, 0.05], 2);
    add([0.3, 0.3, 0.02], [0.0, -0.06, 0.0], 5);
    let n = start.positions.len();
    start.support_m = Some(0.0);
    start.velocity_known = vec![1.0; n];
    start.colors = vec![[0.4; 3]; n];
    (start.extrapolated_motion, start.bodies, start.body_motions) = Default::default();
    let config = of(8, ten, 1);
    check(&config, &scene, OFF);
    scene.start.support_m = None;
    check(&config, &scene, OFF);
}

#[test]
fn motion_is_the_cpus_and_what_was_the_scene_becomes_the_history() {
    // More history than particles, as well.
    for (n, h) in [(131, 50), (131, 131), (40, 97)] {
        let mut config = of(8, TokenConfig { steps_per_pass: 4, ..THREE }, 1);
        config.replan_interval = 2;
        let scene = scene([n, h, 2], 4);
        let mut memory = Memory::new();
        let (buffers, _arena) = uploaded(&mut memory, &config, &scene);
        let (width, per_particle) = (N_OUTPUTS + 1, 4 * N_CANDIDATES);
        let (y, candidates) = (numbers(n * 4 * width, 1), numbers(n * 3 * per_particle, 2));
        let mut pass = buffers.pass(&config);
        pass.outputs = memory.put(&y).address();
        pass.candidates = memory.put(&candidates).address();
        memory.gpu.move_particles(&pass, 1).unwrap();
        memory.gpu.end_pass(&pass, 1).unwrap();

        let (mut saved, mut expected) = (y.clone(), vec![[0.0; 3]; 4 * n]);
        motion_head_forward(&mut saved, width, candidates.as_chunks().0, &mut expected);
        let displacements = memory.get(buffers.displacements);
        let of_step = |j: usize| expected.iter().skip(j).step_by(4).copied().collect::<Vec<_>>();
        let wanted = [of_step(0), of_step(1)].concat();
        assert_close(&displacements, &f64s(wanted.as_flattened()), 2e-6);
        let sigmas = (0..4 * n).map(|at| {
            let (j, i) = (at / n, at % n);
            5e-3 * y[(4 * i + j) * width + N_OUTPUTS].clamp(-5.0, 5.0).exp()
        });
        assert_close(&memory.get(buffers.sigmas), &f64s(&sigmas.collect::<Vec<_>>()), 2e-6);
        assert_eq!(memory.get(buffers.counters), [1, 0]);

        let bits = memory.get(buffers.uploaded);
        let state: Vec<f32> = bits[..10 * n + 6 * h].iter().map(|&x| f32::from_bits(x)).collect();
        let before: Vec<f32> = (scene.start.positions.as_flattened().iter())
            .zip(&displacements)
            .map(|(p, d)| p + d)
            .collect();
        for i in 0..3 * n {
            let last = displacements[3 * n + i];
            assert_eq!((state[i], state[3 * n + i]), (before[i] + last, last));
        }
        assert!(state[6 * n..7 * n].iter().all(|&known| known == 1.0));
        let (colors, history) = state[7 * n..].split_at(3 * n);
        for j in 0..h {
            let from = 3 * history_index(j, h, n);
            assert_eq!(history[3 * j..3 * j + 3], before[from..from + 3]);
            assert_eq!(history[3 * (h + j)..3 * (h + j) + 3], colors[from..from + 3]);
        }
    }
}
