//! A recording of the simulator, from its bytes to frames.

use forecloud::Error;
use forecloud::message::{Image, PoseArray, Stamp, StringMessage};
use forecloud::vision::frames::{FrameCounts, Frames, FramesConfig, View};
use forecloud_bag::bag::Bag;
use forecloud_bag::recording::Recording;
use std::path::Path;

fn tiny_push() -> Bag {
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    let bag = Bag::open(path).expect("the recording is part of the repository");
    assert!(bag.warnings().is_empty(), "{:?}", bag.warnings());
    bag
}

/// Number of messages on `topic`.
fn count(bag: &Bag, topic: &str) -> u64 {
    bag.topics().iter().find(|info| &*info.name == topic).map_or(0, |info| info.n_messages)
}

#[test]
fn every_image_becomes_part_of_a_frame() {
    let bag = tiny_push();
    let mut frames = Frames::new(FramesConfig::default());
    let topics = frames.config().topics.clone();
    let mut made = Vec::new();
    for message in bag.messages_where(|topic| topics.contains(topic)) {
        let message = message.expect("readable");
        made.extend(frames.push_raw(&message.topic, &message.data));
    }
    made.extend(frames.finish());
    let n_frames = count(&bag, &topics.cameras[0].depth);
    assert!(n_frames > 2);
    let expected = FrameCounts { frames: n_frames, ..FrameCounts::default() };
    assert_eq!(*frames.counts(), expected, "{:?}", frames.last_problem());
    assert_eq!(made.len() as u64, n_frames);
    for (before, after) in made.iter().zip(&made[1..]) {
        assert!((after.stamp.secs_since(before.stamp) - 0.1).abs() < 1e-6);
    }
    for frame in &made {
        let joints = &frame.robot.as_ref().expect("a robot").joints;
        assert_eq!(joints.names.len(), joints.positions.len());
        assert!(!joints.names.is_empty());
        assert_eq!(frame.plan.last().expect("a plan").header.stamp, frame.stamp);
        for camera in &frame.cameras {
            let View::Depth { depth, color: Some(color), .. } = &camera.view else {
                panic!("depth and colour: {camera:?}")
            };
            assert_eq!((&*color.image.encoding, &*depth.encoding), ("rgb8", "16UC1"));
            assert!(camera.world_from_camera.translation.vector.norm() > 0.1);
        }
    }
    assert!(frames.robot_description().expect("a URDF").contains("<robot"));
}

#[test]
fn the_truth_decodes() {
    let bag = tiny_push();
    let (mut n_ids, mut n_poses, mut n_bodies) = (0, 0, None);
    for message in bag.messages_where(|topic| topic.starts_with("/truth/")) {
        let message = message.expect("readable");
        match &*message.topic {
            "/truth/body_poses" => {
                let poses = PoseArray::decode(&message.data).expect("poses");
                assert!(!poses.poses.is_empty() && poses.header.stamp > Stamp::default());
                n_poses += 1;
            }
            "/truth/bodies" => {
                let text = StringMessage::decode(&message.data).expect("a text").data;
                n_bodies = Some(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"));
            }
            topic if topic.ends_with("/body_ids") => {
                let image = Image::decode(&message.data).expect("an image");
                assert_eq!(image.encoding, "16UC1");
                n_ids += 1;
            }
            _ => {}
        }
    }
    let n_frames = count(&bag, "/camera_left/depth/image_raw");
    assert_eq!(n_ids, 2 * n_frames);
    assert!(n_poses >= n_frames);
    assert!(n_bodies.is_some());
}

/// What one camera's recording is: `tiny_push` without the right camera, the left one renamed.
fn with_one_camera(path: &Path, cameras: &str) {
    let options = mcap::WriteOptions::new().profile("ros2");
    let file = std::fs::File::create(path).unwrap();
    let mut writer = options.create(std::io::BufWriter::new(file)).unwrap();
    let bag = tiny_push();
    let mut channels = std::collections::BTreeMap::new();
    for info in bag.topics().iter().filter(|info| !info.name.contains("camera_right")) {
        let name = info.name.replace("camera_left", "wrist");
        let schema = writer.add_schema(&info.message_type, "ros2msg", b"").unwrap();
        let channel = writer.add_channel(schema, &name, "cdr", &Default::default()).unwrap();
        channels.insert(info.name.clone(), channel);
    }
    for message in bag.messages() {
        let message = message.unwrap();
        let Some(&channel_id) = channels.get(&message.topic) else { continue };
        let mut data = message.data;
        if &*message.topic == "/truth/bodies" {
            let json = StringMessage::decode(&data).unwrap().data;
            data = string_message(&json.replacen('{', &format!("{{\"cameras\": {cameras}, "), 1));
        }
        let time = message.log_time_ns as u64;
        let header = mcap::records::MessageHeader {
            channel_id,
            sequence: 0,
            log_time: time,
            publish_time: time,
        };
        writer.write_to_known_channel(&header, &data).unwrap();
    }
    writer.finish().unwrap();
}

/// CDR of a std_msgs/String.
fn string_message(text: &str) -> Vec<u8> {
    let length = (text.len() as u32 + 1).to_le_bytes();
    [&[0, 1, 0, 0], &length[..], text.as_bytes(), &[0]].concat()
}

#[test]
fn a_recording_says_which_cameras_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrist.mcap");
    with_one_camera(&path, r#"["wrist"]"#);
    let recording = Recording::open(&path, FramesConfig::default()).unwrap();
    let mut n_frames = 0;
    let counts = recording
        .play(|frame, ids| -> forecloud::Result<()> {
            assert!(frame.cameras.len() == 1 && ids.is_some());
            n_frames += 1;
            Ok(())
        })
        .unwrap();
    assert!(n_frames > 2 && counts.0.frames == n_frames, "{counts:?}");
    // Whoever chooses cameras gets those, or is told.
    let chosen = FramesConfig { cameras_of_recording: false, ..FramesConfig::default() };
    assert!(matches!(Recording::open(&path, chosen), Err(Error::MissingTopics { .. })));
    for (cameras, problem) in
        [(r#"["a", "a"]"#, "no name of its own"), (r#""wrist""#, "/truth/bodies")]
    {
        with_one_camera(&path, cameras);
        let error = Recording::open(&path, FramesConfig::default()).err().unwrap().to_string();
        assert!(error.contains(problem) && error.contains("wrist.mcap"), "{error}");
    }
    with_one_camera(&path, "null");
    let error = Recording::open(&path, FramesConfig::default()).err().unwrap();
    assert!(matches!(error, Error::MissingTopics { .. }), "the default's cameras");
}
