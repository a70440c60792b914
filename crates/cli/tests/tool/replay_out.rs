//! `forecloud replay --out`: the files it writes, on a small recording and an untrained model.

use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn tiny_push() -> String {
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    path.display().to_string()
}

/// A folder with a small untrained model in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let config = ModelConfig {
            width: 16,
            n_blocks: 1,
            n_particles: 256,
            n_history: 128,
            n_kinematic: 32,
            ..ModelConfig::default()
        };
        let weights = initial_weights(&Layout::new(config.interlacer()), 1);
        Model::new(config, weights).unwrap().save(&place.path("model")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn replay(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        let command = command.arg("replay").args(["--model", &self.text("model")]);
        command.args(arguments).output().expect("the tool runs")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Names of the files in a folder, in order.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn succeed(output: Output) -> String {
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

fn refuse(output: Output, reason: &str) {
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains(reason), "{text}");
}

/// The page without the one place that differs from run to run.
fn without_timing(page: &[u8]) -> String {
    let page = String::from_utf8(page.to_vec()).unwrap();
    let (before, rest) = page.split_once("<!-- timing").expect("a mark");
    let (timing, after) = rest.split_once("<!-- /timing -->").expect("a mark");
    assert!(timing.contains("ms (median") && timing.contains("thread"), "{timing}");
    format!("{before}{after}")
}

#[test]
fn the_same_input_gives_the_same_bytes_on_any_number_of_threads() {
    let place = Place::new();
    for truth in [&[][..], &["--no-truth"]] {
        for threads in ["1", "2"] {
            let out = place.text(threads);
            let arguments = ["--threads", threads, "--horizon", "3", "--out", &out, &tiny_push()];
            let text = succeed(place.replay(&[&arguments, truth].concat()));
            assert!(text.contains("report.html, to open in a browser"), "{text}");
        }
        let names = place.names("1");
        assert_eq!(names, place.names("2"));
        let table = if truth.is_empty() { "errors.csv" } else { "hindsight.csv" };
        assert!(names.contains(&table.to_owned()) && names.len() >= 4, "{names:?}");
        for name in names.iter().filter(|name| !name.starts_with("report.")) {
            let [one, two] = ["1", "2"].map(|folder| place.read(&format!("{folder}/{name}")));
            assert!(one == two && !one.is_empty(), "{name}");
        }
        let [one, two] = ["1/report.html", "2/report.html"].map(|page| place.read(page));
        assert!(one != two, "threads are told");
        assert!(without_timing(&one) == without_timing(&two));
    }
}

#[test]
fn predictions_are_read_back_as_equal_bit_for_bit() {
    let place = Place::new();
    let (out, bag) = (place.text("out"), tiny_push());
    succeed(place.replay(&["--horizon", "3", "--seed", "5", "--out", &out, &bag]));
    let written = place.text("out/predictions.mcap");
    let text = succeed(place.replay(&["--predictions", &written, &bag]));
    let equal = "5 of 5 frames predicted by the node; bit for bit equal: yes";
    assert!(text.contains(equal) && text.contains("seed       5"), "{text}");
    // Not into the folder that they come from: they are an input.
    let before = place.read("out/predictions.mcap");
    refuse(place.replay(&["--predictions", &written, "--out", &out, &bag]), "is an input");
    assert!(place.read("out/predictions.mcap") == before);

    // One bit of one number: no longer.
    let other = place.path("other.mcap");
    let file = std::fs::File::create(&other).unwrap();
    let mut writer = mcap::WriteOptions::new().profile("ros2").create(file).unwrap();
    let bytes = place.read("out/predictions.mcap");
    for (index, message) in mcap::MessageStream::new(&bytes).unwrap().enumerate() {
        let mut message = message.unwrap();
        let schema = message.channel.schema.as_ref().expect("a schema");
        assert_eq!((&*schema.name, &*schema.encoding), ("forecloud/msg/Prediction", "ros2msg"));
        assert!(String::from_utf8_lossy(&schema.data).contains("MSG: std_msgs/Header"));
        assert_eq!(message.channel.topic, "/forecloud/prediction");
        let middle = message.data.len() / 2;
        message.data.to_mut()[middle] ^= u8::from(index == 2);
        writer.write(&message).unwrap();
    }
    writer.finish().unwrap();
    let output = place.replay(&["--predictions", &other.display().to_string(), &bag]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && text.contains("equal: no: 1 prediction differs"), "{text}");
}

#[test]
fn several_recordings_have_predictions_of_their_own() {
    let place = Place::new();
    let (out, bag) = (place.text("out"), tiny_push());
    let arguments = ["--horizon", "2", "--out", &out];
    succeed(place.replay(&[&arguments[..], &[&bag, &bag]].concat()));
    let several = ["predictions_1.mcap", "predictions_2.mcap"].map(str::to_owned);
    assert!(several.iter().all(|name| place.names("out").contains(name)));
    let second = place.text("out/predictions_2.mcap");
    let text = succeed(place.replay(&["--predictions", &second, &bag]));
    assert!(text.contains("bit for bit equal: yes"), "{text}");
    // Another replay replaces all of them, and nothing else.
    std::fs::write(place.path("out/mine.txt"), "mine").unwrap();
    succeed(place.replay(&[&arguments[..], &[&bag]].concat()));
    let names = place.names("out");
    assert!(names.contains(&"predictions.mcap".into()) && names.contains(&"mine.txt".into()));
    assert!(!several.iter().any(|name| names.contains(name)), "{names:?}");
}

#[test]
fn files_of_others_are_not_overwritten() {
    let place = Place::new();
    let (out, bag) = (place.text("out"), tiny_push());
    let run = || place.replay(&["--horizon", "2", "--out", &out, &bag]);
    for name in ["errors.csv", "report.html", "predictions_3.mcap"] {
        std::fs::create_dir(place.path("out")).unwrap();
        std::fs::write(place.path("out").join(name), "mine").unwrap();
        refuse(run(), "choose another folder for --out");
        refuse(run(), &format!("out/{name}: is there, and is no "));
        assert_eq!(place.read(&format!("out/{name}")), b"mine");
        assert_eq!(place.names("out"), [name]);
        std::fs::remove_dir_all(place.path("out")).unwrap();
    }
    std::fs::write(place.path("out"), "a file").unwrap();
    refuse(run(), "is no folder");
    std::fs::remove_file(place.path("out")).unwrap();
    std::fs::create_dir_all(place.path("out/errors.csv")).unwrap();
    refuse(run(), "errors.csv: is a folder");
    // Nor one of another's that lies among ours.
    let mixed = place.text("mixed");
    succeed(place.replay(&["--horizon", "2", "--out", &mixed, &bag]));
    std::fs::write(place.path("mixed/picture.png"), "mine").unwrap();
    let names = place.names("mixed");
    refuse(place.replay(&["--horizon", "2", "--out", &mixed, &bag]), "picture.png: is there");
    assert_eq!((place.read("mixed/picture.png"), place.names("mixed")), (b"mine".to_vec(), names));
    // A recording that is missing costs nothing of what is there.
    let kept = place.text("kept");
    succeed(place.replay(&["--horizon", "2", "--out", &kept, &bag]));
    let names = place.names("kept");
    refuse(place.replay(&["--out", &kept, "no_such_bag"]), "no_such_bag");
    assert_eq!(place.names("kept"), names);
}

#[test]
fn earlier_results_stay_until_the_new_ones_are_whole() {
    let place = Place::new();
    let (out, bag) = (place.text("out"), tiny_push());
    let arguments = ["--horizon", "2", "--out", &out];
    succeed(place.replay(&[&arguments[..], &[&bag]].concat()));
    let read = |name: &str| place.read(&format!("out/{name}"));
    let before: Vec<(String, Vec<u8>)> =
        place.names("out").into_iter().map(|name| (name.clone(), read(&name))).collect();
    let is_as_before = || {
        let names = before.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(place.names("out"), names);
        assert!(before.iter().all(|(name, bytes)| *bytes == read(name)));
    };
    // What another run that was killed left in the folder goes; nothing else does.
    let stage = place.path("out/.forecloud-replay.part");
    std::fs::create_dir(&stage).unwrap();
    std::fs::write(stage.join("predictions.mcap"), "half").unwrap();
    // No frame of this one can be played.
    let empty = place.path("empty.mcap");
    std::fs::write(&empty, "").unwrap();
    refuse(place.replay(&[&arguments[..], &[&empty.display().to_string()]].concat()), "empty.mcap");
    std::fs::remove_dir_all(&stage).unwrap_or_default();
    is_as_before();

    // Two at a time are refused.
    let lock = std::fs::File::open(place.path("out")).unwrap();
    lock.lock().unwrap();
    refuse(place.replay(&[&arguments[..], &[&bag]].concat()), "another run of forecloud");
    drop(lock);
    is_as_before();

    // One that is killed leaves the earlier results, and the next one no trace of it.
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.arg("replay").args(["--model", &place.text("model"), "--out", &out]);
    let mut child = command.args([bag.as_str(); 30]).spawn().unwrap();
    while !stage.exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stage.exists());
    succeed(place.replay(&[&arguments[..], &[&bag]].concat()));
    let names = before.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(place.names("out"), names);
}

#[test]
fn a_page_stays_small_and_says_what_it_leaves_out() {
    let place = Place::new();
    let (out, bag) = (place.text("out"), tiny_push());
    let arguments = ["--horizon", "25", "--particles", "3000", "--out", &out];
    succeed(place.replay(&[&arguments[..], &[bag.as_str(); 11]].concat()));
    let page = place.read("out/report.html");
    assert!((4_000_000..8_000_000).contains(&page.len()), "{} bytes", page.len());
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("of 55 predicted frames are shown: those in which most happens"));
    assert!(page.contains("of 11 recordings have a frame here"));
}
