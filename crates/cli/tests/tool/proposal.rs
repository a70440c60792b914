//! A recording of other topics: the tool proposes a command, and the command works.

use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use forecloud_bag::bag::Bag;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn tiny_push() -> PathBuf {
    Path::new(crate::ROOT).join("tests/data/tiny_push")
}

/// The recording in SQLite under the names that RealSense cameras and an arm's namespace give.
fn write_foreign(folder: &Path) {
    let names = HashMap::from([
        ("/camera_left/color/image_raw", "/left/d435/color/image_raw"),
        ("/camera_left/color/camera_info", "/left/d435/color/camera_info"),
        ("/camera_left/depth/image_raw", "/left/d435/aligned_depth_to_color/image_raw"),
        ("/camera_right/color/image_raw", "/right/d435/color/image_raw"),
        ("/camera_right/color/camera_info", "/right/d435/color/camera_info"),
        ("/camera_right/depth/image_raw", "/right/d435/aligned_depth_to_color/image_raw"),
        ("/joint_states", "/arm/joint_states"),
        ("/planned_joints", "/arm/joint_trajectory"),
        ("/robot_description", "/arm/robot_description"),
        ("/tf", "/tf"),
        ("/tf_static", "/tf_static"),
    ]);
    let bag = Bag::open(tiny_push()).unwrap();
    let connection = rusqlite::Connection::open(folder.join("foreign.db3")).unwrap();
    let schema = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT,
                                      serialization_format TEXT, offered_qos_profiles TEXT);
        CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER,
                              data BLOB);";
    connection.execute_batch(schema).unwrap();
    let transaction = connection.unchecked_transaction().unwrap();
    let mut ids = HashMap::new();
    for topic in bag.topics() {
        if let Some(name) = names.get(&*topic.name) {
            ids.insert(topic.name.clone(), ids.len());
            let insert = "INSERT INTO topics VALUES(?1, ?2, ?3, 'cdr', '')";
            let row = (ids[&topic.name] as i64, name, &topic.message_type);
            transaction.execute(insert, row).unwrap();
        }
    }
    for message in bag.messages_where(|topic| names.contains_key(topic)) {
        let message = message.unwrap();
        let insert = "INSERT INTO messages(topic_id, timestamp, data) VALUES(?1, ?2, ?3)";
        let row = (ids[&message.topic] as i64, message.log_time_ns, message.data);
        transaction.execute(insert, row).unwrap();
    }
    transaction.commit().unwrap();
}

fn saved_model(folder: &Path) -> String {
    let sizes = ModelConfig { width: 16, n_blocks: 1, n_particles: 64, ..ModelConfig::default() };
    let weights = initial_weights(&Layout::new(sizes.interlacer()), 1);
    let path = folder.join("untrained.safetensors");
    Model::new(sizes, weights).unwrap().save(&path).unwrap();
    path.display().to_string()
}

fn n_predicted(output: &Output) -> u64 {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["n_predicted"].as_u64().unwrap()
}

#[test]
fn the_proposed_command_replays_the_recording() {
    let folder = tempfile::Builder::new().prefix("it's a bag ").tempdir().unwrap();
    write_foreign(folder.path());
    let model_folder = tempfile::tempdir().unwrap();
    let model = saved_model(model_folder.path());
    let tool = env!("CARGO_BIN_EXE_forecloud");
    let output = Command::new(tool).arg("replay").arg(folder.path()).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    for told in [
        "/camera_left/color/image_raw (sensor_msgs/msg/Image)\n",
        "/left/d435/color/camera_info (sensor_msgs/msg/CameraInfo): ",
        "Try:\n  forecloud replay ",
        "--cameras left,right",
        "--remap /joint_states:=/arm/joint_states",
    ] {
        assert!(text.contains(told), "no {told:?} in:\n{text}");
    }
    let command = text.lines().last().unwrap().trim();
    let command = command.strip_prefix("forecloud ").unwrap();
    let script = format!("\"$0\" {command} --json --model \"$1\"");
    let proposed = Command::new("sh").args(["-c", &script, tool, &model]).output().unwrap();
    let mut original = Command::new(tool);
    original.arg("replay").arg(tiny_push()).args(["--json", "--model", &model]);
    let n = n_predicted(&original.output().unwrap());
    assert!(n > 2);
    assert_eq!(n_predicted(&proposed), n);
}

/// Every tool that reads recordings proposes its own command; but `compare`, which takes those with truth.
#[test]
fn each_command_proposes_itself_with_other_topics() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for i in 0..8 {
        let bag = at(&format!("bags/{i}"));
        std::fs::create_dir_all(&bag).unwrap();
        write_foreign(&bag);
        std::fs::write(bag.join("metadata.yaml"), "rosbag2_bagfile_information: {}").unwrap();
    }
    crate::calibrate::save_model(&at("m.safetensors"));
    let goal =
        "select:\n  body: [0.0, 0.0, 0.1]\nreach:\n  pose:\n    translation: [0.08, 0.0, 0.0]\n";
    std::fs::write(at("goal.yaml"), goal).unwrap();
    for command in [
        "info bags/0",
        "check bags/0",
        "replay bags/0",
        "plan bags/0 --goal goal.yaml",
        "label bags --labels labels",
        "train bags --out run",
        "train-video bags --out video",
        "calibrate bags --model m.safetensors --out out.safetensors",
    ] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        tool.current_dir(folder.path()).args(command.split(' '));
        let output = tool.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        // `info` does not predict, and has no such options.
        let own = if command.starts_with("info") { "check bags/0" } else { command };
        let proposed = format!("forecloud {own} --cameras left,right");
        assert_eq!(text.matches(&proposed).count(), 1, "{command}: {text}");
    }
}

#[test]
fn training_says_that_a_foreign_recording_has_no_truth() {
    let folder = tempfile::tempdir().unwrap();
    let bag = folder.path().join("bag");
    std::fs::create_dir(&bag).unwrap();
    write_foreign(&bag);
    // The folder of recordings is known by their metadata.
    std::fs::write(bag.join("metadata.yaml"), "rosbag2_bagfile_information: {}").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    let arguments = ["--out", "none", "--teacher", "truth"];
    let output = command.arg("train").arg(folder.path()).args(arguments).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    // Before anything else about it: without truth no topic would help.
    assert!(text.contains("1 without truth"), "{text}");
}
