//! Passes and roll-outs of several scenes at once, against those of each alone.

use super::super::model::Precision;
use super::super::pass_forward::PassForward;
use super::rollout::{threes, weights, with_bodies};
use super::*;
use crate::Error;
use crate::engine::backend::probe::probe_batch;
use crate::engine::backend::{BatchRollout, Device, Forwards};
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::model::tokens::Tokens;
use crate::engine::model::{self, Mode, Model, ModelConfig};
use crate::engine::ops::check::{assert_close, f64s};
use crate::engine::rollout_input::RolloutInput;
use crate::message::{JointTrajectory, TrajectoryPoint};
use crate::planner::candidates::{Candidate, Candidates, Snapshot};
use crate::planner::costs::{Goal, PlanCost, Reach, Select};
use crate::predict::config::PredictorConfig;
use crate::predict::predictor::Predictor;
use crate::vision::frames::{Frames, FramesConfig};
use forecloud_bag::bag::Bag;

fn forward(config: RolloutConfig, precision: Precision) -> PassForward {
    PassForward::new(gpu(), config, &weights(&config), precision).unwrap()
}

/// Scenes of the same sizes, each with other numbers, for `n_steps`.
fn scenes(sizes: [usize; 3], n_steps: usize, n: usize) -> Vec<RolloutInput> {
    let other = |i: usize| {
        let mut scene = with_bodies(sizes, n_steps);
        let shift = 0.02 * i as f32;
        scene.start.positions.iter_mut().skip(i).step_by(2).for_each(|p| p[0] += shift);
        scene.start.velocities.iter_mut().for_each(|v| v[1] -= shift);
        scene.kinematic.iter_mut().flatten().for_each(|p| p[2] += shift);
        scene
    };
    (0..n).map(other).collect()
}

fn tokens(scene: &RolloutInput, config: &RolloutConfig) -> Tokens {
    let mut start = scene.start.clone();
    start.kinematic = scene.kinematic[..config.tokens.steps_per_pass + 2].to_vec();
    let mut tokens = Tokens::default();
    tokens.encode(&start, &config.tokens).unwrap();
    tokens
}

fn run(forward: &mut PassForward, tokens: &[&Tokens]) -> crate::Result<Vec<Vec<f32>>> {
    let mut outputs = vec![Vec::new(); tokens.len()];
    forward.run(tokens, &mut outputs.iter_mut().collect::<Vec<_>>())?;
    Ok(outputs)
}

#[test]
fn passes_of_many_scenes_are_each_as_alone_to_the_bit() {
    // More rows than a tile of a product or a part of the state has, and fewer.
    for (sizes, width, precision) in
        [([45, 12, 6], 24, Precision::Full), ([9, 4, 1], 72, Precision::Half)]
    {
        let config = threes(width);
        let all: Vec<Tokens> =
            scenes(sizes, 3, 3).iter().map(|scene| tokens(scene, &config)).collect();
        let mut alone = forward(config, precision);
        let expected: Vec<Vec<f32>> =
            all.iter().map(|tokens| run(&mut alone, &[tokens]).unwrap().remove(0)).collect();
        assert!(expected.windows(2).all(|pair| pair[0] != pair[1]));
        let mut together = forward(config, precision);
        for n in [3, 2] {
            let some: Vec<&Tokens> = all.iter().rev().take(n).collect();
            let got = run(&mut together, &some).unwrap();
            assert!(got.iter().eq(expected.iter().rev().take(n)), "{n} scenes, {precision:?}");
        }
    }
}

/// A device that takes the outputs of one scene for another's.
struct Mixed(PassForward);

impl Forwards for Mixed {
    fn run(&mut self, tokens: &[&Tokens], outputs: &mut [&mut Vec<f32>]) -> crate::Result<()> {
        self.0.run(tokens, outputs)?;
        if let [first, .., last] = outputs {
            std::mem::swap(*first, *last);
        }
        Ok(())
    }

    fn name(&self) -> &str {
        "mixed"
    }
}

#[test]
fn a_device_that_mixes_scenes_up_is_not_trusted() {
    let usual = ModelConfig { width: 8, n_heads: 2, n_blocks: 1, ..ModelConfig::default() };
    let config = ModelConfig { steps_per_pass: 2, replan_interval: None, ..usual };
    let rollout = config.rollout();
    let model = Model::new(config, weights(&rollout)).unwrap();
    let mut cpu = model::Rollout::new(rollout, Mode::Inference);
    let mut check = |forward: Box<dyn Forwards>| {
        probe_batch(&model, &mut cpu, &mut BatchRollout::new(rollout, forward))
    };
    check(Box::new(forward(rollout, Precision::Half))).unwrap();
    let message = check(Box::new(Mixed(forward(rollout, Precision::Half)))).unwrap_err();
    assert!(message.to_string().starts_with("mixed: computes other displacements"), "{message}");
}

#[test]
fn a_graph_is_captured_for_each_number_of_scenes_until_their_sizes_change() {
    let config = threes(8);
    let mut device = forward(config, Precision::Full);
    let all: Vec<Tokens> =
        scenes([10, 5, 2], 3, 5).iter().map(|scene| tokens(scene, &config)).collect();
    let all: Vec<&Tokens> = all.iter().collect();
    let mut captures = |tokens: &[&Tokens]| {
        run(&mut device, tokens).unwrap();
        device.counts().captures
    };
    // Eight places for five; they are more memory than any that come after.
    assert_eq!(captures(&all), 1);
    let counts = [3, 4, 5, 2, 3, 1, 5, 4].map(|n| captures(&all[..n]));
    assert_eq!(counts, [2, 2, 2, 3, 3, 4, 4, 4]);
    let small = tokens(&with_bodies([9, 4, 1], 3), &config);
    assert_eq!(captures(&[&small]), 5);
    assert_eq!((captures(&all[..2]), captures(&all[..2])), (6, 6));
    // More memory than there was, in which nothing is any more what it was.
    let mut device = forward(config, Precision::Full);
    let mut captures = |n: usize| {
        run(&mut device, &all[..n]).unwrap();
        device.counts()
    };
    let [first, second] = [captures(1), captures(2)];
    assert!(second.allocations > first.allocations);
    assert_eq!(captures(1).captures, 3);
    let last = captures(2);
    assert_eq!((last.captures, last.allocations), (3, second.allocations));
}

#[test]
fn scenes_that_do_not_belong_together_are_refused_and_forgotten() {
    let config = threes(8);
    let mut device = forward(config, Precision::Full);
    let scenes = scenes([10, 5, 2], 3, 2);
    let good = [&scenes[0], &scenes[1]].map(|scene| tokens(scene, &config));
    let expected = run(&mut device, &[&good[0], &good[1]]).unwrap();
    let mut other = scenes[1].clone();
    other.start.history_positions.pop();
    other.start.history_colors.pop();
    let refused = run(&mut device, &[&good[0], &tokens(&other, &config)]).unwrap_err();
    assert!(matches!(refused, Error::Shape { what: "tokens of each scene", .. }), "{refused}");
    let mut bad = good[1].clone();
    bad.positions[7][1] = f32::NAN;
    let refused = run(&mut device, &[&good[0], &bad]).unwrap_err();
    assert!(matches!(refused, Error::NonFinite { .. }), "{refused}");
    let mut bad = good[1].clone();
    bad.features.pop();
    let refused = run(&mut device, &[&good[0], &bad]).unwrap_err();
    assert!(matches!(refused, Error::Shape { what: "features", .. }), "{refused}");
    assert!(run(&mut device, &[]).unwrap().is_empty());
    assert_eq!(run(&mut device, &[&good[0], &good[1]]).unwrap(), expected);

    let mut rollout = BatchRollout::new(config, Box::new(device));
    let many = vec![(&scenes[0], 3); BatchRollout::MAX_SCENES + 1];
    let refused = rollout.run(&many).unwrap_err();
    assert!(matches!(refused, Error::Shape { what: "scenes of a batch", .. }), "{refused}");
}

#[test]
fn rollouts_of_many_scenes_are_the_cpus_however_many_steps_each_has() {
    let config = RolloutConfig { replan_interval: 1, ..threes(16) };
    let scenes = scenes([11, 5, 3], 8, 4);
    let mut device = BatchRollout::new(config, Box::new(forward(config, Precision::Half)));
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    // Twice: the second run begins with what the first one left.
    for n_steps in [[5, 1, 6, 2], [2, 6, 1, 4]] {
        let all: Vec<(&RolloutInput, usize)> = scenes.iter().zip(n_steps).collect();
        device.run(&all).unwrap();
        for ((scene, n_steps), there) in all.iter().zip(device.scenes()) {
            cpu.run(&weights(&config), scene, *n_steps).unwrap();
            for t in 0..*n_steps {
                let [got, expected] = [there.displacements(t), cpu.displacements(t)];
                // Each of up to eight passes adds its own rounding.
                assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 5e-4);
                assert_close(there.sigmas(t).unwrap(), &f64s(cpu.sigmas(t).unwrap()), 5e-4);
            }
        }
    }
    let short = RolloutInput { kinematic: scenes[1].kinematic[..5].to_vec(), ..scenes[1].clone() };
    assert!(device.run(&[(&scenes[0], 3), (&short, 3)]).is_err(), "its plan ends too early");
}

/// The demo's frame and plans of which each moves a joint.
fn plans(n: usize) -> (Snapshot, Goal, Vec<Candidate>) {
    let usual = ModelConfig { width: 8, n_heads: 2, n_blocks: 1, ..ModelConfig::default() };
    let config =
        ModelConfig { n_kinematic: 16, kinematic_detail: 2, ..usual.with_steps_per_pass(4) };
    let model = Model::new(config, weights(&config.rollout())).unwrap();
    let config = PredictorConfig { n_particles: 16, ..PredictorConfig::default() };
    let mut predictor = Predictor::new(model, config).unwrap();
    // Message by message: a unit test's frames are of another type than the recordings' crate makes.
    let bag = Bag::open("data/demo_tumble").unwrap();
    let mut frames = Frames::new(FramesConfig::default());
    let (mut taken, mut has_robot) = (None, false);
    for message in bag.messages_where(|topic| !topic.starts_with("/truth")) {
        let message = message.unwrap();
        let Some(frame) = frames.push_raw(&message.topic, message.data.to_vec()) else { continue };
        if !has_robot {
            let urdf = frames.robot_description().cloned().unwrap();
            predictor.set_robot(&urdf, "world").unwrap();
            has_robot = true;
        }
        if predictor.step(&frame).unwrap().is_some() {
            taken = Some(predictor.snapshot().unwrap());
            break;
        }
    }
    let snapshot = taken.unwrap();
    let reach = Reach::Pose { rotation: [0.0, 0.0, 0.0, 1.0], translation: [0.08, 0.0, 0.0] };
    let goal = Goal { leave_weight: 0.2, ..Goal::new(Select::Body([0.0, 0.0, 0.1]), reach) };
    let names = snapshot.robot().unwrap().joint_names().to_vec();
    let plan = |i: usize| {
        let from = snapshot.joints()[i];
        let way = if from > 0.0 { -0.1 } else { 0.1 };
        let point = |(nanos, q): (i64, f64)| TrajectoryPoint {
            positions: vec![q],
            time_from_start_nanos: nanos,
        };
        let plan = JointTrajectory {
            joint_names: vec![names[i].clone()],
            points: [(0, from), (300_000_000, from + way)].map(point).to_vec(),
            ..JointTrajectory::default()
        };
        // Of two passes, and of three.
        Candidate { plan, n_steps: 4 + i % 2 }
    };
    let candidates = (0..n).map(plan).collect();
    (snapshot, goal, candidates)
}

fn numbers(costs: &[Option<PlanCost>]) -> Vec<f32> {
    let one = |cost: &Option<PlanCost>| {
        let cost = cost.unwrap();
        [cost.cost, cost.reach, cost.leave, cost.length].map(|x| x as f32)
    };
    costs.iter().flat_map(one).collect()
}

#[test]
fn plans_cost_on_the_device_what_they_cost_on_the_cpu() {
    standin::load();
    let (snapshot, goal, plans) = plans(3);
    let judge = snapshot.judge(&goal).unwrap();
    let mut cpu = Candidates::new(1).unwrap();
    let expected = cpu.evaluate(&snapshot, &judge, &plans, || true).unwrap();
    assert_eq!(cpu.device(), "cpu");
    let mut device = Candidates::on(Device::Cuda(0), 1).unwrap();
    assert_eq!(device.device(), "cpu");
    device.open(&snapshot.model).unwrap();
    assert!(device.device().starts_with("cuda:0 ("), "{}", device.device());
    let got = device.evaluate(&snapshot, &judge, &plans, || true).unwrap();
    assert!(device.device().starts_with("cuda:0 ("), "{}", device.device());
    let expected = numbers(&expected);
    assert!(expected.chunks(4).all(|cost| cost[..3].iter().all(|x| *x > 1e-3)), "{expected:?}");
    assert_close(&numbers(&got), &f64s(&expected), 1e-4);
    // Plans that can't be followed are named as on the CPU.
    let mut bad = plans.clone();
    bad[1].plan.joint_names[0] = "nobody".into();
    let told = [&mut cpu, &mut device].map(|candidates| {
        candidates.evaluate(&snapshot, &judge, &bad, || true).unwrap_err().to_string()
    });
    assert!(told[0] == told[1] && told[0].contains("plan 1"), "{told:?}");
}

/// Of two plans only one leads the robot near the workspace: their scenes have other sizes.
#[test]
fn plans_that_keep_the_robot_outside_cost_what_they_do_on_the_cpu_too() {
    standin::load();
    let (mut snapshot, goal, mut plans) = plans(2);
    let judge = snapshot.judge(&goal).unwrap();
    let mut robot = crate::robot::kinematics::Robot::clone(snapshot.robot().unwrap());
    snapshot.robot_forecast.mount(&mut robot).unwrap();
    let mut place = |joints: &[f64]| {
        let mut points = Vec::new();
        robot.place(joints, &mut points).unwrap();
        points
    };
    // The first joint goes on for a whole second.
    let now = snapshot.joints().to_vec();
    let way = if now[0] > 0.0 { -1.0 } else { 1.0 };
    plans[0].plan.points[1].positions[0] = now[0] + way;
    plans[0].plan.points[1].time_from_start_nanos = 1_000_000_000;
    plans[0].n_steps = 10;
    plans[1].plan.points[1].positions[0] = now[1];
    let mut there = now.clone();
    there[0] += way;
    let (before, after) = (place(&now), place(&there));
    let gap = |p: &[f32; 3]| {
        let least = before.iter().map(|q| crate::base::geometry::squared_distance(p, q));
        least.fold(f32::INFINITY, f32::min)
    };
    let far = after.iter().max_by(|a, b| gap(a).total_cmp(&gap(b))).unwrap();
    // Farther than 0.21 m along one axis at least.
    assert!(gap(far).sqrt() > 0.37, "{}", gap(far).sqrt());
    snapshot.workspace.min = far.map(|x| x - 0.01);
    snapshot.workspace.max = far.map(|x| x + 0.01);
    let costs = |device| {
        let mut candidates = Candidates::on(device, 1).unwrap();
        numbers(&candidates.evaluate(&snapshot, &judge, &plans, || true).unwrap())
    };
    let expected = costs(Device::Cpu);
    assert_close(&costs(Device::Cuda(0)), &f64s(&expected), 1e-4);
}

/// A device that is lost after `n_passes`; until then all outputs of a scene are what `of` makes of its
/// tokens.
struct Played {
    n_passes: usize,
    of: fn(&Tokens) -> f32,
}

impl Forwards for Played {
    fn run(&mut self, tokens: &[&Tokens], outputs: &mut [&mut Vec<f32>]) -> crate::Result<()> {
        if self.n_passes == 0 {
            return Err(Error::Device { device: "lost".into(), problem: "fell off".into() });
        }
        self.n_passes -= 1;
        for (tokens, outputs) in tokens.iter().zip(outputs) {
            outputs.clear();
            outputs.resize(tokens.n_scene * 4 * N_OUTPUTS, (self.of)(tokens));
        }
        Ok(())
    }

    fn name(&self) -> &str {
        "played"
    }
}

/// One on which nothing moves.
fn lost(n_passes: usize) -> Box<Played> {
    Box::new(Played { n_passes, of: |_| 0.0 })
}

#[test]
fn where_auto_loses_its_card_between_passes_of_plans_the_cpu_judges_all_of_them() {
    let (snapshot, goal, plans) = plans(3);
    let judge = snapshot.judge(&goal).unwrap();
    // Several batches, so that another one is under way then.
    let plans: Vec<Candidate> = plans.into_iter().cycle().take(150).collect();
    let costs = |candidates: &mut Candidates| {
        candidates.evaluate(&snapshot, &judge, &plans, || true).map(|costs| numbers(&costs))
    };
    let expected = costs(&mut Candidates::new(1).unwrap()).unwrap();
    for n_passes in [1, 3] {
        let mut auto = Candidates::opened(Device::Auto, &snapshot, lost(n_passes)).unwrap();
        assert_eq!(auto.device(), "played");
        for _ in 0..2 {
            assert_eq!(costs(&mut auto).unwrap(), expected);
            assert_eq!(auto.device(), "cpu (lost: fell off)");
        }
    }
    let mut cuda = Candidates::opened(Device::Cuda(0), &snapshot, lost(1)).unwrap();
    assert!(matches!(costs(&mut cuda), Err(Error::Device { .. })));
}

#[test]
fn plans_of_batches_that_take_turns_cost_what_each_does_alone() {
    let (snapshot, goal, plans) = plans(3);
    let judge = snapshot.judge(&goal).unwrap();
    let summing =
        Played { n_passes: usize::MAX, of: |tokens| tokens.features.iter().sum::<f32>().sin() };
    let mut device = Candidates::opened(Device::Cuda(0), &snapshot, Box::new(summing)).unwrap();
    // Words, as a probability that is not told equals nothing.
    let mut costs = |plans: &[Candidate], goes_on: bool| -> Vec<String> {
        let costs = device.evaluate(&snapshot, &judge, plans, || goes_on).unwrap();
        costs.iter().map(|cost| format!("{cost:?}")).collect()
    };
    let alone: Vec<String> =
        plans.iter().flat_map(|plan| costs(std::slice::from_ref(plan), true)).collect();
    assert!(alone[0] != alone[1] && alone[1] != alone[2] && alone[0].starts_with("Some"));
    // Four batches, the last of them smaller; and two.
    for n in [200, 128] {
        let many: Vec<Candidate> = plans.iter().cycle().take(n).cloned().collect();
        let together = costs(&many, true);
        assert!(together.iter().eq(alone.iter().cycle().take(n)), "{n} plans");
        // The first one is judged in any case.
        let stopped = costs(&many, false);
        assert_eq!(stopped[..64], together[..64]);
        assert!(stopped[64..].iter().all(|cost| cost == "None"));
    }
}

#[test]
fn a_card_that_was_asked_for_and_cannot_be_used_is_an_error() {
    if !has_faulty_cards() {
        return;
    }
    let (snapshot, goal, plans) = plans(1);
    let judge = snapshot.judge(&goal).unwrap();
    // Card 3 is too old, there is no card 99.
    for ordinal in [3, 99] {
        let mut asked_for = Candidates::on(Device::Cuda(ordinal), 1).unwrap();
        assert!(matches!(asked_for.open(&snapshot.model), Err(Error::Device { .. })));
        let refused = asked_for.evaluate(&snapshot, &judge, &plans, || true);
        assert!(matches!(refused, Err(Error::Device { .. })));
        assert_eq!(asked_for.device(), "cpu");
    }
}
