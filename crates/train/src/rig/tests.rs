use std::path::Path;

use super::*;
use crate::config::{DatasetConfig, Teacher};
use crate::dataset::Dataset;
use forecloud::base::geometry::Vec3;
use forecloud::engine::model::ModelConfig;
use forecloud::predict::moving_camera::Looked;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;

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
    episode.must_be_told().unwrap();
    let rig = &episode.rig;
    assert_eq!(rig.findings, []);
    assert!(rig.lag_secs.is_none_or(|lag| lag.abs() < 0.02), "{rig:?}");
    assert!(rig.apart_m().unwrap() < 0.008, "{rig:?}");
}

#[test]
fn cameras_that_move_are_no_teachers_of_pixels() {
    let mut episode = episode();
    for teacher in [Teacher::Hindsight, Teacher::Video] {
        episode.must_suit(teacher).unwrap();
    }
    assert_eq!(episode.pose_errors(), None, "they stand still");
    // As if it looked elsewhere in one frame.
    episode.samples[1].looked = Looked::default();
    let told = episode.must_suit(Teacher::Video).unwrap_err().to_string();
    assert!(told.contains("a camera moves") && told.contains("pixels"), "{told}");
    assert!(episode.must_suit(Teacher::Hindsight).is_ok());
    assert_eq!(episode.pose_errors().map(|errors| (errors.n_moved, errors.n_off)), Some((2, 0)));
}

#[test]
fn where_all_moves_a_camera_does() {
    let mut episode = episode();
    for flow in episode.samples.iter_mut().filter_map(|sample| sample.flow.as_mut()) {
        flow.motions.iter_mut().for_each(|motion| *motion = [0.01, 0.0, 0.0]);
        flow.confidences.fill(0.9);
    }
    let told = episode.must_be_told().unwrap_err().to_string();
    assert!(
        told.contains("all that the cameras see moves") && told.contains("stands still"),
        "{told}"
    );
    // Unless the table stands: then much moves on it.
    for sample in &mut episode.samples {
        let on_plane = |p: &Vec3| sample.support_m.is_some_and(|z| (p[2] - z).abs() < CLEARANCE_M);
        let Some(flow) = sample.flow.as_mut() else { continue };
        let points = flow.motions.iter_mut().zip(&sample.positions);
        points.filter(|(_, p)| on_plane(p)).for_each(|(motion, _)| *motion = [0.0; 3]);
    }
    assert!(episode.must_be_told().is_ok());
}
