//! Predictions with a robot, without one, and with one that matters to nothing.

use crate::edited;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use edited::write_recording;
use forecloud::engine::model::Model;
use forecloud::message::JointTrajectory;
use forecloud::planner::candidates::Candidates;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::robot::kinematics::{Mount, RobotMode};
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::{Frame, FramesConfig};
use forecloud::{Error, Result};
use forecloud_bag::recording::Recording;
use nalgebra::Isometry3;

fn path(relative: &str) -> PathBuf {
    Path::new(crate::ROOT).join(relative)
}

fn recording() -> Recording {
    Recording::open(&path("tests/data/tiny_push"), FramesConfig::default()).unwrap()
}

fn frames() -> Vec<Frame> {
    let mut frames = Vec::new();
    let keep = |frame, _| -> Result<()> {
        frames.push(frame);
        Ok(())
    };
    recording().play(keep).unwrap();
    frames
}

fn without(mut frame: Frame) -> Frame {
    frame.robot = None;
    frame
}

/// The frame of a robot whose root tf puts there.
fn at(root: Isometry3<f64>) -> impl Fn(Frame) -> Frame {
    move |mut frame| {
        let robot = frame.robot.as_mut().expect("a robot");
        robot.mount = Mount { root: Some(root), free: Vec::new() };
        frame
    }
}

fn config(robot: RobotMode) -> PredictorConfig {
    PredictorConfig { horizon: 3, n_particles: 512, robot, ..PredictorConfig::default() }
}

fn predictor(robot: RobotMode, urdf: Option<&str>) -> Predictor {
    let model = Model::load(&path("models/small.safetensors")).unwrap();
    let mut predictor = Predictor::new(model, config(robot)).unwrap();
    if let Some(urdf) = urdf {
        predictor.set_robot(urdf, "world").unwrap();
    }
    predictor
}

/// The recording's robot, as it is and with a root that only tf can place.
fn descriptions() -> [String; 2] {
    let urdf = recording().robot_description().unwrap().unwrap();
    let placed_by_tf = urdf.replace("\"world\"", "\"earth\"");
    [urdf, placed_by_tf]
}

fn predict(predictor: &mut Predictor, frames: impl Iterator<Item = Frame>) -> Vec<Prediction> {
    frames.filter_map(|frame| predictor.step(&frame).unwrap().cloned()).collect()
}

fn bits(predictions: &[Prediction]) -> Vec<u32> {
    let steps = predictions.iter().flat_map(|prediction| &prediction.displacements);
    steps.flatten().flatten().map(|d| d.to_bits()).collect()
}

#[test]
fn without_a_robot_predictions_go_on() {
    let frames = frames();
    let n = frames.len() - 1;
    let [urdf, placed_by_tf] = descriptions();
    let alone = predict(&mut predictor(RobotMode::Optional, None), frames.iter().cloned());
    assert_eq!(alone.len(), n);
    let moved = alone.iter().flat_map(|prediction| prediction.displacements.iter().flatten());
    assert!(moved.flatten().all(|d| d.is_finite()));
    // Whatever the reason for which there is none.
    let cut = frames.iter().cloned().map(without);
    let no_joints = predict(&mut predictor(RobotMode::Optional, Some(&urdf)), cut);
    let ignored = predict(&mut predictor(RobotMode::None, Some(&urdf)), frames.iter().cloned());
    let mut unplaced = predictor(RobotMode::Optional, Some(&placed_by_tf));
    let unplaced = predict(&mut unplaced, frames.iter().cloned());
    for other in [no_joints, ignored, unplaced] {
        assert_eq!(bits(&other), bits(&alone));
    }
    let with_robot = predict(&mut predictor(RobotMode::Required, Some(&urdf)), frames.into_iter());
    assert_eq!(with_robot.len(), n);
    assert_ne!(bits(&with_robot), bits(&alone));
}

#[test]
fn a_robot_that_is_required_is_asked_for() {
    let frames = frames();
    let mut predictor = predictor(RobotMode::Required, None);
    assert!(matches!(predictor.step(&frames[0]), Err(Error::NoRobot)));
    assert!(matches!(predictor.snapshot(), Err(Error::NoRobot)));
}

#[test]
fn a_robot_that_stays_far_outside_changes_nothing() {
    let frames = frames();
    let [_, urdf] = descriptions();
    let alone = predict(&mut predictor(RobotMode::Optional, None), frames.iter().cloned());
    let with_root = |x: f64| {
        let frames = frames.iter().cloned().map(at(Isometry3::translation(x, 0.0, 0.0)));
        bits(&predict(&mut predictor(RobotMode::Optional, Some(&urdf)), frames))
    };
    for x in [2.5, 5.0, -50.0] {
        assert_eq!(with_root(x), bits(&alone), "a robot {x} m away");
    }
    assert_ne!(with_root(0.0), bits(&alone));
}

#[test]
fn the_root_from_tf_is_where_the_description_would_put_it() {
    let frames = frames();
    let [urdf, placed_by_tf] = descriptions();
    let described =
        predict(&mut predictor(RobotMode::Required, Some(&urdf)), frames.iter().cloned());
    let placed = frames.into_iter().map(at(Isometry3::identity()));
    let placed = predict(&mut predictor(RobotMode::Required, Some(&placed_by_tf)), placed);
    assert_eq!(bits(&described), bits(&placed));
}

#[test]
fn where_the_robot_comes_or_goes_predictions_go_on() {
    let frames = frames();
    let [urdf, _] = descriptions();
    let mut predictor = predictor(RobotMode::Optional, Some(&urdf));
    let is_predicted = frames.into_iter().enumerate().map(|(i, frame)| {
        let frame = if (2..4).contains(&i) { without(frame) } else { frame };
        assert_eq!(predictor.has_history(&frame), i > 0, "frame {i}");
        predictor.step(&frame).unwrap().is_some()
    });
    let is_predicted: Vec<bool> = is_predicted.collect();
    assert_eq!(is_predicted, [false, true, true, true, true, true]);
}

#[test]
fn candidates_need_a_robot_and_may_bring_it_from_afar() {
    let frames = frames();
    let [_, urdf] = descriptions();
    let mut candidates = Candidates::new(1).unwrap();
    let plan = || JointTrajectory::clone(frames[1].plan.last().expect("a plan"));
    let mut alone = predictor(RobotMode::Optional, None);
    predict(&mut alone, frames.iter().take(2).cloned());
    let refused = candidates.predict(&alone.snapshot().unwrap(), plan(), 3).unwrap_err();
    assert!(matches!(refused, Error::Plan { .. }), "{refused}");
    let mut far = predictor(RobotMode::Optional, Some(&urdf));
    let there = at(Isometry3::translation(5.0, 0.0, 0.0));
    let live = predict(&mut far, frames.iter().take(2).cloned().map(there));
    let rolled = candidates.predict(&far.snapshot().unwrap(), plan(), 3).unwrap();
    assert_eq!(bits(&[rolled]), bits(&live));
}

fn replay(folder: &Path, arguments: &[&str]) -> Output {
    let model = path("models/small.safetensors");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.current_dir(folder).args(["replay", "--horizon", "1", "--particles", "256", "--model"]);
    command.arg(model).args(arguments).output().expect("the tool runs")
}

#[test]
fn recordings_without_a_robot_are_replayed_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    write_recording(&folder.path().join("bag"), "test", |message| {
        !message.topic.ends_with("/robot_description") && !message.topic.ends_with("joint_states")
    });
    let output = replay(folder.path(), &["bag"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let warning = "played without a robot, as there is no /robot_description and no /joint_states";
    assert_eq!(told.matches(warning).count(), 1, "{told}");
    let output = replay(folder.path(), &["bag", "-p", "robot:=none", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!report["bags"][0]["warnings"].to_string().contains("robot"), "{report}");
    assert_eq!(report["bags"][0]["frames"]["frames_without_robot"], 0);
    assert_eq!(report["n_predicted"], 5);
    let output = replay(folder.path(), &["bag", "-p", "robot:=required"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("/joint_states"), "{told}");
    let output = replay(folder.path(), &["bag", "-p", "robot:=maybe"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--param") && told.contains("required, optional or none"), "{told}");
}

/// The frame of a scene that lies elsewhere in the world.
fn moved(by: [f64; 3]) -> impl Fn(Frame) -> Frame {
    move |mut frame| {
        for camera in &mut frame.cameras {
            let there = nalgebra::Translation3::from(by) * camera.world_from_camera;
            camera.world_from_camera = there;
        }
        without(frame)
    }
}

#[test]
fn a_scene_that_lies_elsewhere_is_predicted_as_where_the_model_knows_it() {
    let frames = frames();
    let usual = Model::load(&path("models/small.safetensors")).unwrap().config.workspace;
    let here = predict(&mut predictor(RobotMode::None, None), frames.iter().cloned());
    let there = moved([2.0, -1.5, 0.75]);
    let places: Vec<_> = frames.iter().map(|frame| usual.proposal(&frame.cameras, None)).collect();
    assert!(places.iter().all(|place| matches!(place, Ok(Some(p)) if p.workspace == usual)));
    let place = usual.proposal(&there(frames[0].clone()).cameras, None).unwrap().expect("a place");
    assert_ne!(place.workspace, usual);
    assert!((place.origin[2] - 0.75).abs() < 0.01, "on the table: {place:?}");
    // The same box, moved along, so that the same points are drawn.
    let by = [2.0, -1.5, 0.75];
    let corner = |corner: [f32; 3]| std::array::from_fn(|i| corner[i] + by[i]);
    let workspace = Workspace { min: corner(usual.min), max: corner(usual.max) };
    let mean_mm = |origin: [f32; 3]| -> f32 {
        let mut predictor = predictor(RobotMode::None, None);
        let config = PredictorConfig { workspace: Some(workspace), origin, ..*predictor.config() };
        predictor.set_config(config).unwrap();
        let found = predict(&mut predictor, frames.iter().cloned().map(&there));
        let pairs = here.iter().zip(&found).flat_map(|(a, b)| {
            let of = |p: &Prediction| p.displacements[0].clone();
            of(a).into_iter().zip(of(b)).collect::<Vec<_>>()
        });
        let apart =
            pairs.map(|(a, b)| 1e3 * (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f32>().sqrt());
        let apart: Vec<f32> = apart.collect();
        apart.iter().sum::<f32>() / apart.len() as f32
    };
    let (told, untold) = (mean_mm(by), mean_mm([0.0; 3]));
    // Digits lost on the way may turn a patch of the motion estimate.
    assert!(told < 3.0 && untold > 10.0 * told, "mean difference {told} mm, else {untold} mm");
}
