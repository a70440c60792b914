//! What is wrong with a rig is told by every command that learns from recordings, in the same words; and
//! options without effect.

use std::path::Path;

use crate::edited::write_messages;
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
