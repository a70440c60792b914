//! The rig as the node watches it.

use forecloud::predict::rig::{Item, LiveRig, Verdict, worst};
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::frames::{Frame, FramesConfig};
use forecloud_bag::recording::Recording;
use nalgebra::Translation3;

/// What is told after a demo's frames, each changed by `edit`.
fn told(edit: impl Fn(&mut Frame)) -> Vec<Item> {
    let path = std::path::Path::new(crate::ROOT).join("data/demo_tumble");
    let recording = Recording::open(&path, FramesConfig::default()).unwrap();
    let mut rig = LiveRig::new(["camera_left", "camera_right"].map(String::from).to_vec());
    let urdf = recording.robot_description().unwrap().unwrap();
    rig.set_robot(&urdf, "world", &MeshSearch::default()).unwrap();
    let mut items = None;
    let played = recording.play(|mut frame, _| -> forecloud::Result<()> {
        edit(&mut frame);
        items = rig.take(&frame)?.or(items.take());
        Ok(())
    });
    played.unwrap();
    items.expect("told after 5 looks")
}

#[test]
fn the_node_sees_a_rig_that_is_right_and_one_that_is_not() {
    let items = told(|_| {});
    assert_eq!(worst(&items), Verdict::Ok, "{items:#?}");
    assert!(items[0].values["seen_share"] > 0.95, "{items:#?}");
    let items = told(|frame| {
        let left = &mut frame.cameras[0];
        left.world_from_camera = Translation3::new(0.02, 0.0, 0.0) * left.world_from_camera;
    });
    let place = items.iter().find(|item| item.what == "place of the robot").expect("the item");
    assert!(place.cause.as_ref().unwrap().contains("camera 'camera_left'"), "{place}");
    let items = told(|frame| {
        let robot = frame.robot.as_mut().unwrap();
        robot.joints.positions.iter_mut().for_each(|q| *q = q.to_degrees());
    });
    let is_degrees =
        |item: &Item| item.cause.as_ref().is_some_and(|cause| cause.contains("degrees"));
    assert!(items.iter().any(is_degrees), "{items:#?}");
}
