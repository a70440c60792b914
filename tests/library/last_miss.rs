//! Things that go on though the model, which never saw such things, predicts that they stop.

use std::path::Path;
use std::sync::Arc;

use forecloud::engine::model::Model;
use forecloud::message::{CameraInfo, Header, Image, Stamp};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::robot::kinematics::RobotMode;
use forecloud::vision::frames::{CameraFrame, ColorView, Frame, View};
use nalgebra::{Isometry3, Point3, Vector3};

const WIDTH: u32 = 240;
const HEIGHT: u32 = 180;
const FOCAL: f64 = 220.0;

/// A box of `size` (m) about `center`, and its colour.
#[derive(Clone, Copy)]
struct Block {
    center: [f64; 3],
    size: f64,
    rgb: [u8; 3],
}

/// Distance along a ray at which it meets the floor or a block, and the colour there.
fn hit(eye: &Point3<f64>, ray: &Vector3<f64>, blocks: &[Block]) -> (f64, [u8; 3]) {
    let floor = if ray.z < -1e-6 { -eye.z / ray.z } else { f64::INFINITY };
    let mut found = (floor, [110, 110, 100]);
    for block in blocks {
        let (mut enters, mut leaves) = (0.0f64, f64::INFINITY);
        for axis in 0..3 {
            let to = |side: f64| (block.center[axis] + side * block.size - eye[axis]) / ray[axis];
            let (a, b) = (to(-0.5), to(0.5));
            (enters, leaves) = (enters.max(a.min(b)), leaves.min(a.max(b)));
        }
        if enters < leaves && enters < found.0 {
            found = (enters, block.rgb);
        }
    }
    found
}

/// What two cameras see of `blocks`, `secs` after the start.
fn frame(secs: f64, blocks: &[Block]) -> Frame {
    let stamp = Stamp::from_secs(1000.0).plus_secs(secs);
    let header = Header { stamp, frame_id: "camera".into() };
    let k = [FOCAL, 0.0, 119.5, 0.0, FOCAL, 89.5, 0.0, 0.0, 1.0];
    let p = [FOCAL, 0.0, 119.5, 0.0, 0.0, FOCAL, 89.5, 0.0, 0.0, 0.0, 1.0, 0.0];
    let info = Arc::new(CameraInfo {
        header: header.clone(),
        height: HEIGHT,
        width: WIDTH,
        distortion_model: "plumb_bob".into(),
        d: vec![],
        k,
        r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p,
    });
    let image = |encoding: &str, step: u32, data: Vec<u8>| Image {
        header: header.clone(),
        height: HEIGHT,
        width: WIDTH,
        encoding: encoding.into(),
        is_bigendian: false,
        step,
        data,
    };
    let camera = |number: usize, side: f64| {
        let (eye, target) = (Point3::new(0.9, side, 0.6), Point3::new(0.1, 0.0, 0.05));
        let pose = Isometry3::face_towards(&eye, &target, &-Vector3::z());
        let (mut depth, mut color) = (Vec::new(), Vec::new());
        for pixel in 0..WIDTH * HEIGHT {
            let (u, v) = (f64::from(pixel % WIDTH), f64::from(pixel / WIDTH));
            let ray = pose * Vector3::new((u - 119.5) / FOCAL, (v - 89.5) / FOCAL, 1.0);
            let (z, rgb) = hit(&eye, &ray, blocks);
            let millimetres = if z < 3.0 { (1000.0 * z).round() as u16 } else { 0 };
            depth.extend(millimetres.to_le_bytes());
            color.extend(rgb);
        }
        let color = image("rgb8", 3 * WIDTH, color);
        let color = ColorView { image: color, info: info.clone(), color_from_depth: None };
        let depth = image("16UC1", 2 * WIDTH, depth);
        CameraFrame {
            camera: number,
            view: View::Depth { depth, info: info.clone(), color: Some(color) },
            world_from_camera: pose,
        }
    };
    Frame {
        stamp,
        cameras: vec![camera(0, -0.5), camera(1, 0.5)],
        robot: None,
        plan: vec![],
        robot_description: None,
        world_from_workspace: None,
    }
}

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
fn a_prediction_hangs_on_those_of_the_second_before_and_on_none_from_earlier() {
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
        for i in from..18 {
            let frame = frame(0.1 * f64::from(i), &[block(i), RESTING]);
            // One frame that nobody predicts from.
            if keeps && i == 16 {
                predictor.keep(frame);
            } else {
                last = predictor.step(&frame).unwrap().cloned();
            }
        }
        last.unwrap()
    };
    let whole = run(0, false);
    assert_eq!(run(4, false).displacements, whole.displacements, "to the bit");
    let skipped = run(0, true);
    assert_eq!((whole.held_against.is_some(), skipped.held_against), (true, None));
    assert_ne!(skipped.displacements, whole.displacements);
    assert_eq!(skipped.particles.positions, whole.particles.positions);
}
