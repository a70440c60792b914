//! Roll-outs of several scenes at once, against those of each alone.

use super::super::model::Precision;
use super::super::rollout::{Counts, Rollout};
use super::rollout::{config, threes, weights, with_bodies};
use super::*;
use crate::Error;
use crate::base::geometry::Vec3;
use crate::engine::backend::probe::probe_batch;
use crate::engine::backend::{BatchRollout, Device, Rollouts, SideBySide, Steps};
use crate::engine::model::rollout::RolloutConfig;
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

fn device(config: RolloutConfig, precision: Precision) -> Rollout {
    Rollout::new(gpu(), config, &weights(&config), precision).unwrap()
}

/// Scenes of the same sizes, each with other numbers and bodies, for `n_steps`.
fn scenes(sizes: [usize; 3], n_steps: usize, n: usize) -> Vec<RolloutInput> {
    let other = |i: usize| {
        let mut scene = with_bodies(sizes, n_steps);
        let shift = 0.02 * i as f32;
        scene.start.positions.iter_mut().skip(i).step_by(2).for_each(|p| p[0] += shift);
        scene.start.velocities.iter_mut().for_each(|v| v[1] -= shift);
        scene.start.body_of[1..3].fill(i as u32);
        scene.kinematic.iter_mut().flatten().for_each(|p| p[2] += shift);
        scene
    };
    (0..n).map(other).collect()
}

/// Displacements and sigmas of all steps of each scene.
type Told = Vec<(Vec<Vec3>, Vec<f32>)>;

fn run(rollout: &mut Rollout, scenes: &[(&RolloutInput, usize)]) -> crate::Result<Told> {
    let mut steps = vec![Steps::default(); scenes.len()];
    SideBySide::run(rollout, scenes, &mut steps)?;
    let of = |(steps, &(_, n_steps)): (&Steps, &(_, usize))| {
        let displacements = (0..n_steps).flat_map(|t| steps.displacements(t)).copied();
        let sigmas = (0..n_steps).flat_map(|t| steps.sigmas(t).unwrap_or_default()).copied();
        (displacements.collect(), sigmas.collect())
    };
    Ok(steps.iter().zip(scenes).map(of).collect())
}

#[test]
fn rollouts_of_many_scenes_are_each_as_alone_to_the_bit() {
    // More rows than a tile of a product or a part of the state has, and fewer.
    for (sizes, width, precision) in
        [([45, 12, 6], 24, Precision::Full), ([9, 4, 1], 72, Precision::Half)]
    {
        let config = RolloutConfig { replan_interval: 1, ..threes(width) };
        let scenes = scenes(sizes, 5, 3);
        let all: Vec<_> = scenes.iter().zip([3, 1, 2]).collect();
        let mut alone = device(config, precision);
        let expected: Told =
            all.iter().map(|scene| run(&mut alone, &[*scene]).unwrap().remove(0)).collect();
        let mut together = device(config, precision);
        for n in [3, 2] {
            let got = run(&mut together, &all[3 - n..]).unwrap();
            assert!(got == expected[3 - n..], "{n} scenes, {precision:?}");
        }
        // A single one after them is as before, too.
        together.run_while(&scenes[0], 3, &mut |_| true).unwrap();
        let last: Vec<Vec3> = (0..3).flat_map(|t| together.displacements(t)).copied().collect();
        assert_eq!(last, expected[0].0);
    }
}

/// A device that takes what one scene gave for another's.
struct Mixed(Rollout);

impl SideBySide for Mixed {
    fn run(&mut self, scenes: &[(&RolloutInput, usize)], steps: &mut [Steps]) -> crate::Result<()> {
        self.0.run(scenes, steps)?;
        if let [first, .., last] = steps {
            std::mem::swap(first, last);
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
    let mut check =
        |device: Box<dyn SideBySide>| probe_batch(&model, &mut cpu, &mut BatchRollout::new(device));
    check(Box::new(device(rollout, Precision::Half))).unwrap();
    let message = check(Box::new(Mixed(device(rollout, Precision::Half)))).unwrap_err();
    assert!(message.to_string().starts_with("mixed: computes other displacements"), "{message}");
}

#[test]
fn a_graph_is_captured_for_each_number_of_scenes_until_their_sizes_change() {
    let config = threes(8);
    let scenes = scenes([10, 5, 2], 3, 5);
    let all: Vec<_> = scenes.iter().map(|scene| (scene, 1)).collect();
    let small = with_bodies([9, 4, 1], 3);
    let mut rollout = device(config, Precision::Full);
    let mut captures = |scenes: &[_]| {
        run(&mut rollout, scenes).unwrap();
        rollout.counts().captures
    };
    // Eight places for five; they are more memory than any that come after.
    assert_eq!(captures(&all), 1);
    let counts = [3, 4, 5, 2, 3, 1, 5, 4].map(|n| captures(&all[..n]));
    assert_eq!(counts, [2, 2, 2, 3, 3, 4, 4, 4]);
    assert_eq!(captures(&[(&small, 1)]), 5);
    assert_eq!((captures(&all[..2]), captures(&all[..2])), (6, 6));
    // More memory than there was, in which nothing is any more what it was.
    let mut rollout = device(config, Precision::Full);
    let mut captures = |n: usize| {
        run(&mut rollout, &all[..n]).unwrap();
        rollout.counts()
    };
    let [first, second] = [captures(1), captures(2)];
    assert!(second.allocations > first.allocations);
    assert_eq!(captures(1), Counts { captures: 3, ..second });
    assert_eq!(captures(2), Counts { captures: 3, ..second });
}

#[test]
fn scenes_that_do_not_belong_together_are_refused_and_forgotten() {
    let config = threes(8);
    let mut rollout = device(config, Precision::Full);
    let scenes = scenes([10, 5, 2], 3, 2);
    let good = [(&scenes[0], 3), (&scenes[1], 2)];
    let expected = run(&mut rollout, &good).unwrap();
    let mut refused = |spoil: fn(&mut RolloutInput)| {
        let mut bad = scenes[1].clone();
        spoil(&mut bad);
        run(&mut rollout, &[(&scenes[0], 3), (&bad, 3)]).unwrap_err()
    };
    let error = refused(|bad| {
        bad.start.history_positions.pop();
        bad.start.history_colors.pop();
    });
    assert!(error.to_string().contains("tokens of each scene"), "{error}");
    assert!(matches!(refused(|bad| bad.kinematic.truncate(4)), Error::Shape { .. }));
    let error = refused(|bad| bad.start.positions[7][1] = f32::NAN);
    assert!(matches!(error, Error::NonFinite { .. }), "{error}");
    assert!(run(&mut rollout, &[]).unwrap().is_empty());
    assert_eq!(run(&mut rollout, &good).unwrap(), expected);

    let mut rollout = BatchRollout::new(Box::new(rollout));
    let many = vec![(&scenes[0], 3); BatchRollout::MAX_SCENES + 1];
    let refused = rollout.run(&many).unwrap_err();
    assert!(matches!(refused, Error::Shape { what: "scenes of a batch", .. }), "{refused}");
}

#[test]
fn rollouts_of_many_scenes_are_the_cpus_however_many_steps_each_has() {
    let config = RolloutConfig { replan_interval: 1, ..threes(16) };
    let scenes = scenes([11, 5, 3], 8, 4);
    let mut rollout = BatchRollout::new(Box::new(device(config, Precision::Half)));
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    for n_steps in [[1, 4, 2, 3], [2, 2, 0, 5]] {
        let asked: Vec<_> = scenes.iter().zip(n_steps).collect();
        rollout.run(&asked).unwrap();
        for ((scene, n_steps), there) in asked.iter().zip(rollout.scenes()) {
            cpu.run(&weights(&config), scene, *n_steps).unwrap();
            for t in 0..*n_steps {
                let [got, expected] = [there.displacements(t), cpu.displacements(t)];
                // Each of up to five passes adds its own rounding: 4e-6 of a step's motion after the first
                // one, 4e-5 after the fourth, in full precision as on tensor cores.
                assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 1e-4);
                assert_close(there.sigmas(t).unwrap(), &f64s(cpu.sigmas(t).unwrap()), 1e-4);
            }
        }
    }
}

#[test]
fn a_batch_that_does_not_fit_is_halved_and_that_is_said() {
    if !has_faulty_cards() {
        return;
    }
    let config = config(8, 2, 1);
    let scenes = scenes([20, 5, 2], 3, 9);
    let all: Vec<_> = scenes.iter().map(|scene| (scene, 2)).collect();
    let expected = run(&mut device(config, Precision::Full), &all).unwrap();
    let mut small = Rollout::new(open(4), config, &weights(&config), Precision::Full).unwrap();
    assert_eq!(SideBySide::name(&small), "cuda:4 (Stand-in of a small memory)");
    assert_eq!(run(&mut small, &all).unwrap(), expected);
    let name = SideBySide::name(&small).to_owned();
    assert!(name.ends_with("4 scenes at once: its memory has no room for more"), "{name}");
    // It does not try again.
    let counts = small.counts();
    assert_eq!(run(&mut small, &all[..4]).unwrap(), expected[..4]);
    assert_eq!(small.counts().allocations, counts.allocations);
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

/// A device that is lost after `n_runs`; until then all particles of a scene move by what `of` makes of it.
struct Played {
    n_runs: usize,
    of: fn(&RolloutInput) -> f32,
}

impl SideBySide for Played {
    fn run(&mut self, scenes: &[(&RolloutInput, usize)], steps: &mut [Steps]) -> crate::Result<()> {
        if self.n_runs == 0 {
            return Err(Error::Device { device: "lost".into(), problem: "fell off".into() });
        }
        self.n_runs -= 1;
        for (&(scene, n_steps), steps) in scenes.iter().zip(steps) {
            let moved = vec![[(self.of)(scene); 3]; scene.start.positions.len()];
            (0..n_steps).for_each(|t| steps.set_displacements(t, &moved));
        }
        Ok(())
    }

    fn name(&self) -> &str {
        "played"
    }
}

/// One on which nothing moves.
fn lost(n_runs: usize) -> Box<Played> {
    Box::new(Played { n_runs, of: |_| 0.0 })
}

#[test]
fn where_auto_loses_its_card_between_batches_of_plans_the_cpu_judges_all_of_them() {
    let (snapshot, goal, plans) = plans(3);
    let judge = snapshot.judge(&goal).unwrap();
    // Several batches, so that another one is under way then.
    let plans: Vec<Candidate> = plans.into_iter().cycle().take(150).collect();
    let costs = |candidates: &mut Candidates| {
        candidates.evaluate(&snapshot, &judge, &plans, || true).map(|costs| numbers(&costs))
    };
    let expected = costs(&mut Candidates::new(1).unwrap()).unwrap();
    for n_runs in [0, 1, 2] {
        let mut auto = Candidates::opened(Device::Auto, &snapshot, lost(n_runs)).unwrap();
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
    let of = |scene: &RolloutInput| {
        let robot = scene.kinematic.iter().flatten().flatten();
        0.01 * robot.sum::<f32>().sin()
    };
    let summing = Played { n_runs: usize::MAX, of };
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
