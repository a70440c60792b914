//! Recordings with gaps, repeated frames, cameras that fall out, and frames that can't be used:
//! what training and replay use of them, and how the rest is counted.

use crate::edited;

use edited::{
    frame_of, halve_image, halve_info, is_ids, is_image, is_info, is_of_camera, later,
    rename_encoding, write_messages, write_recording,
};
use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use forecloud::predict::config::PredictorConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::{FrameCounts, FramesConfig};
use forecloud_bag::bag::RawMessage;
use forecloud_bag::recording::{BodyKind, Recording};
use forecloud_eval::{Replay, Report};
use forecloud_train::config::DatasetConfig;
use forecloud_train::dataset::{Dataset, Window};
use forecloud_train::skipped::Skipped;
use rand::SeedableRng;
use std::path::Path;

const HORIZON: usize = 2;
/// Leaves cameras out that miss more than one frame.
const TIMEOUT_SECS: f64 = 0.12;
const POSES: &str = "/truth/body_poses";

fn model() -> Model {
    let config = ModelConfig {
        width: 16,
        n_blocks: 1,
        n_particles: 256,
        n_history: 128,
        n_motion: 1024,
        n_kinematic: 32,
        ..ModelConfig::default()
    };
    Model::new(config, initial_weights(&Layout::new(config.interlacer()), 1)).unwrap()
}

/// What training and replay make of a recording.
struct Outcome {
    data: Dataset,
    report: Report,
}

impl Outcome {
    fn of(frames: &FramesConfig, path: &Path) -> Self {
        let noise = SensorNoise { strength: 0.0, ..SensorNoise::default() };
        let config = DatasetConfig { noise, ..DatasetConfig::default() };
        let mut data = Dataset::new(config, model().config, frames.clone());
        assert!(data.add(path, "train").unwrap());
        let config = PredictorConfig { horizon: HORIZON, ..PredictorConfig::default() };
        let mut replay = Replay::new(model(), config, frames.clone(), None);
        replay.add(&Recording::open(path, frames.clone()).unwrap(), |_| {}).unwrap();
        Self { data, report: replay.report() }
    }

    /// Of the recording that `edit` makes of the messages.
    fn of_messages(edit: impl FnMut(RawMessage) -> Vec<RawMessage>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_messages(&folder.path().join("a"), "train", edit);
        Self::of(&FramesConfig::default(), &folder.path().join("a"))
    }

    fn of_edited(mut edit: impl FnMut(&mut RawMessage) -> bool) -> Self {
        Self::of_messages(|mut message| if edit(&mut message) { vec![message] } else { vec![] })
    }

    fn window(&self, index: usize, horizon: usize) -> Option<Window> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let mut window = Window::default();
        self.data.get(index, &mut rng, horizon, &mut window).then_some(window)
    }

    /// Windows, and frames that none starts at: for want of a frame before, because of other
    /// cameras there, and for want of a frame after.
    fn windows(&self) -> (usize, [u64; 3]) {
        let Skipped { without_before, other_cameras, without_after, .. } = self.data.skipped();
        (self.data.n_windows(), [*without_before, *other_cameras, *without_after])
    }

    /// Frames that training skips: without poses, without ids, unusable.
    fn skipped(&self) -> [u64; 3] {
        let Skipped { without_poses, without_ids, unusable, .. } = self.data.skipped();
        [*without_poses, *without_ids, *unusable]
    }

    /// Frames of the replay: all, predicted, held against the truth, without history.
    fn replayed(&self) -> [u64; 4] {
        let Report { n_frames, n_predicted, n_evaluated, n_without_history, .. } = self.report;
        [n_frames, n_predicted, n_evaluated, n_without_history]
    }

    /// What became of the messages, in both.
    fn messages(&self) -> FrameCounts {
        assert_eq!(self.data.skipped().messages, self.report.messages);
        self.report.messages
    }
}

fn assert_same(a: Option<Window>, b: Option<Window>) {
    let (a, b) = (a.expect("a window"), b.expect("a window"));
    assert_eq!(a.scene.start.positions, b.scene.start.positions);
    assert_eq!(a.scene.kinematic, b.scene.kinematic);
    assert_eq!((a.targets, a.back), (b.targets, b.back));
}

fn whole() -> Outcome {
    Outcome::of_messages(|message| vec![message])
}

/// Whether it is the camera's part of frame `i`, truth included.
fn is_of_frame(message: &RawMessage, i: i64) -> bool {
    is_of_camera(message, "camera_") && frame_of(message) == i
}

#[test]
fn a_recording_without_fault_is_used_as_far_as_it_reaches() {
    let whole = whole();
    assert_eq!(whole.windows(), (4, [1, 0, 1]));
    assert_eq!((whole.skipped(), whole.replayed()), ([0; 3], [6, 5, 5, 1]));
    assert_eq!(whole.messages(), FrameCounts { frames: 6, ..FrameCounts::default() });
    assert_eq!(whole.data.skipped().first, None);
    let text = whole.report.to_string();
    assert!(!text.contains("dropped") && !text.contains("skipped"), "{text}");
}

#[test]
fn no_window_and_no_prediction_reaches_over_a_gap() {
    let gap = Outcome::of_edited(|message| !is_of_frame(message, 3));
    assert_eq!(gap.windows(), (1, [2, 0, 2]));
    assert_eq!(gap.replayed(), [5, 3, 3, 2]);
    assert_same(gap.window(0, 1), whole().window(0, 1));
    assert!(gap.window(0, 2).is_none() && gap.window(0, 3).is_none());
}

#[test]
fn a_frame_nearly_repeated_makes_up_for_no_gap() {
    // Frames 0, 1, 2, 2 again, 4, 5: as many as steps, and the last is in time.
    let gap = Outcome::of_messages(|message| match is_of_camera(&message, "camera_") {
        true if frame_of(&message) == 3 => vec![later(&message, -99_000_000)],
        _ => vec![message],
    });
    assert_eq!((gap.windows(), gap.replayed()), ((1, [2, 0, 2]), [6, 4, 4, 2]));
    assert!(gap.window(0, 1).is_some() && gap.window(0, 3).is_none());
}

#[test]
fn frames_repeated_with_the_same_stamp_are_used_once_and_told() {
    let twice = Outcome::of_messages(|message| match is_image(&message) {
        true if frame_of(&message) == 2 => vec![message.clone(), message],
        _ => vec![message],
    });
    assert_eq!((twice.windows(), twice.replayed()), ((4, [1, 0, 1]), [6, 5, 5, 1]));
    assert_eq!(twice.messages(), FrameCounts { frames: 6, bad_messages: 4, ..Default::default() });
    let whole = whole();
    (0..4).for_each(|i| assert_same(twice.window(i, 1), whole.window(i, 1)));
    let (text, first) = (twice.report.to_string(), twice.data.skipped().first.clone());
    assert!(text.contains("messages that can't be used: 4"), "{text}");
    assert!(text.contains("came twice") && first.unwrap().contains("came twice"), "{text}");
}

#[test]
fn frames_repeated_with_nearly_the_same_stamp_are_no_step() {
    let twice = Outcome::of_messages(|message| match is_of_camera(&message, "camera_") {
        true if frame_of(&message) == 2 => vec![message.clone(), later(&message, 1_000_000)],
        _ => vec![message],
    });
    assert_eq!((twice.windows(), twice.replayed()), ((4, [1, 0, 1]), [7, 6, 6, 1]));
    // The frames around it have the history, the velocities and the truth that they had.
    let whole = whole();
    (0..4).for_each(|i| assert_same(twice.window(i, 1), whole.window(i, 1)));
    assert_same(twice.window(0, 4), whole.window(0, 4));
}

/// The recording twice, one after the other, and `edit`ed.
fn long(folder: &Path, mut edit: impl FnMut(&RawMessage) -> bool) {
    write_messages(folder, "train", |message| {
        let once = ["/robot_description", edited::BODIES, "/tf", "/tf_static"];
        let again = (!once.contains(&&*message.topic)).then(|| later(&message, 600_000_000));
        [message].into_iter().chain(again).filter(|message| edit(message)).collect()
    });
}

#[test]
fn frames_of_other_cameras_are_no_history_while_a_camera_falls_out_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let frames = FramesConfig { camera_timeout_secs: TIMEOUT_SECS, ..FramesConfig::default() };
    long(folder.path(), |message| {
        !is_of_camera(message, "camera_right") || !(3..8).contains(&frame_of(message))
    });
    let outcome = Outcome::of(&frames, folder.path());
    // Frame 3 still waits for the right camera, which is taken back at frame 10. A window may end
    // with other cameras: it starts at frame 9.
    let messages = outcome.messages();
    assert_eq!((messages.frames, messages.frames_without_camera), (11, 6), "{messages:?}");
    assert_eq!(messages.cameras_left_out, 1);
    assert_eq!(outcome.windows(), (6, [2, 1, 2]));
    assert_eq!(outcome.replayed(), [11, 8, 8, 3]);
    assert_eq!(outcome.report.n_other_cameras, 1);
    let text = outcome.report.to_string();
    for part in ["3 without a frame one step back (1 with one of other", "6 with a camera missing"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn images_that_a_camera_leaves_without_partners_are_counted() {
    let outcome = Outcome::of_edited(|message| {
        !is_of_camera(message, "camera_right") || frame_of(message) < 3
    });
    let messages = outcome.messages();
    assert_eq!((messages.frames, messages.dropped_unpaired), (3, 6), "{messages:?}");
    assert_eq!((outcome.windows(), outcome.replayed()), ((1, [1, 0, 1]), [3, 2, 2, 1]));
    let text = outcome.report.to_string();
    assert!(text.contains("images without partners: 6") && text.contains("'camera_right'"));
}

/// Halves the images of `is_changed` topics from frame 3 on.
fn smaller(is_changed: fn(&RawMessage) -> bool) -> Outcome {
    Outcome::of_edited(|message| {
        let is_late = is_of_camera(message, "camera_") && frame_of(message) >= 3;
        match is_late && is_changed(message) {
            true if is_info(message) => halve_info(message),
            true => halve_image(message),
            false => {}
        }
        true
    })
}

fn share(window: &Window, kind: BodyKind) -> f64 {
    let n = window.kinds.iter().filter(|other| **other == kind).count();
    n as f64 / window.kinds.len() as f64
}

#[test]
fn all_is_used_where_the_calibration_changes_with_the_resolution() {
    let (outcome, whole) = (smaller(|_| true), whole());
    assert_eq!((outcome.windows(), outcome.replayed()), ((4, [1, 0, 1]), [6, 5, 5, 1]));
    assert_eq!(outcome.messages().n_dropped(), 0);
    // The points lie where they did, on the bodies that they did.
    for kind in [BodyKind::Robot, BodyKind::Object] {
        // Of all windows together: an object has few particles in each.
        let [small, full] = [&outcome, &whole].map(|outcome| {
            (0..4).map(|i| share(&outcome.window(i, 1).unwrap(), kind)).sum::<f64>()
        });
        assert!((small - full).abs() < 0.5 * full, "{kind:?}: {small} {full}");
    }
    let still = |outcome: &Outcome| {
        let is_it = |row: &&forecloud_eval::report::ErrorRow| {
            row.class == "robot" && row.method == forecloud_eval::Method::NothingMoves
        };
        outcome.report.errors.iter().find(is_it).unwrap().mean_mm[0].unwrap()
    };
    let [small, full] = [&outcome, &whole].map(still);
    assert!((small / full - 1.0).abs() < 0.15, "{small} {full}");
}

#[test]
fn frames_whose_images_do_not_fit_are_skipped_and_told() {
    let outcome = smaller(|message| !is_info(message));
    assert_eq!((outcome.windows(), outcome.replayed()), ((1, [1, 0, 1]), [3, 2, 2, 1]));
    assert_eq!(outcome.messages().dropped_mismatched, 3);
    let text = outcome.report.to_string();
    assert!(text.contains("frames whose images and calibration don't fit: 3"), "{text}");
    // Body ids of other pixels are none.
    let outcome = smaller(|message| !is_ids(message));
    assert_eq!((outcome.windows(), outcome.skipped()), ((1, [1, 0, 1]), [0, 3, 0]));
    assert_eq!((outcome.replayed(), outcome.report.n_without_truth), ([6, 5, 2, 1], 3));
}

#[test]
fn frames_without_truth_cost_only_themselves() {
    let missing = |message: &mut RawMessage| &*message.topic != POSES || frame_of(message) != 3;
    let cut = |message: &mut RawMessage| {
        if &*message.topic == POSES && frame_of(message) == 3 {
            message.data.truncate(100);
        }
        true
    };
    let of_fewer_bodies = |message: &mut RawMessage| {
        if &*message.topic == POSES && frame_of(message) == 3 {
            let frame_id = u32::from_le_bytes(message.data[12..16].try_into().unwrap()) as usize;
            let at = 4 + (12 + frame_id).next_multiple_of(4);
            let n = u32::from_le_bytes(message.data[at..at + 4].try_into().unwrap());
            message.data[at..at + 4].copy_from_slice(&(n - 1).to_le_bytes());
            message.data.truncate(message.data.len() - 7 * 8);
        }
        true
    };
    type Edit = fn(&mut RawMessage) -> bool;
    for (edit, n_bad) in [(missing as Edit, 0), (cut, 1), (of_fewer_bodies, 1)] {
        let outcome = Outcome::of_edited(edit);
        assert_eq!((outcome.windows(), outcome.skipped()), ((1, [2, 0, 2]), [1, 0, 0]));
        assert_eq!((outcome.replayed(), outcome.report.n_without_truth), ([6, 5, 3, 1], 2));
        assert_eq!(outcome.messages().bad_messages, n_bad);
        let first = outcome.data.skipped().first.clone().unwrap();
        assert!(first.contains("frame of 1700000000.3") && first.contains("true poses"), "{first}");
    }
    let outcome = Outcome::of_edited(|message| {
        !(is_ids(message) && is_of_camera(message, "left") && frame_of(message) == 3)
    });
    assert_eq!((outcome.windows(), outcome.skipped()), ((1, [2, 0, 2]), [0, 1, 0]));
    assert_eq!((outcome.replayed(), outcome.report.n_without_truth), ([6, 5, 4, 1], 1));
    assert!(outcome.report.to_string().contains("1 without truth at their time"));
}

#[test]
fn a_truth_without_one_of_its_topics_is_told_by_the_topic() {
    let no_poses = Outcome::of_edited(|message| &*message.topic != POSES).report.to_string();
    assert!(
        no_poses.contains(&format!(" lacks {POSES}, so nothing could be judged")),
        "{no_poses}"
    );
    let no_ids = Outcome::of_edited(|message| !is_ids(message)).report.to_string();
    assert!(
        no_ids.contains(" lacks /truth/") && no_ids.contains("/body_ids and /truth/"),
        "{no_ids}"
    );
    for told in [no_poses, no_ids] {
        assert!(told.contains("--no-truth") && !told.contains("a longer recording"), "{told}");
    }
}

#[test]
fn frames_that_cannot_be_used_cost_only_themselves() {
    let outcome = Outcome::of_edited(|message| {
        if is_image(message) && message.topic.contains("right/depth") && frame_of(message) == 3 {
            rename_encoding(message, "16SC1");
        }
        true
    });
    assert_eq!((outcome.windows(), outcome.skipped()), ((1, [2, 0, 2]), [0, 0, 1]));
    assert_eq!(outcome.replayed(), [6, 3, 3, 2]);
    assert_eq!(outcome.report.failures[0].count, 1);
    let (first, text) = (outcome.data.skipped().first.clone(), outcome.report.to_string());
    assert!(first.unwrap().contains("16SC1") && text.contains("16SC1"), "{text}");
}

/// Runs the tool: exit status, standard output, standard error.
fn tool(arguments: &[&str]) -> (bool, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forecloud"));
    let output = command.args(arguments).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.success(), out, err)
}

#[test]
fn a_recording_that_cannot_be_replayed_is_skipped_and_told_while_others_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [whole, broken, bare, missing] = ["whole", "broken", "bare", "missing"].map(path);
    write_recording(Path::new(&whole), "test", |_| true);
    write_recording(Path::new(&broken), "test", |_| true);
    std::fs::write(folder.path().join("broken/tiny_push.mcap"), "no recording").unwrap();
    write_recording(Path::new(&bare), "test", |message| !is_of_camera(message, "depth"));
    let model_file = path("model.safetensors");
    model().save(Path::new(&model_file)).unwrap();
    let replay = |bags: &[&String], more: &[&str]| {
        let bags: Vec<&str> = bags.iter().map(|bag| bag.as_str()).collect();
        let settings = ["--model", &model_file, "--horizon", "2"];
        tool(&[&["replay"], &bags[..], &settings, more].concat())
    };
    let (success, text, told) = replay(&[&broken, &whole, &bare], &[]);
    assert!(!success, "scripts must see that some were left out: {told}");
    assert!(text.contains("recordings 1 (1 push); 2 skipped"), "{text}");
    for (bag, reason) in
        [(&broken, "is not a ROS 2 recording"), (&bare, "/camera_left/depth/image_raw")]
    {
        for output in [&text, &told] {
            let start = output.find(&format!("{bag}: ")).unwrap_or_else(|| panic!("{output}"));
            assert!(output[start..].contains(reason), "{output}");
        }
    }
    let (_, json, _) = replay(&[&broken, &whole, &bare], &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (_, alone, _) = replay(&[&whole], &["--json"]);
    let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
    assert_eq!(json["errors"], alone["errors"]);
    assert_eq!(json["skipped"].as_array().unwrap().len(), 2);
    assert_eq!(json["skipped"][0]["path"], broken);
    assert_eq!((&json["n_frames"], &json["messages"]["frames"]), (&6.into(), &6.into()));

    // Nothing that could be replayed; a name that is wrong is told before anything is replayed.
    let (success, text, told) = replay(&[&broken, &bare], &[]);
    assert!(!success && text.is_empty() && told.contains("no recording of 2"), "{told}");
    assert!(told.contains(&broken) && told.contains(&bare), "{told}");
    let (success, text, told) = replay(&[&whole, &missing], &[]);
    assert!(!success && text.is_empty() && told.contains(&missing), "{told}");
    assert!(!told.contains("skipped"), "{told}");
}

#[test]
fn training_tells_what_it_skips() {
    let folder = tempfile::tempdir().unwrap();
    let (recordings, out) = (folder.path().join("recordings"), folder.path().join("out"));
    write_recording(&recordings.join("a"), "train", |message| {
        &*message.topic != POSES || frame_of(message) != 4
    });
    write_recording(&recordings.join("b"), "train", |_| true);
    write_recording(&recordings.join("c"), "val", |_| true);
    let [recordings, out] = [recordings, out].map(|path| path.display().to_string());
    let small = "\"n_blocks\": 1, \"n_particles\": 64";
    let file = crate::run::settings_file(
        folder.path(),
        small,
        "\"sensor_noise\": 0, \"curriculum\": [[0, 1]]",
    );
    let sizes = ["--width", "8", "--steps-per-pass", "1", "--batch", "1"]
        .into_iter()
        .chain(file.split(' '));
    let sizes: Vec<&str> = sizes.collect();
    let run = ["train", &recordings, "--out", &out, "--steps", "1"];
    let (success, _, told) = tool(&[&run[..], &sizes].concat());
    assert!(success, "{told}");
    for part in [
        "/a: frames without true poses: 1; the first: ",
        "/a: frame of 1700000000.4",
        "training: 2 recordings, 6 windows",
        "training: skipped: frames without true poses: 1\n",
        "training: no window starts at 5 frames: without a frame one step before: 3; without a \
         frame one step after: 2",
        "validation: no window starts at 2 frames",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("validation: skipped"), "{told}");
}
