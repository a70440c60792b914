//! Results of `forecloud replay` that find no room.

use std::path::Path;
use std::process::{Command, Output};

use super::run::tool;
use super::stream;

/// Replays the small recording with an untrained model; `script` says where its output goes.
fn replay(script: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.safetensors");
    stream::model().save(&model).unwrap();
    let recording = Path::new(crate::ROOT).join("tests/data/tiny_push");
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("exec \"$@\" {script}")).arg("bash");
    command.arg(tool().get_program()).arg("replay").arg(recording).arg("--model").arg(&model);
    command.args(["--horizon", "2"]).args(more).output().expect("bash runs")
}

fn refused(output: &Output, reasons: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(reasons.iter().all(|reason| message.contains(reason)), "{message}");
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn a_report_that_finds_no_room_is_an_error() {
    for more in [&[][..], &["--json"]] {
        let output = replay(">/dev/full", more);
        refused(&output, &["standard output", "No space left on device"]);
    }
}

#[test]
fn a_picture_that_finds_no_room_costs_the_picture_only() {
    let output = replay("", &["--picture", "/dev/full"]);
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("cannot save the picture: /dev/full: No space left"), "{stderr}");
    assert!(stdout.contains("Object points that move"), "the report is there: {stdout}");
    // A place where none can be is told before the work.
    let output = replay("", &["--picture", "/no/such/folder/a.png"]);
    refused(&output, &["cannot save the picture", "/no/such/folder/a.png", "make it first"]);
}
