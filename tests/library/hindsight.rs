//! Training on recordings without truth: what hindsight tells of them, and what `train` does with it.

use crate::edited;

use std::path::Path;

use forecloud::engine::model::ModelConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::BodyKind;
use forecloud_train::config::{DatasetConfig, Teacher, TrainConfig};
use forecloud_train::dataset::{Dataset, Window};
use forecloud_train::hold_out::HoldOut;
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

fn data() -> Dataset {
    let teacher = Teacher::Hindsight;
    let noise = SensorNoise { strength: 0.0, ..SensorNoise::default() };
    let config = DatasetConfig { teacher, noise, ..DatasetConfig::default() };
    let mut data = Dataset::new(config, model(), FramesConfig::default());
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    assert!(data.add(&path, "test").unwrap());
    data
}

fn distance_mm(a: &[f32; 3], b: &[f32; 3]) -> f64 {
    1e3 * (0..3).map(|i| f64::from(a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
}

/// Labels of a pushed block against the truth, which they were not told.
#[test]
fn labels_are_near_the_truth_where_they_are_sure() {
    let data = data();
    assert_eq!((data.n_in_hindsight(), data.n_windows()), (1, 4));
    let (mut told, mut truth) = (Window::default(), Window::default());
    let (mut error, mut moved, mut n, mut n_sure, mut robot) = (0.0, 0.0, 0, 0, 0);
    let (mut n_told, mut n_mistaken) = (0, 0);
    for index in 0..data.n_windows() {
        let rng = || ChaCha8Rng::seed_from_u64(7);
        assert!(data.get(index, &mut rng(), 1, &mut told));
        assert!(data.get_true(index, &mut rng(), 1, &mut truth));
        assert_eq!(told.scene.start.positions, truth.scene.start.positions);
        for i in 0..told.kinds.len() {
            let (from, to) = (&truth.scene.start.positions[i], &truth.targets[0][i]);
            if truth.kinds[i] == BodyKind::Robot && told.kinds[i] == BodyKind::Robot {
                robot += 1;
                assert!(distance_mm(&told.targets[0][i], to) < 3.0, "its joints tell where it is");
            }
            if told.moving[0][i] && told.weights[0][i] >= forecloud_train::flow_labels::SURE {
                n_told += 1;
                n_mistaken += usize::from(truth.kinds[i] == BodyKind::Robot);
            }
            if truth.moving[0][i] {
                n += 1;
                if told.weights[0][i] >= forecloud_train::flow_labels::SURE {
                    n_sure += 1;
                    error += distance_mm(&told.targets[0][i], to);
                    moved += distance_mm(from, to);
                }
            }
        }
    }
    assert!(n > 20 && n_sure * 2 > n && robot > 20, "{n} {n_sure} {robot}");
    assert!(error < 0.5 * moved, "off by {error} of {moved}");
    // A pushing hand is no object, though the estimate knows little of its bare links. Over whole recordings
    // it is 1 to 2 % (docs/src/notebook/teach.md); here every point is at the contact.
    assert!(n_told > 20 && 8 * n_mistaken < n_told, "{n_mistaken} of {n_told}");
}

#[test]
fn labels_are_the_same_on_any_number_of_threads() {
    let window = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (data, mut window) = (data(), Window::default());
            assert!(data.get(1, &mut ChaCha8Rng::seed_from_u64(7), 2, &mut window));
            (window.targets, window.weights)
        })
    };
    assert_eq!(window(1), window(3));
}

#[test]
fn hindsight_teaches_what_moves() {
    let data = data();
    let config = TrainConfig {
        steps: 40,
        warm_up: 5,
        curriculum: vec![(0.0, 1)],
        learning_rate: 3e-3,
        ..TrainConfig::default()
    };
    let mut trainer = Trainer::new(config, model()).unwrap();
    let losses: Vec<f64> = (0..40).map(|_| trainer.step(&data).unwrap().loss_mm).collect();
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..5]), mean(&losses[35..]));
    assert!(last < 0.8 * first, "{first} {last}");
}

#[test]
fn windows_that_reach_beyond_the_labels_are_refused() {
    let (data, mut window) = (data(), Window::default());
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    assert!(data.get(0, &mut rng, 4, &mut window));
    assert!(window.weights.len() == 4 && window.weights[3].len() == 512);
    assert!(!data.get(0, &mut rng, 5, &mut window), "the recording ends");
    assert_eq!((data.longest(9), data.n_active() > 0), (4, true));
}

/// A single long recording is cut, so that a part of it can be held out.
#[test]
fn a_long_recording_is_held_out_in_stretches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    edited::write_messages(&path, "", |message| {
        let has_header = edited::is_image(&message)
            || edited::is_info(&message)
            || ["/joint_states", "/planned_joints"].contains(&&*message.topic);
        match has_header {
            true => (0..4).map(|i| edited::later(&message, i * 20_000_000_000)).collect(),
            false if message.topic.starts_with("/truth") => Vec::new(),
            false => vec![message],
        }
    });
    let config = DatasetConfig { teacher: Teacher::Auto, ..DatasetConfig::default() };
    let empty = || Dataset::new(config, model(), FramesConfig::default());
    let (mut train, mut validation) = (empty(), empty());
    assert!(train.add(&path, "train").unwrap());
    assert_eq!((train.n_recordings(), train.n_windows()), (1, 16));
    let held = HoldOut { share: 0.4, seed: 1 }.apply(&mut train, &mut validation).unwrap();
    // Of three: the last one is too short to be one alone.
    assert_eq!((held.len(), train.n_recordings(), validation.n_recordings()), (1, 2, 1));
    assert!(held[0].starts_with("long (stretch "), "{held:?}");
    assert_eq!(
        train.n_windows() + validation.n_windows(),
        16,
        "nothing is lost, nothing is in both"
    );
    assert!([4, 8].contains(&validation.n_windows()));
}

/// Calibration asks where points of a frame go that are none of those that were followed.
#[test]
fn points_beside_those_that_are_followed_go_with_them() {
    let (data, mut window) = (data(), Window::default());
    assert!(data.get(1, &mut ChaCha8Rng::seed_from_u64(7), 2, &mut window));
    let recording = Path::new(crate::ROOT).join("tests/data/tiny_push");
    let recording =
        forecloud_bag::recording::Recording::open(&recording, FramesConfig::default()).unwrap();
    let mut told = Vec::new();
    recording
        .play(|frame, _| -> forecloud::Result<()> {
            let far = [[9.0, 9.0, 9.0]];
            told.push((frame.stamp, data.judge(frame.stamp, &far, 2)?));
            Ok(())
        })
        .unwrap();
    // The last frame has none after it; from the one before, one step is known.
    let steps: Vec<Option<usize>> =
        told.iter().map(|(_, told)| told.as_ref().map(|told| told.confidences.len())).collect();
    assert_eq!(steps, [Some(2), Some(2), Some(2), Some(2), Some(1), None]);
    for (_, told) in &told {
        let Some(told) = told else { continue };
        assert!(
            told.confidences.iter().all(|c| c[0] == 0.0),
            "nothing is known of what is far away"
        );
        assert_eq!(told.positions[0][0], [9.0, 9.0, 9.0]);
    }
}
