//! No output of the tool replaces what it did not write, and nothing ends in a panic.

use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a copy of the small recording and an untrained model in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let sizes = ModelConfig {
            width: 16,
            n_blocks: 1,
            n_particles: 128,
            n_history: 64,
            n_kinematic: 32,
            ..ModelConfig::default()
        };
        let weights = initial_weights(&Layout::new(sizes.interlacer()), 1);
        Model::new(sizes, weights).unwrap().save(&place.path("model.safetensors")).unwrap();
        let from = Path::new(crate::ROOT).join("tests/data/tiny_push");
        std::fs::create_dir(place.path("bag")).unwrap();
        for name in ["metadata.yaml", "tiny_push.mcap"] {
            std::fs::copy(from.join(name), place.path("bag").join(name)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tool(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        command.current_dir(self.0.path());
        command
    }

    fn replay(&self, arguments: &[&str]) -> Output {
        let mut command = self.tool();
        command.args(["replay", "bag", "--model", "model.safetensors", "--horizon", "2"]);
        command.args(arguments).output().expect("the tool runs")
    }

    /// All files, and what is in them.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => walk(&path, files),
                    false => files.push((path.clone(), std::fs::read(&path).unwrap())),
                }
            }
        }
        let mut files = Vec::new();
        walk(self.0.path(), &mut files);
        files.sort();
        files
    }
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn recordings_models_and_files_of_others_are_never_replaced() {
    let place = Place::new();
    std::fs::write(place.path("mine.png"), "\u{89}PNG of mine").unwrap();
    symlink("bag/tiny_push.mcap", place.path("link.png")).unwrap();
    symlink("bag", place.path("folder")).unwrap();
    std::fs::hard_link(place.path("bag/tiny_push.mcap"), place.path("hard.png")).unwrap();
    let files = place.files();
    for (option, path, reason) in [
        ("--picture", "bag/tiny_push.mcap", "is an input"),
        ("--picture", "./bag/../bag/tiny_push.mcap", "an input"),
        ("--picture", "folder/tiny_push.mcap", "an input"),
        ("--picture", "link.png", "an input"),
        ("--picture", "hard.png", "an input"),
        ("--picture", "model.safetensors", "an input"),
        ("--picture", "mine.png", "no picture (PNG) that Forecloud wrote"),
        ("--picture", "bag/new.png", "lies in the recording"),
        ("--picture", "bag", "is a folder"),
        ("--out", "bag", "lies in the recording"),
        ("--out", "bag/results", "lies in the recording"),
        ("--out", "folder/../bag/results", "lies in the recording"),
    ] {
        let output = place.replay(&[option, path]);
        let text = stderr_of(&output);
        assert_eq!(output.status.code(), Some(1), "{option} {path}: {text}");
        assert!(text.contains(reason), "{option} {path}: {text}");
        // Tried before the work.
        assert!(output.stdout.is_empty(), "{option} {path}: {text}");
        assert!(place.files() == files, "{option} {path}: {text}");
    }
    // Its own earlier picture is another matter.
    for _ in 0..2 {
        let output = place.replay(&["--picture", "own.png"]);
        assert!(output.status.success(), "{}", stderr_of(&output));
    }
}

#[test]
fn a_folder_that_is_not_there_is_told_before_the_work() {
    let place = Place::new();
    let output = place.replay(&["--picture", "none/own.png"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output.stdout.is_empty() && stderr_of(&output).contains("make it first"),
        "{}",
        stderr_of(&output)
    );
}

#[test]
fn a_closed_or_full_stderr_is_no_panic() {
    let place = Place::new();
    std::fs::create_dir(place.path("cut")).unwrap();
    let bytes = std::fs::read(place.path("bag/tiny_push.mcap")).unwrap();
    std::fs::write(place.path("cut/cut.mcap"), &bytes[..bytes.len() - 20]).unwrap();
    for (command, code) in [
        ("info cut", 0),
        ("info none cut", 1),
        ("replay cut --model model.safetensors --horizon 1 --threads 9999 --picture a.png", 0),
        ("replay none cut", 1),
        ("train cut --out run", 1),
        ("compare cut --out runs", 1),
    ] {
        for stderr in ["2>/dev/full", "2>&-", "2> >(true)"] {
            let script = format!("\"$0\" {command} {stderr} >/dev/null");
            let mut shell = Command::new("bash");
            shell.current_dir(place.0.path()).args(["-c", &script]);
            let status = shell.arg(place.tool().get_program()).status().expect("bash runs");
            // A panic ends with 101.
            assert_eq!(status.code(), Some(code), "{command} {stderr}");
        }
    }
}

#[test]
fn more_threads_than_cores_are_bounded_with_a_word() {
    let place = Place::new();
    let output = place.replay(&["--threads", "60000", "--json"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.contains("--threads 60000: more than the"), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(report["device"]["n_threads"], cores);
}
