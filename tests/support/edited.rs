//! Copies of the small recording in which something is different.

#![allow(dead_code)] // each test uses some of it

use forecloud::message::{Image, Stamp, StringMessage};
use forecloud_bag::bag::{Bag, RawMessage};
use std::collections::HashMap;
use std::path::Path;

pub const BODIES: &str = "/truth/bodies";
/// Time of the first frame; a frame follows each tenth of a second, six in all.
pub const START: Stamp = Stamp::from_nanos(1_700_000_000_000_000_000);
pub const PERIOD_NS: i64 = 100_000_000;

/// Writes the small recording to `folder`, said to be of `split`, with the messages that `edit`
/// leaves; it may change them.
pub fn write_recording(folder: &Path, split: &str, mut edit: impl FnMut(&mut RawMessage) -> bool) {
    write_messages(folder, split, |mut message| {
        let is_left = edit(&mut message);
        is_left.then_some(message).into_iter().collect()
    });
}

/// The same with the messages that `edit` makes of each.
pub fn write_messages(
    folder: &Path,
    split: &str,
    mut edit: impl FnMut(RawMessage) -> Vec<RawMessage>,
) {
    write_messages_of("tests/data/tiny_push", folder, |mut message| {
        if &*message.topic == BODIES {
            message.data = said_to_be_of(split, &message.data);
        }
        edit(message)
    });
}

/// The same with the messages of another recording of the repository.
pub fn write_messages_of(
    recording: &str,
    folder: &Path,
    mut edit: impl FnMut(RawMessage) -> Vec<RawMessage>,
) {
    let from = Path::new(crate::ROOT).join(recording);
    std::fs::create_dir_all(folder).unwrap();
    std::fs::copy(from.join("metadata.yaml"), folder.join("metadata.yaml")).unwrap();
    let bag = Bag::open(&from).unwrap();
    let name = Path::new(recording).file_name().unwrap().to_str().unwrap();
    let file = std::fs::File::create(folder.join(format!("{name}.mcap"))).unwrap();
    let mut writer = mcap::WriteOptions::new().profile("ros2").create(file).unwrap();
    let mut channels = HashMap::new();
    for topic in bag.topics() {
        let schema = writer.add_schema(&topic.message_type, "ros2msg", b"").unwrap();
        let channel = writer.add_channel(schema, &topic.name, "cdr", &Default::default());
        channels.insert(topic.name.to_string(), channel.unwrap());
    }
    for message in bag.messages() {
        for message in edit(message.unwrap()) {
            let log_time = message.log_time_ns as u64;
            // Clouds may be made of images.
            let channel_id = *channels.entry(message.topic.to_string()).or_insert_with(|| {
                let schema =
                    writer.add_schema("sensor_msgs/msg/PointCloud2", "ros2msg", b"").unwrap();
                writer.add_channel(schema, &message.topic, "cdr", &Default::default()).unwrap()
            });
            let header =
                mcap::records::MessageHeader { channel_id, sequence: 0, log_time, publish_time: 0 };
            writer.write_to_known_channel(&header, &message.data).unwrap();
        }
    }
    writer.finish().unwrap();
}

/// Writes the small recording `n` times, one after the other, to `folder`, said to be of `split`.
pub fn write_rounds(folder: &Path, split: &str, n: i64) {
    let once = ["/robot_description", BODIES, "/tf", "/tf_static"];
    write_messages(folder, split, |message| match once.contains(&&*message.topic) {
        true => vec![message],
        false => (0..n).map(|round| later(&message, round * 6 * PERIOD_NS)).collect(),
    });
}

fn said_to_be_of(split: &str, bodies: &[u8]) -> Vec<u8> {
    let json = StringMessage::decode(bodies).unwrap().data;
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["split"] = split.into();
    string_message(&json.to_string())
}

/// `std_msgs/msg/String`.
pub fn string_message(text: &str) -> Vec<u8> {
    // CDR, little endian: length with the closing zero, then the bytes.
    let length = (text.len() as u32 + 1).to_le_bytes();
    [&[0, 1, 0, 0], &length[..], text.as_bytes(), &[0]].concat()
}

/// Transforms of `/tf` or `/tf_static`: parent, child and x (m), all stamped `stamp`; and those that `before` tells.
pub fn transforms_message(before: &[u8], stamp: Stamp, more: &[(&str, &str, f64)]) -> Vec<u8> {
    let mut body = before.get(4..).map_or(vec![0; 4], <[u8]>::to_vec);
    let n = u32::from_le_bytes(body[..4].try_into().unwrap()) + more.len() as u32;
    body[..4].copy_from_slice(&n.to_le_bytes());
    let align = |body: &mut Vec<u8>, to: usize| body.resize(body.len().next_multiple_of(to), 0);
    for (parent, child, x) in more {
        align(&mut body, 4);
        let (secs, nanos) = stamp.parts();
        body.extend(secs.to_le_bytes());
        body.extend(nanos.to_le_bytes());
        for text in [parent, child] {
            align(&mut body, 4);
            body.extend((text.len() as u32 + 1).to_le_bytes());
            body.extend(text.as_bytes());
            body.push(0);
        }
        align(&mut body, 8);
        let numbers = [*x, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        body.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
    [&[0, 1, 0, 0], &body[..]].concat()
}

/// The robot's description, in which no link is called as the world frame is.
pub fn without_world(message: &RawMessage) -> RawMessage {
    let text = StringMessage::decode(&message.data).unwrap().data;
    let data = string_message(&text.replace("\"world\"", "\"earth\""));
    RawMessage { data, ..message.clone() }
}

/// Whether the message is a camera's: an image, its calibration or its body ids.
pub fn is_of_camera(message: &RawMessage, camera: &str) -> bool {
    message.topic.contains(camera)
}

pub fn is_image(message: &RawMessage) -> bool {
    message.topic.ends_with("/image_raw")
}

pub fn is_ids(message: &RawMessage) -> bool {
    message.topic.ends_with("/body_ids")
}

pub fn is_info(message: &RawMessage) -> bool {
    message.topic.ends_with("/camera_info")
}

/// Number of the frame that the header's stamp is of; of a message with a header.
pub fn frame_of(message: &RawMessage) -> i64 {
    (stamp_of(message).nanos() - START.nanos()).div_euclid(PERIOD_NS)
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap())
}

fn stamp_of(message: &RawMessage) -> Stamp {
    Stamp::from_parts(u32_at(&message.data, 4) as i32, u32_at(&message.data, 8))
}

/// The message that much later, in its header and in the recording.
pub fn later(message: &RawMessage, nanos: i64) -> RawMessage {
    let (secs, rest) = Stamp::from_nanos(stamp_of(message).nanos() + nanos).parts();
    let mut message = message.clone();
    message.data[4..8].copy_from_slice(&secs.to_le_bytes());
    message.data[8..12].copy_from_slice(&rest.to_le_bytes());
    message.log_time_ns += nanos;
    message
}

/// An image of every second pixel of every second row.
pub fn halve_image(message: &mut RawMessage) {
    let image = Image::decode(&message.data).unwrap();
    let n_bytes = image.bytes_per_pixel().unwrap();
    let rows = (0..image.height).step_by(2).map(|y| image.row(y).unwrap());
    let pixels = rows.flat_map(|row| row.chunks_exact(n_bytes).step_by(2)).flatten();
    let (width, height) = (image.width / 2, image.height / 2);
    let data: Vec<u8> = pixels.copied().collect();
    assert_eq!(data.len(), (width * height) as usize * n_bytes);
    let step = width * n_bytes as u32;
    message.data = cdr(&Image { width, height, step, data, ..image });
}

/// The image in another encoding, by name only.
pub fn rename_encoding(message: &mut RawMessage, encoding: &str) {
    let image = Image::decode(&message.data).unwrap();
    message.data = cdr(&Image { encoding: encoding.into(), ..image });
}

/// `sensor_msgs/msg/Image`.
pub fn cdr(image: &Image) -> Vec<u8> {
    let mut body = Vec::new();
    let put = |body: &mut Vec<u8>, value: u32| {
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(value.to_le_bytes());
    };
    let put_text = |body: &mut Vec<u8>, text: &str| {
        put(body, text.len() as u32 + 1);
        body.extend(text.as_bytes());
        body.push(0);
    };
    let (secs, nanos) = image.header.stamp.parts();
    put(&mut body, secs as u32);
    put(&mut body, nanos);
    put_text(&mut body, &image.header.frame_id);
    put(&mut body, image.height);
    put(&mut body, image.width);
    put_text(&mut body, &image.encoding);
    body.push(image.is_bigendian.into());
    put(&mut body, image.step);
    put(&mut body, image.data.len() as u32);
    [&[0, 1, 0, 0], &body[..], &image.data].concat()
}

/// The calibration of [`halve_image`].
pub fn halve_info(message: &mut RawMessage) {
    let body = &mut message.data[4..];
    let after_text = |body: &[u8], at: usize| at + 4 + u32_at(body, at) as usize;
    let size = after_text(body, 8).next_multiple_of(4);
    for at in [size, size + 4] {
        let half = u32_at(body, at) / 2;
        body[at..at + 4].copy_from_slice(&half.to_le_bytes());
    }
    let distortion = after_text(body, size + 8).next_multiple_of(4);
    let n = u32_at(body, distortion) as usize;
    let d = (distortion + 4).next_multiple_of(if n > 0 { 8 } else { 4 });
    let k = (d + 8 * n).next_multiple_of(8);
    // fx, cx, fy, cy of the matrices 3 × 3 and 3 × 4.
    let p = k + 2 * 72;
    let of_k = [0, 2, 4, 5].map(|i| k + 8 * i);
    let of_p = [0, 2, 5, 6].map(|i| p + 8 * i);
    for at in of_k.into_iter().chain(of_p) {
        let value = f64::from_le_bytes(body[at..at + 8].try_into().unwrap());
        body[at..at + 8].copy_from_slice(&(value / 2.0).to_le_bytes());
    }
}
