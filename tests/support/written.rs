//! Recordings as rosbag2 writes them, of seeded messages.

#![allow(dead_code)] // each test uses some of it

use forecloud_bag::bag::Bag;
use mcap::records::MessageHeader;
use rand::{Rng, SeedableRng};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;

pub const TOPICS: [&str; 3] = ["/depth", "/joint_states", "/tf"];

/// A message: topic, log time (ns), data.
pub type Message = (&'static str, i64, Vec<u8>);

/// `n` messages, about 300 bytes each and some of several pages; log times a little out of order.
pub fn messages(n: usize) -> Vec<Message> {
    messages_of(n, 1)
}

/// Four times as large: few of them make a file of 64 KiB.
pub fn large_messages(n: usize) -> Vec<Message> {
    messages_of(n, 4)
}

fn messages_of(n: usize, scale: usize) -> Vec<Message> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    let message = |i: usize| {
        let topic = TOPICS[rng.random_range(0..TOPICS.len())];
        let n_bytes =
            if i % 40 == 7 { rng.random_range(3_000..9_000) } else { (i % 7 * 50 + 20) * scale };
        // Half of it can be compressed.
        let mut data = vec![0; n_bytes];
        rng.fill(&mut data[4..4 + n_bytes / 2]);
        (topic, 1_700_000_000_000_000_000 + 1_000 * (i as i64 ^ 3), data)
    };
    (0..n).map(message).collect()
}

pub fn mcap(messages: &[Message], compression: Option<mcap::Compression>) -> Vec<u8> {
    let mut buffer = std::io::Cursor::new(Vec::new());
    let options = mcap::WriteOptions::new().profile("ros2").library("");
    let options = options.compression(compression).chunk_size(Some(24_000));
    let mut writer = options.create(&mut buffer).unwrap();
    let schema = writer.add_schema("std_msgs/msg/String", "ros2msg", b"string data").unwrap();
    let channels: HashMap<&str, u16> = TOPICS
        .map(|topic| (topic, writer.add_channel(schema, topic, "cdr", &BTreeMap::new()).unwrap()))
        .into();
    for (topic, log_time_ns, data) in messages {
        let header = MessageHeader {
            channel_id: channels[topic],
            sequence: 0,
            log_time: *log_time_ns as u64,
            publish_time: 0,
        };
        writer.write_to_known_channel(&header, data).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    buffer.into_inner()
}

/// An SQLite recording at `path`, with the columns that `topics` had in 2018, 2019, 2020 or has
/// since 2023 (3 to 6); its connection, which changes are made through.
pub fn sqlite(path: &Path, messages: &[Message], n_columns: usize, options: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    let columns = ["serialization_format TEXT", "offered_qos_profiles TEXT", "type_hash TEXT"];
    let columns = &columns[..n_columns - 3];
    let topics = [&["id INTEGER PRIMARY KEY", "name TEXT", "type TEXT"], columns].concat();
    let schema = format!(
        "{options};
         CREATE TABLE topics({});
         CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, \
                               timestamp INTEGER NOT NULL, data BLOB NOT NULL);
         CREATE INDEX timestamp_idx ON messages (timestamp ASC);",
        topics.join(", ")
    );
    connection.execute_batch(&schema).unwrap();
    if n_columns == 6 {
        let more = "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT)";
        connection.execute_batch(more).unwrap();
    }
    let values = ["'cdr'", "''", "''"][..n_columns - 3].iter().map(|value| format!(", {value}"));
    let insert = format!(
        "INSERT INTO topics VALUES(?1, ?2, 'std_msgs/msg/String'{})",
        values.collect::<String>()
    );
    for (i, topic) in TOPICS.iter().enumerate() {
        connection.execute(&insert, (10 + i as i64, topic)).unwrap();
    }
    add(&connection, messages);
    connection
}

/// Writes more messages.
pub fn add(connection: &Connection, messages: &[Message]) {
    let insert = "INSERT INTO messages(topic_id, timestamp, data) VALUES(?1, ?2, ?3)";
    let transaction = connection.unchecked_transaction().unwrap();
    for (topic, log_time_ns, data) in messages {
        let topic = TOPICS.iter().position(|other| other == topic).unwrap();
        transaction.execute(insert, (10 + topic as i64, log_time_ns, data)).unwrap();
    }
    transaction.commit().unwrap();
}

/// The bytes of [`sqlite`].
pub fn sqlite_bytes(messages: &[Message], n_columns: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db3");
    drop(sqlite(&path, messages, n_columns, ""));
    std::fs::read(path).unwrap()
}

/// A compressed file; in small blocks, so that what lies before damage can be unpacked.
pub fn zstd_file(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for block in bytes.chunks(8 << 10) {
        encoder.write_all(block).unwrap();
        encoder.flush().unwrap();
    }
    encoder.finish().unwrap()
}

/// As rosbag2 compresses messages.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).unwrap()
}

/// Each message compressed.
pub fn zstd_each(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|(topic, time, data)| (*topic, *time, zstd(data))).collect()
}

/// The messages in the order in which they are read.
pub fn in_log_order(messages: &[Message]) -> Vec<Message> {
    let mut sorted = messages.to_vec();
    sorted.sort_by_key(|(_, log_time_ns, _)| *log_time_ns);
    sorted
}

/// Holds what `bag` reads against `messages`, of which none may be missing.
pub fn assert_reads(bag: &Bag, messages: &[Message]) {
    let expected = in_log_order(messages);
    assert_eq!(bag.n_messages(), expected.len() as u64, "{:?}", bag.warnings());
    for (got, (topic, log_time_ns, data)) in bag.messages().zip(&expected) {
        let got = got.unwrap();
        assert_eq!((&*got.topic, got.log_time_ns), (*topic, *log_time_ns));
        assert!(got.data == *data, "message of {log_time_ns} ns");
    }
    assert_eq!(bag.messages().count(), expected.len());
}
