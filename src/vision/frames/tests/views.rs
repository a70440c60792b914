//! Calibrations and poses of images, registered or not, and of clouds.

use super::*;
use crate::message::PointCloud2;
use crate::message::encode::CdrWriter;

/// One camera named `front`.
fn config(input: CameraInput, depth_registered: bool) -> FramesConfig {
    let mut config = FramesConfig::default();
    config.topics.cameras = vec![CameraTopics::new("front", input, depth_registered)];
    config
}

fn image_of(frame_id: &str, width: u32, nanos: i64) -> Image {
    let mut image = image(0, nanos, "rgb8");
    image.header.frame_id = frame_id.into();
    image.width = width;
    image
}

fn info_of(frame_id: &str, width: u32, nanos: i64) -> Arc<CameraInfo> {
    let Input::ColorInfo { info, .. } = info(0, width) else { unreachable!() };
    Arc::new(CameraInfo { header: header(nanos, frame_id), ..(*info).clone() })
}

fn fixed(parent: &str, child: &str, x: f64) -> Input {
    let parent_from_child = Isometry3::translation(x, 0.0, 0.0);
    let header = header(0, parent);
    let child_frame_id = child.to_owned();
    let transforms = vec![TransformStamped { header, child_frame_id, parent_from_child }];
    Input::TfStatic(TfMessage { transforms })
}

/// Pushes colour and depth of frame `i`, and a joint state; the frame that comes of it.
fn feed(frames: &mut Frames, i: i64, color: (&str, u32), depth: (&str, u32)) -> Option<Frame> {
    let nanos = START_NS + i * PERIOD_NS;
    push(frames, joint("a", nanos, 1.0));
    let color = Input::Color { camera: 0, image: image_of(color.0, color.1, nanos) };
    let depth = Input::Depth { camera: 0, image: image_of(depth.0, depth.1, nanos) };
    push(frames, color).or(push(frames, depth))
}

fn ready_to(depth_registered: bool) -> Frames {
    let mut frames = Frames::new(config(CameraInput::Images, depth_registered));
    push(&mut frames, fixed("world", "color", 1.0));
    push(&mut frames, fixed("color", "depth", 0.25));
    push(&mut frames, Input::ColorInfo { camera: 0, info: info_of("color", 2, 0) });
    frames
}

#[test]
fn depth_that_is_not_registered_is_refused_with_the_remedy() {
    for (color, depth) in [(("color", 2), ("depth", 2)), (("color", 2), ("color", 1))] {
        let mut frames = ready_to(true);
        assert!(feed(&mut frames, 0, color, depth).is_none());
        assert_eq!(frames.counts().dropped_mismatched, 1);
        let problem = frames.take_problem().expect("a problem");
        assert!(problem.contains("set depth_registered to false"), "{problem}");
    }
    // tf1 wrote names with a slash; a driver may leave one of them empty.
    for depth in ["/color", ""] {
        let frame = feed(&mut ready_to(true), 0, ("color", 2), (depth, 2)).expect("a frame");
        assert_eq!(frame.cameras[0].world_from_camera.translation.x, 1.0);
    }
}

#[test]
fn depth_of_its_own_has_its_own_calibration_pose_and_size() {
    let mut frames = ready_to(false);
    assert!(feed(&mut frames, 0, ("color", 2), ("depth", 1)).is_none());
    assert!(feed(&mut frames, 1, ("color", 2), ("depth", 1)).is_none());
    let problem = frames.take_problem().expect("a problem");
    assert!(problem.contains("publish /front/depth/camera_info"), "{problem}");
    assert!(
        push(&mut frames, Input::DepthInfo { camera: 0, info: info_of("depth", 1, 0) }).is_some()
    );

    let frame = feed(&mut frames, 2, ("color", 2), ("depth", 1)).expect("a frame");
    let view = &frame.cameras[0];
    assert_eq!(view.world_from_camera.translation.x, 1.25);
    let View::Depth { info, color: Some(color), .. } = &view.view else { panic!("{view:?}") };
    assert_eq!((info.width, color.info.width), (1, 2));
    assert_eq!(color.color_from_depth.expect("not registered").translation.x, 0.25);

    // No way from the depth camera to the colour camera.
    let Input::TfStatic(elsewhere) = fixed("elsewhere", "depth", 0.0) else { unreachable!() };
    push(&mut frames, Input::TfStatic(elsewhere));
    assert!(feed(&mut frames, 3, ("color", 2), ("depth", 1)).is_none());
    assert!(feed(&mut frames, 4, ("color", 2), ("depth", 1)).is_none());
    assert_eq!(frames.counts().dropped_no_tf, 1);
}

#[test]
fn another_size_goes_on_as_soon_as_its_calibration_comes() {
    let mut frames = ready_to(true);
    assert!(feed(&mut frames, 0, ("color", 2), ("color", 2)).is_some());
    for i in 1..4 {
        assert!(feed(&mut frames, i, ("color", 1), ("color", 1)).is_none());
        let problem = frames.take_problem().expect("a problem");
        assert!(problem.contains("1 x 1") && problem.contains("/front/color/camera_info"));
    }
    assert_eq!(frames.counts().dropped_mismatched, 3);
    push(&mut frames, Input::ColorInfo { camera: 0, info: info_of("color", 1, 0) });
    assert!(feed(&mut frames, 4, ("color", 1), ("color", 1)).is_some());
}

#[test]
fn a_calibration_that_says_the_same_is_the_same() {
    let mut frames = ready_to(true);
    let mut infos = Vec::new();
    for i in 0..3 {
        // Drivers send it with each image.
        let width_and_stamp = info_of("color", 2, START_NS + i);
        push(&mut frames, Input::ColorInfo { camera: 0, info: width_and_stamp });
        let mut frame = feed(&mut frames, i, ("color", 2), ("color", 2)).expect("a frame");
        let View::Depth { info, .. } = frame.cameras.remove(0).view else { unreachable!() };
        infos.push(info);
    }
    assert!(Arc::ptr_eq(&infos[0], &infos[2]));
    let mut other = (*infos[0]).clone();
    other.d = vec![0.1];
    push(&mut frames, Input::ColorInfo { camera: 0, info: Arc::new(other.clone()) });
    let mut frame = feed(&mut frames, 3, ("color", 2), ("color", 2)).expect("a frame");
    let View::Depth { info, .. } = frame.cameras.remove(0).view else { unreachable!() };
    assert_eq!(*info, other);
}

fn cloud(frame_id: &str, nanos: i64) -> PointCloud2 {
    let (sec, nanosec) = Stamp::from_nanos(nanos).parts();
    let message = CdrWriter::new(false).header(sec, nanosec, frame_id).u32(0).u32(0).u32(0);
    PointCloud2::decode(message.u8(0).u32(0).u32(0).u8s(&[]).u8(1).finish())
        .expect("an empty cloud")
}

#[test]
fn clouds_of_any_frame_are_posed_by_tf() {
    let mut frames = Frames::new(config(CameraInput::Points, true));
    push(&mut frames, fixed("world", "base", 3.0));
    let mut feed = |i: i64, frame_id: &str| {
        let nanos = START_NS + i * PERIOD_NS;
        push(&mut frames, joint("a", nanos, 1.0));
        let frame = push(&mut frames, Input::Points { camera: 0, cloud: cloud(frame_id, nanos) });
        (frame.map(|frame| frame.cameras[0].world_from_camera.translation.x), frames.take_problem())
    };
    assert_eq!(feed(0, "base"), (Some(3.0), None));
    assert_eq!(feed(1, "world"), (Some(0.0), None));
    assert_eq!(feed(2, "nowhere").0, None);
    let (frame, problem) = feed(3, "base");
    assert_eq!(frame, Some(3.0));
    assert!(problem.expect("a problem").contains("static_transform_publisher"));
    assert_eq!(feed(4, "").0, None);
    let (_, problem) = feed(5, "world");
    assert!(problem.expect("a problem").contains("/front/points names no frame"));
}

#[test]
fn topics_follow_the_inputs_and_are_remapped() {
    let types = |input, registered| -> Vec<(String, &str)> {
        let specs = config(input, registered).topics.specs().into_iter();
        specs
            .take_while(|spec| spec.role == Role::Images)
            .map(|s| (s.name, s.message_type))
            .collect()
    };
    let image = "sensor_msgs/msg/Image";
    let compressed = "sensor_msgs/msg/CompressedImage";
    let info = "sensor_msgs/msg/CameraInfo";
    let named = |names: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
        names.iter().map(|(name, kind)| (format!("/front/{name}"), *kind)).collect()
    };
    assert_eq!(
        types(CameraInput::Images, false),
        named(&[
            ("color/image_raw", image),
            ("depth/image_raw", image),
            ("color/camera_info", info),
            ("depth/camera_info", info),
        ])
    );
    assert_eq!(
        types(CameraInput::Compressed, true),
        named(&[
            ("color/image_raw/compressed", compressed),
            ("depth/image_raw/compressedDepth", compressed),
            ("color/camera_info", info),
        ])
    );
    assert_eq!(
        types(CameraInput::Points, false),
        named(&[("points", "sensor_msgs/msg/PointCloud2")])
    );

    let mut topics = config(CameraInput::Points, true).topics;
    assert!(topics.remap("front/points", "lidar/points") && topics.remap("/tf", "/robot/tf"));
    assert!(!topics.remap("/front/points", "/elsewhere"));
    assert_eq!((&*topics.cameras[0].points, &*topics.tf), ("/lidar/points", "/robot/tf"));
    assert!(topics.contains("/lidar/points") && !topics.contains("/front/points"));
    assert!(topics.decode("/lidar/points", &[]).is_some_and(|outcome| outcome.is_err()));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let problem = |change: fn(&mut FramesConfig)| {
        let mut config = config(CameraInput::Images, true);
        change(&mut config);
        config.validate().err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(problem(|_| ()), "");
    for (change, told) in [
        ((|c| c.topics.cameras.clear()) as fn(&mut FramesConfig), "1 to 255"),
        (|c| c.topics.cameras.push(c.topics.cameras[0].clone()), "different names"),
        (|c| assert!(c.topics.remap("/tf", "/joint_states")), "/joint_states serves two purposes"),
        (|c| c.tolerance_secs = f64::NAN, "tolerance_secs"),
        (|c| c.time_jump_secs = 0.0, "time_jump_secs"),
        (|c| c.camera_timeout_secs = -1.0, "camera_timeout_secs: -1 s is not in 0.05..=3600.0"),
        (|c| c.max_pending = 0, "max_pending"),
    ] {
        assert!(problem(change).contains(told), "{told}: {}", problem(change));
    }
}
