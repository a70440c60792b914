//! Training on a small recording: the loss falls, a resumed run is the same run, threads do not
//! matter.

use std::path::Path;

use forecloud::engine::graph::EdgeWeights;
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig};
use forecloud::engine::model::{
    FeatureMap, GlobalLayer, LayersConfig, LocalLayer, MaskConfig, Mode, Model, ModelConfig,
    Rollout,
};
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::FramesConfig;
use forecloud_lab::layers::{MESSAGE_PASSING, SOFTMAX};
use forecloud_train::config::{DatasetConfig, TrainConfig};
use forecloud_train::dataset::{Dataset, Window};
use forecloud_train::trainer::Trainer;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn model() -> ModelConfig {
    ModelConfig {
        width: 16,
        n_heads: 2,
        n_blocks: 1,
        n_particles: 512,
        n_history: 128,
        n_motion: 2048,
        n_kinematic: 64,
        ..ModelConfig::default()
    }
}

fn config(steps: u64) -> TrainConfig {
    let curriculum = vec![(0.0, 1), (0.5, 2)];
    TrainConfig { steps, warm_up: 5, curriculum, learning_rate: 3e-3, ..TrainConfig::default() }
}

fn data() -> Dataset {
    let mut data = Dataset::new(DatasetConfig::default(), model(), FramesConfig::default());
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    assert!(data.add(&path, "test").unwrap(), "the recording says that it is for tests");
    assert!(!data.add(&path, "train").unwrap(), "and is left out of training");
    data
}

/// As the predictor tells it to the model: see docs/src/notebook/accuracy.md, "Where the scene lies".
#[test]
fn a_scene_that_lies_elsewhere_is_told_as_if_it_lay_in_the_models_box() {
    let windows = |workspace| {
        let model = ModelConfig { workspace, ..model() };
        let mut data = Dataset::new(DatasetConfig::default(), model, FramesConfig::default());
        let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
        assert!(data.add(&path, "test").unwrap());
        let (mut rng, mut window) = (ChaCha8Rng::seed_from_u64(1), Window::default());
        assert!(data.get(0, &mut rng, 1, &mut window));
        window
    };
    let mut workspace = Workspace::default();
    let here = windows(workspace);
    for corner in [&mut workspace.min, &mut workspace.max] {
        (corner[0], corner[1]) = (corner[0] + 50.0, corner[1] - 20.0);
    }
    let there = windows(workspace);
    let middle = |positions: &[[f32; 3]], axis: usize| {
        positions.iter().map(|x| x[axis]).sum::<f32>() / positions.len() as f32
    };
    type Part = fn(&Window) -> Vec<[f32; 3]>;
    let parts: [Part; 3] =
        [|w| w.scene.start.positions.clone(), |w| w.targets[0].clone(), |w| w.back.clone()];
    for of in parts {
        for (axis, moved) in [50.0, -20.0, 0.0].into_iter().enumerate() {
            let by = middle(&of(&there), axis) - middle(&of(&here), axis);
            assert!((by - moved).abs() < 0.4, "axis {axis}: moved by {by} m");
        }
    }
    // The robot with it, and the motions as they were.
    let robot = |window: &Window, axis| middle(&window.scene.kinematic[1], axis);
    let by = [0, 1, 2].map(|axis| robot(&there, axis) - robot(&here, axis));
    let scene = [0, 1].map(|axis| {
        middle(&there.scene.start.positions, axis) - middle(&here.scene.start.positions, axis)
    });
    assert!((by[0] - scene[0]).abs() < 0.2 && (by[1] - scene[1]).abs() < 0.2, "{by:?} {scene:?}");
    let fastest = |window: &Window| {
        let ways = window.targets[0].iter().zip(&window.scene.start.positions);
        ways.map(|(to, from)| (0..3).map(|i| (to[i] - from[i]).powi(2)).sum::<f32>().sqrt())
            .fold(0.0, f32::max)
    };
    assert!((fastest(&here) - fastest(&there)).abs() < 0.1, "of what is seen");
}

/// Six frames, twice as often as steps: the points of every second one are kept, and all tell where
/// bodies are.
#[test]
fn frames_between_steps_start_no_windows() {
    let model = ModelConfig { step_secs: 0.2, ..model() };
    let mut data = Dataset::new(DatasetConfig::default(), model, FramesConfig::default());
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    assert!(data.add(&path, "test").unwrap());
    // The third frame alone has one a step before it and one a step after it.
    let skipped = data.skipped();
    assert_eq!((data.n_windows(), skipped.without_before, skipped.without_after), (1, 1, 1));
}

/// Passes of two steps learn as well, and to tell particles apart by how sure they are.
#[test]
fn a_model_of_chunks_learns_motions_and_how_sure_it_is() {
    let model = model().with_steps_per_pass(2);
    let mut data = Dataset::new(DatasetConfig::default(), model, FramesConfig::default());
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    assert!(data.add(&path, "test").unwrap());
    let curriculum = vec![(0.0, 3)];
    let mut trainer = Trainer::new(TrainConfig { curriculum, ..config(60) }, model).unwrap();
    let losses: Vec<f64> = (0..60).map(|_| trainer.step(&data).unwrap().loss_mm).collect();
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean(&losses[50..]) < 0.7 * mean(&losses[..10]), "{losses:?}");
    let trained = trainer.model().unwrap();
    let (mut rng, mut window) = (ChaCha8Rng::seed_from_u64(1), Window::default());
    assert!(data.get(0, &mut rng, 3, &mut window));
    let mut rollout = Rollout::new(trained.config.rollout(), Mode::Inference);
    rollout.run(&trained.weights, &window.scene, 3).unwrap();
    // It began with 5 mm for every particle, and tells them apart by now.
    let sigmas = rollout.sigmas(0).unwrap();
    let (least, most) = sigmas.iter().fold((1.0f32, 0.0f32), |(a, b), &s| (a.min(s), b.max(s)));
    assert!(least > 0.0 && most < 1.0 && most > 1.05 * least, "{least} {most}");
}

/// Windows that all are led on teach: the loss of the second pass falls.
#[test]
fn second_looks_teach_the_second_pass() {
    let model = model().with_steps_per_pass(2);
    let settings = DatasetConfig { max_horizon: 3, ..DatasetConfig::default() };
    let mut data = Dataset::new(settings, model, FramesConfig::default());
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    assert!(data.add(&path, "test").unwrap());
    let run = |second_looks: f64| {
        let curriculum = vec![(0.0, 2)];
        let config = TrainConfig { curriculum, second_looks, ..config(60) };
        let mut trainer = Trainer::new(config, model).unwrap();
        (0..60).map(|_| trainer.step(&data).unwrap().loss_mm).collect::<Vec<f64>>()
    };
    let (without, all) = (run(0.0), run(1.0));
    // The first step, of the same weights, is of other windows.
    assert_ne!(without[0], all[0]);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean(&all[50..]) < 0.7 * mean(&all[..10]), "{all:?}");
}

#[test]
fn the_loss_falls() {
    let data = data();
    assert_eq!((data.n_recordings(), data.n_windows()), (1, 4));
    let mut trainer = Trainer::new(config(120), model()).unwrap();
    let before = trainer.validate(&data, 4, 1).unwrap();
    for _ in 0..120 {
        trainer.step(&data).unwrap();
    }
    let after = trainer.validate(&data, 4, 1).unwrap();
    let [first, last] = [before, after].map(|it| it.moving_1_mm.unwrap());
    assert!(last < 0.8 * first, "{before:?} -> {after:?}");
}

#[test]
fn a_widened_model_goes_on_where_the_narrow_one_ended() {
    let data = data();
    let mut narrow = Trainer::new(config(40), model()).unwrap();
    for _ in 0..40 {
        narrow.step(&data).unwrap();
    }
    let wide = narrow.model().unwrap().widened(32, 3).unwrap();
    let mut trainer = Trainer::fine_tune(config(60), wide).unwrap();
    let ended = narrow.validate(&data, 4, 2).unwrap();
    let started = trainer.validate(&data, 4, 2).unwrap();
    for (ended, started) in [
        (ended.moving_1_mm, started.moving_1_mm),
        (ended.moving_last_mm, started.moving_last_mm),
        (ended.static_1_mm, started.static_1_mm),
    ] {
        let (ended, started) = (ended.unwrap(), started.unwrap());
        assert!((ended - started).abs() < 1e-2 * ended, "{ended} -> {started} mm");
    }
    for _ in 0..60 {
        trainer.step(&data).unwrap();
    }
    let trained = trainer.validate(&data, 4, 1).unwrap();
    assert!(
        trained.moving_1_mm.unwrap() < started.moving_1_mm.unwrap(),
        "{started:?} -> {trained:?}"
    );
}

#[test]
fn a_resumed_run_is_the_same_run_to_the_bit() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let checkpoint = folder.path().join("checkpoint.safetensors");
    let mut whole = Trainer::new(config(12), model()).unwrap();
    let mut losses = Vec::new();
    for step in 0..12 {
        losses.push(whole.step(&data).unwrap().loss_mm);
        if step == 4 {
            whole.save(&checkpoint).unwrap();
        }
    }
    let mut resumed = Trainer::resume(&checkpoint, &config(12), &model()).unwrap();
    assert_eq!(resumed.step_index(), 5);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for loss in &losses[5..] {
        assert_eq!(pool.install(|| resumed.step(&data)).unwrap().loss_mm, *loss);
    }
    assert_eq!(resumed.model().unwrap().hash, whole.model().unwrap().hash);

    // Other settings are another run; a checkpoint is a model too.
    let message = |result: Result<Trainer, forecloud::Error>| result.err().unwrap().to_string();
    let other = TrainConfig { seed: 1, batch: 3, ..config(12) };
    let told = message(Trainer::resume(&checkpoint, &other, &model()));
    assert!(told.contains("(batch: 2 there, 3 here; seed: 0 there, 1 here)"), "{told}");
    let wider = ModelConfig { width: 32, ..model() };
    let told = message(Trainer::resume(&checkpoint, &config(12), &wider));
    assert!(told.contains("(model.width: 16 there, 32 here)"), "{told}");
    assert_eq!(Model::load(&checkpoint).unwrap().config, model());

    // A model alone is no checkpoint.
    let alone = folder.path().join("alone.safetensors");
    whole.model().unwrap().save(&alone).unwrap();
    let told = message(Trainer::resume(&alone, &config(12), &model()));
    assert!(told.contains("is not a checkpoint"), "{told}");
}

#[test]
fn a_damaged_checkpoint_is_told_with_its_own_remedy() {
    let (folder, whole) =
        (tempfile::tempdir().unwrap(), Trainer::new(config(12), model()).unwrap());
    let checkpoint = folder.path().join("checkpoint.safetensors");
    whole.save(&checkpoint).unwrap();
    let bytes = std::fs::read(&checkpoint).unwrap();
    let told = |bytes: &[u8]| {
        std::fs::write(&checkpoint, bytes).unwrap();
        Trainer::resume(&checkpoint, &config(12), &model()).err().unwrap().to_string()
    };
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [&bytes[..bytes.len() / 2], &bytes[..100], &[], &flipped] {
        let told = told(damaged);
        assert!(told.contains("the checkpoint is damaged"), "{told}");
        assert!(told.contains("move it away") && told.contains("another --out"), "{told}");
        assert!(!told.contains("take a model file"), "{told}");
    }
    // Where the model is beside it, training can go on from that.
    let model = folder.path().join("model.safetensors");
    whole.model().unwrap().save(&model).unwrap();
    assert!(told(&bytes[..100]).contains(&format!("--from {}", model.display())));
}

#[test]
fn what_makes_no_sense_is_refused_before_training() {
    let key = |config: TrainConfig, model: ModelConfig| {
        Trainer::new(config, model).err().unwrap().to_string()
    };
    assert!(key(TrainConfig { batch: 0, ..config(1) }, model()).contains("train.batch"));
    let learning_rate = f32::NAN;
    let told = key(TrainConfig { learning_rate, ..config(1) }, model());
    assert!(told.contains("train.learning_rate: NaN is not in"), "{told}");
    let told = key(config(1), ModelConfig { n_particles: 0, ..model() });
    assert!(told.contains("model.n_particles"), "{told}");
    // Data without windows is an error, not a panic.
    let empty = Dataset::new(DatasetConfig::default(), model(), FramesConfig::default());
    assert!(Trainer::new(config(1), model()).unwrap().step(&empty).is_err());
    let nothing = Trainer::new(config(1), model()).unwrap().validate(&empty, 4, 1).unwrap();
    assert_eq!((nothing.n_windows, nothing.moving_1_mm), (0, None));
}

/// Models of other layers, and one of another mask.
fn others() -> Vec<ModelConfig> {
    let local = |local| LayersConfig { local, ..LayersConfig::default() };
    let global = |global| LayersConfig { global, ..LayersConfig::default() };
    let map = |feature_map| LayersConfig { feature_map, ..LayersConfig::default() };
    let layers = [
        local(MESSAGE_PASSING),
        local(LocalLayer::Linear),
        local(LocalLayer::None),
        global(SOFTMAX),
        global(GlobalLayer::None),
        LayersConfig { global: GlobalLayer::None, ..local(LocalLayer::None) },
        map(FeatureMap::Elu),
        map(FeatureMap::Squared),
        map(FeatureMap::Favor { n_features: 24, seed: 2 }),
    ];
    let walks = WalkConfig {
        sampler: Sampler::Repelling,
        n_walks: 6,
        halting: Halting::Probability { p_halt: 0.3, max_hops: 3 },
        importance: true,
    };
    let edge_weights = EdgeWeights::Distance { bandwidth_m: 0.05 };
    let mask = MaskConfig { edge_weights, walks: Some(walks), ..MaskConfig::default() };
    let mut all = vec![ModelConfig { mask, ..model() }];
    all.extend(layers.map(|layers| ModelConfig { layers, ..model() }));
    all
}

#[test]
fn models_of_other_layers_train_and_resume() {
    forecloud_lab::register();
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let checkpoint = folder.path().join("checkpoint.safetensors");
    for model in others() {
        let model = ModelConfig { n_blocks: 2, ..model };
        let mut whole = Trainer::new(config(60), model).unwrap();
        let before = whole.validate(&data, 4, 1).unwrap();
        let mut losses = Vec::new();
        for step in 0..8 {
            losses.push(whole.step(&data).unwrap().loss_mm);
            if step == 4 {
                whole.save(&checkpoint).unwrap();
            }
        }
        let after = whole.validate(&data, 4, 1).unwrap();
        assert!(
            after.moving_1_mm.unwrap() < before.moving_1_mm.unwrap(),
            "{:?}: {after:?}",
            model.layers
        );
        // With activations computed again in the backward pass, too.
        let resumed = Trainer::resume(&checkpoint, &config(60), &model).unwrap();
        let mut resumed = resumed.recompute();
        for loss in &losses[5..] {
            assert_eq!(resumed.step(&data).unwrap().loss_mm, *loss);
        }
        assert_eq!(resumed.model().unwrap().hash, whole.model().unwrap().hash);
        assert_eq!(Model::load(&checkpoint).unwrap().config, model);
        // Layers and mask belong to the run.
        let other = Trainer::resume(&checkpoint, &config(60), &self::model()).err().unwrap();
        assert!(other.to_string().contains("with other settings (model."), "{other}");
    }
}
