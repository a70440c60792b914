//! Arguments that are wrong end every command with exit code 2 and the option's name, before any work.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::edited::write_recording;
use crate::run::{settings_file, tool};

/// Numbers that are none.
const NO_NUMBER: &[&str] = &["x", "", "nan"];

/// A command with inputs that are not there: what is wrong with an option is told before.
fn base(command: &str) -> Vec<&str> {
    match command {
        "info" | "check" | "replay" | "merge" => vec![command, "none"],
        "label" => vec![command, "none", "--labels", "out"],
        "train" | "train-video" | "compare" => vec![command, "none", "--out", "out"],
        "calibrate" => vec![command, "none", "--model", "none.safetensors", "--out", "out"],
        "plan" => vec![command, "none", "--goal", "none.yaml"],
        "evaluate" => vec![command, "none", "--goal", "none.yaml", "--plans", "none.yaml"],
        _ => panic!("{command}"),
    }
}

const READING: [&str; 9] = [
    "check",
    "replay",
    "label",
    "train",
    "train-video",
    "calibrate",
    "compare",
    "plan",
    "evaluate",
];
const PREDICTING: [&str; 3] = ["replay", "plan", "evaluate"];

/// Options of commands, and values that none of them takes; numbers besides what is no number.
const VALUES: &[(&str, &str, &[&str])] = &[
    ("replay evaluate plan", "--particles", &["-1", "1048577"]),
    ("replay", "--horizon", &["0", "101", "2.5"]),
    ("replay", "--sensor-noise", &["11", "-1"]),
    ("replay label train train-video calibrate plan evaluate", "--threads", &["0", "-1"]),
    ("replay plan", "--seed", &["-1", "1.5"]),
    ("label train train-video", "--seed", &["-1", "1.5"]),
    ("evaluate plan", "--at", &["-1", "2e9"]),
    ("evaluate plan", "--particle-seed", &["-1"]),
    ("evaluate plan", "--steps", &["0", "101"]),
    ("evaluate plan", "--thin", &["-1"]),
    ("plan", "--budget", &["-1", "1e9", "inf"]),
    ("plan", "--max-plans", &["-1", "1.5"]),
    ("train compare", "--steps", &["0", "1000000001"]),
    ("train-video", "--steps", &["0", "100000001"]),
    ("train train-video", "--stop-at", &["0", "-1"]),
    ("train train-video", "--learning-rate", &["0", "2", "-0.1"]),
    ("train compare", "--batch", &["0", "1025"]),
    ("train compare", "--hold-out", &["0", "0.95"]),
    ("train train-video", "--validate-every", &["0"]),
    ("train train-video compare", "--max-recordings", &["0"]),
    ("train", "--width", &["7", "0", "8192"]),
    ("train", "--steps-per-pass", &["0", "21"]),
    ("train-video", "--rays", &["0", "65537"]),
    ("calibrate", "--horizon", &["0", "101"]),
    ("calibrate", "--replan-interval", &["-1"]),
    ("compare", "--budget-secs", &["0", "1e9"]),
    ("compare", "--seeds", &["0", "1001"]),
    ("compare", "--learning-rates", &["0.1,2", "0.1,,0.2"]),
    ("compare", "--test-windows", &["0", "1000001"]),
    ("compare", "--jobs", &["0"]),
];

/// The same of names and lists.
const NAMES: &[(&str, &str, &[&str])] = &[
    ("replay plan evaluate", "--device", &["gpu", "cuda:x"]),
    ("replay label", "--shard", &["1", "3/2", "0/2", "a/b"]),
    ("label", "--teacher", &["truth", "nobody"]),
    ("train calibrate", "--teacher", &["nobody"]),
    ("train", "--preset", &["nobody"]),
    ("train", "--keep", &["nobody"]),
    ("compare", "--suite", &["nobody"]),
    ("compare", "--variants", &["nobody", "grf,nobody"]),
    ("compare", "--test-split", &["train", "val"]),
    ("train-video", "--encoder", &["nobody"]),
    ("train-video", "--patch-mask", &["nobody"]),
    ("train label compare", "--model-config", &["none.json"]),
    ("replay", "--workspace", &["0,0,0", "0,0", "a,b,c"]),
];

/// What does not go together, or lacks another option; the option that is named.
const TOGETHER: &[(&str, &str, &str)] = &[
    ("replay", "--workspace 0,0 1,1,1", "--workspace"),
    ("replay", "--workspace 1,1,1 0,0,0", "--workspace"),
    ("replay", "--workspace 0,0,0 1,1,1 -p workspace_min:=[0,0,0]", "--workspace"),
    ("replay", "--particles 2", "--particles"),
    ("replay", "other --predictions a", "--predictions"),
    ("replay", "--predictions a --sensor-noise 1", "--sensor-noise"),
    ("replay", "--video a", "--render"),
    ("replay", "--shard 1/2", "--out"),
    ("replay", "--shard 1/2 --out out --json", "--json"),
    ("replay", "--shard 1/2 --out out --picture a", "--picture"),
    ("train", "--keep new", "--keep"),
    ("train", "--keep better", "--from"),
    ("train", "--remember a", "--remember"),
    ("train", "--preset paper --from a", "--preset"),
    ("train", "--preset paper --from a --keep new", "--preset"),
    ("train", "--teacher video", "--teacher"),
    ("train-video", "--patch-mask toeplitz", "--patch-mask"),
    ("train-video", "--patch-cut 1", "--patch-cut"),
    ("train-video", "--encoder vit --patch-cut 0", "--patch-cut"),
    ("train-video", "--past-frames 1", "--past-frames"),
    ("train-video", "--encoder vit --past-frames 9", "--past-frames"),
    ("compare", "--steps 1 --budget-secs 1", "--budget-secs"),
];

/// What says which topics are read, in all commands that read recordings.
const TOPICS: &[(&str, &str)] = &[
    ("--cameras a,a", "--cameras"),
    ("--input video", "--input"),
    ("--input images,points,points", "--input"),
    ("--remap x", "--remap"),
    ("--remap /nowhere:=/x", "--remap"),
    ("--remap /tf:=/tf_static", "--remap"),
    ("-p x", "--param"),
    ("-p frame:=map", "--param"),
    ("-p world_frame:=", "--param"),
    ("-p robot:=maybe", "--param"),
    ("-p level_camera:=1", "--param"),
    ("-p depth_registered:=x", "--param"),
    ("-p tolerance_secs:=11", "--param"),
    ("-p patience_secs:=-1", "--param"),
    ("-p camera_timeout_secs:=0", "--param"),
    ("-p mesh_paths:=[none]", "--param"),
];
const PARAMETERS: &[(&str, &str)] = &[
    ("-p plan_lag_secs:=3", "--param"),
    ("-p hold_at_rest:=x", "--param"),
    ("-p carry_robot:=1", "--param"),
    ("-p workspace_min:=[1,2]", "--param"),
    ("-p workspace_min:=[1,1,1] -p workspace_max:=[0,0,0]", "workspace_min"),
];

/// A folder that stays as it is.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn names(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    }

    /// Ends with 2, names the option, and leaves no trace.
    fn refused(&self, arguments: &[&str], option: &str) {
        let before = self.names();
        let output = tool().current_dir(self.0.path()).args(arguments).output().unwrap();
        let Output { status, stdout, stderr } = output;
        let told = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(option), "no {option}: {arguments:?}: {told}");
        assert!(stdout.is_empty() && self.names() == before, "{arguments:?}");
    }
}

/// Each command with the arguments, and the option that is to be named.
fn cases() -> Vec<(Vec<&'static str>, &'static str)> {
    let mut cases = Vec::new();
    let mut add = |commands: &'static str, option: &'static str, values: &[&'static str]| {
        for command in commands.split(' ') {
            for value in values {
                cases.push(([base(command), vec![option, value]].concat(), option));
            }
        }
    };
    for (commands, option, values) in VALUES {
        add(commands, option, NO_NUMBER);
        add(commands, option, values);
    }
    NAMES.iter().for_each(|(commands, option, values)| add(commands, option, values));
    let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
    for (command, more, option) in TOGETHER {
        cases.push(([base(command), words(more)].concat(), option));
    }
    for command in READING {
        let predicting = PARAMETERS.iter().filter(|_| PREDICTING.contains(&command));
        for (more, option) in TOPICS.iter().chain(predicting) {
            cases.push(([base(command), words(more)].concat(), option));
        }
        if !PREDICTING.contains(&command) {
            cases.push(([base(command), words("-p hold_at_rest:=true")].concat(), "--param"));
        }
    }
    for command in READING.into_iter().chain(["info", "merge"]) {
        cases.push(([base(command), vec!["--nobody"]].concat(), "--nobody"));
        cases.push((vec![command], "<"));
    }
    cases
}

#[test]
fn each_command_refuses_each_wrong_value_with_2_and_its_name() {
    let place = Place::new();
    for (arguments, option) in cases() {
        place.refused(&arguments, option);
    }
}

#[test]
fn each_key_of_a_file_of_settings_is_refused_by_its_name() {
    let place = Place::new();
    for (model, train, told) in [
        ("\"width\": 7", "", "width"),
        ("\"nobody\": 1", "", "model.nobody"),
        ("", "\"rays\": 0", "train.rays"),
        ("", "\"nobody\": 0", "train.nobody"),
        ("", "\"curriculum\": []", "train.curriculum"),
        ("", "\"sensor_noise\": 11", "train.sensor_noise"),
    ] {
        let file = settings_file(place.0.path(), model, train);
        for command in ["train", "label", "compare"] {
            let arguments = [base(command), file.split(' ').collect()].concat();
            place.refused(&arguments, "--model-config");
            place.refused(&arguments, told);
        }
    }
    let file = settings_file(place.0.path(), "\"k\": 4", "");
    for command in ["train", "label"] {
        let more: Vec<&str> = file.split(' ').chain(["--from", "none.safetensors"]).collect();
        place.refused(&[base(command), more].concat(), "--model-config");
    }
    let file = settings_file(place.0.path(), "", "\"pixel_weight\": 1");
    place.refused(&[base("train"), file.split(' ').collect()].concat(), "--model-config");
}

/// What only a file tells to be wrong: it is read, and no recording is played.
#[test]
fn what_does_not_fit_a_model_or_a_recording_is_refused_before_the_work() {
    let place = Place::new();
    let path = |name: &str| Path::new(crate::ROOT).join(name).display().to_string();
    let (model, bag) = (path("models/small.safetensors"), path("tests/data/tiny_push"));
    let goal = place.0.path().join("goal.yaml");
    let text =
        "select:\n  body: [0.0, 0.0, 0.1]\nreach:\n  pose:\n    translation: [0.08, 0.0, 0.0]\n";
    std::fs::write(&goal, text).unwrap();
    let plan = ["plan", &bag, "--goal", "goal.yaml", "--max-plans", "1"];
    for (option, value) in [
        ("--joints", "elbow"),
        ("--joints", "left_joint_1,elbow"),
        ("--tools", "spoon"),
        ("--particles", "2"),
    ] {
        place.refused(&[&plan[..], &[option, value]].concat(), option);
    }
    place.refused(&[&plan[..], &["-p", "workspace_min:=[9,9,9]"]].concat(), "workspace_min");
    // Before the recording is opened, and before one is played whose robot never moves.
    let none = ["plan", "none", "--goal", "goal.yaml", "--particles", "2"];
    place.refused(&none, "--particles");
    write_recording(&place.0.path().join("still"), "test", |message| {
        &*message.topic != "/joint_states"
    });
    let still = ["plan", "still", "--goal", "goal.yaml", "--max-plans", "1"];
    place.refused(&[&still[..], &["--joints", "elbow"]].concat(), "--joints");
    let calibrate = ["calibrate", "none", "--model", &model, "--out", "out"];
    place.refused(&[&calibrate[..], &["--replan-interval", "3"]].concat(), "--replan-interval");
    let train = ["train", "none", "--out", "out", "--from", &model];
    place.refused(&[&train[..], &["--width", "7"]].concat(), "--width");
    place.refused(&[&train[..], &["--steps-per-pass", "1"]].concat(), "--steps-per-pass");
    for split in ["train", "val"] {
        write_recording(&place.0.path().join("bags").join(split), split, |_| true);
    }
    let calibrate = ["calibrate", "bags", "--model", &model, "--out", "out"];
    place.refused(&[&calibrate[..], &["--split", "nobody"]].concat(), "--split");
    let compare = ["compare", "bags", "--out", "out", "--test-split", "nobody"];
    place.refused(&compare, "--test-split");
}
