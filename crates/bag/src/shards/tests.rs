use super::*;

fn shard(text: &str) -> Shard {
    text.parse().unwrap()
}

fn names(n: usize) -> Vec<PathBuf> {
    (0..n).map(|i| PathBuf::from(format!("bags/push_{i}"))).collect()
}

/// The folder of a shard that has done all of its recordings.
fn worked(folder: &Path, shard: Shard, recordings: &[PathBuf], terms: i32) -> ShardFolder {
    let manifest = Manifest::new("replay", shard, None, recordings, &terms).unwrap();
    let folder = ShardFolder::open(folder, &Outputs::default(), manifest).unwrap();
    for path in folder.recordings() {
        folder.keep(&path, "f", Outcome::Result(path.to_str().into())).unwrap();
    }
    folder
}

fn problem(folders: &[PathBuf]) -> String {
    Joined::read(folders).unwrap_err().to_string()
}

#[test]
fn a_shard_is_told_as_i_of_n() {
    assert_eq!(shard("2/4").to_string(), "2/4");
    for wrong in ["0/4", "5/4", "1", "1/0", "/", "1/x", "-1/2", "1/2/3", "1/99999999999"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}

#[test]
fn every_recording_is_in_one_shard_in_whatever_order_they_are_named() {
    let recordings = names(11);
    let mut turned = recordings.clone();
    turned.reverse();
    turned.swap(2, 7);
    for n in [1, 2, 3, 4, 11, 20] {
        let mut all = Vec::new();
        for index in 1..=n {
            let own = Shard { index, n }.of(&recordings).unwrap();
            assert_eq!(own, Shard { index, n }.of(&turned).unwrap());
            all.extend(own);
        }
        all.sort();
        let mut sorted: Vec<&Path> = recordings.iter().map(PathBuf::as_path).collect();
        sorted.sort();
        assert_eq!(all, sorted);
    }
    let twice = [recordings, names(1)].concat();
    let told = Shard::WHOLE.of(&twice).unwrap_err().to_string();
    assert!(told.contains("push_0 is named twice"), "{told}");
}

#[test]
fn shards_join_in_the_order_of_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (mut recordings, mut turned) = (names(5), names(5));
    recordings.swap(0, 4);
    turned.reverse();
    worked(&at("a"), shard("1/3"), &recordings, 7);
    worked(&at("b"), shard("2/3"), &turned, 7);
    worked(&at("b"), shard("3/3"), &turned, 7);
    let joined = Joined::read(&[at("b"), at("a")]).unwrap();
    let order: Vec<PathBuf> = joined.outcomes.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(order, recordings);
    for (path, outcome) in joined.outcomes {
        assert_eq!(outcome, Outcome::Result(path.to_str().into()));
    }
}

#[test]
fn what_is_missing_doubled_or_different_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let recordings = names(6);
    for (name, share) in [("a", "1/3"), ("b", "2/3")] {
        worked(&at(name), shard(share), &recordings, 7);
    }
    assert!(problem(&[at("a"), at("b")]).contains("shard 3/3 is missing"));
    worked(&at("c"), shard("3/3"), &recordings, 7);
    let all = [at("a"), at("b"), at("c")];
    Joined::read(&all).unwrap();
    let told = problem(&[&all[..], &[at("b")]].concat());
    assert!(told.contains("shard 2/3 is there twice"), "{told}");
    // One that was cut short.
    let lost = shard("3/3").of(&recordings).unwrap()[1];
    std::fs::remove_file(at("c").join(saved_name(lost))).unwrap();
    let told = problem(&all);
    assert!(told.contains("shard 3/3") && told.contains("push_5: not done"), "{told}");
    worked(&at("c"), shard("3/3"), &recordings, 8);
    let told = problem(&all);
    assert!(told.contains("shard 3/3") && told.contains("7 and 8"), "{told}");
    worked(&at("c"), shard("3/3"), &names(7), 7);
    let told = problem(&all);
    assert!(told.contains("not of the recordings of 1/3: bags/push_6"), "{told}");
    std::fs::create_dir(at("empty")).unwrap();
    assert!(problem(&[at("empty")]).contains("no shard"));
    assert!(problem(&[at("none")]).contains("none"));
}

#[test]
fn damaged_files_are_named_and_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = names(1);
    let work = worked(folder.path(), Shard::WHOLE, &recordings, 7);
    let path = folder.path().join(saved_name(&recordings[0]));
    let whole = std::fs::read(&path).unwrap();
    assert!(work.done(&recordings[0], "f").is_some());
    assert!(work.done(&recordings[0], "g").is_none(), "another recording of this name");
    for n in 0..whole.len() {
        std::fs::write(&path, &whole[..n]).unwrap();
        assert!(work.done(&recordings[0], "f").is_none());
        assert!(problem(&[folder.path().to_owned()]).contains("recording_push_0"));
    }
    std::fs::write(&path, &whole).unwrap();
    // What was skipped is tried again, and counts as done.
    work.keep(&recordings[0], "f", Outcome::Skipped("torn".into())).unwrap();
    assert!(work.done(&recordings[0], "f").is_none());
    let joined = Joined::read(&[folder.path().to_owned()]).unwrap();
    assert_eq!(joined.outcomes[0].1, Outcome::Skipped("torn".into()));
}

#[test]
fn a_fingerprint_is_of_the_content_and_not_of_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, byte: u8| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let mut bytes = vec![7; 3 << 20];
        *bytes.last_mut().unwrap() = byte;
        std::fs::write(path.join("a.mcap"), bytes).unwrap();
        fingerprint(&path).unwrap()
    };
    let first = write("one", 1);
    assert_eq!(first, write("two", 1));
    assert_ne!(first, write("two", 2));
    assert_eq!(first, fingerprint(&folder.path().join("one/a.mcap")).unwrap());
    assert!(fingerprint(&folder.path().join("none")).is_err());
}
