use std::path::Path;

use super::*;
use crate::config::{DatasetConfig, Teacher};
use crate::dataset::Dataset;
use forecloud::engine::model::ModelConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;

const NAMES: [&str; 2] = ["camera_left", "camera_right"];

fn names() -> Vec<String> {
    NAMES.map(str::to_owned).to_vec()
}

fn episode() -> Episode {
    let noise = SensorNoise { strength: 0.0, ..SensorNoise::default() };
    let config = DatasetConfig { teacher: Teacher::Hindsight, noise, ..DatasetConfig::default() };
    let model = ModelConfig { n_motion: 4096, ..ModelConfig::default() };
    let data = Dataset::new(config, model, FramesConfig::default());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny_push");
    data.read(&Recording::open(&path, FramesConfig::default()).unwrap()).unwrap()
}

#[test]
fn a_good_rig_is_found_good() {
    let episode = episode();
    let rig = episode.look_at_rig(&names()).unwrap();
    assert_eq!(rig, episode.rig);
    assert!(rig.lag_secs.is_none_or(|lag| lag.abs() < 0.02), "{rig:?}");
    assert!(rig.apart_m().unwrap() < 0.008, "{rig:?}");
}

#[test]
fn a_camera_that_moves_is_refused_by_its_name() {
    let mut episode = episode();
    for (t, sample) in episode.samples.iter_mut().enumerate() {
        sample.eyes[1][0] += 0.02 * t as f32;
    }
    let told = episode.look_at_rig(&names()).unwrap_err().to_string();
    assert!(told.contains("camera_right") && told.contains("2 cm"), "{told}");
}

#[test]
fn where_all_moves_a_camera_does() {
    let mut episode = episode();
    for flow in episode.samples.iter_mut().filter_map(|sample| sample.flow.as_mut()) {
        flow.motions.iter_mut().for_each(|motion| *motion = [0.01, 0.0, 0.0]);
        flow.confidences.fill(0.9);
    }
    let told = episode.look_at_rig(&names()).unwrap_err().to_string();
    assert!(
        told.contains("all that the cameras see moves") && told.contains("stand still"),
        "{told}"
    );
    // Unless the table stands: then much moves on it.
    for sample in &mut episode.samples {
        let on_plane = |p: &Vec3| sample.support_m.is_some_and(|z| (p[2] - z).abs() < CLEARANCE_M);
        let Some(flow) = sample.flow.as_mut() else { continue };
        let points = flow.motions.iter_mut().zip(&sample.positions);
        points.filter(|(_, p)| on_plane(p)).for_each(|(motion, _)| *motion = [0.0; 3]);
    }
    assert!(episode.look_at_rig(&names()).is_ok());
}

#[test]
fn joints_of_another_clock_are_found() {
    let mut episode = episode();
    let (mut late, mut joints) = (Vec::new(), Vec::new());
    for t in 0..episode.samples.len() {
        episode.joints_at(t, -0.1, &mut joints);
        late.push(joints.clone());
    }
    episode.samples.iter_mut().zip(late).for_each(|(sample, joints)| sample.joints = joints);
    let lag = episode.look_at_rig(&names()).unwrap().lag_secs.expect("the arm moves");
    assert!((lag - 0.1).abs() < 0.04, "{lag} s");
}

#[test]
fn cameras_that_disagree_are_found() {
    let mut episode = episode();
    for sample in &mut episode.samples {
        let points = sample.positions.iter_mut().zip(&sample.seen_by);
        points.filter(|(_, camera)| **camera == 1).for_each(|(p, _)| p[2] += 0.03);
    }
    let rig = episode.look_at_rig(&names()).unwrap();
    assert!((rig.apart_m().unwrap() - 0.03).abs() < 0.006, "{rig:?}");
}

#[test]
fn the_best_lag_lies_between_the_steps_and_must_be_much_better() {
    let fits = |lag: f64| -> Vec<(f64, f64)> {
        (-6..=6).map(|i| (0.05 * f64::from(i), (0.05 * f64::from(i) - lag).powi(2))).collect()
    };
    assert!((best(&fits(0.12)).unwrap() - 0.12).abs() < 1e-6);
    let flat: Vec<(f64, f64)> =
        fits(0.12).into_iter().map(|(secs, fit)| (secs, 1.0 + fit)).collect();
    assert_eq!(best(&flat), Some(0.0));
    assert_eq!(best(&[]), None);
}
