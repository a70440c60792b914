//! Chunks are found by the index at the end of the file, and what is missing is counted.

use super::records::{Record, data_end, finished, forge, op, record, records, without_end};
use super::{N, assert_true, recording, write};
use forecloud_bag::bag::Bag;

/// Where a chunk index holds the chunk's place and length; statistics hold their count first.
const PLACE: usize = 16;
const LENGTH: usize = 24;

fn chunks(bytes: &[u8]) -> Vec<Record> {
    records(bytes).into_iter().filter(|record| record.opcode == op::CHUNK).collect()
}

/// Opens the recording; all that it reads is true.
fn open(bytes: &[u8]) -> Bag {
    let folder = tempfile::tempdir().unwrap();
    let bag = Bag::open(write(folder.path(), bytes)).unwrap();
    assert_true(&bag);
    bag
}

fn assert_told(bag: &Bag, word: &str) {
    assert!(bag.warnings().iter().any(|w| w.contains(word)), "{word}: {:?}", bag.warnings());
}

#[test]
fn a_damaged_head_of_a_chunk_costs_nothing_where_there_is_an_index() {
    for compression in [None, Some(mcap::Compression::Zstd), Some(mcap::Compression::Lz4)] {
        let whole = recording(compression, true);
        let chunk = chunks(&whole)[2];
        for bit in 0..72 {
            let mut bytes = whole.clone();
            bytes[chunk.offset + bit / 8] ^= 1 << (bit % 8);
            let bag = open(&bytes);
            assert_eq!(bag.n_messages(), N, "bit {bit}: {:?}", bag.warnings());
            assert_told(&bag, "the head of the chunk");
            assert_eq!(bag.warnings().len(), 1, "bit {bit}: {:?}", bag.warnings());
        }
    }
}

#[test]
fn a_damaged_length_of_a_chunk_costs_nothing_without_an_index_either() {
    let cut = without_end(&recording(Some(mcap::Compression::Zstd), true));
    let chunk = chunks(&cut)[2];
    for whole in [cut.clone(), finished(&cut)] {
        for bit in 8..72 {
            let mut bytes = whole.clone();
            bytes[chunk.offset + bit / 8] ^= 1 << (bit % 8);
            let bag = open(&bytes);
            assert_eq!(bag.n_messages(), N, "bit {bit}: {:?}", bag.warnings());
            assert_told(&bag, "the chunk at byte");
        }
    }
}

#[test]
fn without_an_index_a_damaged_opcode_is_told_by_its_bytes() {
    let whole = finished(&without_end(&recording(None, true)));
    let chunk = chunks(&whole)[2];
    for bit in 0..8 {
        let mut bytes = whole.clone();
        bytes[chunk.offset] ^= 1 << bit;
        let bag = open(&bytes);
        assert!(bag.n_messages() < N, "bit {bit}");
        assert_told(&bag, &format!("byte {}", chunk.offset));
    }
}

#[test]
fn what_the_file_counts_and_is_missing_is_told_by_topic() {
    let options = mcap::WriteOptions::new().profile("ros2").emit_chunk_indexes(false);
    let whole = super::recording_of(options.chunk_size(Some(300)).compression(None));
    let mut bytes = whole.clone();
    let chunk = chunks(&bytes)[2];
    bytes[chunk.offset] = 0x07;
    let bag = open(&bytes);
    let (got, missing) = (bag.n_messages(), N - bag.n_messages());
    assert!((1..20).contains(&missing));
    assert_told(
        &bag,
        &format!("it counts {N} messages itself, {got} were read: {missing} are lost"),
    );
    let [a, b] = bag.topics() else { panic!("two topics") };
    assert_told(&bag, &format!("(/a {} of 30, /b {} of 30)", a.n_messages, b.n_messages));
    // Statistics that lie.
    for count in [0, N - 1, N + 1, u64::MAX] {
        let mut bytes = whole.clone();
        forge(&mut bytes, op::STATISTICS, 0, 0, count);
        let bag = open(&bytes);
        assert_eq!(bag.n_messages(), N);
        assert_told(&bag, &format!("counts {count} messages itself, {N} were read"));
    }
}

#[test]
fn an_index_that_lies_is_told_and_not_used() {
    let whole = recording(Some(mcap::Compression::Zstd), true);
    let [first, second, ..] = chunks(&whole)[..] else { panic!("many chunks") };
    let n_bytes = whole.len() as u64;
    for (nth, at, value) in [
        // Twice the same chunk; one that reaches into the next; into the middle of one.
        (1, PLACE, first.offset as u64),
        (0, LENGTH, (second.offset - first.offset + 1) as u64),
        (1, PLACE, first.offset as u64 + 20),
        // Outside of the file, in its magic bytes, in its summary, without room for a head.
        (1, PLACE, n_bytes),
        (1, PLACE, u64::MAX),
        (1, PLACE, 0),
        (1, PLACE, n_bytes - 100),
        (1, LENGTH, u64::MAX),
        (1, LENGTH, n_bytes),
        (1, LENGTH, 9),
        (1, LENGTH, 0),
    ] {
        let mut bytes = whole.clone();
        forge(&mut bytes, op::CHUNK_INDEX, nth, at, value);
        let bag = open(&bytes);
        assert_eq!(bag.n_messages(), N, "{at} {value}: {:?}", bag.warnings());
        assert_told(&bag, "where none can be");
    }
}

#[test]
fn an_index_into_the_middle_of_a_record_is_told() {
    let whole = recording(None, true);
    let [_, second, third, ..] = chunks(&whole)[..] else { panic!("many chunks") };
    // A little later than the chunk, up to the third.
    let (place, length) = (second.offset + 13, third.offset - second.offset - 13);
    let mut bytes = whole.clone();
    forge(&mut bytes, op::CHUNK_INDEX, 1, PLACE, place as u64);
    forge(&mut bytes, op::CHUNK_INDEX, 1, LENGTH, length as u64);
    let bag = open(&bytes);
    assert!(bag.n_messages() < N && bag.n_messages() > N / 2);
    assert_told(&bag, "are lost");
    assert_told(&bag, &format!("chunk at byte {place}"));
}

#[test]
fn a_damaged_summary_is_told_and_not_used() {
    let whole = recording(Some(mcap::Compression::Zstd), true);
    let all = records(&whole);
    let data_end = all.iter().position(|record| record.opcode == op::DATA_END).unwrap();
    for record in &all[data_end + 1..] {
        for at in [0, 1, 9, record.n_bytes - 1] {
            let mut bytes = whole.clone();
            bytes[record.offset + at] ^= 0x40;
            let bag = open(&bytes);
            assert_eq!(bag.n_messages(), N, "{record:?} {at}: {:?}", bag.warnings());
            assert!(!bag.warnings().is_empty(), "{record:?} {at}");
        }
    }
    // One that starts in the middle of the data, and has no checksum.
    let chunk = chunks(&whole)[3];
    let mut bytes = whole.clone();
    forge(&mut bytes, op::FOOTER, 0, 0, chunk.offset as u64);
    let bag = open(&bytes);
    assert_eq!(bag.n_messages(), N);
    assert_told(&bag, "its summary is damaged");
}

#[test]
fn data_that_end_twice_are_read_to_the_end() {
    let data = without_end(&recording(None, true));
    let chunk = chunks(&data)[3].offset;
    let twice = [&data[..chunk], &data_end(), &data[chunk..]].concat();
    let bag = open(&finished(&twice));
    assert_eq!(bag.n_messages(), N);
    assert_told(&bag, &format!("a record at byte {chunk} ends the data"));
    let bag = open(&twice);
    assert_eq!(bag.n_messages(), N);
    assert_told(&bag, "cut off");
}

#[test]
fn records_of_no_known_kind_are_counted() {
    let data = without_end(&recording(None, false));
    let at = records(&data)[5].offset;
    let odd = [record(0x90, b"private"), record(0x11, b""), record(op::STATISTICS, &[0; 46])];
    let bag = open(&finished(&[&data[..at], &odd.concat(), &data[at..]].concat()));
    assert_eq!(bag.n_messages(), N);
    assert_eq!(bag.warnings().len(), 1, "{:?}", bag.warnings());
    let n_bytes = odd.concat().len();
    assert_told(&bag, "passed over 3 records");
    assert_told(&bag, &format!("of {n_bytes} bytes; the first at byte {at}"));
}
