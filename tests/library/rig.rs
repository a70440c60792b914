//! The rig as the node watches it.

use forecloud::message::{Header, PointCloud2};
use forecloud::predict::rig::{Item, LiveRig, Verdict, worst};
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::{CameraFrame, Frame, FramesConfig, View};
use forecloud_bag::recording::Recording;
use nalgebra::{Point3, Translation3};

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

/// A camera that gives a cloud of what it saw, and nothing else.
fn as_cloud(camera: &mut CameraFrame) {
    let mut cloud = Cloud::default();
    cloud.from_cameras(std::slice::from_ref(camera), &Workspace::EVERYWHERE).unwrap();
    let camera_from_world = camera.world_from_camera.inverse().cast::<f32>();
    let local = |p: &[f32; 3]| (camera_from_world * Point3::from(*p)).coords.into();
    let points: Vec<[f32; 3]> = cloud.positions.iter().map(local).collect();
    let header = Header { stamp: camera.stamp(), ..Header::default() };
    camera.view = View::Points(PointCloud2::of_points(header, &points, None).unwrap());
}

#[test]
fn of_clouds_the_node_tells_whether_the_robot_is_there() {
    let right = told(|frame| frame.cameras.iter_mut().for_each(as_cloud));
    assert_eq!(worst(&right), Verdict::Ok, "{right:#?}");
    let of_robot = |item: &&Item| item.what.starts_with("robot in clouds of");
    assert_eq!(right.iter().filter(of_robot).count(), 2, "{right:#?}");
    assert!(!right.iter().any(|item| item.what == "robot in the picture"), "{right:#?}");
    let away = told(|frame| {
        frame.cameras.iter_mut().for_each(as_cloud);
        let robot = frame.robot.as_mut().unwrap();
        robot.joints.positions.iter_mut().for_each(|q| *q = q.to_degrees());
    });
    assert!(away.iter().filter(of_robot).any(|item| item.verdict == Verdict::Warn), "{away:#?}");
}
