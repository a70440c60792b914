//! `forecloud replay` as a user runs it, on a small recording and an untrained model.

use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use forecloud::message::{self, Stamp};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::history::MAX_KEPT;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::vision::frames::{Frame, FramesConfig};
use forecloud_bag::bag::Bag;
use forecloud_bag::recording::Recording;
use forecloud_eval::published::Published;
use forecloud_eval::{Replay, Report};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn tiny_push() -> PathBuf {
    Path::new(crate::ROOT).join("tests/data/tiny_push")
}

fn model() -> Model {
    let config = ModelConfig {
        width: 16,
        n_blocks: 1,
        n_particles: 256,
        n_history: 128,
        n_kinematic: 32,
        ..ModelConfig::default()
    };
    Model::new(config, initial_weights(&Layout::new(config.interlacer()), 1)).unwrap()
}

fn saved_model(folder: &Path) -> String {
    let path = folder.join("untrained.safetensors");
    model().save(&path).unwrap();
    path.display().to_string()
}

fn replay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.arg("replay").args(arguments).output().expect("the tool runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = replay(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Predictions of all frames, in this process.
fn in_process() -> (Report, Vec<Prediction>) {
    let config = PredictorConfig { horizon: 3, ..PredictorConfig::default() };
    let mut replay = Replay::new(model(), config, FramesConfig::default(), None);
    let recording = Recording::open(&tiny_push(), FramesConfig::default()).unwrap();
    let mut predictions = Vec::new();
    replay.add(&recording, |frame| predictions.extend(frame.prediction.cloned())).unwrap();
    (replay.report(), predictions)
}

/// The same of a node that passes over the frame of `left_out`.
fn in_process_but(left_out: &Prediction, all: &[Prediction]) -> Vec<Prediction> {
    let config = PredictorConfig { horizon: 3, ..PredictorConfig::default() };
    let others = all.iter().filter(|prediction| prediction.stamp != left_out.stamp);
    let message = |prediction: &Prediction| message::Prediction {
        header: message::Header { stamp: prediction.stamp, ..Default::default() },
        ..Default::default()
    };
    let published = Published::new(others.map(message));
    let mut replay = Replay::new(model(), config, FramesConfig::default(), Some(published));
    let recording = Recording::open(&tiny_push(), FramesConfig::default()).unwrap();
    let mut predictions = Vec::new();
    replay.add(&recording, |frame| predictions.extend(frame.prediction.cloned())).unwrap();
    predictions
}

/// Row of a method and class, all tasks.
fn mean_mm(report: &Value, method: &str, class: &str) -> Vec<f64> {
    let is_it = |row: &&Value| {
        row["method"] == method && row["class"] == class && row["task"] == Value::Null
    };
    let rows = report["errors"].as_array().unwrap();
    let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("no row {method}, {class}"));
    row["mean_mm"].as_array().unwrap().iter().map(|mean| mean.as_f64().unwrap()).collect()
}

#[test]
fn the_report_holds_every_method_and_all_facts() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let report = json(&[&bag, "--model", &model_file, "--horizon", "3", "--seed", "7"]);
    for method in ["model", "nothing_moves", "velocity_estimated", "velocity_true"] {
        assert_eq!(mean_mm(&report, method, "robot").len(), 3, "{method}");
    }
    assert_eq!(mean_mm(&report, "nothing_moves", "static"), [0.0; 3]);
    let still = mean_mm(&report, "nothing_moves", "robot");
    assert!(still[0] > 0.1 && still[1] > still[0] && still[2] > still[1], "{still:?}");
    let privileged = mean_mm(&report, "velocity_true", "robot");
    assert!(privileged[0] < still[0], "{privileged:?} {still:?}");
    assert_eq!((&report["seed"], &report["horizon"]), (&7.into(), &3.into()));
    assert_eq!(report["model_hash"], model().hash);
    assert_eq!(report["n_particles"], serde_json::json!([256, 256]));
    assert_eq!((&report["n_frames"], &report["n_predicted"]), (&6.into(), &5.into()));
    assert_eq!((&report["n_evaluated"], &report["n_without_history"]), (&5.into(), &1.into()));
    assert!(report["time"]["step_ms_median"].as_f64().unwrap() > 0.0);
    assert!(!report["device"]["cpu"].as_str().unwrap().is_empty());
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let errors = |threads: &str| {
        let report = json(&[&bag, "--model", &model_file, "--threads", threads]);
        let cores = std::thread::available_parallelism().unwrap().get();
        assert_eq!(report["device"]["n_threads"], threads.parse::<usize>().unwrap().min(cores));
        report["errors"].to_string()
    };
    assert_eq!(errors("1"), errors("2"));
    let bits = |n: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        let (_, predictions) = pool.install(in_process);
        let values = predictions.iter().flat_map(|p| p.displacements.iter().flatten().flatten());
        values.map(|value| value.to_bits()).collect::<Vec<_>>()
    };
    assert!(bits(1).len() >= 5 * 3 * 256 * 3 && bits(1) == bits(2));
}

#[test]
fn the_table_names_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let output = replay(&[&bag, "--model", &model_file, "--horizon", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["mean error in mm", "0.1 s    0.2 s\n", "nothing moves", "ms a step", "1 push"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert_eq!(output.stderr, b"", "no progress bar where no terminal is");
}

#[test]
fn noise_of_the_cameras_is_added_on_request_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let with = |strength: &str| {
        json(&[&bag, "--model", &model_file, "--horizon", "2", "--sensor-noise", strength])
    };
    let clean = json(&[&bag, "--model", &model_file, "--horizon", "2"]);
    let [none, noisy, again] = ["0", "1", "1"].map(with);
    assert_eq!((&none["errors"], &none["sensor_noise"]), (&clean["errors"], &Value::Null));
    assert_eq!(noisy["sensor_noise"]["strength"], 1.0);
    assert_eq!(noisy["errors"], again["errors"]);
    let of = |report, method, class| mean_mm(report, method, class)[0];
    assert_ne!(of(&noisy, "model", "static"), of(&clean, "model", "static"));
    // The truth moves a noisy point as its body moves.
    assert_eq!(of(&noisy, "nothing_moves", "static"), 0.0);
    let ratio = of(&noisy, "nothing_moves", "robot") / of(&clean, "nothing_moves", "robot");
    assert!((ratio - 1.0).abs() < 0.15, "{ratio}");
    // What is seen later is noisy too: the observation itself agrees less.
    let later = |more: &[&str]| {
        let arguments = ["--model", &model_file, "--horizon", "2", "--no-truth"];
        json(&[&[&*bag], &arguments[..], more].concat())
    };
    let [clean, noisy] = [later(&[]), later(&["--sensor-noise", "2"])];
    assert_ne!(clean["hindsight"], noisy["hindsight"]);

    let text = replay(&[&bag, "--model", &model_file, "--sensor-noise", "0.5"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("noise      added, of strength 0.5: 1.9 mm at 1 m"), "{text}");
    for wrong in ["-1", "nan", "1000"] {
        let output = replay(&[&bag, "--model", &model_file, &format!("--sensor-noise={wrong}")]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains("strength"), "{message}");
    }
}

#[test]
fn a_picture_is_saved_where_objects_move() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let picture = folder.path().join("push.png").display().to_string();
    let arguments = [&bag, "--model", &model_file, "--horizon", "2", "--picture", &picture];
    let output = replay(&arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && message.contains("push, 0.2 s ahead"), "{message}");
    let bytes = std::fs::read(&picture).unwrap();
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000, "{} bytes", bytes.len());
    // Without truth it shows what was seen later.
    let output = replay(&[&arguments[..], &["--no-truth"]].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    assert!(message.contains("without truth, 0.2 s ahead: "), "{message}");
    let other = std::fs::read(&picture).unwrap();
    assert!(other.starts_with(b"\x89PNG") && other.len() > 10_000 && other != bytes);
}

/// The recording without what only a simulator knows.
fn without_truth(folder: &Path) -> String {
    let bag = Bag::open(tiny_push()).unwrap();
    let path = folder.join("no_truth.mcap");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = mcap::WriteOptions::new().profile("ros2").create(file).unwrap();
    let mut channels = std::collections::HashMap::new();
    for topic in bag.topics() {
        let schema = writer.add_schema(&topic.message_type, "ros2msg", b"").unwrap();
        let channel = writer.add_channel(schema, &topic.name, "cdr", &Default::default());
        channels.insert(topic.name.clone(), channel.unwrap());
    }
    for message in bag.messages_where(|topic| !topic.starts_with("/truth")) {
        let message = message.unwrap();
        let (channel_id, log_time) = (channels[&message.topic], message.log_time_ns as u64);
        let header =
            mcap::records::MessageHeader { channel_id, sequence: 0, log_time, publish_time: 0 };
        writer.write_to_known_channel(&header, &message.data).unwrap();
    }
    writer.finish().unwrap();
    path.display().to_string()
}

/// Values of a row of `hindsight`, after each step.
fn seen_later(report: &Value, method: &str, region: &str, key: &str) -> Vec<f64> {
    let is_it = |row: &&Value| row["method"] == method && row["region"] == region;
    let rows = report["hindsight"]["rows"].as_array().unwrap();
    let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("no row {method}, {region}"));
    row[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

#[test]
fn without_truth_predictions_are_held_against_what_was_seen_later() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (without_truth(folder.path()), saved_model(folder.path()));
    let output = replay(&[&bag, "--model", &model_file, "--horizon", "3"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "5 predicted, 0 compared with the truth, 4 with what was seen later",
        "4, 3, 2 predictions, after each step shown; steps not seen: 6 after the recording's end",
        "Moving regions, ",
        "covered   front   agree unknown",
        "constant velocity, estimated",
        "the observation itself",
        "'unknown': behind a surface",
        "no true velocity",
        "ms a step",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(!text.contains("constant velocity, true"), "{text}");
    assert_eq!(output.stderr, b"");
}

#[test]
fn the_truth_is_ignored_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let bare = without_truth(folder.path());
    let run = |bag: &str, more: &[&str]| json(&[&[bag, "--model", &model_file], more].concat());
    let ignored = run(&bag, &["--no-truth"]);
    assert_eq!(ignored["hindsight"], run(&bare, &[])["hindsight"]);
    assert_eq!(ignored["hindsight"], run(&bare, &["--threads", "1"])["hindsight"]);
    assert_eq!((&ignored["n_in_hindsight"], &ignored["n_evaluated"]), (&4.into(), &0.into()));
    assert!(ignored["errors"].as_array().unwrap().is_empty());
    let truth = run(&bag, &[]);
    assert_eq!((&truth["hindsight"], &truth["n_in_hindsight"]), (&Value::Null, &0.into()));
    // Both, where some recordings have truth.
    let both = json(&[&bag, &bare, "--model", &model_file]);
    assert_eq!((&both["errors"], &both["hindsight"]), (&truth["errors"], &ignored["hindsight"]));
}

#[test]
fn the_shipped_model_is_better_than_nothing_moves_in_hindsight_too() {
    let shipped = Path::new(crate::ROOT).join("models/small.safetensors");
    let (bag, model_file) = (tiny_push().display().to_string(), shipped.display().to_string());
    let report = json(&[&bag, "--model", &model_file, "--no-truth", "--horizon", "3"]);
    for region in ["moving", "robot"] {
        for key in ["violation_mm", "chamfer_mm"] {
            let of = |method| seen_later(&report, method, region, key);
            let (model, still, best) = (of("model"), of("nothing_moves"), of("observed"));
            for step in 0..3 {
                let values = [best[step], model[step], still[step]];
                assert!(values.is_sorted(), "{region} {key} {step}: {values:?}");
            }
        }
    }
    assert!(seen_later(&report, "model", "static", "agree_share").iter().all(|&s| s > 0.95));
    assert!(seen_later(&report, "model", "all", "covered_share").iter().all(|&s| s > 0.95));
}

#[test]
fn a_horizon_beyond_the_recording_is_said_with_the_longest_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let arguments = [&bag, "--model", &model_file, "--horizon"];
    let reach = "the recordings reach 0.4 s beyond predicted frames, not 0.9 s";
    for more in [&["9", "--no-truth"][..], &["9"]] {
        let notes = json(&[&arguments, more].concat())["notes"].to_string();
        assert!(notes.contains(reach) && notes.contains("--horizon 4"), "{notes}");
    }
    let text = String::from_utf8(replay(&[&arguments[..], &["9"]].concat()).stdout).unwrap();
    assert!(text.contains(reach), "{text}");
    let fits = json(&[&arguments[..], &["4", "--no-truth"]].concat());
    assert!(!fits["notes"].to_string().contains("--horizon"), "{}", fits["notes"]);
}

#[test]
fn missing_models_and_topics_are_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let refuse = |arguments: &[&str], reason: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        let command = command.current_dir(folder.path()).arg("replay").args(arguments);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains(reason), "{message}");
    };
    refuse(&[&bag, "--model", &model_file, "--cameras", "nose"], "/nose/depth/image_raw");
    refuse(&[&bag, "--model", &model_file, "--horizon", "0"], "horizon");
    refuse(&[&bag, "--model", &model_file, "--predictions", &bag], "no predictions");
    refuse(&[&bag, "--model", &model_file, "--particles", "2"], "2 are too few for a graph of 3");
}

/// The shipped model lies in the repository that the program was built in, wherever it is started.
#[test]
fn the_shipped_model_is_found_from_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let [program, model] = ["target/release/forecloud", "models/small.safetensors"]
        .map(|name| folder.path().join("repository").join(name));
    for path in [&program, &model] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    }
    std::fs::copy(env!("CARGO_BIN_EXE_forecloud"), &program).unwrap();
    std::fs::copy(&model_file, &model).unwrap();
    let replay = || {
        let mut command = Command::new(&program);
        command.current_dir(folder.path()).env_remove("FORECLOUD_SHARE");
        command.args(["replay", "--horizon", "1", "--particles", "64", &bag]).output().unwrap()
    };
    let found = replay();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    std::fs::remove_file(&model).unwrap();
    let message = String::from_utf8(replay().stderr).unwrap();
    assert!(
        message.contains("--model") && message.contains(&model.display().to_string()),
        "{message}"
    );
}

/// `forecloud/msg/Prediction` as CDR, little endian.
fn serialize(prediction: &Prediction, model_hash: &str) -> Vec<u8> {
    let n = prediction.particles.len();
    let mut bytes = Vec::new();
    let put = |bytes: &mut Vec<u8>, value: &[u8]| {
        bytes.resize(bytes.len().next_multiple_of(value.len()), 0);
        bytes.extend(value);
    };
    let put_u32 = |bytes: &mut Vec<u8>, value: usize| put(bytes, &(value as u32).to_le_bytes());
    let put_text = |bytes: &mut Vec<u8>, text: &str| {
        put_u32(bytes, text.len() + 1);
        bytes.extend(text.as_bytes());
        bytes.push(0);
    };
    let put_rows = |bytes: &mut Vec<u8>, rows: &[[f32; 3]]| {
        put_u32(bytes, 3 * rows.len());
        rows.iter().flatten().for_each(|value| bytes.extend(value.to_le_bytes()));
    };
    let (secs, nanos) = prediction.stamp.parts();
    put_u32(&mut bytes, secs as usize);
    put_u32(&mut bytes, nanos as usize);
    put_text(&mut bytes, "world");
    put(&mut bytes, &0.1f32.to_le_bytes());
    put_u32(&mut bytes, prediction.displacements.len());
    put_u32(&mut bytes, n);
    put(&mut bytes, &0u64.to_le_bytes());
    put_text(&mut bytes, model_hash);
    put_rows(&mut bytes, &prediction.particles.positions);
    put_rows(&mut bytes, &prediction.displacements.concat());
    put_u32(&mut bytes, 3 * n);
    bytes.extend(vec![0; 3 * n]);
    put_u32(&mut bytes, n);
    prediction.particles.sources.iter().for_each(|source| bytes.extend(source.to_le_bytes()));
    // Empty sigma and sigma_90: the model tells neither.
    put_u32(&mut bytes, 0);
    put_u32(&mut bytes, 0);
    let (secs, nanos) = prediction.held_against.unwrap_or_default().parts();
    put_u32(&mut bytes, secs as usize);
    put_u32(&mut bytes, nanos as usize);
    let (numbers, of) = prediction.objects.indexed();
    bytes.push(1);
    put_u32(&mut bytes, numbers.len());
    numbers.iter().for_each(|number| put(&mut bytes, &number.to_le_bytes()));
    put_u32(&mut bytes, of.len());
    of.iter().for_each(|of| put(&mut bytes, &of.to_le_bytes()));
    put_u32(&mut bytes, n);
    bytes.extend(prediction.objects.kinds.iter().map(|&kind| kind as u8));
    let (secs, nanos) = prediction.objects.since.parts();
    put_u32(&mut bytes, secs as usize);
    put_u32(&mut bytes, nanos as usize);
    put(&mut bytes, &prediction.objects.n_followed.to_le_bytes());
    [&[0, 1, 0, 0], bytes.as_slice()].concat()
}

/// A recording of what a node would have published.
fn recorded(folder: &Path, predictions: &[Prediction], model_hash: &str) -> String {
    let path = folder.join("node.mcap");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = mcap::WriteOptions::new().profile("ros2").create(file).unwrap();
    let schema = writer.add_schema("forecloud/msg/Prediction", "ros2msg", b"").unwrap();
    let channel = writer.add_channel(schema, "/forecloud/prediction", "cdr", &Default::default());
    let channel_id = channel.unwrap();
    for prediction in predictions {
        let log_time = prediction.stamp.nanos() as u64;
        let header =
            mcap::records::MessageHeader { channel_id, sequence: 0, log_time, publish_time: 0 };
        let data = serialize(prediction, model_hash);
        writer.write_to_known_channel(&header, &data).unwrap();
    }
    writer.finish().unwrap();
    Bag::open(&path).expect("a recording");
    path.display().to_string()
}

#[test]
fn published_predictions_are_compared_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let hash = model().hash;
    let (_, all) = in_process();
    let mut predictions = in_process_but(&all[1], &all);
    let run = |predictions: &[Prediction], hash: &str| {
        let node = recorded(folder.path(), predictions, hash);
        let output = replay(&[&bag, "--model", &model_file, "--predictions", &node]);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    let (code, text) = run(&all, &hash);
    assert!(code == 0 && text.contains("node, as published"), "{text}");
    assert!(text.contains("5 of 5 frames predicted by the node; bit for bit equal: yes"), "{text}");
    // Where the node passed over frames, those that are there say nothing of them.
    let (code, text) = run(&predictions, &hash);
    let partial = "4 of 5 frames predicted by the node; bit for bit equal: 4 are; unknown for \
                   the others: 1 frame is missing";
    assert!(code == 3 && text.contains(partial), "{code}: {text}");
    assert!(text.contains("0.3 s\n"), "the horizon is the published one: {text}");
    // Where one was lost on the way, those after it hang on what is not known.
    let mut lossy = all.clone();
    lossy.remove(1);
    let (code, text) = run(&lossy, &hash);
    let partial = "equal: 1 are; unknown for the others: 1 frame is missing; 3 hang on earlier \
                   predictions that replay can't make, and are not compared";
    assert!(code == 3 && text.contains(partial), "{code}: {text}");

    // The node's predictions of four frames, in hindsight too: of these, three are seen later.
    let node = recorded(folder.path(), &predictions, &hash);
    let arguments = [&bag, "--model", &model_file, "--predictions", &node, "--no-truth", "--json"];
    let report: Value = serde_json::from_slice(&replay(&arguments).stdout).unwrap();
    assert_eq!(seen_later(&report, "node", "all", "n_points"), [768.0, 512.0, 256.0]);
    assert_eq!(seen_later(&report, "model", "all", "n_points"), [768.0, 512.0, 256.0]);

    let (code, text) = run(&predictions, "0123");
    assert!(code == 1 && text.contains("the node ran model 0123"), "{text}");

    let value = &mut predictions[2].displacements[1][17][2];
    *value = f32::from_bits(value.to_bits() + 1);
    let (code, text) = run(&predictions, &hash);
    assert!(code == 1 && text.contains("equal: no: 1 prediction differs"), "{text}");
    assert!(text.contains("1 number differs"), "{text}");
}

#[test]
fn what_published_predictions_differ_in_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let (_, predictions) = in_process();
    let node = recorded(folder.path(), &predictions, &model().hash);
    let arguments = [&bag, "--model", &model_file, "--predictions", &node];
    let differs = |more: &[&str], told: &str, what: &str| {
        let output = replay(&[&arguments[..], more].concat());
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(told), "{more:?}: {text}");
        assert!(!text.contains("0e0 m"), "{text}");
        let output = replay(&[&arguments[..], more, &["--json"]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let causes = report["published"]["differences"].as_array().unwrap();
        assert_eq!((&causes[0]["what"], &causes[0]["n_frames"]), (&what.into(), &5.into()));
    };
    differs(&["--seed", "3"], "5 predictions differ; seed: 0 published, 3 replayed", "seed");
    differs(
        &["--horizon", "2"],
        "5 predictions differ; horizon: 3 published, 2 replayed",
        "horizon",
    );
    differs(&["--particles", "200"], "particles: 256 published, 200 replayed", "particles");
    let shifted = ["--workspace", "-0.4,-0.45,-0.015", "0.5,0.45,0.6"];
    differs(
        &shifted,
        "the particles come from other pixels: another recording, workspace",
        "pixels",
    );

    // Of a file that is cut, what is left says nothing of the rest.
    let bytes = std::fs::read(&node).unwrap();
    let cut = folder.path().join("cut.mcap").display().to_string();
    std::fs::write(&cut, &bytes[..bytes.len() - 8]).unwrap();
    let output = replay(&[&bag, "--model", &model_file, "--predictions", &cut]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(3) && !text.contains("equal: yes"), "{text}");
    assert!(text.contains("bit for bit equal: 5 are; unknown for the others"), "{text}");
    // Of another recording: no frame is the same.
    let mut others = predictions[..2].to_vec();
    others.iter_mut().for_each(|p| p.stamp = p.stamp.plus_secs(1000.0));
    let node = recorded(folder.path(), &others, &model().hash);
    let output = replay(&[&bag, "--model", &model_file, "--predictions", &node]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1), "{text}");
    assert!(text.contains("none is of a frame of this recording"), "{text}");
}

#[test]
fn a_script_can_tell_what_was_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let bad = folder.path().join("bad.mcap").display().to_string();
    std::fs::write(&bad, "no recording").unwrap();
    let code = |bags: &[&str]| {
        replay(&[bags, &["--model", &model_file, "--horizon", "1"]].concat()).status.code()
    };
    assert_eq!(code(&[&bag, &bag]), Some(0));
    assert_eq!(code(&[&bag, &bad]), Some(3));
    assert_eq!(code(&[&bad, &bad]), Some(1));
    assert_eq!(code(&[&bad]), Some(1));
    assert_eq!(code(&[&bag, "--horizon", "none"]), Some(2));
    let help = String::from_utf8(replay(&["--help"]).stdout).unwrap();
    assert!(help.contains("Exit codes:") && help.contains("  3  a partial result"), "{help}");
}

#[test]
fn points_outside_of_the_workspace_are_told_with_a_box_that_holds_them() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    let with = |min: &str, max: &str| {
        replay(&[&bag, "--model", &model_file, "--horizon", "1", "--workspace", min, max])
    };
    let output = with("5,5,5", "6,6,6");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the workspace 5,5,5 to 6,6,6 (m, in world) holds 0.0 %"), "{text}");
    // What it proposes works.
    let proposed = text.split("--workspace ").nth(1).unwrap();
    let [min, max]: [&str; 2] =
        proposed.split_whitespace().take(2).collect::<Vec<_>>().try_into().unwrap();
    let output = with(min, max);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{min} {max}: {text}");
    assert!(text.contains(&format!("workspace  {min} to {max} m: ")), "{text}");
    for wrong in [["1,2", "3,4,5"], ["a,b,c", "1,1,1"], ["1,1,1", "0,0,0"]] {
        assert!(!with(wrong[0], wrong[1]).status.success(), "{wrong:?}");
    }
}

#[test]
fn the_verdict_and_false_motion_are_told_with_truth_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let (bag, model_file) = (tiny_push().display().to_string(), saved_model(folder.path()));
    for more in [&[][..], &["--no-truth"]] {
        let report = json(&[&[&*bag, "--model", &model_file, "--horizon", "3"], more].concat());
        let verdict = &report["verdicts"][0];
        let [model, still] = match more {
            [] => ["model", "nothing_moves"].map(|m| mean_mm(&report, m, "object_moving")[2]),
            _ => ["model", "nothing_moves"]
                .map(|m| seen_later(&report, m, "moving", "chamfer_mm")[2]),
        };
        assert_eq!(verdict["model_mm"], model);
        assert_eq!(verdict["baselines"][0]["mm"], still);
        assert!(verdict["false_motion_mm"].as_f64().is_some_and(|mm| mm >= 0.0), "{verdict}");
        let arguments = [&[&*bag, "--model", &model_file, "--horizon", "3"], more].concat();
        let text = String::from_utf8(replay(&arguments).stdout).unwrap();
        assert!(text.contains("verdict    the model is "), "{text}");
        assert!(text.contains("false motion of static points: "), "{text}");
    }
}

/// All frames of the tiny recording, and a maker of predictors that know its robot.
fn tiny_frames() -> (Vec<Frame>, impl Fn() -> Predictor) {
    let recording = Recording::open(&tiny_push(), FramesConfig::default()).unwrap();
    let mut frames = Vec::new();
    let collect = |frame, _| -> forecloud::Result<()> {
        frames.push(frame);
        Ok(())
    };
    recording.play(collect).unwrap();
    let urdf = recording.robot_description().unwrap().unwrap();
    let predictor = move || {
        let mut predictor = Predictor::new(model(), PredictorConfig::default()).unwrap();
        predictor.set_robot(&urdf, "world").unwrap();
        predictor
    };
    (frames, predictor)
}

#[test]
fn a_frame_that_was_only_kept_is_as_good_a_history() {
    let (frames, predictor) = tiny_frames();
    let mut every = predictor();
    let all: Vec<_> = frames.iter().map(|frame| every.step(frame).unwrap().cloned()).collect();
    let mut busy = predictor();
    assert!(busy.step(&frames[0]).unwrap().is_none());
    // Frames 1 and 2 are passed over; 2 is looked at only when 3 needs it.
    busy.keep(frames[1].clone());
    busy.keep(frames[2].clone());
    assert!(!busy.has_history(&frames[3]));
    let late = busy.step(&frames[3]).unwrap().expect("frame 2 is its history");
    let expected = all[3].as_ref().expect("frame 2 is its history");
    assert_eq!(late.displacements, expected.displacements);
    assert_eq!(late.particles.positions, expected.particles.positions);
    let kept: Vec<_> = busy.kept().map(|frame| frame.stamp).collect();
    assert_eq!(kept, [frames[1].stamp], "what was looked at is kept no longer");
}

#[test]
fn kept_frames_are_few_and_of_the_past_and_outlast_a_new_robot() {
    let (frames, predictor) = tiny_frames();
    let mut idle = predictor();
    let stamps =
        |predictor: &Predictor| -> Vec<_> { predictor.kept().map(|frame| frame.stamp).collect() };
    let at = |nanos| Frame { stamp: Stamp::from_nanos(nanos), ..frames[0].clone() };
    (0..20).for_each(|i| idle.keep(at(i)));
    let newest: Vec<_> = (20 - MAX_KEPT as i64..20).map(Stamp::from_nanos).collect();
    assert_eq!(stamps(&idle), newest);
    idle.keep(at(15));
    assert_eq!(stamps(&idle).last(), Some(&Stamp::from_nanos(15)), "time was set back");
    assert_eq!(idle.forget(), MAX_KEPT - 4);
    // The robot is another one: what was observed is of the one before, what is kept is of none.
    idle.step(&frames[0]).unwrap();
    idle.keep(frames[1].clone());
    let recording = Recording::open(&tiny_push(), FramesConfig::default()).unwrap();
    idle.set_robot(&recording.robot_description().unwrap().unwrap(), "world").unwrap();
    idle.warm_up(&frames[2]).unwrap();
    assert_eq!(stamps(&idle), [frames[1].stamp]);
    assert!(idle.step(&frames[2]).unwrap().is_some());
}

#[test]
fn a_kept_frame_that_cannot_be_used_is_named_and_the_next_one_has_a_history() {
    let (frames, predictor) = tiny_frames();
    let mut busy = predictor();
    let mut broken = frames[1].clone();
    broken.cameras.iter_mut().for_each(|camera| camera.world_from_camera.translation.z += 99.0);
    busy.keep(broken);
    let told = busy.step(&frames[2]).unwrap_err().to_string();
    let words = format!("the frame one step before it, of {} s: 0 points", frames[1].stamp);
    assert!(told.starts_with(&words), "{told}");
    assert!(busy.step(&frames[3]).unwrap().is_some());
}

#[test]
fn frames_of_other_cameras_are_no_history() {
    let recording = Recording::open(&tiny_push(), FramesConfig::default()).unwrap();
    let urdf = recording.robot_description().unwrap().unwrap();
    let (mut n, mut frames) = (0, Vec::new());
    let keep = |mut frame: Frame, _| -> forecloud::Result<()> {
        // The second camera is missing from the third frame to the fifth.
        if (2..5).contains(&n) {
            frame.cameras.truncate(1);
        }
        n += 1;
        frames.push(frame);
        Ok(())
    };
    recording.play(keep).unwrap();
    let predicted = |frames: &[Frame]| -> Vec<Option<Prediction>> {
        let mut predictor = Predictor::new(model(), PredictorConfig::default()).unwrap();
        predictor.set_robot(&urdf, "world").unwrap();
        frames.iter().map(|frame| predictor.step(frame).unwrap().cloned()).collect()
    };
    let all = predicted(&frames);
    let is_predicted: Vec<bool> = all.iter().map(Option::is_some).collect();
    assert_eq!(is_predicted, [false, true, false, true, true, false]);
    // What is predicted is what a predictor says that never saw the other camera.
    let alone = predicted(&frames[2..5]);
    for (a, b) in all[3..5].iter().flatten().zip(alone[1..].iter().flatten()) {
        assert!(a.displacements == b.displacements && a.stamp == b.stamp);
        assert!(a.particles.sources.iter().all(|source| source >> 24 == 0));
    }
}

#[test]
fn a_robot_description_that_cannot_be_used_changes_nothing() {
    let recording = Recording::open(&tiny_push(), FramesConfig::default()).unwrap();
    let mut predictor = Predictor::new(model(), PredictorConfig::default()).unwrap();
    predictor.set_robot(&recording.robot_description().unwrap().unwrap(), "world").unwrap();
    let mut n_predicted = 0;
    let step = |frame, _| -> forecloud::Result<()> {
        assert!(predictor.set_robot("<robot name='broken'", "world").is_err());
        n_predicted += usize::from(predictor.step(&frame)?.is_some());
        Ok(())
    };
    recording.play(step).unwrap();
    assert_eq!(n_predicted, 5, "all frames but the first");
}
