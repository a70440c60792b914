//! Roll-outs of one and of more steps a pass: their gradients, and that they repeat.

use super::*;
use crate::engine::model::tokens::tests::{ONE, THREE, state};
use crate::engine::model::weights::initial_weights;
use crate::engine::model::{LayersConfig, Layout, Model, ModelConfig};
use crate::engine::ops::check::numbers;
use crate::engine::rollout_input::StepState;

fn config() -> RolloutConfig {
    of_tokens(ONE, N_OUTPUTS)
}

/// Passes of two steps, of a model with the second inputs that tells sigma.
fn pairs() -> RolloutConfig {
    of_tokens(TokenConfig { steps_per_pass: 2, ..THREE }, N_OUTPUTS + 1)
}

fn of_tokens(tokens: TokenConfig, n_step_outputs: usize) -> RolloutConfig {
    let interlacer = InterlacerConfig {
        n_features: tokens.n_features(),
        width: 8,
        n_heads: 2,
        n_blocks: 1,
        k: 3,
        n_hops: 3,
        n_outputs: tokens.steps_per_pass * n_step_outputs,
        layers: super::super::LayersConfig::default(),
    };
    let mask = MaskConfig::default();
    RolloutConfig { interlacer, mask, tokens, replan_interval: tokens.steps_per_pass }
}

fn scene(n_steps: usize) -> RolloutInput {
    let start = state(12, 12, 6, 3);
    let kinematic = (0..n_steps + 2)
        .map(|t| start.kinematic[1].iter().map(|p| [p[0] + 0.01 * t as f32, p[1], p[2]]).collect())
        .collect();
    RolloutInput { start, kinematic, ..RolloutInput::default() }
}

fn weights(config: RolloutConfig) -> Vec<f32> {
    let mut weights = initial_weights(&Layout::new(config.interlacer), 5);
    weights.iter_mut().zip(numbers(1 << 16, 6)).for_each(|(w, r)| *w += 0.02 * r);
    weights
}

/// Σ over steps of targets · positions after the step.
fn objective(rollout: &Rollout, start: &[Vec3], targets: &[Vec<Vec3>]) -> f64 {
    let mut positions = start.to_vec();
    let mut total = 0.0;
    for (t, targets) in targets.iter().enumerate() {
        add(&mut positions, rollout.displacements(t));
        let (p, g) = (positions.as_flattened(), targets.as_flattened());
        total += p.iter().zip(g).map(|(p, g)| f64::from(*p) * f64::from(*g)).sum::<f64>();
    }
    total
}

/// Σ over steps of gradients · logarithms of the sigmas.
fn sigma_objective(rollout: &Rollout, d_log_sigmas: &[Vec<f32>]) -> f64 {
    let of_step = |(t, d): (usize, &Vec<f32>)| -> f64 {
        let sigmas = rollout.sigmas(t).unwrap();
        sigmas.iter().zip(d).map(|(sigma, d)| f64::from(sigma.ln()) * f64::from(*d)).sum()
    };
    d_log_sigmas.iter().enumerate().map(of_step).sum()
}

#[test]
fn backward_through_three_steps_is_the_finite_difference() {
    // A shorter step: octaves of 3 cm, three passes deep.
    check_gradient(config(), &[], 4e-6);
}

#[test]
fn backward_is_the_finite_difference_with_encodings_of_the_graph() {
    let tokens = TokenConfig { encodings: crate::engine::lab::encodings::BOTH, ..ONE };
    check_gradient(of_tokens(tokens, N_OUTPUTS), &[], 5e-5);
}

#[test]
fn backward_through_passes_of_two_steps_is_too_and_teaches_sigma() {
    // The third step is the first of the second pass, whose other one nobody asked for.
    let d_log_sigmas: Vec<Vec<f32>> = (0..3).map(|t| numbers(12, 90 + t)).collect();
    check_gradient(pairs(), &d_log_sigmas, 1e-5);
}

fn check_gradient(config: RolloutConfig, d_log_sigmas: &[Vec<f32>], step: f32) {
    let (scene, mut weights) = (scene(4), weights(config));
    let targets: Vec<Vec<Vec3>> = (0..3)
        .map(|t| numbers(36, 50 + t).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect())
        .collect();
    let mut rollout = Rollout::new(config, Mode::Training);
    rollout.run(&weights, &scene, 3).unwrap();
    let layout = Layout::new(config.interlacer);
    let mut gradients = Gradients::new(&layout);
    rollout.backward(&weights, &targets, d_log_sigmas, &mut gradients).unwrap();
    let mut gradient = vec![0.0; layout.n_params()];
    gradients.add_to(&mut gradient);

    // Along random directions, those left out on which a neighbour changes: a jump, not a slope.
    let topology = |rollout: &Rollout| -> Vec<Vec<u32>> {
        let n = rollout.passes.all[0].tokens.positions.len();
        let neighbors = |graph: &StepGraph| {
            (0..n).flat_map(|i| graph.knn.neighbors(i).to_vec()).collect::<Vec<_>>()
        };
        rollout.graphs.iter().map(neighbors).collect()
    };
    let start = weights.clone();
    let (mut errors, mut total) = (Vec::new(), 0.0);
    for seed in 0..40 {
        let direction = numbers(weights.len(), 70 + seed);
        let mut at = |sign: f32| {
            for (w, (s, d)) in weights.iter_mut().zip(start.iter().zip(&direction)) {
                *w = s + sign * step * d;
            }
            rollout.run(&weights, &scene, 3).unwrap();
            let objective = objective(&rollout, &scene.start.positions, &targets);
            (objective + sigma_objective(&rollout, d_log_sigmas), topology(&rollout))
        };
        let ((above, graph_above), (below, graph_below)) = (at(1.0), at(-1.0));
        if graph_above != graph_below {
            continue;
        }
        let numeric = (above - below) / f64::from(2.0 * step);
        let exact: f64 =
            gradient.iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
        errors.push((exact - numeric).powi(2));
        total += numeric.powi(2);
    }
    // ReLU's kinks, nearest points of the robot that change, and f32 leave a little: much on a few
    // directions. A term that lacks would be seen on most.
    let n_compared = errors.len();
    errors.sort_by(f64::total_cmp);
    let median = errors[n_compared / 2];
    let relative = (median / (total / n_compared as f64)).sqrt();
    assert!(relative < 0.02, "relative error {relative} over {n_compared} directions");
    assert!(n_compared >= 5, "{n_compared} directions compared");
}

#[test]
fn a_pass_of_two_steps_goes_on_where_one_of_two_ended() {
    let (config, scene) = (pairs(), scene(4));
    let weights = weights(config);
    let mut rollout = Rollout::new(config, Mode::Inference);
    rollout.run(&weights, &scene, 4).unwrap();
    let all: Vec<_> = (0..4).map(|t| rollout.displacements(t).to_vec()).collect();
    assert!(all[0] != all[1] && all[1] != all[2]);
    let [first, second] = [&rollout.passes.all[0], &rollout.passes.all[1]];
    let starts = first.state.positions.iter().zip(&second.state.positions);
    for (i, (start, end)) in starts.enumerate() {
        for axis in 0..3 {
            assert_eq!(start[axis] + all[0][i][axis] + all[1][i][axis], end[axis]);
        }
    }
    assert_eq!(second.state.velocities, all[1]);
    // One step back from there.
    let back = first.state.positions[0];
    let back: Vec3 = std::array::from_fn(|axis| back[axis] + all[0][0][axis]);
    assert_eq!(second.state.history_positions[0], back);
    // Fewer steps are the same ones, and what ends early ends behind a pass.
    rollout.run(&weights, &scene, 3).unwrap();
    assert!((0..3).all(|t| rollout.displacements(t) == all[t]) && rollout.n_steps() == 3);
    rollout.run_while(&weights, &scene, 4, |n_done| n_done < 2).unwrap();
    assert_eq!(rollout.n_steps(), 2);
    let sigmas = rollout.sigmas(1).unwrap();
    assert!(sigmas.len() == 12 && sigmas.iter().all(|s| (1e-5..1.0).contains(s)), "{sigmas:?}");
    let short = RolloutInput { kinematic: scene.kinematic[..5].to_vec(), ..scene };
    assert!(rollout.run(&weights, &short, 3).is_err(), "the plan ends within the last pass");
}

#[test]
fn a_pass_that_looks_again_starts_within_the_one_before() {
    let whole = of_tokens(TokenConfig { steps_per_pass: 4, ..THREE }, N_OUTPUTS + 1);
    let (again, scene) = (RolloutConfig { replan_interval: 2, ..whole }, scene(8));
    let weights = weights(whole);
    let run = |config: RolloutConfig, mode: Mode, n_steps: usize| {
        let mut rollout = Rollout::new(config, mode);
        rollout.run(&weights, &scene, n_steps).unwrap();
        rollout
    };
    let (once, twice) = (run(whole, Mode::Inference, 4), run(again, Mode::Inference, 6));
    let moved = |rollout: &Rollout, t: usize| rollout.displacements(t).to_vec();
    assert!((0..2).all(|t| moved(&once, t) == moved(&twice, t)));
    // From where the first two steps lead, with the plan from there on.
    let second = &twice.passes.all[1].state;
    let mut ends = scene.start.positions.clone();
    (0..2).for_each(|t| add(&mut ends, twice.displacements(t)));
    assert_eq!(second.positions, ends);
    assert_eq!(second.velocities, moved(&twice, 1));
    assert_eq!(second.kinematic, scene.kinematic[2..8]);
    assert!((2..4).all(|t| moved(&once, t) != moved(&twice, t)));
    assert_eq!(moved(&twice, 3), twice.passes.all[1].displacements[1]);
    assert_eq!(moved(&twice, 5), twice.passes.all[2].displacements[1]);
    // How sure it is, the pass says that looked at a step first.
    assert!((0..4).all(|t| once.sigmas(t).unwrap() == twice.sigmas(t).unwrap()));
    assert_eq!(twice.sigmas(5).unwrap(), twice.passes.all[1].sigmas[3]);
    // All steps of a pass are to be learned.
    let training = run(again, Mode::Training, 4);
    assert!((0..4).all(|t| moved(&once, t) == moved(&training, t)));
    // What is known ends where the next pass would have begun, and the plan must reach to its end.
    let mut short = run(again, Mode::Inference, 2);
    short.run_while(&weights, &scene, 6, |n_done| n_done < 2).unwrap();
    assert_eq!(short.n_steps(), 2);
    let rows =
        |n: usize| RolloutInput { kinematic: scene.kinematic[..n].to_vec(), ..scene.clone() };
    assert!(short.run(&weights, &rows(8), 4).is_ok() && short.run(&weights, &rows(7), 4).is_err());
}

#[test]
fn a_widened_model_predicts_the_same_and_its_copies_learn_apart() {
    let config = ModelConfig { width: 8, n_heads: 2, n_blocks: 2, ..ModelConfig::default() };
    let layout = Layout::new(config.interlacer());
    let mut weights = initial_weights(&layout, 5);
    weights.iter_mut().zip(numbers(1 << 16, 6)).for_each(|(w, r)| *w += 0.1 * r);
    let narrow = Model::new(config, weights).unwrap();
    let wide = narrow.widened(24, 1).unwrap();
    let n_steps = config.steps_per_pass;
    let scene = scene(n_steps);
    let run = |model: &Model| {
        let mut rollout = Rollout::new(model.config.rollout(), Mode::Training);
        rollout.run(&model.weights, &scene, n_steps).unwrap();
        rollout
    };
    let (before, mut after) = (run(&narrow), run(&wide));
    for t in 0..n_steps {
        let pairs = before.displacements(t).iter().zip(after.displacements(t));
        for (before, after) in pairs {
            let error = (0..3).map(|a| (before[a] - after[a]).abs()).fold(0.0, f32::max);
            assert!(error < 1e-5, "{before:?} {after:?} at step {t}");
        }
    }
    let layout = Layout::new(wide.config.interlacer());
    let mut gradients = Gradients::new(&layout);
    after
        .backward(&wide.weights, &vec![vec![[0.3, -0.2, 0.1]; 12]; n_steps], &[], &mut gradients)
        .unwrap();
    let mut gradient = vec![0.0; layout.n_params()];
    gradients.add_to(&mut gradient);
    let embed = layout.embed.weight.of(&gradient);
    let alike = embed.chunks_exact(3).filter(|g| g[0] == g[1] && g.iter().any(|g| *g != 0.0));
    assert_eq!(alike.count(), 0, "copies that get one gradient stay copies");

    let refuse = |model: &Model, width: usize, reason: &str| {
        let message = model.widened(width, 0).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    };
    refuse(&narrow, 12, "12 is no multiple of the model's 8");
    refuse(&narrow, 0, "no multiple");
    let softmax =
        LayersConfig { global: crate::engine::lab::layers::SOFTMAX, ..LayersConfig::default() };
    let softmax = ModelConfig { layers: softmax, ..config };
    refuse(&Model::new(softmax, narrow.weights.clone()).unwrap(), 16, "layers.global");
}

#[test]
fn an_extended_model_starts_from_what_was_learned() {
    let config = ModelConfig { width: 8, n_heads: 2, n_blocks: 2, ..ModelConfig::default() };
    let config = config.with_steps_per_pass(1);
    let mut weights = initial_weights(&Layout::new(config.interlacer()), 5);
    weights.iter_mut().zip(numbers(1 << 16, 6)).for_each(|(w, r)| *w += 0.1 * r);
    let model = Model::new(config, weights).unwrap();
    let scene = scene(7);
    let first_pass = |model: &Model, scene: &RolloutInput| {
        let mut rollout = Rollout::new(model.config.rollout(), Mode::Inference);
        rollout.run(&model.weights, scene, model.config.steps_per_pass).unwrap();
        let steps = (0..model.config.steps_per_pass).map(|t| rollout.displacements(t).to_vec());
        steps.collect::<Vec<_>>()
    };
    let differs = |a: &[Vec3], b: &[Vec3]| {
        let pairs = a.as_flattened().iter().zip(b.as_flattened());
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    let stays = model.extended(1).unwrap();
    assert_eq!((stays.config, &stays.weights), (model.config, &model.weights));
    // Without a robot no token is of another time: each step is the learned one, from the same start,
    // where free fall does not differ between steps.
    let alone = RolloutInput {
        start: StepState { kinematic_links: Vec::new(), ..scene.start.clone() },
        kinematic: vec![Vec::new(); 9],
        ..scene.clone()
    };
    let long = model.extended(3).unwrap();
    let steps = first_pass(&long, &alone);
    assert!(differs(&first_pass(&model, &alone)[0], &steps[0]) < 1e-6);
    assert!(differs(&steps[0], &steps[2]) > 1e-4, "in free fall longer");
    // Where a pass is looked again belongs to its length.
    let config = ModelConfig { replan_interval: Some(1), ..long.config };
    let again = Model::new(config, long.weights.clone()).unwrap();
    let replan_interval =
        |steps_per_pass| again.extended(steps_per_pass).unwrap().config.replan_interval;
    assert_eq!([3, 5, 6].map(replan_interval), [Some(1), None, Some(3)]);
    // Longer still: what was learned of the first steps stays, the others begin as the last one.
    let mut long = long;
    long.weights.iter_mut().zip(numbers(1 << 16, 8)).for_each(|(w, r)| *w += 0.1 * r);
    let longer = long.extended(5).unwrap();
    let (before, after) = (first_pass(&long, &alone), first_pass(&longer, &alone));
    (0..3).for_each(|step| assert!(differs(&before[step], &after[step]) < 1e-6, "step {step}"));
    let bias = Layout::new(longer.config.interlacer()).head.bias;
    let bias = bias.of(&longer.weights);
    let steps: Vec<&[f32]> = bias.chunks_exact(bias.len() / 5).collect();
    assert!(steps[3] == steps[2] && steps[4] == steps[2] && steps[2] != steps[1]);
    assert!(long.extended(2).unwrap_err().to_string().contains("model.chunk"));
}

#[test]
fn recomputed_activations_give_the_same_gradients() {
    let scene = scene(3);
    let targets = vec![vec![[0.3, -0.2, 0.1]; 12]; 3];
    let gradients = |mode: Mode| {
        let mut rollout = Rollout::new(
            RolloutConfig {
                interlacer: InterlacerConfig { n_blocks: 3, ..config().interlacer },
                ..config()
            },
            mode,
        );
        let layout = rollout.engine.layout().clone();
        let mut weights = initial_weights(&layout, 5);
        weights.iter_mut().zip(numbers(1 << 16, 6)).for_each(|(w, r)| *w += 0.02 * r);
        let mut found = Vec::new();
        // A longer roll-out, a shorter one, and the longer one again.
        for n_steps in [3, 2, 3] {
            rollout.run(&weights, &scene, n_steps).unwrap();
            let mut gradients = Gradients::new(&layout);
            rollout.backward(&weights, &targets[..n_steps], &[], &mut gradients).unwrap();
            found.push(vec![0.0; layout.n_params()]);
            gradients.add_to(found.last_mut().unwrap());
        }
        found
    };
    let kept = gradients(Mode::Training);
    assert!(kept == gradients(Mode::TrainingRecompute));
    assert!(kept[0] == kept[2] && kept[0] != kept[1]);
}

#[test]
fn inference_equals_training_and_repeats() {
    let (scene, weights) = (scene(3), weights(config()));
    let mut training = Rollout::new(config(), Mode::Training);
    let mut inference = Rollout::new(config(), Mode::Inference);
    training.run(&weights, &scene, 3).unwrap();
    for _ in 0..2 {
        inference.run(&weights, &scene, 3).unwrap();
        (0..3).for_each(|t| assert_eq!(training.displacements(t), inference.displacements(t)));
    }
    assert!(inference.run(&weights, &scene, 4).is_err(), "the plan does not reach so far");
}
