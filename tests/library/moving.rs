//! Cameras that move, and a box that goes with them.

use std::path::Path;

use forecloud::Error;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::robot::kinematics::RobotMode;
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::Frame;
use nalgebra::{Isometry3, Translation3, UnitQuaternion, Vector3};

use crate::blocks::{Block, camera, looking, plain, seen};

fn predictor(workspace: Option<Workspace>) -> Predictor {
    let model = Model::load(&Path::new(crate::ROOT).join("models/small.safetensors")).unwrap();
    let config = PredictorConfig { robot: RobotMode::None, workspace, ..Default::default() };
    Predictor::new(model, config).unwrap()
}

fn block(x: f64, y: f64, size: f64, rgb: [u8; 3]) -> Block {
    Block { center: [x, y, size / 2.0], size, rgb }
}

fn colored(prediction: &Prediction, wanted: [u8; 3]) -> Vec<usize> {
    let wanted = wanted.map(|c| f32::from(c) / 255.0);
    let is_like = |c: &[f32; 3]| (0..3).all(|i| (c[i] - wanted[i]).abs() < 0.02);
    let colors = prediction.particles.colors.iter().enumerate();
    colors.filter(|(_, color)| is_like(color)).map(|(i, _)| i).collect()
}

/// Mean length of the first step of these particles (m).
fn first_step(prediction: &Prediction, of: &[usize]) -> f32 {
    let length =
        |i: &usize| prediction.displacements[0][*i].iter().map(|x| x * x).sum::<f32>().sqrt();
    of.iter().map(length).sum::<f32>() / of.len().max(1) as f32
}

fn tiles(x: f64, y: f64) -> [u8; 3] {
    let odd = ((x / 0.08).floor() + (y / 0.08).floor()).rem_euclid(2.0) as u8;
    [90 + 60 * odd; 3]
}

const POST: [u8; 3] = [200, 40, 40];
/// What a base at x = 0 sees ahead.
const AHEAD: Workspace = Workspace { min: [0.3, -0.5, -0.02], max: [1.3, 0.5, 0.6] };

/// What a base that has driven to `x` sees of a row of posts, one every 0.4 m.
fn on_base(secs: f64, x: f64, has_frame: bool) -> Frame {
    let posts: Vec<Block> = (0..20)
        .map(|i| block(0.4 * f64::from(i), 0.3 * f64::from(i % 3 - 1), 0.12, POST))
        .collect();
    let pose = looking([x, 0.0, 0.7], [x + 0.9, 0.0, 0.0]);
    let mut frame = seen(secs, vec![camera(0, secs, pose, (tiles, &posts))]);
    frame.world_from_workspace = has_frame.then(|| Translation3::new(x, 0.0, 0.0).into());
    frame
}

#[test]
fn a_base_predicts_however_far_it_drives_and_what_rests_stays_at_rest() {
    let mut predictor = predictor(Some(AHEAD));
    let mut boxes = Vec::new();
    for i in 0..60 {
        // 0.7 m/s, 4 m in all.
        let x = 0.07 * f64::from(i);
        let frame = on_base(0.1 * f64::from(i), x, true);
        let Some(prediction) = predictor.step(&frame).unwrap() else {
            assert_eq!(i, 0, "no frame but the first lacks a history");
            continue;
        };
        assert_eq!(prediction.held_against.is_some(), i > 1, "frame {i}");
        assert_eq!(prediction.world_motion_m, None);
        let posts = colored(prediction, POST);
        assert!(posts.len() > 20, "frame {i}: {}", posts.len());
        let false_m = first_step(prediction, &posts);
        assert!(false_m < 0.006, "frame {i}: posts move by {false_m} m");
        let place = *predictor.place();
        let middle = (place.workspace.min[0] + place.workspace.max[0]) / 2.0;
        assert!((middle - x as f32 - 0.8).abs() < 0.13, "{place:?}");
        boxes.push(place.workspace.min[0]);
    }
    boxes.dedup();
    assert!((30..=34).contains(&boxes.len()), "4 m, an eighth at a time: {boxes:?}");
}

#[test]
fn objects_keep_their_numbers_while_the_box_moves() {
    let mut predictor = predictor(Some(AHEAD));
    let near = |prediction: &Prediction| {
        // The post at 1.2 m, which is seen until the base is there.
        let at = |i: &usize| {
            let p = prediction.particles.positions[*i];
            (p[0] - 1.2).abs() < 0.1 && (p[1] + 0.3).abs() < 0.1 && p[2] > 0.03
        };
        let of =
            (0..prediction.particles.len()).find(|i| at(i) && prediction.objects.number(*i) > 0);
        of.map(|i| prediction.objects.number(i))
    };
    let mut numbers = Vec::new();
    for i in 0..18 {
        let frame = on_base(0.1 * f64::from(i), 0.04 * f64::from(i), true);
        numbers.extend(predictor.step(&frame).unwrap().and_then(near));
    }
    assert!(numbers.len() > 12, "{numbers:?}");
    numbers.dedup();
    assert_eq!(numbers.len(), 1, "{numbers:?}");
}

#[test]
fn a_box_that_stands_is_driven_out_of() {
    let mut predictor = predictor(Some(AHEAD));
    let mut step = |i: i32| {
        predictor.step(&on_base(0.1 * f64::from(i), 0.1 * f64::from(i), false)).map(|_| ())
    };
    let failed = (0..40).map(&mut step).find_map(Result::err);
    assert!(matches!(failed, Some(Error::TooFewPoints { .. })), "{failed:?}");
}

#[test]
fn a_frame_that_stands_at_the_world_s_changes_nothing_but_the_grid() {
    // Corners on the grid already.
    let workspace = Workspace { min: [-0.5, -0.5, -0.125], max: [0.5, 0.5, 0.625] };
    let predict = |pose: Option<Isometry3<f64>>| {
        let mut predictor = predictor(Some(workspace));
        let mut last = Vec::new();
        for i in 0..3 {
            let mut frame = crate::blocks::frame(0.1 * f64::from(i), &[block(0.2, 0.0, 0.1, POST)]);
            frame.world_from_workspace = pose;
            if let Some(prediction) = predictor.step(&frame).unwrap() {
                last.clone_from(&prediction.particles.positions);
            }
        }
        last
    };
    let of_world = predict(None);
    assert!(!of_world.is_empty());
    assert_eq!(predict(Some(Isometry3::identity())), of_world);
}

/// A wrist camera's look at four things, one of which moves by `way` (m), as tf that is off by `error` tells.
fn on_wrist(i: i32, way: f64, error: &Isometry3<f64>, floor: crate::blocks::Floor) -> Frame {
    let secs = 0.1 * f64::from(i);
    let things = [
        block(0.1, 0.15, 0.09, [200, 40, 40]),
        block(0.25, -0.2, 0.1, [40, 60, 200]),
        block(-0.15, -0.1, 0.08, [200, 180, 40]),
        block(0.0, 0.0 + way, 0.07, [40, 200, 40]),
    ];
    let pose = looking([0.55 - 0.01 * secs, 0.25 * secs, 0.55], [0.05, 0.06 * secs, 0.0]);
    let mut camera = camera(0, secs, pose, (floor, &things));
    camera.world_from_camera = error * pose;
    seen(secs, vec![camera])
}

fn error(i: i32) -> Isometry3<f64> {
    let (s, c) = (1.7 * f64::from(i)).sin_cos();
    let turn = UnitQuaternion::from_scaled_axis(Vector3::new(0.006 * c, -0.005 * s, 0.008 * s * c));
    Isometry3::from_parts(Translation3::new(0.005 * s, -0.004 * c, 0.004 * s), turn)
}

#[test]
fn errors_of_a_cameras_pose_are_no_motion_of_the_scene_and_are_told() {
    for floor in [plain, tiles] {
        let mut predictor = predictor(None);
        let mut taken = Vec::new();
        for i in 0..10 {
            let Some(prediction) =
                predictor.step(&on_wrist(i, 0.012 * f64::from(i), &error(i), floor)).unwrap()
            else {
                continue;
            };
            taken.extend(prediction.pose_error);
            for rgb in [[200, 40, 40], [40, 60, 200], [200, 180, 40]] {
                let false_m = first_step(prediction, &colored(prediction, rgb));
                assert!(false_m < 0.002, "frame {i}: {rgb:?} moves by {false_m} m");
            }
            let moving = colored(prediction, [40, 200, 40]);
            let found = first_step(prediction, &moving);
            assert!(i < 5 || (0.004..0.02).contains(&found), "frame {i}: {found} m of 12 mm");
        }
        assert!(taken.len() >= 8, "{taken:?}");
        assert!(taken.iter().all(|error| (0.001..0.03).contains(&error.shift_m)), "{taken:?}");
    }
}

#[test]
fn a_right_pose_is_left_as_it_is() {
    let mut predictor = predictor(None);
    for i in 0..8 {
        let frame = on_wrist(i, 0.012 * f64::from(i), &Isometry3::identity(), tiles);
        if let Some(prediction) = predictor.step(&frame).unwrap() {
            assert_eq!(prediction.pose_error, None, "frame {i}");
        }
    }
}

/// What a camera sees that stands still in its world frame: four things that go by at 0.3 m/s, and others at `rest`.
fn going_by(i: i32, rest: &[Block]) -> Frame {
    let (secs, way) = (0.1 * f64::from(i), 0.03 * f64::from(i) - 0.25);
    let mut things: Vec<Block> = [[-0.25, 0.0], [0.0, 0.1], [0.1, -0.2], [0.3, 0.05]]
        .into_iter()
        .map(|[x, y]| block(x, y + way, 0.1, POST))
        .collect();
    things.extend(rest);
    seen(secs, vec![camera(0, secs, looking([1.1, 0.0, 0.9], [0.0, 0.0, 0.0]), (plain, &things))])
}

/// Frames of `rest` in which the world frame is told to move, of 12, and the first of them.
fn told_to_move(rest: &[Block]) -> (usize, Option<usize>) {
    let mut predictor = predictor(Some(Workspace { min: [-0.5; 3], max: [0.5; 3] }));
    let mut told = Vec::new();
    for i in 0..13 {
        let prediction = predictor.step(&going_by(i, rest)).unwrap();
        told.extend(prediction.map(|prediction| prediction.world_motion_m.is_some()));
    }
    assert_eq!(told.len(), 12);
    (told.iter().filter(|moves| **moves).count(), told.iter().position(|moves| *moves))
}

#[test]
fn a_belt_is_no_moving_world_where_anything_beside_it_rests_and_a_driving_base_is_told_at_once() {
    // All there is goes by, as a base drives: told from the first pair of frames on.
    let (n, first) = told_to_move(&[]);
    assert!(n >= 10 && first == Some(0), "{n} {first:?}");
    // Posts beside the belt, outside of the box.
    let beside = [block(-0.7, -0.4, 0.15, POST), block(-0.8, 0.5, 0.15, POST)];
    assert_eq!(told_to_move(&beside).0, 0);
    // What is nearer than all that moves may be the base's own: it does not tell.
    let own = Block { center: [0.85, 0.0, 0.5], size: 0.08, rgb: POST };
    let (n, first) = told_to_move(&[own]);
    assert!(n >= 10 && first == Some(0), "{n} {first:?}");
}

#[test]
fn what_the_images_border_cuts_does_not_move() {
    // The camera passes by a long thing of one colour: its end comes into view and leaves it.
    let mut predictor = predictor(None);
    let beam: Vec<Block> =
        (0..6).map(|i| block(0.0, 0.1 * f64::from(i) - 0.3, 0.1, POST)).collect();
    let mut worst = 0.0f32;
    for i in 0..16 {
        let secs = 0.1 * f64::from(i);
        let y = 0.05 * f64::from(i) - 0.4;
        let pose = looking([0.5, y, 0.4], [0.0, y, 0.05]);
        let frame = seen(secs, vec![camera(0, secs, pose, (tiles, &beam))]);
        if let Some(prediction) = predictor.step(&frame).unwrap() {
            let of = colored(prediction, POST);
            worst = worst.max(first_step(prediction, &of));
        }
    }
    // 38 mm where whole clouds are compared. Some is left: nothing on it tells whether it slides along itself.
    assert!(worst < 0.015, "{worst} m");
}
