//! Recordings written here, then cut and flipped: prefix or error, never a panic.

mod index;
mod records;
mod recover;
use crate::shared;
use crate::written;
mod zeros;

use forecloud_bag::bag::Bag;
use mcap::records::MessageHeader;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::path::Path;
use std::sync::LazyLock;
use written::{Message, large_messages, messages, sqlite_bytes, zstd_each, zstd_file};

const N: u64 = 60;

static RECORDINGS: LazyLock<[Vec<u8>; 4]> = LazyLock::new(recordings);

/// 60 messages on two topics, log times out of order, in many small chunks.
fn recording(compression: Option<mcap::Compression>, use_chunks: bool) -> Vec<u8> {
    let options = mcap::WriteOptions::new().profile("ros2").chunk_size(Some(300));
    recording_of(options.compression(compression).use_chunks(use_chunks))
}

/// The same messages, written so.
fn recording_of(options: mcap::WriteOptions) -> Vec<u8> {
    let mut buffer = Cursor::new(Vec::new());
    let mut writer = options.create(&mut buffer).unwrap();
    let schema = writer.add_schema("std_msgs/msg/String", "ros2msg", b"string data").unwrap();
    let topics = ["/b", "/a"];
    let ids = topics.map(|t| writer.add_channel(schema, t, "cdr", &BTreeMap::new()).unwrap());
    for i in 0..N {
        let header = MessageHeader {
            channel_id: ids[(i % 2) as usize],
            sequence: i as u32,
            log_time: 1_000 + (i ^ 3),
            publish_time: 0,
        };
        writer.write_to_known_channel(&header, &[(i ^ 3) as u8; 20]).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    buffer.into_inner()
}

fn recordings() -> [Vec<u8>; 4] {
    [
        recording(None, false),
        recording(None, true),
        recording(Some(mcap::Compression::Zstd), true),
        recording(Some(mcap::Compression::Lz4), true),
    ]
}

/// Names and bytes of the files of a recording, the first of which is to be damaged.
type Files = Vec<(&'static str, Vec<u8>)>;

static OTHERS: LazyLock<[Files; 5]> = LazyLock::new(|| {
    let messages = messages(120);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db3");
    let writer = written::sqlite(&path, &messages[..60], 5, "PRAGMA journal_mode = WAL");
    writer.pragma_query(None, "wal_checkpoint", |_| Ok(())).unwrap();
    written::add(&writer, &messages[60..]);
    let log = std::fs::read(folder.path().join("a.db3-wal")).unwrap();
    [
        vec![("a.db3", sqlite_bytes(&messages, 5))],
        vec![("a.db3", sqlite_bytes(&zstd_each(&messages), 3))],
        vec![("a.db3.zstd", zstd_file(&sqlite_bytes(&messages, 6)))],
        vec![("a.mcap.zstd", zstd_file(&written::mcap(&messages, None)))],
        vec![("a.db3-wal", log), ("a.db3", std::fs::read(path).unwrap())],
    ]
});

fn write(folder: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join("a.mcap");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Holds each message that is read against what was written.
fn assert_true(bag: &Bag) {
    let mut n = 0;
    for message in bag.messages() {
        let message = message.expect("indexed");
        let i = message.log_time_ns - 1_000;
        assert_eq!(message.data, [i as u8; 20]);
        assert_eq!(&*message.topic, if i % 2 == 1 { "/b" } else { "/a" });
        n += 1;
    }
    assert_eq!(n, bag.n_messages());
}

/// Reads all; log times ascend. Number of messages, or `None` if the file is refused.
fn drain(path: &Path) -> Option<u64> {
    let bag = Bag::open(path).ok()?;
    let times: Vec<i64> = bag.messages().map(|m| m.expect("indexed").log_time_ns).collect();
    assert!(times.is_sorted());
    assert_eq!(times.len() as u64, bag.n_messages());
    Some(bag.n_messages())
}

#[test]
fn messages_come_in_the_order_of_their_log_times() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in recordings() {
        let bag = Bag::open(write(folder.path(), &bytes)).unwrap();
        assert!(bag.warnings().is_empty(), "{:?}", bag.warnings());
        for (i, message) in bag.messages().enumerate() {
            let message = message.unwrap();
            assert_eq!(message.log_time_ns, 1_000 + i as i64);
            assert_eq!(message.data, [i as u8; 20]);
            assert_eq!(&*message.topic, if i % 2 == 1 { "/b" } else { "/a" });
        }
        assert_eq!(bag.n_messages(), N);
        let names: Vec<_> = bag.topics().iter().map(|t| (&*t.name, t.n_messages)).collect();
        assert_eq!(names, [("/a", 30), ("/b", 30)]);
        assert_eq!(bag.messages_where(|topic| topic == "/a").count(), 30);
        assert!((bag.duration_secs() - 59e-9).abs() < 1e-15);
    }
}

#[test]
fn every_cut_gives_the_prefix_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in recordings() {
        let mut last = 0;
        for n in (0..bytes.len()).step_by(7) {
            let path = write(folder.path(), &bytes[..n]);
            let Some(got) = drain(&path) else {
                assert!(n < 8, "only the magic bytes are needed, cut at {n}");
                continue;
            };
            assert!(!Bag::open(&path).unwrap().warnings().is_empty(), "cut at {n}");
            assert!(got >= last, "{got} messages at {n}, {last} before");
            last = got;
        }
        assert_eq!(last, N);
    }
}

#[test]
fn a_wrong_checksum_leaves_the_chunk_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = recording(None, true);
    // Data of the first message: twenty times its number.
    let at = bytes.windows(20).position(|window| window == [3; 20]).unwrap();
    bytes[at] ^= 1;
    let bag = Bag::open(write(folder.path(), &bytes)).unwrap();
    assert!(bag.n_messages() < N && bag.n_messages() > N / 2);
    assert!(bag.warnings()[0].contains("checksum"), "{:?}", bag.warnings());
}

#[test]
fn metadata_lists_the_files_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = recording(None, true);
    write(folder.path(), &bytes);
    std::fs::write(folder.path().join("b.mcap"), &bytes).unwrap();
    assert_eq!(drain(folder.path()), Some(2 * N));
    let yaml = |count: u64, rest: &str| {
        format!(
            "rosbag2_bagfile_information:\n  version: 9\n  storage_identifier: mcap\n  \
             message_count: {count}\n  relative_file_paths:\n  - a.mcap\n{rest}"
        )
    };
    let metadata = folder.path().join("metadata.yaml");
    std::fs::write(&metadata, yaml(N, "  - ../../gone.mcap\n")).unwrap();
    let bag = Bag::open(folder.path()).unwrap();
    assert_eq!(bag.n_messages(), N);
    assert_eq!(bag.warnings().len(), 2, "{:?}", bag.warnings());
    std::fs::write(&metadata, yaml(0, "")).unwrap();
    let bag = Bag::open(folder.path()).unwrap();
    assert!(bag.warnings().iter().any(|w| w.contains("reindex")), "{:?}", bag.warnings());
    std::fs::write(&metadata, "{").unwrap();
    let bag = Bag::open(folder.path()).unwrap();
    assert_eq!((bag.n_messages(), bag.warnings().len()), (2 * N, 1));
}

/// Bytes from the start at all of which a file is cut.
const ALL_CUTS: usize = 64 << 10;
/// Of these, each 31st has all its messages read; no page or chunk is a multiple of it.
const READ_STRIDE: usize = 31;
const N_RANDOM_CUTS: usize = 1_000;

/// Cuts `bytes`, the recording of `messages`, at every `stride`th byte of the first 64 KiB and at
/// 1,000 random places: what is read is true, and no cut gives less than a shorter one.
fn cut_everywhere(bytes: &[u8], messages: &[Message], stride: usize) {
    assert!(bytes.len() > ALL_CUTS + 4_096, "{} bytes are too few", bytes.len());
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(11);
    let mut cuts: Vec<usize> = (0..ALL_CUTS).step_by(stride).collect();
    cuts.extend((0..N_RANDOM_CUTS).map(|_| rng.random_range(0..bytes.len())));
    cuts.push(bytes.len() - 1);
    cuts.sort_unstable();
    let truth: HashMap<i64, &Message> = messages.iter().map(|m| (m.1, m)).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut least = messages.len();
    for &cut in cuts.iter().rev() {
        file.set_len(cut as u64).unwrap();
        let n = match Bag::open(&path) {
            Ok(bag) => {
                assert!(!bag.warnings().is_empty(), "cut at {cut}: no warning");
                // Opening has read all but the data; reading these at every cut takes minutes.
                let n_read = if cut % READ_STRIDE == 0 || cut > ALL_CUTS { usize::MAX } else { 1 };
                for message in bag.messages().take(n_read) {
                    let message = message.unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
                    let (topic, _, data) = truth[&message.log_time_ns];
                    assert!(message.topic == (*topic).into() && message.data == *data);
                }
                bag.n_messages() as usize
            }
            Err(error) => {
                assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
                0
            }
        };
        let is_most = cut > bytes.len() / 4 * 3;
        assert!(!is_most || n > messages.len() / 2, "{n} messages of {cut} bytes");
        assert!(n <= least, "{n} messages of {cut} bytes, {least} of more");
        least = n;
    }
    assert_eq!(least, 0);
}

#[test]
fn every_cut_of_mcap() {
    let messages = large_messages(90);
    cut_everywhere(&written::mcap(&messages, None), &messages, 1);
}

#[test]
fn every_cut_of_mcap_with_zstd() {
    let messages = large_messages(165);
    let bytes = written::mcap(&messages, Some(mcap::Compression::Zstd));
    cut_everywhere(&bytes, &messages, 1);
}

#[test]
fn every_cut_of_sqlite() {
    let messages = large_messages(60);
    cut_everywhere(&sqlite_bytes(&messages, 5), &messages, 1);
}

// Of these two, opening adds nothing to that of SQLite and of zstd but the time it takes.

#[test]
fn many_cuts_of_sqlite_with_zstd_by_message() {
    let messages = large_messages(105);
    cut_everywhere(&sqlite_bytes(&zstd_each(&messages), 5), &messages, 7);
}

#[test]
fn many_cuts_of_sqlite_with_zstd_by_file() {
    let messages = large_messages(165);
    cut_everywhere(&zstd_file(&sqlite_bytes(&messages, 5)), &messages, 7);
}

/// Where `what` first is in `bytes`.
fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).expect("there")
}

#[test]
fn claims_of_size_take_no_memory() {
    let chunk = |compression: mcap::Compression, name: &str| {
        let mut bytes = written::mcap(&messages(20), Some(compression));
        // Before the name: its length, the chunk's checksum and size unpacked.
        let at = find(&bytes, name.as_bytes()) - 4 - 4 - 8;
        bytes[at..at + 8].copy_from_slice(&(500u64 << 20).to_le_bytes());
        bytes
    };
    let mut record = recording(None, false);
    let at = find(&record, &[3; 20]) - 22 - 8;
    record[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    // A frame that wants a window of 1.9 GB, with a block of one byte 128 Ki times.
    let window = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xAF, 0x03, 0x00, 0x10, b'S'];
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("zstd.mcap", chunk(mcap::Compression::Zstd, "zstd")),
        ("lz4.mcap", chunk(mcap::Compression::Lz4, "lz4")),
        ("record.mcap", record),
        ("window.db3.zstd", window.to_vec()),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let info = "ulimit -v 200000 && exec \"$0\" info \"$1\"";
        let tool = env!("CARGO_BIN_EXE_forecloud");
        let mut command = std::process::Command::new("sh");
        let output = command.args(["-c", info, tool]).arg(&path).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{name}: {text}");
        assert!(text.contains(name), "{name}: no word of it: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None, // the seed is fixed
        rng_seed: proptest::test_runner::RngSeed::Fixed(2),
        ..ProptestConfig::default()
    })]

    #[test]
    fn flipped_bytes_never_panic(
        which in 0usize..4,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = RECORDINGS[which].clone();
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let path = write(folder.path(), &bytes);
        let Some(n) = drain(&path) else { return Ok(()) };
        let bag = Bag::open(&path).unwrap();
        prop_assert!(n == N || !bag.warnings().is_empty(), "{n} messages, and no word");
        // In chunks, messages have checksums.
        if which > 0 && bag.warnings().is_empty() {
            assert_true(&bag);
        }
    }

    /// In the heads of pages, where the structure is, half of the time.
    #[test]
    fn flipped_bytes_of_other_storages_never_panic(
        which in 0usize..OTHERS.len(),
        flips in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<bool>(), any::<u8>()),
            1..5,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut files = OTHERS[which].clone();
        let (_, bytes) = &mut files[0];
        for (index, in_head, value) in flips {
            let at = index.index(bytes.len());
            let at = if in_head { at - at % 4096 + at % 4096 % 120 } else { at };
            bytes[at] = value;
        }
        for (name, bytes) in &files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let Ok(bag) = Bag::open(folder.path()) else { return Ok(()) };
        // Where SQLite has not read the data on opening, damage shows when they are read.
        let read: Vec<_> = bag.messages().collect();
        assert_eq!(read.len() as u64, bag.n_messages());
        let times: Vec<i64> = read.iter().flatten().map(|message| message.log_time_ns).collect();
        assert!(times.is_sorted());
    }
}
