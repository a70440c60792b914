//! Copies of the small recording in which something is different.

#![allow(dead_code)] // each test uses some of it

use forecloud::bag::{Bag, RawMessage};
use forecloud::message::StringMessage;
use std::collections::HashMap;
use std::path::Path;

pub const BODIES: &str = "/truth/bodies";

/// Writes the small recording to `folder`, said to be of `split`, with the messages that `edit`
/// leaves; it may change them.
pub fn write_recording(folder: &Path, split: &str, mut edit: impl FnMut(&mut RawMessage) -> bool) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny_push");
    std::fs::create_dir_all(folder).unwrap();
    std::fs::copy(from.join("metadata.yaml"), folder.join("metadata.yaml")).unwrap();
    let bag = Bag::open(&from).unwrap();
    let file = std::fs::File::create(folder.join("tiny_push.mcap")).unwrap();
    let mut writer = mcap::WriteOptions::new().profile("ros2").create(file).unwrap();
    let mut channels = HashMap::new();
    for topic in bag.topics() {
        let schema = writer.add_schema(&topic.message_type, "ros2msg", b"").unwrap();
        let channel = writer.add_channel(schema, &topic.name, "cdr", &Default::default());
        channels.insert(topic.name.to_string(), channel.unwrap());
    }
    for message in bag.messages() {
        let mut message = message.unwrap();
        if &*message.topic == BODIES {
            message.data = said_to_be_of(split, &message.data);
        }
        if !edit(&mut message) {
            continue;
        }
        let log_time = message.log_time_ns as u64;
        let channel_id = channels[&*message.topic];
        let header =
            mcap::records::MessageHeader { channel_id, sequence: 0, log_time, publish_time: 0 };
        writer.write_to_known_channel(&header, &message.data).unwrap();
    }
    writer.finish().unwrap();
}

fn said_to_be_of(split: &str, bodies: &[u8]) -> Vec<u8> {
    let json = StringMessage::decode(bodies).unwrap().data;
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["split"] = split.into();
    let text = json.to_string();
    // CDR, little endian: length with the closing zero, then the bytes.
    let length = (text.len() as u32 + 1).to_le_bytes();
    [&[0, 1, 0, 0], &length[..], text.as_bytes(), &[0]].concat()
}
