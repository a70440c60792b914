//! An only camera that no transform places.

use super::*;

fn config() -> FramesConfig {
    let mut config = FramesConfig { level_camera: true, ..FramesConfig::default() };
    config.topics.cameras.truncate(1);
    config.robot = RobotMode::None;
    config
}

/// Frames of seconds 0 to `n` / 10; the first offer, with the number of the frame that it came with.
fn play(frames: &mut Frames, n: i64) -> Option<(i64, Unplaced)> {
    frames.push(info(0, 2)).unwrap();
    (0..n).find_map(|i| {
        let nanos = START_NS + i * PERIOD_NS;
        frames.push(color(0, nanos)).unwrap();
        frames.push(depth(0, nanos)).unwrap();
        frames.take_unplaced().map(|unplaced| (i, unplaced))
    })
}

fn link(parent: &str, child: &str, z: f64) -> TfMessage {
    let pose = Translation3::new(0.0, 0.0, z).into();
    let header = header(START_NS, parent);
    let child_frame_id = child.into();
    TfMessage {
        transforms: vec![TransformStamped { header, child_frame_id, parent_from_child: pose }],
    }
}

#[test]
fn after_two_seconds_without_a_transform_a_camera_is_offered_and_placed() {
    let mut frames = Frames::new(config());
    frames.push(Input::TfStatic(link("camera_link", &optical(0), 0.1))).unwrap();
    let (at, unplaced) = play(&mut frames, 40).expect("an offer");
    // Each frame waits for the next one's images.
    assert!((20..=21).contains(&at), "{at}");
    assert_eq!(unplaced.frame, optical(0));
    assert_eq!(unplaced.view.world_from_camera, Isometry3::identity());
    assert_eq!(frames.counts().frames, 0);

    let made = frames.place(&unplaced, &Translation3::new(1.0, 2.0, 3.0).into());
    assert_eq!((&*made.header.frame_id, &*made.child_frame_id), ("world", "camera_link"));
    assert_eq!(made.parent_from_child.translation, Translation3::new(1.0, 2.0, 2.9));
    assert!(play(&mut Frames::new(config()), 15).is_none(), "they may still come");

    let mut frame = None;
    for i in 50..53 {
        for input in [color(0, START_NS + i * PERIOD_NS), depth(0, START_NS + i * PERIOD_NS)] {
            frame = frames.push(input).unwrap().or(frame);
        }
    }
    let placed = frame.expect("frames with a pose").cameras[0].world_from_camera;
    assert_eq!(placed.translation, Translation3::new(1.0, 2.0, 3.0));

    // The same comes back from DDS; another place is no longer the one that was made up.
    frames.take_problem();
    frames.push(Input::TfStatic(TfMessage { transforms: vec![made] })).unwrap();
    assert_eq!(frames.take_problem(), None);
    frames.push(Input::TfStatic(link("base", "camera_link", 0.5))).unwrap();
    let problem = frames.take_problem().expect("a problem");
    assert!(problem.contains("from 'base' to 'camera_link'"), "{problem}");
    assert!(problem.contains("level_camera"), "{problem}");
    // What was made up is gone, and nothing is made up again.
    assert!(frames.take_withdrawn() && !frames.take_withdrawn());
    assert!(frames.tf.lookup("base", "camera_link", Stamp::from_nanos(START_NS)).is_ok());
    assert!(!frames.tf.knows("world"));
    assert!(play(&mut frames, 100).is_none());
}

#[test]
fn what_others_know_is_not_made_up() {
    let off = FramesConfig { level_camera: false, ..config() };
    assert!(play(&mut Frames::new(off), 40).is_none(), "nobody asked");
    let two = FramesConfig { topics: Topics::default(), ..config() };
    assert!(play(&mut Frames::new(two), 40).is_none(), "two cameras");

    // The world is known, the way to the camera is not yet.
    let mut frames = Frames::new(config());
    frames.push(Input::TfStatic(link("world", "table", 0.1))).unwrap();
    assert!(play(&mut frames, 40).is_none(), "tf knows the world");
    let mut frames = Frames::new(FramesConfig { robot: RobotMode::Optional, ..config() });
    let urdf = r#"<robot name="r"><link name="world"/></robot>"#;
    frames.push(Input::RobotDescription(urdf.into())).unwrap();
    assert!(play(&mut frames, 40).is_none(), "the robot stands in the world");
}

#[test]
fn why_a_camera_was_not_placed_is_the_problem() {
    let mut frames = Frames::new(config());
    play(&mut frames, 40).expect("an offer");
    frames.not_placed("a wall".into());
    assert_eq!(frames.take_problem().as_deref(), Some("a wall"));
    assert!(frames.counts().dropped_no_tf > 15, "{:?}", frames.counts());
}

/// Two cameras, and a workspace that goes with `base_link`.
fn on_base() -> Frames {
    let workspace_frame = Some("base_link".to_owned());
    let (patience_secs, robot) = (Some(0.25), RobotMode::None);
    ready_with(FramesConfig { workspace_frame, patience_secs, robot, ..FramesConfig::default() })
}

fn base_at(nanos: i64, x: f64) -> Input {
    let mut message = transform(0, nanos, x);
    message.transforms[0].child_frame_id = "base_link".into();
    Input::Tf(message)
}

#[test]
fn a_frame_waits_for_the_base_and_tells_where_it_is() {
    let mut frames = on_base();
    push_incomplete(&mut frames, [base_at(START_NS - PERIOD_NS, 1.0)]);
    push_incomplete(&mut frames, images(START_NS));
    let frame = push(&mut frames, base_at(START_NS + PERIOD_NS, 3.0)).or(frames.take_frame());
    let pose = frame.expect("complete").world_from_workspace.expect("a pose");
    assert!((pose.translation.x - 2.0).abs() < 1e-9, "{pose:?}");
    assert!(ready().config().workspace_frame.is_none());
}

#[test]
fn a_base_that_nothing_tells_of_drops_frames_with_its_name_and_the_remedy() {
    let mut frames = on_base();
    for i in 0..6 {
        push_incomplete(&mut frames, images(START_NS + i * PERIOD_NS));
    }
    assert!(frames.counts().dropped_no_tf > 0 && frames.counts().frames == 0);
    let told = frames.take_problem().expect("a problem");
    for part in ["'base_link' (workspace_frame)", "known frames", "leave workspace_frame empty"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // No camera is left out for it.
    assert_eq!(frames.counts().cameras_left_out, 0);
}

#[test]
fn a_workspace_frame_without_a_name_is_refused() {
    for name in ["", "/"] {
        let config = FramesConfig { workspace_frame: Some(name.into()), ..FramesConfig::default() };
        let told = config.validate().unwrap_err().to_string();
        assert!(told.starts_with("workspace_frame: "), "{told}");
    }
}
