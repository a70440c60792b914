//! A recording of the simulator, from its bytes to frames.

use forecloud::bag::Bag;
use forecloud::frames::{FrameCounts, Frames, FramesConfig, View};
use forecloud::message::{Image, PoseArray, Stamp, StringMessage};
use std::path::Path;

fn tiny_push() -> Bag {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny_push");
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
        assert_eq!(frame.joints.names.len(), frame.joints.positions.len());
        assert!(!frame.joints.names.is_empty());
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
