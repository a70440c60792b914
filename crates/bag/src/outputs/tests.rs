use super::*;

/// A small file of each kind as Forecloud writes it.
fn ours() -> Vec<(Kind, Vec<u8>)> {
    let picture = forecloud_eval::picture::canvas::Canvas::new([3, 2], [9; 3]).png();
    let mut mcap = std::io::Cursor::new(Vec::new());
    let options = mcap::WriteOptions::new().profile("ros2").library(kind::GENERATOR);
    options.create(&mut mcap).unwrap().finish().unwrap();
    let page = format!("<!doctype html><head>{}", forecloud_eval::page::MARK);
    let weights = b"\x20\0\0\0\0\0\0\0{\"__metadata__\":{\"forecloud.config\":\"{}\"}}".to_vec();
    let video = b"\x20\0\0\0\0\0\0\0{\"__metadata__\":{\"forecloud.video\":\"{}\"}}".to_vec();
    vec![
        (Kind::Picture, picture),
        (Kind::Plot, format!("{PLOT}<svg/>").into_bytes()),
        (Kind::Page, page.into_bytes()),
        (Kind::Json, b"{\n  \"generator\": \"forecloud 0.1.0\",\n  \"x\": 1\n}".to_vec()),
        (Kind::Table("a,b"), b"a,b\r\n1,2\r\n".to_vec()),
        (Kind::Predictions, mcap.into_inner()),
        (Kind::Weights, weights),
        (Kind::Video, video),
        (Kind::TrainingLog, b"{\"step\": 1, \"loss_mm\": null}\n".to_vec()),
        (Kind::Labels, format!("{LABELS}...").into_bytes()),
    ]
}

fn problem(outcome: Result<()>) -> String {
    outcome.expect_err("refused").to_string()
}

#[test]
fn each_kind_knows_its_own_and_no_other() {
    for (kind, _) in ours() {
        for (other, bytes) in ours() {
            assert_eq!(kind.is_ours(&bytes), kind == other, "{kind} of {other}");
        }
        for foreign in
            [&b"mine"[..], b"\x89PNG\r\n\x1a\n", b"\x89MCAP0\r\n\x01", b"{}", b"{", b"\n"]
        {
            assert!(!kind.is_ours(foreign), "{kind} of {foreign:?}");
        }
        // A log that a training was stopped before its first line of has nothing to lose.
        assert_eq!(kind.is_ours(b""), kind == Kind::TrainingLog, "{kind}");
    }
    // By the library's name, not by a beginning of it.
    let mut mcap = std::io::Cursor::new(Vec::new());
    let options = mcap::WriteOptions::new().profile("ros2").library("forecloud collect.py");
    options.create(&mut mcap).unwrap().finish().unwrap();
    assert!(!Kind::Predictions.is_ours(mcap.get_ref()));
    // Nor is every PNG with a text ours.
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, 1, 1);
    encoder.add_text_chunk("Software".into(), "Forecloud's rival".into()).unwrap();
    encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
    assert!(!Kind::Picture.is_ours(&png));
}

#[test]
fn only_what_forecloud_wrote_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let outputs = Outputs::default();
    for (kind, bytes) in ours() {
        outputs.write(&path, kind, &bytes).unwrap();
        outputs.check(&path, kind).unwrap();
        outputs.write(&path, kind, &bytes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        fs::write(&path, "mine").unwrap();
        for refused in [
            outputs.check(&path, kind),
            outputs.write(&path, kind, &bytes),
            outputs.create(&path, kind).map(drop),
            outputs.remove(&path, kind),
        ] {
            let told = problem(refused);
            assert!(told.contains("out: is there, and is no") && told.contains("name another"));
        }
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
    }
    // Nothing is left beside it.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_takes_the_place_meanwhile_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let file = Outputs::default().create(&path, Kind::Picture).unwrap();
    fs::write(&path, "mine").unwrap();
    assert!(problem(file.finish()).contains("another program meanwhile"));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[cfg(unix)]
#[test]
fn inputs_are_safe_by_any_name() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("bag/deep")).unwrap();
    fs::create_dir(at("other")).unwrap();
    // Even a file that Forecloud wrote.
    let (kind, bytes) = ours().swap_remove(5);
    for name in ["bag/bag_0.mcap", "bag/deep/bag_1.mcap", "loose.mcap"] {
        fs::write(at(name), &bytes).unwrap();
    }
    symlink(at("bag/bag_0.mcap"), at("link")).unwrap();
    symlink(at("bag"), at("folder")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    fs::hard_link(at("loose.mcap"), at("hard")).unwrap();
    let outputs = Outputs::default().protect([at("bag"), at("loose.mcap"), at("missing")]);
    for (name, told) in [
        ("bag/bag_0.mcap", "is an input"),
        ("bag/deep/bag_1.mcap", "an input"),
        ("loose.mcap", "is an input"),
        ("link", "an input"),
        ("hard", "is, by another name, an input"),
        ("other/../bag/./bag_0.mcap", "an input"),
        ("folder/bag_0.mcap", "an input"),
        ("bag/new.png", "lies in the recording"),
        ("folder/deep/new.png", "lies in the recording"),
        ("other/../bag/new", "lies in the recording"),
        ("dangling", "broken link"),
        ("other", "is a folder"),
        ("none/new", "make it first"),
        ("loose.mcap/new", "is no folder"),
    ] {
        let found = problem(outputs.check(&at(name), kind));
        assert!(found.contains(told), "{name}: {found}");
    }
    for name in ["bag", "bag/results", "folder/results", "bag/deep/a/b"] {
        let found = problem(outputs.folder(&at(name)));
        assert!(found.contains("lies in the recording"), "{name}: {found}");
    }
    assert!(!at("bag/results").exists() && !at("bag/deep/a").exists());
    outputs.folder(&at("other/results/today")).unwrap();
    assert!(problem(outputs.folder(&at("loose.mcap"))).contains("no folder"));
    for name in ["bag/bag_0.mcap", "bag/deep/bag_1.mcap", "loose.mcap", "hard"] {
        assert_eq!(fs::read(at(name)).unwrap(), bytes, "{name}");
    }
    // Beside an input that is a file, there is room.
    outputs.write(&at("new"), kind, &bytes).unwrap();
}

#[cfg(unix)]
#[test]
fn a_link_to_our_file_stays_a_link_and_files_are_readable_as_others() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (kind, bytes) = ours().swap_remove(3);
    Outputs::default().write(&at("file"), kind, &bytes).unwrap();
    symlink(at("file"), at("link")).unwrap();
    let longer = [&bytes[..], b" "].concat();
    Outputs::default().write(&at("link"), kind, &longer).unwrap();
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(fs::read(at("file")).unwrap(), longer);
    // As the umask says, not for the owner alone.
    fs::write(at("plain"), "").unwrap();
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode();
    assert_eq!(mode("file"), mode("plain"));
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_written_to_and_not_replaced() {
    let outputs = Outputs::default();
    outputs.write(Path::new("/dev/null"), Kind::Picture, b"x").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let full = outputs.write(Path::new("/dev/full"), Kind::Picture, b"x").unwrap_err();
    assert!(matches!(full, Error::Io { .. }), "{full}");
}

/// As threads do that read recordings of the same content, and keep the same labels.
#[test]
fn one_file_may_be_written_by_many_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = folder.path().join(format!("{round}.labels"));
        let bytes = format!("{LABELS}the same").into_bytes();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let write = || {
                start.wait();
                Outputs::default().write(&path, Kind::Labels, &bytes)
            };
            let writers: Vec<_> = (0..8).map(|_| scope.spawn(write)).collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
        });
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
