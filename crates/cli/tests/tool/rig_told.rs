//! What is wrong with a rig is told by every command that learns from recordings, in the same words; and
//! options without effect.

use std::path::Path;

use forecloud::engine::model::ModelConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::{BodyKind, Recording};
use forecloud_train::config::{DatasetConfig, Teacher};
use forecloud_train::dataset::Dataset;

use crate::edited::{START, transforms_message, write_messages};
use crate::faults::edit_transforms;
use crate::run::{settings_file, tool};

const SIZES: &str = "\"n_blocks\": 1, \"n_particles\": 64, \"n_history\": 16, \"n_motion\": 1024";

/// The small recording, with the left camera 3 cm higher than it says.
fn write_off(folder: &Path, split: &str) {
    write_messages(folder, split, |mut message| {
        if &*message.topic == "/tf_static" {
            edit_transforms(&mut message, |child, i, x| {
                let is_it = child == "camera_left_optical_frame" && i == 2;
                if is_it { x + 0.03 } else { x }
            });
        }
        vec![message]
    });
}

/// Stderr of the tool in a folder.
fn told(folder: &Path, arguments: &str) -> String {
    let arguments = arguments.split_whitespace();
    let output = tool().current_dir(folder).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines about the rig, without the number of recordings.
fn about_rig(text: &str) -> Vec<String> {
    let is_it = |line: &&str| line.starts_with("warning: ") && line.contains("recording");
    let line = |line: &str| line.replace("of 8 recordings", "").replace("of 2 recordings", "");
    text.lines().filter(is_it).map(line).collect()
}

#[test]
fn label_and_calibrate_tell_of_the_rig_what_train_does() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    (0..8).for_each(|i| write_off(&place.join(format!("bags/{i}")), "val"));
    let file = settings_file(place, SIZES, "\"curriculum\": [[0, 1]]");
    let sizes = format!("--width 8 --steps-per-pass 1 {file}");
    // `val` is read as validation; there is nothing to train on, which is told after it.
    let trained = told(place, &format!("train bags --out run --teacher hindsight {sizes}"));
    let line = "warning: the cameras see the support plane";
    assert!(trained.contains(line) && trained.contains("camera_left"), "{trained}");
    let rig = about_rig(&trained);
    let labelled = told(place, &format!("label bags --labels labels --teacher hindsight {file}"));
    assert_eq!(about_rig(&labelled), rig, "{labelled}");
    let model = place.join("m.safetensors");
    crate::calibrate::save_model(&model);
    let arguments =
        "calibrate bags --model m.safetensors --out out --teacher hindsight --horizon 1";
    let calibrated = told(place, arguments);
    assert_eq!(about_rig(&calibrated), rig, "{calibrated}");
    // It is told before what is learned from it.
    if let Some(learned) = calibrated.find("half within") {
        assert!(calibrated.find(line).unwrap() < learned, "{calibrated}");
    }
}

/// The small recording, below whose world frame, or above its cameras, tf has another: `parent` to `child`, along x
/// by `way_m` of the frame's number.
fn write_carried(
    folder: &Path,
    split: &str,
    [parent, child]: [&str; 2],
    way_m: impl Fn(usize) -> f64,
) {
    let mut n_frames = 0;
    write_messages(folder, split, |mut message| {
        match &*message.topic {
            "/tf" => {
                let stamp = START.plus_secs(0.1 * n_frames as f64);
                let more = [(parent, child, way_m(n_frames))];
                message.data = transforms_message(&message.data, stamp, &more);
                n_frames += 1;
            }
            "/tf_static" if child != "world" => {
                // Of the same length, in place.
                let places: Vec<usize> = (0..message.data.len() - 5)
                    .filter(|&at| &message.data[at..at + 6] == b"world\0")
                    .collect();
                assert!(!places.is_empty() && child.len() == 5);
                places
                    .into_iter()
                    .for_each(|at| message.data[at..at + 5].copy_from_slice(child.as_bytes()));
            }
            _ => {}
        }
        vec![message]
    });
    assert_eq!(n_frames, 6);
}

/// Stdout and stderr of the tool in a folder.
fn all_told(folder: &Path, arguments: &str) -> String {
    let output = tool().current_dir(folder).args(arguments.split_whitespace()).output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

#[test]
fn a_world_frame_that_moves_by_tf_is_told_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let file = settings_file(place, SIZES, "\"curriculum\": [[0, 1]]");
    let train = format!("--steps 1 --batch 1 --width 8 --steps-per-pass 1 {file}");
    let model = format!("--model {}/models/small.safetensors", crate::ROOT);
    let remedy = ["'odom', the root of the tree", "-p world_frame:=odom", "workspace_frame:=world"];
    for split in ["train", "val"] {
        write_carried(&place.join("drives").join(split), split, ["odom", "world"], |i| {
            0.03 * i as f64
        });
        write_carried(&place.join("stands").join(split), split, ["odom", "world"], |_| 0.4);
    }
    let commands = [
        ("check", "check BAGS/val".to_owned()),
        ("replay", format!("replay BAGS/val --horizon 1 {model}")),
        ("train", format!("train BAGS --teacher truth {train} --out BAGS_run")),
        ("train by hindsight", format!("train BAGS --teacher hindsight {train} --out BAGS_run2")),
        ("label", format!("label BAGS --labels labels --teacher hindsight {file}")),
    ];
    for (name, command) in &commands {
        let told = all_told(place, &command.replace("BAGS", "drives"));
        assert!(told.contains("tf carries 'world' along below 'odom'"), "{name}: {told}");
        assert!(remedy.iter().all(|text| told.contains(text)), "{name}: {told}");
        let told = all_told(place, &command.replace("BAGS", "stands"));
        assert!(!told.contains("tf carries"), "{name}: {told}");
    }
    let info = all_told(place, "info drives/val stands/val");
    assert_eq!(info.matches("suspicious: world frame").count(), 1, "{info}");
    // By the remedy all is well.
    let told = all_told(
        place,
        &format!("replay drives/val --horizon 1 {model} -p world_frame:=odom -p robot:=none"),
    );
    assert!(
        !told.contains("tf carries") && told.contains("none lost") | told.contains("predicted"),
        "{told}"
    );
}

#[test]
fn by_how_much_tf_of_moving_cameras_errs_is_told_where_they_teach() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    // As many points as real models take: fewer don't tell where a camera is.
    let sizes = SIZES.replace("1024", "4096");
    let file = settings_file(place, &sizes, "\"curriculum\": [[0, 1]]");
    let train = format!("--steps 1 --batch 1 --width 8 --steps-per-pass 1 {file}");
    // The cameras stand, and tf has them up to 8 mm elsewhere in the next frame; or right.
    let off_m = |i: usize| [0.0, 0.007, 0.001, -0.006, 0.002, -0.005][i];
    for split in ["train", "val"] {
        write_carried(&place.join("errs").join(split), split, ["world", "mount"], off_m);
        write_carried(&place.join("right").join(split), split, ["world", "mount"], |_| 0.0);
    }
    for command in [
        format!("train BAGS --teacher truth {train} --out BAGS_run"),
        format!("train BAGS --teacher hindsight {train} --out BAGS_run2"),
        format!("label BAGS --labels BAGS_labels --teacher hindsight {file}"),
        // Labels that were kept.
        format!("train BAGS --teacher hindsight --labels BAGS_labels {train} --out BAGS_run3"),
    ] {
        let told = all_told(place, &command.replace("BAGS", "errs"));
        let line = told.lines().find(|line| line.contains("tf of moving cameras errs by"));
        let line = line.unwrap_or_else(|| panic!("{command}: {told}"));
        let mm: f64 = line.split(' ').nth(7).unwrap().parse().unwrap();
        assert!((5.5..8.0).contains(&mm) && line.contains("in 100 % of the steps"), "{line}");
        let told = all_told(place, &command.replace("BAGS", "right"));
        assert!(!told.contains("moving cameras"), "{command}: {told}");
    }
}

/// Where hindsight has points about the objects of the second frame go in `n_steps`, and how sure it is: of a grid that
/// is shifted by `off_m` along x.
fn ways(folder: &Path, n_steps: usize, off_m: f32) -> Vec<([f32; 3], f32)> {
    let noise = SensorNoise { strength: 0.0, ..SensorNoise::default() };
    let config = DatasetConfig { teacher: Teacher::Hindsight, noise, ..DatasetConfig::default() };
    let model = ModelConfig { n_motion: 4096, ..ModelConfig::default() };
    let mut data = Dataset::new(config, model, FramesConfig::default());
    let recording = Recording::open(folder, FramesConfig::default()).unwrap();
    data.add_recording(&recording).unwrap();
    let (truth, stamp) = (recording.truth().unwrap(), START.plus_secs(0.1));
    let is_object = |id: usize| truth.kind(id as u16) == BodyKind::Object;
    let poses = truth.poses(stamp).unwrap().iter().enumerate();
    let objects: Vec<[f32; 3]> = poses
        .filter(|(id, _)| is_object(*id))
        .map(|(_, pose)| pose.translation.vector.cast::<f32>().into())
        .collect();
    let grid = |n: i32| (-n..=n).map(|i| 0.008 * i as f32);
    let about = |[x, y, z]: [f32; 3]| {
        grid(9).flat_map(move |dx| {
            grid(9).flat_map(move |dy| grid(9).map(move |dz| [x + dx + off_m, y + dy, z + dz]))
        })
    };
    let points = objects.into_iter().flat_map(about).filter(|p| p[2] > 0.015);
    let points: Vec<[f32; 3]> = points.collect();
    let told = data.judge(stamp, &points, n_steps).unwrap().expect("it is followed");
    let (last, sure) = (told.positions.last().unwrap(), told.confidences.last().unwrap());
    let ways = points.iter().zip(last).zip(sure);
    ways.map(|((a, b), sure)| (std::array::from_fn(|k| b[k] - a[k]), *sure)).collect()
}

#[test]
fn labels_are_free_of_errors_of_the_cameras_poses() {
    let folder = tempfile::tempdir().unwrap();
    let [errs, right] = ["errs", "right"].map(|name| folder.path().join(name));
    let off_m = |i: usize| [0.0, 0.007, -0.001, -0.006, -0.004, -0.005][i];
    write_carried(&errs, "train", ["world", "mount"], off_m);
    write_carried(&right, "train", ["world", "mount"], |_| 0.0);
    for n_steps in [1, 3] {
        // As tf errs by between the two frames: 8 and 11 mm.
        let ways = [ways(&errs, n_steps, 0.007), ways(&right, n_steps, 0.0)];
        let both = ways[0].iter().zip(&ways[1]).filter(|(a, b)| a.1.min(b.1) >= 0.5);
        let mut along_x: Vec<f32> = both.map(|((a, _), (b, _))| a[0] - b[0]).collect();
        assert!(along_x.len() > 50, "{}", along_x.len());
        along_x.sort_by(f32::total_cmp);
        let middle_m = along_x[along_x.len() / 2];
        assert!(middle_m.abs() < 0.002, "{n_steps} steps: labels are off by {middle_m} m");
    }
}

#[test]
fn options_without_effect_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    for split in ["train", "val"] {
        write_messages(&place.join("bags").join(split), split, |message| vec![message]);
    }
    let train = "train bags --steps 1 --batch 1 --width 8 --steps-per-pass 1 --out run";
    let file = settings_file(place, SIZES, "\"curriculum\": [[0, 1]], \"hold_out_seed\": 1");
    let trained = told(
        place,
        &format!(
            "{train} {file} --stop-at 2 --hold-out 0.2 --labels labels -p robot:=none -p mesh_paths:=."
        ),
    );
    for note in [
        "note: -p mesh_paths has no effect: there is no robot (-p robot:=none)",
        "note: --stop-at 2 has no effect: the run ends at step 1",
        "note: --hold-out and train.hold_out_seed have no effect: 1 recording is of split 'val'",
        "note: --labels has no effect: no training recording is taught by hindsight",
    ] {
        assert!(trained.contains(note), "{note}: {trained}");
    }
    let file = settings_file(place, SIZES, "\"curriculum\": [[0, 1]], \"sensor_noise\": 1");
    let trained = told(place, &format!("{train}2 {file} --teacher hindsight"));
    let note =
        "note: train.sensor_noise has no effect: no training recording is taught by its truth";
    assert!(trained.contains(note), "{trained}");
    let trained = told(place, &format!("{train}3 {file} --teacher truth --labels labels"));
    assert!(trained.contains("note: --labels has no effect: --teacher truth"), "{trained}");
    let replayed = told(place, "replay bags/val --input points --sensor-noise 1");
    assert!(replayed.contains("note: --sensor-noise has no effect: "), "{replayed}");
    // Nothing is told where all has an effect.
    let file = settings_file(place, SIZES, "\"curriculum\": [[0, 1]], \"sensor_noise\": 1");
    let plain = told(place, &format!("{train}4 {file}"));
    assert!(!plain.contains("no effect"), "{plain}");
}
