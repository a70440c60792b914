//! `forecloud replay --shard` and `forecloud merge`, as a user runs them.

use crate::edited;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use serde_json::Value;

/// A folder with an untrained model, recordings `a` to `d` of which `c` is torn, and without truth `d`.
struct Place(tempfile::TempDir);

const BAGS: [&str; 4] = ["d", "a", "c", "b"];

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let sizes =
            ModelConfig { width: 16, n_blocks: 1, n_particles: 128, ..ModelConfig::default() };
        let weights = initial_weights(&Layout::new(sizes.interlacer()), 1);
        Model::new(sizes, weights).unwrap().save(&place.path("model")).unwrap();
        let bag = Path::new(crate::ROOT).join("tests/data/tiny_push");
        for name in BAGS {
            std::fs::create_dir(place.path(name)).unwrap();
            for entry in std::fs::read_dir(&bag).unwrap() {
                let entry = entry.unwrap().path();
                std::fs::copy(&entry, place.path(name).join(entry.file_name().unwrap())).unwrap();
            }
        }
        let torn = std::fs::read_dir(place.path("c")).unwrap();
        for path in torn.map(|entry| entry.unwrap().path()) {
            std::fs::write(path, "torn").unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tool(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        command.current_dir(self.0.path()).args(arguments).output().expect("the tool runs")
    }

    fn replay(&self, arguments: &[&str]) -> Output {
        // Noise is drawn by the recording's name: recordings of one content differ.
        let fixed = ["replay", "--model", "model", "--horizon", "2", "--sensor-noise", "1"];
        self.tool(&[&fixed[..], &BAGS, arguments].concat())
    }

    fn shard(&self, shard: &str, out: &str) -> Output {
        self.replay(&["--shard", shard, "--out", out])
    }
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A report without what measures time.
fn report(output: &Output) -> Value {
    let mut report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr_of(output)));
    report["time"] = Value::Null;
    report
}

/// The same for people.
fn text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| !line.starts_with("time ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn merged_shards_are_one_replay_to_the_last_digit() {
    let place = Place::new();
    let (whole, plain) = (place.replay(&["--json"]), place.replay(&[]));
    assert_eq!(whole.status.code(), Some(3), "{}", stderr_of(&whole));
    for (n, folders) in [(1, vec!["s"]), (3, vec!["x", "y", "y"]), (6, vec!["z"; 6])] {
        for (index, folder) in folders.iter().enumerate() {
            let done = place.shard(&format!("{}/{n}", index + 1), folder);
            let is_torn = stderr_of(&done).contains("skipped: c:");
            assert_eq!(
                done.status.code(),
                Some(if is_torn { 3 } else { 0 }),
                "{}",
                stderr_of(&done)
            );
        }
        let mut unique = folders.clone();
        unique.dedup();
        unique.reverse();
        let merged = place.tool(&[&["merge", "--json"], &unique[..]].concat());
        assert_eq!(merged.status.code(), Some(3), "{}", stderr_of(&merged));
        assert_eq!(report(&merged), report(&whole), "{n} shards");
        let merged = place.tool(&[&["merge"], &unique[..]].concat());
        assert_eq!(text(&merged), text(&plain), "{n} shards");
        assert!(text(&merged).contains("skipped") && text(&merged).contains("c:"));
    }
}

#[test]
fn a_second_run_does_what_is_missing() {
    let place = Place::new();
    place.shard("1/1", "out");
    let names = |folder: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(place.path(folder)).unwrap();
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    };
    let files = names("out");
    let before = std::fs::read(&files[0]).unwrap();
    std::fs::remove_file(&files[0]).unwrap();
    let told_again = stderr_of(&place.shard("1/1", "out"));
    assert!(told_again.contains("1 recording replayed, 2 already done, 1 skipped"), "{told_again}");
    assert_eq!(names("out"), files);
    // All but the times.
    let part = |bytes: &[u8]| {
        let mut part: Value = serde_json::from_slice(bytes).unwrap();
        part["outcome"]["result"]["timings"] = Value::Null;
        part
    };
    assert_eq!(part(&std::fs::read(&files[0]).unwrap()), part(&before));
    // Of other settings, or of another recording of the same name, all is done again.
    let other = stderr_of(&place.replay(&["--shard", "1/1", "--out", "out", "--seed", "5"]));
    assert!(other.contains("3 recordings replayed, 0 already done, 1 skipped"), "{other}");
    let merged = place.tool(&["merge", "out"]);
    assert!(text(&merged).contains("seed       5"), "{}", stderr_of(&merged));
}

#[test]
fn what_merge_can_not_join_is_named_and_an_error() {
    let place = Place::new();
    place.shard("1/2", "one");
    let told_of = |folders: &[&str]| {
        let merged = place.tool(&[&["merge"], folders].concat());
        assert_eq!(merged.status.code(), Some(1), "{}", stderr_of(&merged));
        assert!(merged.stdout.is_empty());
        stderr_of(&merged)
    };
    assert!(told_of(&["one"]).contains("shard 2/2 is missing"));
    place.shard("2/2", "two");
    assert!(told_of(&["one", "two", "one"]).contains("shard 1/2 is there twice"));
    place.replay(&["--shard", "2/2", "--out", "two", "--seed", "9"]);
    let differs = told_of(&["one", "two"]);
    assert!(differs.contains("shard 2/2") && differs.contains("config.seed 0 and 9"), "{differs}");
    // An input is never written to, nor what others wrote.
    let refused = stderr_of(&place.shard("1/1", "a"));
    assert!(refused.contains("lies in the recording"), "{refused}");
}

/// A script of the documentation under bash, with the tool on its path, for each share.
fn run_script(place: &Place, script: &[&str], variables: &[(&str, String)]) -> Output {
    let tool = Path::new(env!("CARGO_BIN_EXE_forecloud"));
    let path = format!("{}:{}", tool.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(script).current_dir(place.0.path()).env("PATH", path);
    command.envs(variables.iter().map(|(name, value)| (name, value))).output().unwrap()
}

/// Moves the recordings into a folder of their own, and returns it.
fn in_folder(place: &Place) -> String {
    std::fs::create_dir(place.path("bags")).unwrap();
    for name in BAGS {
        std::fs::rename(place.path(name), place.path("bags").join(name)).unwrap();
    }
    place.path("bags").display().to_string()
}

fn documented(name: &str) -> PathBuf {
    Path::new(crate::ROOT).join("docs/src/reference/cluster").join(name)
}

#[test]
fn the_documented_batch_script_replays_its_share() {
    let place = Place::new();
    let bags = in_folder(&place);
    let script = documented("replay.sbatch").display().to_string();
    let run = |index: usize, n: usize| {
        let variables = [
            ("BAGS", bags.clone()),
            ("OUT", place.path("out").display().to_string()),
            ("MODEL", place.path("model").display().to_string()),
            ("SLURM_ARRAY_TASK_ID", index.to_string()),
            ("SLURM_ARRAY_TASK_COUNT", n.to_string()),
            ("SLURM_CPUS_PER_TASK", "1".into()),
        ];
        run_script(&place, &[&script], &variables)
    };
    for index in 1..=2 {
        let done = run(index, 2);
        assert!(done.status.success(), "{}", stderr_of(&done));
    }
    let merged = place.tool(&["merge", "out"]);
    assert_eq!(merged.status.code(), Some(3), "{}", stderr_of(&merged));
    // Not started by sbatch, it says so.
    let refused = run_script(&place, &[&script], &[("BAGS", bags), ("OUT", "out".into())]);
    assert!(!refused.status.success() && stderr_of(&refused).contains("start it with sbatch"));
}

#[test]
fn the_documented_job_replays_its_share() {
    let place = Place::new();
    let bags = in_folder(&place);
    let text = std::fs::read_to_string(documented("replay-job.yaml")).unwrap();
    let job: Value = serde_norway::from_str(&text).unwrap();
    assert_eq!((&job["apiVersion"], &job["kind"]), (&"batch/v1".into(), &"Job".into()));
    let spec = &job["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    let variable = |name: &str| {
        let all = container["env"].as_array().unwrap();
        all.iter().find(|entry| entry["name"] == name).unwrap()["value"].as_str().unwrap()
    };
    assert_eq!(spec["completions"].to_string(), variable("SHARES"));
    let named = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|entry| entry["name"].to_string()).collect()
    };
    assert_eq!(named(&container["volumeMounts"]), named(&pod["volumes"]));
    assert_eq!(container["command"], serde_json::json!(["bash", "-c"]));
    let script = container["args"][0].as_str().unwrap();
    // The shipped model is looked for below the current folder.
    std::fs::create_dir(place.path("models")).unwrap();
    std::fs::copy(place.path("model"), place.path("models/small.safetensors")).unwrap();
    for index in 0..2 {
        let variables = [
            ("SHARES", "2".to_owned()),
            ("JOB_COMPLETION_INDEX", index.to_string()),
            ("BAGS", bags.clone()),
            ("OUT", place.path("out").display().to_string()),
        ];
        let done = run_script(&place, &["-c", script], &variables);
        assert!(done.status.success(), "{}", stderr_of(&done));
    }
    assert_eq!(place.tool(&["merge", "out"]).status.code(), Some(3));
}

#[test]
fn labels_of_shards_are_joined_by_what_came_of_each() {
    let place = Place::new();
    let bags = in_folder(&place);
    for shard in ["1/2", "2/2"] {
        // Of split 'test', the recordings are neither for training nor for validation.
        place.tool(&[
            "label",
            &bags,
            "--labels",
            "labels",
            "--shard",
            shard,
            "--teacher",
            "hindsight",
        ]);
    }
    let merged = place.tool(&["merge", "labels"]);
    assert_eq!(merged.status.code(), Some(3), "{}", stderr_of(&merged));
    let text = text(&merged);
    assert!(text.contains("recordings 4: 3 of split 'test', left out, 1 skipped"), "{text}");
    assert!(text.contains("skipped    ") && text.contains("bags/c/"), "{text}");
}

#[test]
fn a_full_disk_ends_labelling_with_one_error() {
    let place = Place::new();
    for name in ["a", "b", "d"] {
        edited::write_recording(&place.path("mine").join(name), "train", |_| true);
    }
    let mut command = Command::new("bash");
    // Room for what says what is done, not for labels.
    command.arg("-c").arg("trap '' XFSZ; ulimit -f 16; exec \"$@\"").arg("bash");
    command.arg(env!("CARGO_BIN_EXE_forecloud")).current_dir(place.path(""));
    let output = command
        .args(["label", "mine", "--labels", "labels", "--teacher", "hindsight"])
        .output()
        .unwrap();
    let told = stderr_of(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told.matches("File too large").count(), 1, "{told}");
    assert!(!told.contains("skipped"), "{told}");
}

#[test]
fn labels_of_shards_are_found_by_training() {
    let place = Place::new();
    let folder = place.path("mine");
    for (name, split) in [("a", "train"), ("b", "train"), ("v", "val"), ("t", "test")] {
        edited::write_recording(&folder.join(name), split, |_| true);
    }
    std::fs::rename(place.path("c"), folder.join("c")).unwrap();
    let sizes = "\"n_blocks\": 1, \"n_particles\": 256, \"n_history\": 64";
    let train = "\"validation_windows\": 2, \"curriculum\": [[0, 1]]";
    let file = crate::run::settings_file(&place.path(""), sizes, train);
    let fixed: Vec<&str> = ["--teacher", "hindsight"].into_iter().chain(file.split(' ')).collect();
    let label = |shard: &str| {
        let arguments = ["label", "mine", "--labels", "labels", "--shard", shard];
        stderr_of(&place.tool(&[&arguments[..], &fixed].concat()))
    };
    let names = || -> std::collections::BTreeSet<PathBuf> {
        let entries = std::fs::read_dir(place.path("labels")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|is| is == "labels")).collect()
    };
    label("1/2");
    let missing = place.tool(&["merge", "labels"]);
    assert_eq!(missing.status.code(), Some(1), "{}", stderr_of(&missing));
    assert!(stderr_of(&missing).contains("shard 2/2 is missing"));
    label("2/2");
    // Noise is drawn by the recordings' names.
    let made = names();
    assert_eq!(made.len(), 3);
    let merged = place.tool(&["merge", "labels"]);
    assert_eq!(merged.status.code(), Some(3), "{}", stderr_of(&merged));
    let text = text(&merged);
    assert!(
        text.contains("recordings 5: 3 labelled, 1 of split 'test', left out, 1 skipped"),
        "{text}"
    );
    assert!(text.contains("skipped    mine/c"), "{text}");
    // One that is lost, and one that is cut: neither counts as labelled.
    let cut = made.last().unwrap();
    let bytes = std::fs::read(cut).unwrap();
    std::fs::write(cut, &bytes[..bytes.len() / 2]).unwrap();
    std::fs::remove_file(made.first().unwrap()).unwrap();
    let lost = place.tool(&["merge", "labels"]);
    let (code, told) = (lost.status.code(), String::from_utf8_lossy(&lost.stdout).into_owned());
    assert!(told.contains("1 labelled, 2 lost") && code == Some(3), "{told}");
    assert!(told.contains(".labels is missing") && told.contains(".labels is cut"), "{told}");
    std::fs::write(cut, bytes).unwrap();
    let again = label("1/2") + &label("2/2");
    assert_eq!(again.matches(" 1 recording looked at").count(), 1, "{again}");
    assert_eq!(names(), made);
    let arguments = ["train", "mine", "--labels", "labels", "--out", "run", "--steps", "1"];
    let small = ["--width", "16", "--steps-per-pass", "1"];
    let trained = place.tool(&[&arguments[..], &fixed, &small].concat());
    assert!(trained.status.success(), "{}", stderr_of(&trained));
    assert_eq!(names(), made, "training labelled nothing anew");
}
