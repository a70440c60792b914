//! The reader on recordings of others, whole and damaged, where `../shared/bags` is there.

use crate::shared;

use forecloud::message::StringMessage;
use forecloud_bag::bag::Bag;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// In the whole recordings, without a file of 7 that its metadata.yaml does not list.
const N_MESSAGES: u64 = 14_658;

fn bags() -> Option<PathBuf> {
    shared::shared("bags")
}

/// A copy that the test may write to; in a folder whose name SQLite's URIs must escape.
struct Copy(tempfile::TempDir);

impl Copy {
    fn of(folder: &Path) -> Self {
        let copy = tempfile::Builder::new().prefix("a b?#%ü").tempdir().unwrap();
        for entry in std::fs::read_dir(folder).unwrap() {
            let from = entry.unwrap().path();
            std::fs::copy(&from, copy.path().join(from.file_name().unwrap())).unwrap();
        }
        Self(copy)
    }

    /// All that is in it.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }
}

/// Opens and reads all; the number of messages read.
fn read(bag: &Bag) -> u64 {
    let mut last = i64::MIN;
    let mut n = 0;
    for message in bag.messages() {
        let message = message.expect("readable");
        assert!(message.log_time_ns >= last, "log times ascend");
        last = message.log_time_ns;
        n += 1;
    }
    assert_eq!(n, bag.n_messages());
    assert_eq!(n, bag.topics().iter().map(|topic| topic.n_messages).sum::<u64>());
    n
}

/// What is wrong with a whole recording of the table, if anything is.
fn expected_warnings(name: &str) -> &'static [&'static str] {
    match name {
        "rosbag2_py-talker@3f1f551b" => &["metadata.yaml counts 0 messages, 20 were read"],
        "rosbag2_tests-cdr_test@5c1045d8" => &["test.db3 is not listed in metadata.yaml"],
        // Of the SQLite recording of that name only metadata.yaml says it, not the file.
        "rosbag2_tests-mcap-wrong_rmw_test@5d56fb9d" => &["'wrong_format'", "'wrong_format'"],
        _ => &[],
    }
}

#[test]
fn all_messages_of_whole_recordings_are_read_and_nothing_is_written() {
    let Some(bags) = bags() else { return };
    let table = std::fs::read_to_string(bags.join("rosbag2/EXPECTED.tsv")).expect("a table");
    let mut n_read = 0;
    for line in table.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (name, compression) = (columns[0], columns[2]);
        let per_file: BTreeMap<String, u64> = serde_json::from_str(columns[5]).expect("JSON");
        let copy = Copy::of(&bags.join("rosbag2").join(name));
        let before = copy.contents();
        let yaml = std::fs::read_to_string(copy.0.path().join("metadata.yaml"));
        let is_listed =
            |file: &str| yaml.as_ref().is_ok_and(|yaml| yaml.contains(&format!("- {file}")));
        let any_listed = per_file.keys().any(|file| is_listed(file));
        let counts = per_file.iter().filter(|(file, _)| !any_listed || is_listed(file));
        let bag = Bag::open(copy.0.path()).expect(name);
        assert_eq!(read(&bag), counts.map(|(_, n)| n).sum::<u64>(), "{name}");
        let expected = expected_warnings(name);
        assert_eq!(bag.warnings().len(), expected.len(), "{name}: {:?}", bag.warnings());
        for (warning, expected) in bag.warnings().iter().zip(expected) {
            assert!(warning.contains(expected), "{name}: {warning}");
        }
        let is_packed = bag.compression().any(|how| how == "zstd by file");
        assert_eq!(is_packed, compression == "zstd/FILE" || name.contains("file_compression"));
        for (file, n) in &per_file {
            let bag = Bag::open(copy.0.path().join(file)).expect(file);
            assert_eq!(read(&bag), *n, "{name}/{file}");
        }
        assert!(copy.contents() == before, "{name}: written to");
        eprintln!(
            "{name}: {} files, {:?}, {:?}, {} messages, {:?}",
            bag.n_files(),
            bag.storage().collect::<Vec<_>>(),
            bag.compression().collect::<Vec<_>>(),
            bag.n_messages(),
            bag.warnings()
        );
        n_read += 1;
    }
    assert_eq!(n_read, 24);
}

#[test]
fn the_tool_shows_all_whole_recordings() {
    let Some(bags) = bags() else { return };
    let folders = std::fs::read_dir(bags.join("rosbag2")).unwrap().map(|e| e.unwrap().path());
    let copies: Vec<Copy> = folders.filter(|path| path.is_dir()).map(|p| Copy::of(&p)).collect();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.args(["info", "--json"]).args(copies.iter().map(|copy| copy.0.path()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown.len(), 24);
    // All of EXPECTED.tsv but seven messages of a file that metadata.yaml does not list.
    let n = shown.iter().map(|bag| bag["n_messages"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(n, N_MESSAGES);
}

#[test]
fn messages_decode() {
    let Some(bags) = bags() else { return };
    let texts = |name: &str| -> Vec<(i64, String)> {
        let copy = Copy::of(&bags.join("rosbag2").join(name));
        let bag = Bag::open(copy.0.path()).expect(name);
        let only = bag.messages_where(|topic| topic == "AAA").map(Result::unwrap);
        only.map(|m| (m.log_time_ns, StringMessage::decode(&m.data).unwrap().data)).collect()
    };
    let mcap = texts("rosbag2_py-mcap-wbag@c7c7954d");
    assert!(!mcap.is_empty() && mcap.iter().all(|(_, text)| !text.is_empty()));
    assert_eq!(texts("rosbag2_py-wbag@461be23a"), mcap, "the same recording in SQLite");
}

#[test]
fn types_of_2018_have_their_present_names() {
    let Some(bags) = bags() else { return };
    let copy = Copy::of(&bags.join("rosbag2/rosbag2_tests-test@821a44db"));
    let bag = Bag::open(copy.0.path()).unwrap();
    let types: Vec<_> = bag.topics().iter().map(|topic| &*topic.message_type).collect();
    assert_eq!(
        types,
        [
            "test_msgs/msg/StaticArrayPrimitives",
            "rosgraph_msgs/msg/Clock",
            "rcl_interfaces/msg/ParameterEvent",
            "test_msgs/msg/Primitives"
        ]
    );
}

#[test]
fn damaged_files_give_their_prefix_or_one_clear_error() {
    let Some(bags) = bags() else { return };
    let copy = Copy::of(&bags.join("corrupt"));
    let before = copy.contents();
    for (name, problem) in [
        ("empty.mcap", "is empty"),
        ("empty.db3", "is empty"),
        ("db3_header_only.db3", "can't be read as a recording"),
        ("not_zstd.db3.zstd", "can't be read as a recording"),
    ] {
        let error = Bag::open(copy.0.path().join(name)).err().expect(name).to_string();
        assert!(error.contains(name) && error.contains(problem), "{error}");
        eprintln!("{name}: refused: {error}");
    }
    for (name, n_messages, warnings) in [
        ("mcap_magic_only.mcap", 0..=0, &["cut off"][..]),
        ("mcap_no_footer.mcap", 1246..=1246, &["cut off"]),
        ("mcap_zstd_cut60.mcap", 1246..=1246, &["cut off"]),
        // Its writer stored no checksums: the flip is in a message's bytes, and not to be seen.
        ("mcap_none_chunk_bitflip.mcap", 75..=75, &[]),
        ("db3_page_garbage.db3", 1148..=1148, &["rows 101 to 198 are left out"]),
    ] {
        let bag = Bag::open(copy.0.path().join(name)).expect(name);
        let n = bag.messages().filter(Result::is_ok).count();
        eprintln!("{name}: {n} of {} messages, {:?}", bag.n_messages(), bag.warnings());
        assert!(n_messages.contains(&n), "{name}: {n}");
        assert_eq!(bag.warnings().len(), warnings.len(), "{name}");
        assert!(bag.warnings().iter().zip(warnings).all(|(got, word)| got.contains(word)));
    }
    assert!(copy.contents() == before, "written to");
}

#[test]
fn ros1_recordings_are_refused_by_name() {
    let Some(bags) = bags() else { return };
    let error = Bag::open(bags.join("ros1_profile/test.mcap")).err().expect("refused").to_string();
    assert!(error.contains("ros1") && error.contains("rosbags-convert"), "{error}");
}
