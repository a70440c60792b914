//! `forecloud calibrate` on recordings: what it writes, and what it refuses.

use crate::edited;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forecloud::engine::model::weights::initial_weights;
use forecloud::engine::model::{Layout, Model, ModelConfig};
use forecloud::engine::motion_class::MotionClass;
use forecloud::predict::config::PredictorConfig;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;
use forecloud_eval::Replay;

/// A small model that tells sigma, or does not, as `folder`/m.safetensors.
fn model(folder: &Path, tells_sigma: bool) -> PathBuf {
    let path = folder.join("m.safetensors");
    untrained(tells_sigma).save(&path).unwrap();
    path
}

/// The same at `path`, which tells sigma.
pub fn save_model(path: &Path) {
    untrained(true).save(path).unwrap();
}

fn untrained(tells_sigma: bool) -> Model {
    let config = ModelConfig {
        width: 8,
        n_heads: 2,
        n_blocks: 1,
        n_particles: 64,
        n_history: 16,
        n_motion: 256,
        n_kinematic: 8,
        steps_per_pass: 2,
        replan_interval: None,
        tells_sigma,
        ..ModelConfig::default()
    };
    let weights = initial_weights(&Layout::new(config.interlacer()), 1);
    Model::new(config, weights).unwrap()
}

/// `n` copies of a recording of the split test.
fn recordings(folder: &Path, n: usize) -> PathBuf {
    let tiny = Path::new(crate::ROOT).join("tests/data/tiny_push");
    let all = folder.join("recordings");
    for i in 0..n {
        let copy = all.join(format!("push_{i}"));
        std::fs::create_dir_all(&copy).unwrap();
        for entry in std::fs::read_dir(&tiny).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    all
}

fn calibrate(recordings: &Path, model: &Path, out: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.arg("calibrate").arg(recordings).arg("--model").arg(model).arg("--out").arg(out);
    command.args(["--horizon", "2"]).args(more).output().unwrap()
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn where_a_model_looks_again_is_written_into_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, out) = (model(folder.path(), true), folder.path().join("calibrated.safetensors"));
    let all = recordings(folder.path(), 8);
    let calibrated = |from: &Path, more: &[&str]| {
        let output = calibrate(&all, from, &out, &[&["--split", "test"], more].concat());
        assert!(output.status.success(), "{}", stderr_of(&output));
        Model::load(&out).unwrap().config.replan_interval
    };
    assert_eq!(calibrated(&plain, &[]), None);
    assert_eq!(calibrated(&plain, &["--replan-interval", "1"]), Some(1));
    let again = folder.path().join("again.safetensors");
    std::fs::copy(&out, &again).unwrap();
    assert_eq!(calibrated(&again, &[]), Some(1), "the model's own");
    assert_eq!(calibrated(&again, &["--replan-interval", "2"]), None, "all steps of a pass");
    for stride in ["0", "3"] {
        let refused = calibrate(&all, &plain, &out, &["--replan-interval", stride]);
        let told = stderr_of(&refused);
        assert!(!refused.status.success() && told.contains("--replan-interval: "), "{told}");
    }
}

#[test]
fn errors_lie_within_what_a_calibrated_model_says() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, out) = (model(folder.path(), true), folder.path().join("calibrated.safetensors"));
    let all = recordings(folder.path(), 8);
    let output = calibrate(&all, &plain, &out, &["--split", "test"]);
    assert!(output.status.success(), "{}", stderr_of(&output));
    let calibrated = Model::load(&out).unwrap();
    let calibration = calibrated.calibration.as_ref().unwrap();
    assert_eq!((calibration.n_recordings, calibration.factors[0][0].len()), (8, 2));
    assert_ne!(calibrated.hash, Model::load(&plain).unwrap().hash);

    // On what it was calibrated with, as many errors lie within as are meant to, and a few more.
    let config = PredictorConfig { horizon: 2, ..PredictorConfig::default() };
    let replayed = |model: Model| {
        let mut replay = Replay::new(model, config, FramesConfig::default(), None);
        let recording = Recording::open(&all.join("push_3"), FramesConfig::default()).unwrap();
        replay.follow_cameras(&recording).unwrap();
        let mut n_sigmas = 0;
        let count = |replayed: &forecloud_eval::Replayed| {
            n_sigmas += replayed.prediction.map_or(0, |prediction| prediction.told_sigmas(1).len());
        };
        replay.add(&recording, count).unwrap();
        (replay.report(), n_sigmas)
    };
    let (report, n_sigmas) = replayed(calibrated);
    assert!(n_sigmas > 0);
    let row = report.confidence.iter().find(|row| row.situation == "resting").unwrap();
    for (step, (half, most)) in row.within_50.iter().zip(&row.within_90).enumerate() {
        let (half, most) = (half.unwrap(), most.unwrap());
        // Much of what rests is held, and not off at all: more than half lie within nothing.
        assert!(half >= 0.5 && most >= 0.9, "{step}: {half} {most}");
    }
    assert!(report.to_string().contains("within sigma_90, %"));
    // What was not calibrated tells nothing.
    let (report, n_sigmas) = replayed(Model::load(&plain).unwrap());
    assert!(report.confidence.is_empty() && n_sigmas == 0);
}

#[test]
fn too_few_recordings_other_models_and_inputs_as_outputs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("calibrated.safetensors");
    let (silent, all) = (model(folder.path(), false), recordings(folder.path(), 3));
    let refuse = |model: &Path, out: &Path, more: &[&str], reason: &str| {
        let output = calibrate(&all, model, out, more);
        assert!(
            !output.status.success() && stderr_of(&output).contains(reason),
            "{}",
            stderr_of(&output)
        );
    };
    refuse(&silent, &out, &[], "the model has no sigma");
    let telling = model(folder.path(), true);
    refuse(&telling, &telling, &[], "cannot save the model");
    refuse(&telling, &out, &["--split", "test"], "3 recordings of split 'test'");
    refuse(&telling, &out, &["--split", "test"], "at least 8");
    refuse(&telling, &out, &[], "0 recordings of split 'val'");
    assert!(!out.exists());
}

#[test]
fn a_recording_that_cannot_be_used_is_left_out_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, out) = (model(folder.path(), true), folder.path().join("calibrated.safetensors"));
    let all = recordings(folder.path(), 8);
    let calibrated = |more: &str| {
        let output = calibrate(&all, &plain, &out, &["--split", "test", "--teacher", more]);
        (
            output.status.success(),
            stderr_of(&output),
            Model::load(&out).ok().map(|model| model.hash),
        )
    };
    let (_, _, whole) = calibrated("truth");
    assert!(whole.is_some());
    // One that is empty, and one that is of the split, but lacks what predictions are made of.
    std::fs::create_dir(all.join("empty")).unwrap();
    std::fs::write(all.join("empty/empty.mcap"), "").unwrap();
    edited::write_recording(&all.join("blind"), "test", |message| {
        !message.topic.contains("camera")
    });
    for teacher in ["truth", "hindsight"] {
        let (is_done, said, hash) = calibrated(teacher);
        assert!(is_done, "{said}");
        for name in ["empty", "blind"] {
            assert!(said.contains(&format!("left out: {}", all.join(name).display())), "{said}");
        }
        assert!(said.contains("2 recordings left out: can't be used"), "{said}");
        assert!(said.contains("calibrated on 8 recordings"), "{said}");
        assert_eq!(hash == whole, teacher == "truth", "what is left out changes nothing");
    }
    // None is left.
    for i in 0..8 {
        std::fs::remove_dir_all(all.join(format!("push_{i}"))).unwrap();
    }
    let (is_done, said, _) = calibrated("truth");
    assert!(!is_done && said.contains("at least 8 are needed"), "{said}");
}

#[test]
fn recordings_without_truth_are_held_against_hindsight() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, out) = (model(folder.path(), true), folder.path().join("calibrated.safetensors"));
    let all = recordings(folder.path(), 8);
    let by = |teacher: &str, out: &Path| {
        let output = calibrate(&all, &plain, out, &["--split", "test", "--teacher", teacher]);
        assert!(output.status.success(), "{}", stderr_of(&output));
        (Model::load(out).unwrap(), stderr_of(&output))
    };
    let (by_hindsight, said) = by("hindsight", &out);
    assert!(said.contains("calibrated on 8 recordings, 8 of them by hindsight"), "{said}");
    let (by_truth, _) = by("auto", &folder.path().join("truth.safetensors"));
    assert_ne!(by_hindsight.hash, by_truth.hash);
    // What is told of the same errors is alike (both models are untrained, so that all errs).
    let factor =
        |model: &Model, situation| model.calibration.as_ref().unwrap().factor(situation, 1, 0);
    for situation in [MotionClass::Moving, MotionClass::Flying] {
        let ratio = factor(&by_hindsight, situation) / factor(&by_truth, situation);
        assert!((0.4..2.5).contains(&ratio), "{}: {ratio}", situation.name());
    }
}
