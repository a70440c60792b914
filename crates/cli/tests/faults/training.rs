//! Training that is killed, told to end, or left without room on the disk.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::run::{Workplace, ended_by, signal, steps_in, tool, wait_until};

/// Many more than those at which runs are killed: a loaded machine must not come too late.
const STEPS: u64 = 80;
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGXFSZ: i32 = 25;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the tool in a shell that limits the size of files it writes, in KiB, and says what becomes
/// of the signal that exceeding it raises: ignored, the write fails as on a full disk.
fn limited(limit_kib: u64, full_disk: bool, arguments: &[String]) -> Output {
    let on_excess = if full_disk { "trap '' XFSZ; " } else { "" };
    let script = format!("{on_excess}ulimit -c 0 -f {limit_kib}; exec \"$@\"");
    let tool = tool();
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).arg("bash").arg(tool.get_program()).args(arguments);
    command.output().expect("bash runs")
}

/// The file of a run that is not whole yet.
fn unfinished(place: &Workplace, out: &str) -> Option<PathBuf> {
    let mut entries =
        std::fs::read_dir(place.path(out)).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.extension().is_some_and(|extension| extension == "part"))
}

#[test]
fn a_killed_run_resumes_to_the_same_bits() {
    let place = Workplace::new();
    let whole = place.result("whole", &place.run("whole", STEPS, &[]));
    assert_eq!((whole.0.trim_matches(['(', ')']), whole.2.len() as u64), (&*whole.1, STEPS));

    // Killed again and again: at some step, or while a file is being written.
    let checkpoint = place.checkpoint("killed");
    let writes = || unfinished(&place, "killed").is_some();
    for (wanted, in_a_write) in [(1, false), (5, true), (9, true), (14, false), (20, true)] {
        let mut child = place.start("killed", STEPS);
        wait_until("a checkpoint", || steps_in(&checkpoint) >= wanted);
        wait_until("a write", || !in_a_write || writes() || steps_in(&checkpoint) >= STEPS);
        child.kill().unwrap();
        assert_eq!(ended_by(child.wait().unwrap()), Some(SIGKILL), "it ended before the kill");
        let n_steps = steps_in(&checkpoint);
        assert!((wanted..STEPS).contains(&n_steps), "{n_steps} steps");
    }
    assert_eq!(place.result("killed", &place.run("killed", STEPS, &[])), whole);
}

#[test]
fn a_kill_in_the_middle_of_a_checkpoint_leaves_the_one_before() {
    let place = Workplace::new();
    let whole = place.result("whole", &place.run("whole", 6, &[]));
    let first = place.run("cut", 6, &["--stop-at", "3"]);
    assert!(first.status.success(), "{}", stderr(&first));
    let before = std::fs::read(place.checkpoint("cut")).unwrap();
    let model_kib = std::fs::metadata(place.path("cut").join("model.safetensors")).unwrap().len();

    // Room for the model, not for the checkpoint, which is three times as large: the signal ends
    // the process in the middle of the write.
    let limit_kib = 2 * model_kib / 1024;
    let killed = limited(limit_kib, false, &place.arguments("cut", 6));
    assert_eq!(ended_by(killed.status), Some(SIGXFSZ), "{}", stderr(&killed));
    let part = unfinished(&place, "cut").unwrap();
    assert_eq!(std::fs::metadata(&part).unwrap().len(), limit_kib * 1024, "half a checkpoint");
    assert_eq!(std::fs::read(place.checkpoint("cut")).unwrap(), before);
    assert_eq!(place.result("cut", &place.run("cut", 6, &[])), whole);
    assert!(unfinished(&place, "cut").is_none(), "the next run cleans up");
}

#[test]
fn a_full_disk_is_named_and_costs_nothing_that_was_kept() {
    let place = Workplace::new();
    let whole = place.result("whole", &place.run("whole", 6, &[]));
    assert!(place.run("full", 6, &["--stop-at", "3"]).status.success());
    let before = std::fs::read(place.checkpoint("full")).unwrap();
    let limit_kib =
        2 * std::fs::metadata(place.path("full").join("model.safetensors")).unwrap().len() / 1024;
    let output = limited(limit_kib, true, &place.arguments("full", 6));
    assert_eq!(output.status.code(), Some(1));
    let (message, checkpoint) = (stderr(&output), place.checkpoint("full"));
    assert!(message.contains(&checkpoint.display().to_string()), "{message}");
    assert!(message.contains("File too large") && !message.contains("panicked"), "{message}");
    assert_eq!(std::fs::read(&checkpoint).unwrap(), before);
    assert!(unfinished(&place, "full").is_none(), "the disk is left as it was");
    // With room again, it goes on.
    assert_eq!(place.result("full", &place.run("full", 6, &[])), whole);

    // No room even for the log.
    let output = limited(0, true, &place.arguments("nothing", 2));
    let message = stderr(&output);
    assert!(message.contains("train.jsonl") && output.status.code() == Some(1), "{message}");
}

#[test]
fn an_output_folder_that_cannot_be_written_is_named_at_the_start() {
    let place = Workplace::new();
    std::fs::write(place.path("taken"), "no folder").unwrap();
    for out in ["taken", "taken/below"] {
        let output = place.run(out, 2, &[]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(message.contains(&place.path(out).display().to_string()), "{message}");
        assert!(!message.contains("panicked"), "{message}");
    }
    // The log's place is taken by a folder.
    std::fs::create_dir_all(place.path("log/train.jsonl")).unwrap();
    let message = stderr(&place.run("log", 2, &[]));
    assert!(message.contains("train.jsonl"), "{message}");
    // The last word goes to a full disk: the run is done and kept all the same.
    let mut command = Command::new("bash");
    command.arg("-c").arg("exec \"$@\" >/dev/full").arg("bash").arg(tool().get_program());
    let output = command.args(place.arguments("done", 2)).output().unwrap();
    let message = stderr(&output);
    assert!(message.contains("standard output: No space left on device"), "{message}");
    assert_eq!(steps_in(&place.checkpoint("done")), 2);
}

#[test]
fn a_run_whose_model_could_not_be_written_is_not_done() {
    let place = Workplace::new();
    let whole = place.result("whole", &place.run("whole", 4, &[]));
    let model_bytes = std::fs::metadata(place.path("whole/model.safetensors")).unwrap().len();
    // Room for the log, not for the model.
    let output = limited(model_bytes / 2048, true, &place.arguments("blocked", 4));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("model.safetensors"), "{}", stderr(&output));
    assert_eq!(place.result("blocked", &place.run("blocked", 4, &[])), whole);
}

#[test]
fn signals_end_training_with_a_checkpoint() {
    let place = Workplace::new();
    let whole = place.result("whole", &place.run("whole", STEPS, &[]));
    let log = place.path("stopped").join("train.jsonl");
    let n_lines = || std::fs::read_to_string(&log).map_or(0, |text| text.lines().count());
    let all = [("TERM", SIGTERM), ("INT", SIGINT), ("HUP", SIGHUP)];
    // `timeout`, terminals and launch files send it to the process and to its group.
    for (i, (name, number)) in all.into_iter().enumerate() {
        // Without checkpoints but the one that the signal asks for.
        let mut command = tool();
        command.args(place.arguments("stopped", STEPS)).stderr(std::process::Stdio::piped());
        let steps_before = n_lines();
        let child = command.spawn().unwrap();
        wait_until("steps", || n_lines() > steps_before + 2);
        (0..=i).for_each(|_| signal(&child, name));
        let output = child.wait_with_output().unwrap();
        assert_eq!(ended_by(output.status), Some(number), "{}", stderr(&output));
        let n_steps = steps_in(&place.checkpoint("stopped"));
        assert!((steps_before as u64 + 3..STEPS).contains(&n_steps), "{n_steps} steps");
        let told = format!("stopped at step {n_steps}: ");
        assert!(stderr(&output).contains(&told), "{}", stderr(&output));
        assert_eq!(n_lines() as u64, n_steps);
    }
    assert_eq!(place.result("stopped", &place.run("stopped", STEPS, &[])), whole);
}

#[test]
fn a_signal_before_the_first_validation_ends_training_as_any_other() {
    let place = Workplace::new();
    let arguments = place.arguments_with("early", 100_000, ", \"checkpoint_secs\": 0").join(" ");
    let arguments = arguments.replace("--validate-every 1 ", "--validate-every 100000 ");
    let command = || {
        let mut command = tool();
        command.args(arguments.split(' '));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    let child = command().spawn().unwrap();
    wait_until("a checkpoint", || steps_in(&place.checkpoint("early")) >= 1);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let told = stderr(&output);
    assert_eq!(ended_by(output.status), Some(SIGINT), "{told}");
    let n_steps = steps_in(&place.checkpoint("early"));
    assert!(told.contains(&format!("stopped at step {n_steps}: ")), "{told}");
    assert!(told.contains("the same command resumes") && !told.contains("error"), "{told}");
    // A step that is done already is no error either.
    let output = command().args(["--stop-at", "1"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("curve: none"));
}
