//! `forecloud train-video` and `forecloud replay --render` as somebody types them, on a small recording.

use crate::edited;

use std::path::PathBuf;
use std::process::{Command, Output};

use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};

/// A folder with a small untrained model in it, and a recording each to train on and to validate with.
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
        Model::new(config, weights).unwrap().save(&place.path("model.safetensors")).unwrap();
        for split in ["train", "val"] {
            edited::write_recording(&place.path("bags").join(split), split, |_| true);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The tool with these words, in the folder.
    fn tool(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        let command = command.args(line.split_whitespace()).current_dir(self.0.path());
        command.output().expect("the tool runs")
    }

    fn train(&self, out: &str, more: &str) -> Output {
        self.tool(&format!("train-video bags --out {out} --rays 32 --steps 4 {more}"))
    }
}

#[track_caller]
fn succeed(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    message
}

#[track_caller]
fn fails(output: &Output, words: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !message.contains("panicked"), "{message}");
    for word in words {
        assert!(message.contains(word), "expected '{word}': {message}");
    }
}

#[test]
fn a_stopped_training_goes_on_to_the_same_weights_on_any_number_of_threads() {
    let place = Place::new();
    let told = succeed(&place.train("whole", "--threads 1"));
    assert!(told.contains("step 4 of 4: loss") && told.contains("--render"), "{told}");
    assert!(told.contains("SSIM") && told.contains("(2 pictures)"), "{told}");
    succeed(&place.train("parts", "--stop-at 2 --threads 2"));
    succeed(&place.train("parts", "--threads 2"));
    let read = |run: &str| {
        ["video.safetensors", "checkpoint.safetensors"]
            .map(|name| std::fs::read(place.path(run).join(name)).unwrap())
    };
    let whole = read("whole");
    assert!(whole == read("parts"), "weights and state, to the byte");
    // What has no checkpoint beside it is not lost.
    std::fs::create_dir(place.path("alone")).unwrap();
    std::fs::write(place.path("alone/video.safetensors"), &whole[0]).unwrap();
    // Nor where nothing is trained in its stead.
    fails(&place.tool("train-video none --out alone"), &["no recordings"]);
    assert!(place.path("alone/video.safetensors").exists());
    assert!(succeed(&place.train("alone", "--stop-at 1")).contains("kept as"));
    assert!(std::fs::read(place.path("alone/video.1.safetensors")).unwrap() == whole[0]);
    // One that has ended changes nothing more.
    succeed(&place.train("whole", ""));
    assert!(whole == read("whole"));
    // Without truth, nothing is drawn where it went.
    let told = succeed(&place.train("untold", "--no-truth"));
    assert!(told.contains("by the truth: nothing to validate with"), "{told}");
    assert!(whole != read("untold"));
    fails(&place.train("untold", ""), &["ignores_truth: true there, false here"]);
    fails(&place.train("whole", "--seed 3"), &["seed: 0 there, 3 here", "another --out"]);
    let told = "(-p robot: optional there, none here): use the same ones";
    fails(&place.train("whole", "-p robot:=none"), &["can't resume", told, "another --out"]);
    edited::write_recording(&place.path("bags/more"), "train", |_| true);
    fails(&place.train("whole", ""), &["can't resume", "(training: more added)", "another --out"]);
    std::fs::write(place.path("parts/video.safetensors"), "mine").unwrap();
    fails(&place.train("parts", ""), &["parts", "another --out"]);
}

#[test]
fn what_is_predicted_is_drawn() {
    let place = Place::new();
    succeed(&place.train("run", ""));
    let replay = "replay --model model.safetensors --render --video run/video.safetensors --json";
    let output = place.tool(&format!("{replay} --horizon 2 --out out bags/val"));
    succeed(&output);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["video"]["rows"].as_array().unwrap();
    let methods: Vec<_> = rows.iter().map(|row| row["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["model", "nothing_moves"]);
    for row in rows {
        let numbers = |name: &str| row[name].as_array().unwrap().clone();
        assert_eq!((numbers("ssim").len(), numbers("psnr").len()), (3, 3), "now and two steps");
        let ssim = numbers("ssim")[0].as_f64().unwrap();
        assert!((-1.0..1.0).contains(&ssim), "{ssim}");
        assert!(numbers("n_pictures")[2].as_u64().unwrap() > 0);
    }
    assert_eq!(rows[0]["ssim"][0], rows[1]["ssim"][0], "nothing has moved yet");
    let png = std::fs::read(place.path("out/video.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    let film = std::fs::read(place.path("out/film.png")).unwrap();
    assert!(film.windows(4).any(|name| name == b"acTL"), "it is animated");
    let page = std::fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("data-table=\"video\"") && page.contains("href=\"video.png\""));
    assert!(page.contains("id=\"h-films\"") && page.contains("data:image/png;base64,"));
    let text = place.tool(&format!("{} --horizon 2 bags/val", replay.replace(" --json", "")));
    assert!(String::from_utf8_lossy(&text.stdout).contains("structural similarity (SSIM)"));
    // The same folder again: its files are ours.
    succeed(&place.tool(&format!("{replay} --horizon 2 --out out bags/val")));
    // What is shipped draws where nothing lies beside the model.
    std::fs::create_dir(place.path("models")).unwrap();
    std::fs::copy(place.path("run/video.safetensors"), place.path("models/video.safetensors"))
        .unwrap();
    let shipped =
        place.tool("replay --model model.safetensors --render --json --horizon 2 bags/val");
    let shipped: serde_json::Value = serde_json::from_slice(&shipped.stdout).unwrap();
    assert_eq!(shipped["video"]["rows"], report["video"]["rows"]);
    // Without it, nothing is drawn.
    let plain = place.tool("replay --model model.safetensors --json --horizon 2 bags/val");
    let plain: serde_json::Value = serde_json::from_slice(&plain.stdout).unwrap();
    assert!(plain["video"].is_null());
}

#[test]
fn what_draws_must_be_there() {
    let place = Place::new();
    // A program beside which nothing lies that draws: where it was built, the shipped file is found.
    let alone = place.path("bin/forecloud");
    std::fs::create_dir(place.path("bin")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_forecloud"), &alone).unwrap();
    let words = ["replay", "--model", "model.safetensors", "--render", "bags/val"];
    let none = Command::new(alone).args(words).current_dir(place.path("")).output().unwrap();
    fails(&none, &["train-video", "--video", "video.safetensors"]);
    let other =
        place.tool("replay --model model.safetensors --render --video model.safetensors bags/val");
    fails(&other, &["no encoder and renderer of pictures"]);
    fails(&place.tool("replay --video x bags/val"), &["--render"]);
    fails(&place.tool("train-video none --out run"), &["no recordings"]);
    fails(&place.tool("train-video bags --out run --rays 0"), &["--rays", "1..=65536"]);
}

#[test]
fn a_vision_transformer_is_trained_and_draws() {
    let place = Place::new();
    let vit = "--encoder vit --patch-mask toeplitz --past-frames 1";
    let told = succeed(&place.train("vit", &format!("{vit} --stop-at 2")));
    assert!(told.contains("step 2 of 4: loss"), "{told}");
    let other = "--encoder vit --patch-mask forest --past-frames 1";
    fails(&place.train("vit", other), &["other settings", "toeplitz", "forest"]);
    fails(&place.train("vit", ""), &["other settings"]);
    succeed(&place.train("vit", vit));
    let drawn = "--horizon 1 --video vit/video.safetensors --json";
    let drawn = place.tool(&format!("replay --model model.safetensors --render {drawn} bags/val"));
    succeed(&drawn);
    let drawn: serde_json::Value = serde_json::from_slice(&drawn.stdout).unwrap();
    assert!(!drawn["video"].is_null(), "{drawn}");

    let refused = |options: &str, words: &[&str]| {
        fails(&place.train("other", options), words);
        assert!(!place.path("other").exists(), "{options}: refused before anything is made");
    };
    refused("--patch-mask forest", &["--patch-mask", "--encoder vit"]);
    refused("--past-frames 1", &["--past-frames", "--encoder vit"]);
    refused(
        "--encoder vit --patch-mask toeplitz --patch-cut 0.1",
        &["--patch-cut", "no edges to cut"],
    );
    refused("--encoder vit --patch-mask x", &["--patch-mask", "symmetric_grf"]);
}

#[test]
fn pixels_teach_dynamics_alone_and_beside_truth() {
    let place = Place::new();
    succeed(&place.train("run", ""));
    let keys = |pixels: &str| {
        let keys = format!("\"curriculum\": [[0, 2]], \"rays\": 16{pixels}");
        crate::run::settings_file(&place.path(""), "", &keys)
    };
    let train_with = |out: &str, pixels: &str, more: &str| {
        place.tool(&format!(
            "train bags --out {out} --from model.safetensors --keep new --steps 2 --batch 1 \
             {} --validate-every 1 --video run/video.safetensors {more}",
            keys(pixels)
        ))
    };
    let train = |out: &str, more: &str| train_with(out, "", more);
    let weights = |run: &str| Model::load(&place.path(run).join("model.safetensors")).unwrap().hash;
    let told = succeed(&train("alone", "--teacher video --threads 1"));
    assert!(told.contains("loss 0.00 mm, pixels 0."), "{told}");
    assert_eq!(told.matches("note: pixels teach (--video), so no window").count(), 1, "{told}");
    assert!(told.contains("taught by pixels") && told.contains("pixels: pictures of "), "{told}");
    let log = std::fs::read_to_string(place.path("alone/train.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert!(line["report"]["pixel_loss"].as_f64().unwrap() > 0.0, "{line}");
    assert!(line["report"]["gradient_norm"].as_f64().unwrap() > 0.0, "{line}");
    // Stopped and gone on with, on other threads.
    succeed(&train("parts", "--teacher video --stop-at 1 --threads 2"));
    succeed(&train("parts", "--teacher video --threads 2"));
    assert_eq!(weights("parts"), weights("alone"));
    // Beside truth; the weight of pixels tells.
    let told = succeed(&train("beside", "--teacher truth"));
    assert!(told.contains(" mm, pixels 0.") && !told.contains("loss 0.00 mm"), "{told}");
    succeed(&train_with("heavy", ", \"pixel_weight\": 100", "--teacher truth"));
    assert_ne!(weights("heavy"), weights("beside"));
    // Other pixels are another run.
    fails(
        &train_with("parts", ", \"pixel_weight\": 3", "--teacher video"),
        &["pixels", "another --out"],
    );
    let told = place.tool(&format!("train bags --out other {}", keys("")));
    fails(&told, &["--model-config", "train.rays need --video"]);
    fails(&place.tool("train bags --out other --video model.safetensors"), &["train-video"]);
}
