//! Things that go on though the model, which never saw such things, predicts that they stop.

use std::path::Path;

use crate::blocks::{Block, frame};
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::robot::kinematics::RobotMode;

fn predictor() -> Predictor {
    let model = Model::load(&Path::new(crate::ROOT).join("models/small.safetensors")).unwrap();
    let robot = RobotMode::None;
    Predictor::new(model, PredictorConfig { horizon: 10, robot, ..Default::default() }).unwrap()
}

const RESTING: Block = Block { center: [0.25, 0.25, 0.05], size: 0.1, rgb: [30, 30, 200] };

/// Mean way of what is green in the first five steps (m), and mean sigma_90 then.
fn of_green(prediction: &Prediction) -> ([f64; 3], f64) {
    let is_green = |color: &[f32; 3]| color[1] > 0.6 && color[0] < 0.3;
    let colors = prediction.particles.colors.iter().enumerate();
    let green: Vec<usize> = colors.filter(|(_, c)| is_green(c)).map(|(i, _)| i).collect();
    assert!(green.len() > 10, "{}", green.len());
    let mean = |value: &dyn Fn(usize) -> f64| {
        green.iter().map(|&i| value(i)).sum::<f64>() / green.len() as f64
    };
    let steps = &prediction.displacements[..5];
    let way = |axis: usize| mean(&|i| steps.iter().map(|step| f64::from(step[i][axis])).sum());
    let sigma = mean(&|i| f64::from(prediction.told_sigmas(1)[4][i]));
    ([0, 1, 2].map(way), sigma)
}

#[test]
fn a_box_that_slides_on_is_predicted_to_and_one_that_stops_is_not() {
    let mut predictor = predictor();
    let mut held = Vec::new();
    let mut ways = Vec::new();
    for i in 0..16 {
        // 12 mm a step until it stands still, after eleven steps.
        let y = -0.25 + 0.012 * f64::from(i.min(11));
        let moving = Block { center: [0.35, y, 0.04], size: 0.08, rgb: [30, 200, 30] };
        let frame = frame(0.1 * f64::from(i), &[moving, RESTING]);
        let Some(prediction) = predictor.step(&frame).unwrap() else { continue };
        held.push(prediction.held_against.is_some());
        ways.push((i, of_green(prediction)));
    }
    assert_eq!(held[..3], [false, true, true]);
    for &(i, (way, sigma_90)) in &ways {
        let off = if i <= 11 { (way[1] - 0.06).hypot(way[0]).hypot(way[2]) } else { way[1].abs() };
        if (3..=10).contains(&i) {
            assert!(off < sigma_90, "frame {i}: {off} of {sigma_90} m");
        }
        if (7..=10).contains(&i) {
            assert!(off < 0.25 * 0.06 && sigma_90 < 0.06, "frame {i}: {way:?}, {sigma_90}");
        }
        if i >= 14 {
            assert!(off < 0.003, "it rests since frame 12, frame {i}: {way:?}");
        }
    }
}

#[test]
fn a_prediction_hangs_on_those_of_two_seconds_and_on_none_from_earlier() {
    let block = |i: i32| {
        let (x, y) = if i < 4 {
            (0.35 - 0.03 * f64::from(i), -0.25)
        } else {
            (0.26, -0.25 + 0.012 * f64::from(i - 3))
        };
        Block { center: [x, y, 0.04], size: 0.08, rgb: [30, 200, 30] }
    };
    let run = |from: i32, keeps: bool| {
        let mut predictor = predictor();
        let mut last = None;
        for i in from..22 {
            let frame = frame(0.1 * f64::from(i), &[block(i), RESTING]);
            // One frame that nobody predicts from.
            if keeps && i == 20 {
                predictor.keep(frame);
            } else {
                last = predictor.step(&frame).unwrap().cloned();
            }
        }
        last.unwrap()
    };
    let whole = run(0, false);
    assert_eq!(run(2, false).displacements, whole.displacements, "to the bit");
    let skipped = run(0, true);
    assert_eq!((whole.held_against.is_some(), skipped.held_against), (true, None));
    assert_ne!(skipped.displacements, whole.displacements);
    assert_eq!(skipped.particles.positions, whole.particles.positions);
}
