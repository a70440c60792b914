//! The reader on recordings of others, whole and damaged, where `../shared/bags` is there.

use forecloud::bag::Bag;
use forecloud::message::StringMessage;
use std::path::{Path, PathBuf};

fn bags() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/bags");
    if !path.is_dir() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
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

#[test]
fn all_messages_of_whole_recordings_are_read() {
    let Some(bags) = bags() else { return };
    let expected = std::fs::read_to_string(bags.join("rosbag2/EXPECTED.tsv")).expect("a table");
    let mut n_mcap = 0;
    for line in expected.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let folder = bags.join("rosbag2").join(columns[0]);
        if columns[0].starts_with("rosbag2_cpp-rosbag2_cpp-bags") {
            for (file, n) in
                [("only_services", 12), ("only_topics", 7), ("topics_and_services", 13)]
            {
                let bag = Bag::open(folder.join(file).with_extension("mcap")).expect(file);
                assert_eq!(read(&bag), n, "{file}");
            }
        } else if columns[4].contains(".mcap") || columns[5].contains(".mcap") {
            let bag = Bag::open(&folder).expect(columns[0]);
            assert_eq!(read(&bag).to_string(), columns[4], "{}", columns[0]);
            assert!(
                bag.warnings().is_empty() || columns[0].contains("wrong_rmw"),
                "{}: {:?}",
                columns[0],
                bag.warnings()
            );
            n_mcap += 1;
        } else {
            let error = Bag::open(&folder).err().expect("SQLite is refused").to_string();
            assert!(error.contains("ros2 bag convert"), "{}: {error}", columns[0]);
        }
    }
    assert_eq!(n_mcap, 6);
}

#[test]
fn messages_decode() {
    let Some(bags) = bags() else { return };
    let bag = Bag::open(bags.join("rosbag2/rosbag2_py-mcap-wbag@c7c7954d")).expect("opens");
    let only = bag.messages_where(|topic| topic == "AAA");
    let texts: Vec<_> = only.map(|m| StringMessage::decode(&m.unwrap().data).unwrap()).collect();
    assert!(!texts.is_empty());
    assert!(texts.iter().all(|text| !text.data.is_empty()));
}

#[test]
fn damaged_files_give_their_prefix_or_one_clear_error() {
    let Some(bags) = bags() else { return };
    let open = |name: &str| Bag::open(bags.join("corrupt").join(name));
    for name in ["empty.mcap", "empty.db3", "db3_page_garbage.db3", "not_zstd.db3.zstd"] {
        let error = open(name).err().expect(name).to_string();
        assert!(error.contains(name), "{error}");
    }
    for name in ["mcap_no_footer.mcap", "mcap_zstd_cut60.mcap"] {
        let bag = open(name).expect(name);
        assert_eq!(bag.warnings().len(), 1, "{name}: {:?}", bag.warnings());
        eprintln!("{name}: {} messages, {:?}", read(&bag), bag.warnings());
    }
    for name in ["mcap_magic_only.mcap", "mcap_none_chunk_bitflip.mcap"] {
        let bag = open(name).expect(name);
        eprintln!("{name}: {} messages, {:?}", read(&bag), bag.warnings());
    }
}

#[test]
fn ros1_recordings_are_refused_by_name() {
    let Some(bags) = bags() else { return };
    let error = Bag::open(bags.join("ros1_profile/test.mcap")).err().expect("refused").to_string();
    assert!(error.contains("ros1"), "{error}");
}
