//! Recordings below a folder: each that `forecloud replay` takes, found once.

use crate::edited;

use edited::write_recording;
use forecloud_bag::bag::{Bag, recordings_below};
use std::path::{Path, PathBuf};

/// The small recording's file at `path`.
fn put_file(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let from = Path::new(crate::ROOT).join("tests/data/tiny_push/tiny_push.mcap");
    std::fs::copy(from, path).unwrap();
}

fn found(folder: &Path) -> Vec<String> {
    let found = recordings_below(folder).unwrap().recordings;
    let below = |path: PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
    found.into_iter().map(below).collect()
}

#[test]
fn folders_with_and_without_metadata_nested_ones_and_loose_files_are_found() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    write_recording(&at("whole"), "train", |_| true);
    write_recording(&at("deep/er/whole"), "train", |_| true);
    put_file(&at("bare/any_name.mcap"));
    put_file(&at("parts/parts_0.mcap"));
    put_file(&at("parts/parts_1.mcap"));
    put_file(&at("loose.mcap"));
    put_file(&at("many/a.mcap"));
    put_file(&at("many/b.mcap"));
    put_file(&at("by_its_bytes/recording"));
    std::fs::create_dir_all(at("not_finished")).unwrap();
    std::fs::write(at("not_finished/metadata.yaml"), "").unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("gone.mcap")).unwrap();
    std::fs::write(at("damaged.db3"), "").unwrap();
    // No recordings.
    std::fs::write(at("README.md"), "text").unwrap();
    std::fs::create_dir_all(at("empty")).unwrap();
    put_file(&at(".hidden/a.mcap"));
    std::os::unix::fs::symlink(place.path(), at("deep/loop")).unwrap();
    let expected = [
        "bare",
        "by_its_bytes",
        "damaged.db3",
        "deep/er/whole",
        "gone.mcap",
        "loose.mcap",
        "many/a.mcap",
        "many/b.mcap",
        "not_finished",
        "parts",
        "whole",
    ];
    assert_eq!(found(place.path()), expected);
    // What is good can be opened, and what is not says why.
    let is_open = |name: &&&str| Bag::open(at(name)).is_ok();
    let bad: Vec<&&str> = expected.iter().filter(|name| !is_open(name)).collect();
    assert_eq!(bad, [&"damaged.db3", &"gone.mcap", &"not_finished"]);
}

#[test]
fn one_recording_alone_is_found_by_its_folder_and_by_its_file() {
    let place = tempfile::tempdir().unwrap();
    write_recording(&place.path().join("whole"), "train", |_| true);
    assert_eq!(found(&place.path().join("whole")), [""]);
    let file = place.path().join("whole/tiny_push.mcap");
    assert_eq!(recordings_below(&file).unwrap().recordings, [file.as_path()]);
    assert!(recordings_below(&place.path().join("nothing")).is_err());
}

#[test]
fn a_packed_copy_is_left_out_by_name() {
    let place = tempfile::tempdir().unwrap();
    for name in ["a.mcap", "a.mcap.zstd", "b.mcap"] {
        put_file(&place.path().join(name));
    }
    let found = recordings_below(place.path()).unwrap();
    assert_eq!(found.recordings.len(), 2);
    let (path, error) = &found.left_out[0];
    assert!(path.ends_with("a.mcap.zstd") && error.to_string().contains("unpacked"), "{error}");
}

#[test]
fn a_file_is_taken_once_however_many_links_lead_to_it() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join("all").join(name);
    put_file(&at("m.mcap"));
    put_file(&at("bag/bag.mcap"));
    put_file(&place.path().join("elsewhere.mcap"));
    std::fs::create_dir(at("alone")).unwrap();
    for (link, to) in [
        // Before and behind what they lead to.
        ("a.mcap", at("m.mcap")),
        ("z.mcap", at("m.mcap")),
        ("alone/link.mcap", at("m.mcap")),
        ("b.mcap", at("bag/bag.mcap")),
        // What lies elsewhere is taken, once.
        ("e1.mcap", place.path().join("elsewhere.mcap")),
        ("e2.mcap", place.path().join("elsewhere.mcap")),
    ] {
        std::os::unix::fs::symlink(to, at(link)).unwrap();
    }
    assert_eq!(found(&place.path().join("all")), ["bag", "e1.mcap", "m.mcap"]);
    let left_out = recordings_below(&place.path().join("all")).unwrap().left_out;
    let names: Vec<_> =
        left_out.iter().map(|(path, _)| path.strip_prefix(at("")).unwrap()).collect();
    assert_eq!(names, ["a.mcap", "alone/link.mcap", "b.mcap", "e2.mcap", "z.mcap"].map(Path::new));
    let told = left_out[0].1.to_string();
    assert!(
        told.contains("is a link to ") && told.contains("m.mcap, which is there, too"),
        "{told}"
    );
}
