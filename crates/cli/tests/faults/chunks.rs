//! MCAP files whose chunks lie in each other, side by side in time, or claim to be what they are not: read in
//! a time and a memory that go with the bytes that are there.

use std::path::{Path, PathBuf};

use forecloud_bag::bag::{Bag, RawMessage};

use super::memory::{allocated, largest_allocation};

const HEADER: u8 = 1;
const SCHEMA: u8 = 3;
const CHANNEL: u8 = 4;
const MESSAGE: u8 = 5;
const CHUNK: u8 = 6;

fn record(opcode: u8, body: &[u8]) -> Vec<u8> {
    claiming(opcode, body.len() as u64, body)
}

/// A record that says to be of `n_bytes`.
fn claiming(opcode: u8, n_bytes: u64, body: &[u8]) -> Vec<u8> {
    [&[opcode], &n_bytes.to_le_bytes()[..], body].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

fn message(log_time: u64, data: &[u8]) -> Vec<u8> {
    let times = [log_time.to_le_bytes(), log_time.to_le_bytes()].concat();
    record(MESSAGE, &[&1u16.to_le_bytes(), &0u32.to_le_bytes()[..], &times, data].concat())
}

/// A chunk of these records, which says that they take `n_bytes` when unpacked.
fn chunk(records: &[u8], n_bytes: u64, compression: &str) -> Vec<u8> {
    let packed = match compression {
        "zstd" => zstd::encode_all(records, 1).unwrap(),
        _ => records.to_vec(),
    };
    let sizes = [&n_bytes.to_le_bytes()[..], &0u32.to_le_bytes()].concat();
    let compressed = (packed.len() as u64).to_le_bytes();
    record(CHUNK, &[&[0; 16], &sizes[..], &text(compression), &compressed, &packed].concat())
}

fn plain(records: &[u8]) -> Vec<u8> {
    chunk(records, records.len() as u64, "")
}

/// A file with a channel, and these records after it; without an end.
fn write(folder: &Path, records: &[Vec<u8>]) -> PathBuf {
    let schema = [&1u16.to_le_bytes()[..], &text("std_msgs/msg/String"), &text(""), &text("")];
    let channel =
        [&1u16.to_le_bytes()[..], &1u16.to_le_bytes(), &text("/a"), &text("cdr"), &[0; 4]];
    let head = [
        mcap::MAGIC.to_vec(),
        record(HEADER, &[text("ros2"), text("")].concat()),
        record(SCHEMA, &schema.concat()),
        record(CHANNEL, &channel.concat()),
    ];
    let path = folder.join("a.mcap");
    std::fs::write(&path, [head.concat(), records.concat()].concat()).unwrap();
    path
}

fn read(path: &Path) -> (Bag, Vec<RawMessage>) {
    let bag = Bag::open(path).unwrap();
    let messages = bag.messages_where(|_| true).map(Result::unwrap).collect();
    (bag, messages)
}

#[test]
fn sizes_that_records_and_chunks_claim_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let large = 400 << 20;
    let liar = claiming(MESSAGE, large, &[0; 30]);
    let mut records: Vec<Vec<u8>> = (0..10).map(|_| chunk(&liar, 2 * large, "zstd")).collect();
    records.extend((0..10).map(|_| chunk(&liar, large + 9, "zstd")));
    records.extend((0..10).map(|_| chunk(&liar, large + 9, "")));
    records.push(message(1, b"whole"));
    let path = write(folder.path(), &records);
    let (largest, (bag, messages)) = largest_allocation(|| read(&path));
    assert!(largest < 8 << 20, "{largest} bytes at once");
    assert_eq!(messages.iter().map(|m| &m.data[..]).collect::<Vec<_>>(), [b"whole"]);
    let told = bag.warnings().join("\n");
    assert!(told.contains("what follows in it is left out"), "{told}");
}

#[test]
fn chunks_in_chunks_are_passed_over_however_deep() {
    for compression in ["", "zstd"] {
        let folder = tempfile::tempdir().unwrap();
        let mut nested = message(9, b"deep");
        for _ in 0..2000 {
            nested = plain(&nested);
        }
        let records = [message(1, b"first"), nested, message(2, b"last")].concat();
        let outer = chunk(&records, records.len() as u64, compression);
        let path = write(folder.path(), &[outer]);
        let (bag, messages) = read(&path);
        assert_eq!(
            messages.iter().map(|m| &m.data[..]).collect::<Vec<_>>(),
            [&b"first"[..], b"last"]
        );
        let told = bag.warnings().join("\n");
        assert!(told.contains("left out 1 records that have no place in a chunk"), "{told}");
    }
}

/// Chunks are written topic by topic, or robot by robot: all of them reach over the whole time.
#[test]
fn chunks_that_overlap_in_time_are_read_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let (n_chunks, n_each) = (200u64, 30u64);
    let of_chunk = |i: u64| {
        let messages = (0..n_each).map(|j| message(n_chunks * j + i, &[i as u8; 500]));
        plain(&messages.collect::<Vec<_>>().concat())
    };
    let path = write(folder.path(), &(0..n_chunks).map(of_chunk).collect::<Vec<_>>());
    let n_bytes = std::fs::metadata(&path).unwrap().len();
    let (taken, (_, messages)) = allocated(|| read(&path));
    assert_eq!(messages.len() as u64, n_chunks * n_each);
    assert!(messages.is_sorted_by_key(|message| message.log_time_ns));
    assert!(taken < 10 * n_bytes, "{taken} bytes for a file of {n_bytes}");
}
