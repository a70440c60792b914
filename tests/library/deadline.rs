//! Predictions that must end in time: cut, but not changed.

use std::path::Path;
use std::time::{Duration, Instant};

use forecloud::engine::backend::Device;
use forecloud::engine::model::weights::initial_weights;
use forecloud::engine::model::{Layout, Model, ModelConfig};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::robot::kinematics::RobotMode;
use forecloud::vision::frames::{Frame, FramesConfig};
use forecloud_bag::recording::Recording;

const CONFIG: PredictorConfig = PredictorConfig {
    plan_lag_secs: None,
    robot: RobotMode::Optional,
    horizon: 3,
    n_particles: 400,
    seed: 3,
    device: Device::Cpu,
    workspace: None,
    origin: [0.0; 3],
    hold_at_rest: true,
    carry_robot: true,
    history_tolerance_secs: 0.025,
    deadline_secs: 0.0,
};

fn recording() -> Recording {
    Recording::open(Path::new("tests/data/tiny_push"), FramesConfig::default()).unwrap()
}

/// A small untrained model whose passes have `steps_per_pass` steps.
fn model(steps_per_pass: usize) -> Model {
    let replan_interval = None;
    let config = ModelConfig {
        width: 16,
        n_heads: 2,
        n_blocks: 1,
        steps_per_pass,
        replan_interval,
        ..ModelConfig::default()
    };
    let weights = initial_weights(&Layout::new(config.interlacer()), 1);
    Model::new(config, weights).unwrap()
}

/// One whose passes of four steps are kept for two.
fn model_that_looks_again() -> Model {
    let (of, weights) = (model(4), model(4).weights);
    Model::new(ModelConfig { replan_interval: Some(2), ..of.config }, weights).unwrap()
}

/// Predictions of the recording played `times` over, each frame as if it had arrived `age` ago.
fn predictions(config: PredictorConfig, age: Duration, times: usize) -> Vec<Prediction> {
    predictions_of(model(1), config, age, times)
}

fn predictions_of(
    model: Model,
    config: PredictorConfig,
    age: Duration,
    times: usize,
) -> Vec<Prediction> {
    let mut predictor = Predictor::new(model, config).unwrap();
    let recording = recording();
    let urdf = recording.robot_description().unwrap().unwrap();
    predictor.set_robot(&urdf, "world").unwrap();
    let mut predictions = Vec::new();
    for _ in 0..times {
        let step = |frame: Frame, _| -> forecloud::Result<()> {
            let arrived = Instant::now().checked_sub(age).unwrap();
            predictions.extend(predictor.step_in_time(&frame, arrived)?.cloned());
            Ok(())
        };
        recording.play(step).unwrap();
    }
    predictions
}

#[test]
fn a_warm_predictor_predicts_the_same_from_the_second_frame_on() {
    // So tight that three predictions cost particles: those that warm it up don't count, nor are they cut.
    let tight = PredictorConfig { deadline_secs: 1e-6, ..CONFIG };
    for config in [CONFIG, tight] {
        let recording = recording();
        let urdf = recording.robot_description().unwrap().unwrap();
        let cold = predictions(config, Duration::ZERO, 1);
        let mut predictor = Predictor::new(model(1), config).unwrap();
        predictor.set_robot(&urdf, "world").unwrap();
        let (mut warm, mut is_first) = (Vec::new(), true);
        let step = |frame: Frame, _| -> forecloud::Result<()> {
            for _ in 0..if is_first { 5 } else { 0 } {
                predictor.warm_up(&frame)?;
                assert!(!predictor.has_frame_before(&frame) && predictor.snapshot().is_err());
                assert_eq!(predictor.backend().n_steps(), config.horizon);
            }
            let prediction = predictor.step(&frame)?.cloned();
            assert_eq!(prediction.is_none(), std::mem::take(&mut is_first));
            warm.extend(prediction);
            Ok(())
        };
        recording.play(step).unwrap();
        assert_eq!(warm.len(), cold.len());
        for (warm, cold) in warm.iter().zip(&cold) {
            assert_eq!(warm.displacements, cold.displacements);
            assert_eq!(warm.particles.positions, cold.particles.positions);
            assert_eq!(warm.sigmas, cold.sigmas);
            assert_eq!((warm.is_cut, warm.history_stamp), (cold.is_cut, cold.history_stamp));
        }
    }
}

/// Predictions whose past is alike, cut or whole: later ones hang on what came of three steps that were said.
const ALIKE: usize = 3;

#[test]
fn a_late_prediction_ends_where_the_next_pass_would_look_again() {
    let of = |config, age| predictions_of(model_that_looks_again(), config, age, 1);
    let whole = of(CONFIG, Duration::ZERO);
    let cut = of(PredictorConfig { deadline_secs: 0.1, ..CONFIG }, Duration::from_secs(1));
    assert_eq!((whole.len(), cut.len()), (5, 5));
    for (whole, cut) in whole.iter().zip(&cut).take(ALIKE) {
        assert_eq!((whole.displacements.len(), cut.displacements.len()), (3, 2));
        assert_eq!(whole.displacements[..2], cut.displacements);
    }
}

#[test]
fn a_late_prediction_is_the_beginning_of_the_whole_one() {
    let whole = predictions(CONFIG, Duration::ZERO, 1);
    let late = PredictorConfig { deadline_secs: 0.1, ..CONFIG };
    let cut = predictions(late, Duration::from_secs(1), 1);
    assert_eq!((whole.len(), cut.len()), (5, 5));
    for (whole, cut) in whole.iter().zip(&cut) {
        assert_eq!((whole.displacements.len(), cut.displacements.len()), (3, 1));
        assert!(cut.is_cut && !whole.is_cut);
        assert_eq!(whole.displacements[..1], cut.displacements);
        assert_eq!(whole.particles.sources, cut.particles.sources);
    }
}

#[test]
fn of_longer_passes_whole_ones_are_kept() {
    let late = PredictorConfig { deadline_secs: 0.1, ..CONFIG };
    for (steps_per_pass, n_steps) in [(2, 2), (3, 3), (5, 3)] {
        let whole = predictions_of(model(steps_per_pass), CONFIG, Duration::ZERO, 1);
        let cut = predictions_of(model(steps_per_pass), late, Duration::from_secs(1), 1);
        for (whole, cut) in whole.iter().zip(&cut).take(ALIKE) {
            assert_eq!(
                (cut.displacements.len(), cut.is_cut),
                (n_steps, n_steps < 3),
                "{steps_per_pass}"
            );
            assert_eq!(whole.displacements[..n_steps], cut.displacements);
        }
    }
}

#[test]
fn where_the_shortest_is_late_particles_are_given_up_and_no_more_than_stated() {
    let late = PredictorConfig { deadline_secs: 0.1, n_particles: 1000, ..CONFIG };
    // Where a pass has more steps than are asked for, it is the shortest roll-out.
    for (steps_per_pass, n_steps) in [(1, 1), (5, 3)] {
        let cut = predictions_of(model(steps_per_pass), late, Duration::from_secs(1), 5);
        let n: Vec<usize> = cut.iter().map(|prediction| prediction.particles.len()).collect();
        assert_eq!((n[0], n[24]), (1000, 512), "{n:?}");
        assert!(n.is_sorted_by(|a, b| a >= b), "{n:?}");
        assert!(cut.iter().all(|prediction| prediction.displacements.len() == n_steps));
        let is_whole = |cut: &Prediction| n_steps == 3 && cut.particles.len() == 1000;
        assert!(cut.iter().all(|cut| cut.is_cut != is_whole(cut)));
    }
    // In time, nothing is given up.
    let easy = predictions(PredictorConfig { deadline_secs: 10.0, ..CONFIG }, Duration::ZERO, 1);
    assert!(easy.iter().all(|prediction| !prediction.is_cut));
}
