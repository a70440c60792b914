//! Zeros, which a power cut leaves where data were not yet on the disk.

use super::records::{op, records, without_end};
use super::{N, assert_true, recording, write};
use forecloud_bag::bag::Bag;
use std::path::Path;

/// Zeros that no reader can take a few bytes at a time: they would take it minutes.
const N_ZEROS: u64 = 1 << 30;

/// Opens a file that must warn of `n_zeros`, once.
fn open(path: &Path, n_zeros: u64) -> Bag {
    let bag = Bag::open(path).unwrap();
    let told = bag.warnings().iter().filter(|w| w.contains("bytes are zeros")).count();
    let n = format!("{n_zeros} bytes are zeros");
    assert!(told == 1 && bag.warnings().iter().any(|w| w.contains(&n)), "{:?}", bag.warnings());
    assert_true(&bag);
    bag
}

#[test]
fn a_tail_of_zeros_is_told_and_costs_little() {
    let folder = tempfile::tempdir().unwrap();
    for use_chunks in [false, true] {
        let bytes = without_end(&recording(None, use_chunks));
        let path = write(folder.path(), &bytes);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(bytes.len() as u64 + N_ZEROS).unwrap();
        assert_eq!(open(&path, N_ZEROS).n_messages(), N);
    }
}

#[test]
fn a_small_packed_file_of_zeros_is_told_and_costs_little() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mcap.zstd");
    let mut packed = zstd::bulk::compress(&without_end(&recording(None, true)), 1).unwrap();
    let n_zeros = 64 << 20;
    let zeros = zstd::bulk::compress(&vec![0; n_zeros], 1).unwrap();
    let n_frames = N_ZEROS / n_zeros as u64;
    (0..n_frames).for_each(|_| packed.extend(&zeros));
    assert!(packed.len() < 1 << 20);
    std::fs::write(&path, packed).unwrap();
    assert_eq!(open(&path, N_ZEROS).n_messages(), N);
}

#[test]
fn zeros_among_the_chunks_cost_those_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let whole = recording(None, true);
    let chunks: Vec<_> = records(&whole).into_iter().filter(|r| r.opcode == op::CHUNK).collect();
    // A chunk with its indices, and the head of the next.
    let (from, to) = (chunks[3].offset, chunks[4].offset + 9);
    let mut bytes = whole.clone();
    bytes[from..to].fill(0);
    let bag = open(&write(folder.path(), &bytes), (chunks[4].offset - from) as u64);
    let missing = N - bag.n_messages();
    assert!((1..20).contains(&missing));
    let told = format!("{missing} are lost");
    assert!(bag.warnings().iter().any(|w| w.contains(&told)), "{:?}", bag.warnings());
}

#[test]
fn a_record_behind_zeros_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = without_end(&recording(None, false));
    let last = records(&bytes).last().unwrap().offset;
    let parts = [&bytes[..last], &[0; 5_000], &bytes[last..]];
    assert_eq!(open(&write(folder.path(), &parts.concat()), 5_000).n_messages(), N);
}
