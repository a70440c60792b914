//! What `forecloud replay` tells of recordings that do not fit the model as they are.

use crate::edited;

use edited::{PERIOD_NS, frame_of, string_message, write_messages, write_recording};
use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use forecloud::message::StringMessage;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for recordings, with an untrained model in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let sizes =
            ModelConfig { width: 16, n_blocks: 1, n_particles: 128, ..ModelConfig::default() };
        let weights = initial_weights(&Layout::new(sizes.interlacer()), 1);
        Model::new(sizes, weights).unwrap().save(&place.path("model")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn replay(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        command.current_dir(self.0.path()).args(["replay", "--model", "model", "--horizon", "1"]);
        command.args(arguments).output().expect("the tool runs")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.replay(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("no report: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// The recording with another robot description: links that are meshes only, and no link `world`.
fn write_real_robot(folder: &Path) {
    write_recording(folder, "test", |message| {
        if message.topic.ends_with("/robot_description") {
            let urdf = StringMessage::decode(&message.data).unwrap().data;
            message.data = string_message(&as_published(&urdf));
        }
        true
    });
}

fn as_published(urdf: &str) -> String {
    let mut text = urdf.replace("\"world\"", "\"panda_link0\"");
    for shape in ["<box", "<cylinder", "<sphere", "<capsule"] {
        while let Some(start) = text.find(shape) {
            let end = start + text[start..].find("/>").expect("a tag that closes itself") + 2;
            text.replace_range(start..end, "<mesh filename=\"package://robot/link.stl\"/>");
        }
    }
    text
}

#[test]
fn warnings_of_the_robot_description_are_shown_once_for_each_recording() {
    let place = Place::new();
    write_real_robot(&place.path("real"));
    let recording = Recording::open(&place.path("real"), FramesConfig::default()).unwrap();
    // The library tells them, too: for training.
    let warnings = recording.robot_warnings().unwrap();
    assert!(warnings.iter().any(|w| w.contains("mesh")), "{warnings:?}");
    let output = place.replay(&["real", "real"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.matches("no link 'world', and where no transform").count(), 2, "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let report = place.json(&["real", "real"]);
    for warning in &warnings {
        assert_eq!(stderr.matches(&format!("warning: real: {warning}")).count(), 2, "{stderr}");
        let line = format!("warning    real and 1 more: {warning}");
        assert_eq!(stdout.matches(&line).count(), 1, "{stdout}");
        for bag in 0..2 {
            let told = report["bags"][bag]["warnings"].as_array().unwrap();
            assert!(told.contains(&warning.as_str().into()), "{told:?}");
        }
    }
    // And none where there is nothing to warn of.
    write_recording(&place.path("plain"), "test", |_| true);
    let plain = place.json(&["plain"]);
    assert_eq!(plain["bags"][0]["warnings"], Value::Array(vec![]));
}

#[test]
fn meshes_are_found_in_the_folder_that_is_named() {
    let place = Place::new();
    write_real_robot(&place.path("real"));
    std::fs::create_dir_all(place.path("meshes/robot")).unwrap();
    let facet = "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 0.1 0 0\nvertex 0 0.1 0\n\
        endloop\nendfacet\n";
    let stl = format!("solid link\n{facet}endsolid link\n");
    std::fs::write(place.path("meshes/robot/link.stl"), stl).unwrap();
    let warnings = |arguments: &[&str]| {
        let report = place.json(&[&["real", "--no-truth"], arguments].concat());
        report["bags"][0]["warnings"].to_string()
    };
    assert!(warnings(&[]).contains("package 'robot' is not found"));
    let with_meshes = warnings(&["-p", "mesh_paths:=meshes"]);
    assert!(!with_meshes.contains("mesh") && with_meshes.contains("no link"), "{with_meshes}");
    // Or beside the recording.
    std::fs::copy(place.path("meshes/robot/link.stl"), place.path("real/link.stl")).unwrap();
    assert!(!warnings(&[]).contains("mesh"));
    let refused = text(&place.replay(&["real", "-p", "mesh_paths:=[none]"]));
    assert!(refused.contains("mesh_paths: none: no such folder"), "{refused}");
}

#[test]
fn a_world_frame_that_is_a_cameras_is_warned_of() {
    let place = Place::new();
    write_recording(&place.path("bag"), "test", |_| true);
    let recording = Recording::open(&place.path("bag"), FramesConfig::default()).unwrap();
    let mut frame_id = String::new();
    let keep = |frame: forecloud::vision::frames::Frame, _| -> forecloud::Result<()> {
        if let forecloud::vision::frames::View::Depth { depth, .. } = &frame.cameras[0].view {
            frame_id.clone_from(&depth.header.frame_id);
        }
        Ok(())
    };
    recording.play(keep).unwrap();
    let output = place.replay(&["bag", "-p", &format!("world_frame:={frame_id}")]);
    let told = text(&output);
    assert!(
        told.contains(&format!("the world frame '{frame_id}' seems not to have z up")),
        "{told}"
    );
    assert!(!text(&place.replay(&["bag"])).contains("z up"));
}

#[test]
fn too_low_a_frame_rate_is_told_with_the_one_that_is_wanted() {
    let place = Place::new();
    // Every frame, but 0.25 s apart instead of 0.1 s.
    let slow = |message: forecloud_bag::bag::RawMessage| {
        let is_stamped = message.topic.contains("camera")
            || message.topic.ends_with("/joint_states")
            || message.topic.ends_with("/body_poses");
        match is_stamped {
            true => {
                let by = frame_of(&message) * PERIOD_NS * 3 / 2;
                vec![edited::later(&message, by)]
            }
            false => vec![message],
        }
    };
    write_messages(&place.path("slow"), "test", slow);
    let output = place.replay(&["slow"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("frames come at 4.0 Hz"), "{told}");
    assert!(told.contains("10 Hz or a multiple of it is wanted"), "{told}");
    let report = place.json(&["slow"]);
    let secs = report["bags"][0]["survey"]["frame_secs"].as_f64().unwrap();
    assert!((secs - 0.25).abs() < 1e-3, "{secs}");
}

#[test]
fn what_was_just_given_is_not_proposed_again() {
    let place = Place::new();
    write_recording(&place.path("bag"), "test", |message| {
        !message.topic.ends_with("/joint_states") && !message.topic.contains("camera_right")
    });
    // Of two things that lack, the proposal mends one.
    let told = text(&place.replay(&["bag", "-p", "robot:=required"]));
    // All else of the command stays as it was given.
    let proposed = "Try:\n  forecloud replay --model model --horizon 1 bag -p robot:=required --cameras camera_left";
    assert!(told.contains(proposed), "{told}");
    let told = text(&place.replay(&["bag", "--cameras", "camera_left", "-p", "robot:=required"]));
    assert!(
        told.contains("/joint_states (sensor_msgs/msg/JointState)") && !told.contains("Try:"),
        "{told}"
    );
}

#[test]
fn values_that_an_option_does_not_take_are_told_with_what_it_takes() {
    for (arguments, told) in [
        (
            &["evaluate", "bag", "--goal", "g", "--plans", "p", "--at", "-1"][..],
            "in 0..=1000000000",
        ),
        (&["plan", "bag", "--goal", "g", "--at", "nan"], "in 0..=1000000000"),
        (&["train", "bags", "--out", "o", "--seed", "-1"], "invalid value '-1' for '--seed"),
        (&["replay", "bag", "--horizon", "-3"], "invalid value '-3' for '--horizon"),
        (&["compare", "bags", "--out", "o", "--test-split", "val"], "take others"),
        (&["replay", "bag", "-p", "hold:=true"], "hold_at_rest, carry_robot"),
        (&["train", "bags", "--out", "o", "-p", "hold_at_rest:=true"], "depth_registered\n"),
        (&["plan", "bag", "--goal", "g", "--param", "carry_robot:=1"], "true or false"),
        (&["replay", "bag", "-p", "tolerance_secs:=11"], "0..=10"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_forecloud")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = text(&output);
        assert!(text.contains(told) && !text.contains("unexpected"), "{text}");
    }
}
