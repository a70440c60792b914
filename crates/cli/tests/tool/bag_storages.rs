//! Recordings in all storages, compressions and states in which rosbag2 leaves them.

use crate::written;

use ::mcap as mcap_writer;
use forecloud_bag::bag::Bag;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use written::{
    Message, add, assert_reads, mcap, messages, sqlite, sqlite_bytes, zstd_each, zstd_file,
};

fn folder_of(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn facts(bag: &Bag) -> (Vec<&str>, Vec<&str>) {
    (bag.storage().collect(), bag.compression().collect())
}

#[test]
fn types_that_a_file_lacks_are_those_of_the_metadata() {
    let mut buffer = std::io::Cursor::new(Vec::new());
    let mut writer = mcap_writer::WriteOptions::new().create(&mut buffer).unwrap();
    let channel = writer.add_channel(0, "/depth", "cdr", &BTreeMap::new()).unwrap();
    let (sequence, log_time, publish_time) = (0, 1, 1);
    let header = mcap_writer::records::MessageHeader {
        channel_id: channel,
        sequence,
        log_time,
        publish_time,
    };
    writer.write_to_known_channel(&header, &[0; 8]).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let metadata = "rosbag2_bagfile_information:\n  message_count: 1\n  relative_file_paths: [a.mcap]\n  \
                    topics_with_message_count:\n    - topic_metadata:\n        name: /depth\n        \
                    type: sensor_msgs/msg/Image\n      message_count: 1\n";
    let files = [("a.mcap", buffer.into_inner()), ("metadata.yaml", metadata.into())];
    let folder = folder_of(&files);
    let bag = Bag::open(folder.path()).unwrap();
    assert_eq!(bag.topics()[0].message_type, "sensor_msgs/msg/Image");
    assert_eq!(bag.warnings(), [""; 0]);
    // Alone, the file tells none.
    assert_eq!(Bag::open(folder.path().join("a.mcap")).unwrap().topics()[0].message_type, "");
}

#[test]
fn every_storage_and_compression_gives_the_same_messages() {
    let messages = messages(300);
    let each = zstd_each(&messages);
    let chunks = mcap(&messages, Some(mcap::Compression::Zstd));
    let whole = mcap(&messages, None);
    for (bytes, storage, compression) in [
        (whole.clone(), "mcap", &[][..]),
        (chunks.clone(), "mcap", &["zstd by chunk"]),
        (mcap(&messages, Some(mcap::Compression::Lz4)), "mcap", &["lz4 by chunk"]),
        (mcap(&each, None), "mcap", &["zstd by message"]),
        (zstd_file(&whole), "mcap", &["zstd by file"]),
        (zstd_file(&chunks), "mcap", &["zstd by chunk", "zstd by file"]),
        (sqlite_bytes(&messages, 3), "sqlite3", &[]),
        (sqlite_bytes(&messages, 4), "sqlite3", &[]),
        (sqlite_bytes(&messages, 5), "sqlite3", &[]),
        (sqlite_bytes(&messages, 6), "sqlite3", &[]),
        (sqlite_bytes(&each, 5), "sqlite3", &["zstd by message"]),
        (zstd_file(&sqlite_bytes(&messages, 5)), "sqlite3", &["zstd by file"]),
    ] {
        // The name says nothing.
        let folder = folder_of(&[("recording", bytes)]);
        let bag = Bag::open(folder.path().join("recording")).unwrap();
        assert_reads(&bag, &messages);
        assert_eq!(bag.warnings(), [""; 0], "{storage} {compression:?}");
        assert_eq!(facts(&bag), (vec![storage], compression.to_vec()));
        let n_tf = messages.iter().filter(|(topic, ..)| *topic == "/tf").count();
        assert_eq!(bag.messages_where(|topic| topic == "/tf").count(), n_tf);
        assert_reads(&Bag::open(folder.path()).unwrap(), &messages);
    }
}

#[test]
fn split_files_of_mixed_kinds_come_in_one_order() {
    let messages = messages(420);
    // Seven files that were recorded at the same time, and so alternate throughout.
    let part = |i: usize| messages.iter().skip(i).step_by(7).cloned().collect::<Vec<Message>>();
    let folder = folder_of(&[
        ("0.db3", sqlite_bytes(&part(0), 5)),
        ("1.db3.zstd", zstd_file(&sqlite_bytes(&part(1), 5))),
        ("2.mcap", mcap(&part(2), None)),
        ("3.mcap.zstd", zstd_file(&mcap(&part(3), Some(mcap::Compression::Zstd)))),
        ("4.db3", sqlite_bytes(&zstd_each(&part(4)), 3)),
        ("5.db3", sqlite_bytes(&part(5), 6)),
        ("6.db3", sqlite_bytes(&part(6), 4)),
    ]);
    let bag = Bag::open(folder.path()).unwrap();
    assert_reads(&bag, &messages);
    assert_eq!(bag.n_files(), 7);
    assert_eq!(bag.warnings(), [""; 0]);
    // Two readings at once share the files.
    let pairs = bag.messages().zip(bag.messages()).skip(100);
    assert_eq!(pairs.filter(|(one, other)| one.is_ok() && other.is_ok()).count(), 320);
}

#[test]
fn a_write_ahead_log_is_read_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a #1?.db3");
    let messages = messages(200);
    let (merged, logged) = messages.split_at(120);
    let writer = sqlite(&path, merged, 5, "PRAGMA journal_mode = WAL");
    writer.pragma_query(None, "wal_checkpoint", |_| Ok(())).unwrap();
    add(&writer, logged);
    // As a recorder leaves it that is killed: copied, so that no connection holds it.
    let killed = folder_of(&[]);
    for (path, bytes) in contents(folder.path()) {
        std::fs::write(killed.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    std::fs::remove_file(killed.path().join("a #1?.db3-shm")).unwrap();
    let before = contents(killed.path());
    assert_eq!(before.len(), 2, "the file and its log");
    let bag = Bag::open(killed.path()).unwrap();
    assert_reads(&bag, &messages);
    assert_eq!(bag.warnings(), [""; 0]);
    assert!(contents(killed.path()) == before, "written to");
    drop(bag);
    assert!(contents(killed.path()) == before, "written to on closing");
    // Without its log.
    std::fs::remove_file(killed.path().join("a #1?.db3-wal")).unwrap();
    let bag = Bag::open(killed.path()).unwrap();
    assert_reads(&bag, merged);
    drop(bag);
    assert_eq!(contents(killed.path()).len(), 1);
}

#[test]
fn a_rollback_journal_is_told() {
    let bytes = sqlite_bytes(&messages(10), 5);
    let journal = [&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7][..], &[0; 1000]].concat();
    let folder = folder_of(&[("a.db3", bytes), ("a.db3-journal", journal)]);
    let bag = Bag::open(folder.path()).unwrap();
    assert_reads(&bag, &messages(10));
    assert!(bag.warnings()[0].contains("a.db3-journal"), "{:?}", bag.warnings());
}

#[test]
fn temporary_files_have_no_names_and_lack_of_room_is_told() {
    let folder = folder_of(&[("a.db3.zstd", zstd_file(&sqlite_bytes(&messages(50), 5)))]);
    let info = |temporary: &Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forecloud"));
        command.arg("info").arg(folder.path()).env("TMPDIR", temporary).output().unwrap()
    };
    let temporary = tempfile::tempdir().unwrap();
    assert!(info(temporary.path()).status.success());
    assert_eq!(contents(temporary.path()), BTreeMap::new());
    let output = info(&temporary.path().join("gone"));
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("set TMPDIR") && text.contains("a.db3.zstd"), "{text}");
    // While it is read, a file is open that has lost its name.
    let bag = Bag::open(folder.path()).unwrap();
    let mut reading = bag.messages();
    reading.next().unwrap().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let mut targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let is_nameless = |path: &str| path.contains("/forecloud-") && path.ends_with(" (deleted)");
    assert!(targets.any(|target| target.to_str().is_some_and(is_nameless)));
}

#[test]
fn metadata_may_be_wrong() {
    let messages = messages(100);
    let yaml = |rest: &str| format!("rosbag2_bagfile_information:\n  version: 4\n{rest}");
    for (rest, warning) in [
        ("  message_count: 100\n  relative_file_paths: [bag/a.db3]\n", None),
        // Listed with the suffix of its compression, or without.
        ("  relative_file_paths: [a.db3.zstd]\n", None),
        ("  storage_identifier: mcap\n  relative_file_paths: [a.db3]\n", None),
        ("  message_count: 0\n  relative_file_paths: []\n", Some("counts 0 messages")),
        ("  relative_file_paths: [b.db3]\n", Some("b.db3 is listed")),
        ("  relative_file_paths: ~\n", Some("not rosbag2's")),
        ("  compression_mode: MESSAGE\n  compression_format: zstd\n", None),
    ] {
        let folder = folder_of(&[
            ("a.db3", sqlite_bytes(&messages, 5)),
            ("metadata.yaml", yaml(rest).into()),
            ("notes.txt", b"nothing".to_vec()),
        ]);
        for path in [folder.path().to_owned(), folder.path().join("metadata.yaml")] {
            let bag = Bag::open(path).expect(rest);
            assert_reads(&bag, &messages);
            assert_eq!(bag.warnings().len(), usize::from(warning.is_some()), "{rest}");
            assert!(bag.warnings().iter().all(|got| got.contains(warning.unwrap())), "{rest}");
        }
    }
    let lz4 = yaml("  compression_mode: MESSAGE\n  compression_format: lz4\n");
    let folder = folder_of(&[
        ("a.db3", sqlite_bytes(&messages, 5)),
        ("metadata.yaml", (lz4 + "  relative_file_paths: [a.db3]\n").into()),
    ]);
    let error = Bag::open(folder.path()).err().expect("refused").to_string();
    assert!(error.contains("'lz4'") && error.contains("ros2 bag convert"), "{error}");
}

#[test]
fn an_unpacked_copy_is_not_read_twice() {
    let bytes = sqlite_bytes(&messages(100), 5);
    let folder = folder_of(&[("a.db3.zstd", zstd_file(&bytes)), ("a.db3", bytes)]);
    let bag = Bag::open(folder.path()).unwrap();
    assert_reads(&bag, &messages(100));
    assert!(bag.warnings()[0].contains("a.db3.zstd"), "{:?}", bag.warnings());
}

#[test]
fn what_is_no_recording_is_refused_with_the_remedy() {
    let foreign = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db3");
        let connection = rusqlite::Connection::open(&path).unwrap();
        // A view that would count for hours.
        let endless = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT);
             CREATE VIEW messages AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
             SELECT i AS rowid, 1 AS topic_id, i AS timestamp, x'00' AS data FROM n;";
        connection.execute_batch(endless).unwrap();
        drop(connection);
        std::fs::read(path).unwrap()
    };
    for (name, bytes, problem) in [
        ("a.bag", b"#ROSBAG V2.0\n....".to_vec(), "rosbags-convert"),
        ("a.bag.zstd", zstd_file(b"#ROSBAG V2.0\n...."), "unpacks to neither MCAP nor SQLite"),
        ("a.db3.zstd", zstd_file(&zstd_file(&foreign)), "unpacks to neither MCAP nor SQLite"),
        ("a.db3", foreign, "has no table messages"),
        ("a.mcap", vec![], "is empty"),
        ("a.mcap", b"text".to_vec(), "magic bytes"),
    ] {
        let folder = folder_of(&[(name, bytes)]);
        for path in [folder.path().to_owned(), folder.path().join(name)] {
            let error = Bag::open(&path).err().expect(problem).to_string();
            assert!(error.contains(name) && error.contains(problem), "{error}");
        }
    }
    let empty = folder_of(&[]);
    let error = Bag::open(empty.path()).err().expect("refused").to_string();
    assert!(error.contains("ros2 bag record"), "{error}");
}

#[test]
fn frames_that_claim_more_than_they_hold_are_refused_without_allocating() {
    // A zstd header that claims 2^40 bytes, or 400 MB, and one block of 128 KiB.
    for claim in [1u64 << 40, 400 << 20] {
        let header = [&[0x28, 0xB5, 0x2F, 0xFD, 0xE0][..], &claim.to_le_bytes()].concat();
        let block = (128u32 << 10 << 3 | 0b011).to_le_bytes();
        let data = [&header[..], &block[..3], &[7]].concat();
        let mut messages = messages(3);
        messages[1].2 = data.clone();
        let folder = folder_of(&[("a.db3", sqlite_bytes(&messages, 5))]);
        let bag = Bag::open(folder.path()).unwrap();
        let read: Vec<_> = bag.messages().collect();
        let errors: Vec<_> = read.iter().filter_map(|message| message.as_ref().err()).collect();
        assert_eq!((read.len(), errors.len()), (3, 1), "the others are read");
        assert!(errors[0].to_string().contains("claims to hold"), "{}", errors[0]);
        let folder = folder_of(&[("a.db3.zstd", data)]);
        assert!(Bag::open(folder.path()).is_err());
    }
}
