//! Recordings read into data sets: which, in which order, with what noise.

use crate::edited;

use std::path::{Path, PathBuf};

use edited::write_recording;
use forecloud::engine::model::ModelConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::bag::recordings_below;
use forecloud_bag::recording::BodyKind;
use forecloud_train::config::DatasetConfig;
use forecloud_train::dataset::{Dataset, Window};
use forecloud_train::hold_out::HoldOut;
use forecloud_train::reading::{Cause, Intake, Reading, read_recordings};
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
    let paths = recordings_below(folder.path()).unwrap().recordings;
    assert_eq!(paths.len(), 9);
    (folder, paths)
}

fn read(paths: &[PathBuf], max: Option<usize>, threads: usize) -> (Dataset, Dataset, Reading) {
    let (mut train, mut validation) = (empty(1.0), empty(1.0));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut intakes = [
        Intake { split: "train", takes_unsaid: true, max_recordings: max, data: &mut train },
        Intake { split: "val", takes_unsaid: false, max_recordings: None, data: &mut validation },
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
    // Each is named, with the reason.
    let told: Vec<String> = left_out
        .left_out
        .iter()
        .map(|left_out| {
            let name = left_out.path.file_name().unwrap().to_string_lossy();
            match &left_out.cause {
                Cause::OtherSplit(split) => format!("{name}: {split}"),
                cause => format!("{name}: {}", format!("{cause:?}").split('(').next().unwrap()),
            }
        })
        .collect();
    assert_eq!(told, ["b: test", "e: unseen", "g: test", "h: NoTruth", "i: Unusable"]);
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
    let is_surplus = |cause: &Cause| matches!(cause, Cause::Surplus);
    let surplus = left_out.left_out.iter().filter(|left_out| is_surplus(&left_out.cause));
    let surplus: Vec<&Path> = surplus.map(|left_out| left_out.path.as_path()).collect();
    assert_eq!(surplus, [paths[5].as_path()]);
}

/// Recordings of which none says that it is for validation.
fn without_val(names: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        write_recording(&folder.path().join(name), "train", |_| true);
    }
    let paths = recordings_below(folder.path()).unwrap().recordings;
    (folder, paths)
}

#[test]
fn without_validation_recordings_a_share_is_held_out_by_name_and_seed() {
    let names = ["a", "b", "c", "d", "e"];
    let (_folder, paths) = without_val(&names);
    let held = |paths: &[PathBuf], share, seed| {
        let (mut train, mut validation, _) = read(paths, None, 2);
        assert_eq!(validation.n_recordings(), 0);
        let held = HoldOut { share, seed }.apply(&mut train, &mut validation).unwrap();
        let names = |data: &Dataset| -> Vec<String> {
            let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
            data.recordings().map(name).collect()
        };
        assert_eq!(names(&validation).len(), held.len());
        // None is in both, none is lost, and windows and counts are those of what is left.
        let mut all = [names(&train), names(&validation)].concat();
        all.sort_unstable();
        assert_eq!(all.len(), paths.len());
        assert_eq!(train.n_windows(), 4 * train.n_recordings());
        assert_eq!(train.skipped().without_before, train.n_recordings() as u64);
        assert_eq!(points(&validation).len(), 4 * held.len());
        names(&validation)
    };
    let two = held(&paths, 0.4, 7);
    assert_eq!(two.len(), 2);
    assert_eq!(held(&paths, 0.4, 7), two, "the same seed");
    assert!((0..20).any(|seed| held(&paths, 0.4, seed) != two), "another seed");
    // One at least, and one is left.
    assert_eq!((held(&paths, 0.001, 0).len(), held(&paths, 0.9, 0).len()), (1, 4));
    // Without one that is not held out, the same ones are.
    let others: Vec<PathBuf> =
        paths.iter().filter(|p| !two.iter().any(|name| p.ends_with(name))).cloned().collect();
    let fewer: Vec<PathBuf> = paths.iter().filter(|p| **p != others[0]).cloned().collect();
    assert_eq!(held(&fewer, 0.5, 7), two);
    // One recording can't serve both.
    let (mut train, mut validation, _) = read(&paths[..1], None, 1);
    let told = HoldOut::default().apply(&mut train, &mut validation).unwrap_err().to_string();
    assert!(told.contains("shorter than 30 s is too little") && told.contains("val"), "{told}");
}

#[test]
fn recordings_that_say_no_split_are_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    write_recording(&folder.path().join("a"), "", |_| true);
    let paths = recordings_below(folder.path()).unwrap().recordings;
    let (train, _, reading) = read(&paths, None, 1);
    assert_eq!((train.n_recordings(), reading.left_out.len()), (1, 0));
}

#[test]
fn damage_that_is_read_around_is_told_with_the_recording() {
    let (_folder, paths) = without_val(&["a", "b"]);
    let file = paths[1].join("tiny_push.mcap");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 40]).unwrap();
    let (train, _, reading) = read(&paths, None, 1);
    assert_eq!(train.n_recordings(), 2);
    assert!(reading.damage.iter().all(|(path, _)| *path == paths[1]), "{:?}", reading.damage);
    assert!(
        reading.damage.iter().any(|(_, what)| what.contains("cut off")),
        "{:?}",
        reading.damage
    );
    // Frames that are lost on reading are told, too.
    let folder = tempfile::tempdir().unwrap();
    write_recording(&folder.path().join("c"), "train", |message| {
        !(&*message.topic == "/truth/body_poses" && edited::frame_of(message) == 2)
    });
    let paths = recordings_below(folder.path()).unwrap().recordings;
    let (_, _, reading) = read(&paths, None, 1);
    let is_told =
        |(_, what): &(PathBuf, String)| what.contains("frames without true poses: 1; the first: ");
    assert!(reading.damage.iter().any(is_told), "{:?}", reading.damage);
}

#[test]
fn warnings_of_the_robots_description_are_counted_once_each() {
    let (folder, _) = without_val(&["a", "b"]);
    for name in ["c", "d"] {
        // Its root is no longer called as the world frame is.
        write_recording(&folder.path().join(name), "train", |message| {
            if &*message.topic == "/robot_description" {
                *message = edited::without_world(message);
            }
            true
        });
    }
    let paths = recordings_below(folder.path()).unwrap().recordings;
    let (train, _, reading) = read(&paths, None, 2);
    assert_eq!(train.n_recordings(), 4);
    let about: Vec<(&String, &usize)> =
        reading.robot_warnings.iter().filter(|(text, _)| text.contains("'world'")).collect();
    assert_eq!(about.len(), 1, "{:?}", reading.robot_warnings);
    assert_eq!(*about[0].1, 2);
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
