//! Recordings read into data sets: which, in which order, with what noise.

mod edited;

use std::path::{Path, PathBuf};

use edited::write_recording;
use forecloud::cloud::SensorNoise;
use forecloud::frames::FramesConfig;
use forecloud::model::ModelConfig;
use forecloud::recording::BodyKind;
use forecloud::train::dataset::{Dataset, DatasetConfig, Window};
use forecloud::train::reading::{Intake, LeftOut, read_recordings, recordings_in};
use rand::SeedableRng;

fn model() -> ModelConfig {
    ModelConfig { n_particles: 512, n_motion: 2048, n_kinematic: 64, ..ModelConfig::default() }
}

fn config(strength: f32) -> DatasetConfig {
    let noise = SensorNoise { strength, ..SensorNoise::default() };
    DatasetConfig { noise, ..DatasetConfig::default() }
}

fn empty(strength: f32) -> Dataset {
    Dataset::new(config(strength), model(), FramesConfig::default())
}

/// A folder of recordings of all kinds.
fn folder() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, split) in [
        ("a", "train"),
        ("b", "test"),
        ("c", "val"),
        ("d", "train"),
        ("e", "unseen"),
        ("f", "train"),
        ("g", "test"),
    ] {
        write_recording(&folder.path().join(name), split, |_| true);
    }
    let is_truth = |topic: &str| topic.starts_with("/truth");
    write_recording(&folder.path().join("h"), "train", |message| !is_truth(&message.topic));
    write_recording(&folder.path().join("i"), "train", |message| &*message.topic != "/tf_static");
    std::fs::write(folder.path().join("i/tiny_push.mcap"), "no recording").unwrap();
    let paths = recordings_in(folder.path()).unwrap();
    assert_eq!(paths.len(), 9);
    (folder, paths)
}

fn read(paths: &[PathBuf], max: Option<usize>, threads: usize) -> (Dataset, Dataset, LeftOut) {
    let (mut train, mut validation) = (empty(1.0), empty(1.0));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut intakes = [
        Intake { split: "train", max_recordings: max, data: &mut train },
        Intake { split: "val", max_recordings: None, data: &mut validation },
    ];
    let n_read = std::sync::atomic::AtomicUsize::new(0);
    let left_out = pool.install(|| {
        read_recordings(paths, &mut intakes, || {
            n_read.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })
    });
    assert_eq!(n_read.into_inner(), paths.len());
    (train, validation, left_out)
}

/// All windows of a step: particles, and where they go.
fn windows(data: &Dataset) -> Vec<Window> {
    let get = |index| {
        let (mut rng, mut window) = (rand_chacha::ChaCha8Rng::seed_from_u64(1), Window::default());
        assert!(data.get(index, &mut rng, 1, &mut window));
        window
    };
    (0..data.n_windows()).map(get).collect()
}

fn points(data: &Dataset) -> Vec<Vec<[f32; 3]>> {
    windows(data).into_iter().map(|window| window.scene.start.positions).collect()
}

#[test]
fn each_recording_goes_to_its_split_and_what_is_left_out_is_counted() {
    let (_folder, paths) = folder();
    let (train, validation, left_out) = read(&paths, None, 2);
    assert_eq!((train.n_recordings(), validation.n_recordings()), (3, 1));
    assert_eq!((train.n_windows(), validation.n_windows()), (12, 4));
    let splits: Vec<_> = left_out.other_splits.iter().map(|(s, n)| (s.as_str(), *n)).collect();
    assert_eq!(splits, [("test", 2), ("unseen", 1)]);
    assert_eq!((left_out.n_without_truth, left_out.n_surplus), (1, 0));
    let failed: Vec<&Path> = left_out.failed.iter().map(|(path, _)| path.as_path()).collect();
    assert_eq!(failed, [paths[8].as_path()]);
}

#[test]
fn the_order_is_that_of_the_paths_on_any_number_of_threads() {
    let (_folder, paths) = folder();
    let (one, three) = (read(&paths, None, 1), read(&paths, None, 3));
    assert_eq!(points(&one.0), points(&three.0));
    assert_eq!(points(&one.1), points(&three.1));
    // The recordings differ in their noise alone, so that another order would show.
    let points = points(&one.0);
    assert!(points[0] != points[4] && points[4] != points[8]);
    // One after the other, it is the same data set.
    let mut data = empty(1.0);
    for path in &paths[..8] {
        data.add(path, "train").unwrap();
    }
    assert_eq!(points, self::points(&data));
}

#[test]
fn no_more_recordings_than_asked_for_and_the_first_ones() {
    let (_folder, paths) = folder();
    let all = read(&paths, None, 2);
    let (train, validation, left_out) = read(&paths, Some(2), 2);
    assert_eq!((train.n_recordings(), validation.n_recordings()), (2, 1));
    assert_eq!(points(&train), points(&all.0)[..8]);
    assert_eq!(left_out.n_surplus, 1);
}

#[test]
fn noisy_points_go_where_their_bodies_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write_recording(&path, "train", |_| true);
    let read = |config: DatasetConfig| {
        let mut data = Dataset::new(config, model(), FramesConfig::default());
        assert!(data.add(&path, "train").unwrap());
        data
    };
    let fixed = |strength| DatasetConfig { varies_noise: false, ..config(strength) };
    let [clean, noisy] = [0.0, 1.0].map(|strength| read(fixed(strength)));
    assert_ne!(points(&clean), points(&noisy));
    assert_ne!(points(&noisy), points(&read(config(1.0))), "its strength is drawn");
    assert_eq!(points(&noisy), points(&read(fixed(1.0))));
    let mut n_moved = 0;
    for window in windows(&noisy) {
        let points = window.scene.start.positions.iter().zip(&window.targets[0]);
        for ((from, to), kind) in points.zip(&window.kinds) {
            match kind {
                BodyKind::Static => assert_eq!(from, to),
                _ => n_moved += usize::from(from != to),
            }
        }
    }
    assert!(n_moved > 100, "{n_moved}");
    // The table is at z = 0, and as rough as the noise is: millimetres, 1.1 m from the cameras.
    let roughness = |data: &Dataset| {
        let heights: Vec<f32> =
            points(data).concat().iter().map(|p| p[2]).filter(|z| z.abs() < 0.008).collect();
        (heights.iter().map(|z| z * z).sum::<f32>() / heights.len() as f32).sqrt()
    };
    let (clean, noisy) = (roughness(&clean), roughness(&noisy));
    assert!(clean < 0.001 && (0.0015..0.006).contains(&noisy), "{clean} {noisy}");
}
