//! Results of `forecloud replay` that find no room.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::run::{ended_by, signal, tool, wait_until};
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

/// What is hidden in a folder.
fn hidden(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn a_signal_leaves_no_hidden_part() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.safetensors");
    stream::model().save(&model).unwrap();
    let recording = Path::new(crate::ROOT).join("tests/data/tiny_push");
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let out = folder.path().join(name);
        let mut command = tool();
        command.arg("replay").arg("--model").arg(&model).arg("--out").arg(&out);
        command.args(vec![&recording; 60]).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        wait_until("a part", || {
            hidden(&out).iter().any(|part| {
                std::fs::read_dir(out.join(part)).is_ok_and(|mut entries| entries.next().is_some())
            })
        });
        signal(&child, name);
        assert_eq!(ended_by(child.wait().unwrap()), Some(number));
        assert_eq!(hidden(&out), Vec::<String>::new());
    }
}

#[test]
fn the_next_run_clears_what_a_killed_one_left_beside_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(".forecloud-1-0.part"), "half").unwrap();
    std::fs::write(folder.path().join(".forecloud-mine.part"), "theirs").unwrap();
    let output = replay("", &["--picture", &folder.path().join("a.png").display().to_string()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && folder.path().join("a.png").exists(), "{told}");
    assert_eq!(hidden(folder.path()), [".forecloud-mine.part"]);
}
