//! `forecloud info` as a user runs it.

use crate::written;

use std::process::{Command, Output};

fn info(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.arg("info").args(arguments).output().expect("the tool runs")
}

/// A recording of three messages on `/talk`, 0.5 s apart, without its end.
fn recording(folder: &std::path::Path) -> String {
    let mut buffer = std::io::Cursor::new(Vec::new());
    let mut writer = mcap::WriteOptions::new().profile("ros2").create(&mut buffer).unwrap();
    let schema = writer.add_schema("std_msgs/msg/String", "ros2msg", b"string data").unwrap();
    let channel = writer.add_channel(schema, "/talk", "cdr", &Default::default()).unwrap();
    for i in 0..3 {
        let log_time = 5_000_000_000 + i * 500_000_000;
        let (channel_id, sequence, publish_time) = (channel, 0, log_time);
        let header = mcap::records::MessageHeader { channel_id, sequence, log_time, publish_time };
        writer.write_to_known_channel(&header, &[0, 1, 0, 0, 1, 0, 0, 0, 0]).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let mut bytes = buffer.into_inner();
    bytes.truncate(bytes.len() - 20);
    let path = folder.join("talk.mcap");
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[test]
fn a_table_on_stdout_and_warnings_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let output = info(&[&recording(folder.path())]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1.000 s from 5.000000000 s, 3 messages"), "{text}");
    let row = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["/talk", "std_msgs/msg/String", "3", "2.0"]);
    let warnings = String::from_utf8(output.stderr).unwrap();
    assert!(warnings.contains("cut off"), "{warnings}");
}

#[test]
fn json_is_an_array_of_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path());
    let output = info(&["--json", &path, &path]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 2);
    assert_eq!(json[1]["topics"][0]["rate_hz"], 2.0);
    assert_eq!(json[1]["start_ns"], 5_000_000_000u64);
}

#[test]
fn storage_and_compression_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let messages = written::messages(20);
    for (part, name) in messages.chunks(10).zip(["a.db3.zstd", "b.db3.zstd"]) {
        let bytes = written::zstd_file(&written::sqlite_bytes(part, 5));
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let text = String::from_utf8(info(&[&path]).stdout).unwrap();
    assert!(text.contains("\n  sqlite3 in 2 files, zstd by file\n"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&info(&["--json", &path]).stdout).unwrap();
    assert_eq!(json[0]["storage"], serde_json::json!(["sqlite3"]));
    assert_eq!(json[0]["compression"], serde_json::json!(["zstd by file"]));
    assert_eq!((&json[0]["n_files"], &json[0]["n_messages"]), (&2.into(), &20.into()));
}

#[test]
fn what_is_not_there_is_an_error_that_names_it() {
    let output = info(&["no/such/recording"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("no/such/recording"), "{text}");
}

#[test]
fn every_recording_is_told_and_the_bad_ones_with_their_error() {
    let folder = tempfile::tempdir().unwrap();
    let good = recording(folder.path());
    let bad = folder.path().join("bad.mcap");
    std::fs::write(&bad, "no recording").unwrap();
    let bad = bad.display().to_string();
    let all = [bad.as_str(), &good, "no/such/recording", &good];
    let output = info(&[&["--json"], &all[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors: Vec<bool> = (0..4).map(|i| json[i]["error"].is_string()).collect();
    assert_eq!(errors, [true, false, true, false]);
    assert_eq!(json[0]["path"], bad);
    assert!(json[0]["error"].as_str().unwrap().contains("bad.mcap"), "{json}");
    assert_eq!(json[3]["n_messages"], 3);

    let output = info(&all);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("3 messages").count(), 2, "{text}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("bad.mcap") && text.contains("no/such/recording"), "{text}");
    assert!(text.contains("2 of 4 files cannot be read"), "{text}");
}

#[test]
fn a_model_file_is_told_by_its_hash_sizes_and_settings() {
    let path = &format!("{}/models/small.safetensors", crate::ROOT);
    let model = forecloud::engine::model::Model::load(path.as_ref()).unwrap();
    let text = String::from_utf8(info(&[path]).stdout).unwrap();
    let first = format!("model {}, {} weights", model.hash, model.weights.len());
    assert!(text.contains(&first) && text.contains("n_particles       1024"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&info(&["--json", path]).stdout).unwrap();
    assert_eq!((&json[0]["kind"], &json[0]["hash"]), (&"model".into(), &model.hash.into()));
    assert_eq!(json[0]["config"]["step_secs"], 0.1);
    // By its content, whatever its name; and one that is damaged by its name.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(path, folder.path().join("model")).unwrap();
    std::fs::write(folder.path().join("bad.safetensors"), "none").unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    assert!(info(&[&at("model")]).status.success());
    let output = info(&[&at("bad.safetensors")]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("cannot read the model"), "{text}");
}

#[test]
fn the_examples_of_its_help_run() {
    let help = String::from_utf8(info(&["--help"]).stdout).unwrap();
    let examples = help.lines().filter_map(|line| line.trim().strip_prefix("forecloud info "));
    let mut n_run = 0;
    // Names of files alone stand for the user's.
    for example in examples.filter(|example| example.contains('/')) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        let command = command.current_dir(crate::ROOT).arg("info");
        let output = command.args(example.split(' ')).output().unwrap();
        assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
        n_run += 1;
    }
    assert!(n_run >= 2, "{help}");
}

#[test]
fn each_shipped_file_is_named_for_what_it_is() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
    for (file, kind) in [("small", "model"), ("video", "renderer")] {
        let path = format!("{models}/{file}.safetensors");
        let output = info(&[&path]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(&format!("  {kind} ")), "{file}: {text}");
        let output = info(&["--json", &path]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json[0]["kind"], kind);
    }
}
