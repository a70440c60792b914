//! The rig as the node watches it.

use forecloud::predict::rig::{Item, LiveRig, Verdict, worst};
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::frames::{Frame, FramesConfig};
use forecloud_bag::recording::Recording;
use nalgebra::Translation3;

/// CPU time of this thread (ms).
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) * 1e-6
}

/// What is told after a demo's frames, each changed by `edit`, and what a second of them costs (ms).
fn told(edit: impl Fn(&mut Frame)) -> (Vec<Item>, f64) {
    let path = std::path::Path::new(crate::ROOT).join("data/demo_tumble");
    let recording = Recording::open(&path, FramesConfig::default()).unwrap();
    let mut rig = LiveRig::new(["camera_left", "camera_right"].map(String::from).to_vec());
    let urdf = recording.robot_description().unwrap().unwrap();
    rig.set_robot(&urdf, "world", &MeshSearch::default()).unwrap();
    let (mut items, mut spent_ms, mut most_ms) = (None, 0.0, 0.0f64);
    let played = recording.play(|mut frame, _| -> forecloud::Result<()> {
        edit(&mut frame);
        let start = cpu_ms();
        let found = rig.take(&frame)?;
        let ms = cpu_ms() - start;
        (spent_ms, most_ms) = (spent_ms + ms, most_ms.max(ms));
        items = found.or(items.take());
        Ok(())
    });
    played.unwrap();
    println!("{spent_ms:.1} ms in 5 s, at most {most_ms:.1} ms at once");
    (items.expect("told after 5 looks"), spent_ms / 5.0)
}

#[test]
fn the_node_sees_a_rig_that_is_right_and_one_that_is_not() {
    let (items, _) = told(|_| {});
    assert_eq!(worst(&items), Verdict::Ok, "{items:#?}");
    assert!(items[0].values["seen_share"] > 0.95, "{items:#?}");
    let (items, _) = told(|frame| {
        let left = &mut frame.cameras[0];
        left.world_from_camera = Translation3::new(0.02, 0.0, 0.0) * left.world_from_camera;
    });
    let place = items.iter().find(|item| item.what == "place of the robot").expect("the item");
    assert!(place.cause.as_ref().unwrap().contains("camera 'camera_left'"), "{place}");
    let (items, _) = told(|frame| {
        let robot = frame.robot.as_mut().unwrap();
        robot.joints.positions.iter_mut().for_each(|q| *q = q.to_degrees());
    });
    let is_degrees =
        |item: &Item| item.cause.as_ref().is_some_and(|cause| cause.contains("degrees"));
    assert!(items.iter().any(is_degrees), "{items:#?}");
}
