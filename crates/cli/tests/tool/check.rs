//! `forecloud check` as a user runs it; what it finds is tested in `crates/eval/tests/rig_check.rs`.

use crate::edited;

use std::process::{Command, Output};

fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
    command.current_dir(crate::ROOT).arg("check").args(arguments).output().expect("the tool runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_good_rig_ends_with_0_and_a_bad_one_with_3() {
    let good = check(&["data/demo_tumble"]);
    let told = text(&good.stdout);
    assert_eq!(good.status.code(), Some(0), "{told}");
    assert!(
        told.contains("nothing suspicious in") && told.contains("50 of 50 frames have"),
        "{told}"
    );
    // No robot at all, although its joints come.
    let folder = tempfile::tempdir().unwrap();
    edited::write_recording(folder.path(), "test", |m| &*m.topic != "/robot_description");
    let bad = check(&["--json", folder.path().to_str().unwrap(), "data/demo_tumble"]);
    assert_eq!(bad.status.code(), Some(3), "{}", text(&bad.stderr));
    let json: serde_json::Value = serde_json::from_slice(&bad.stdout).unwrap();
    assert_eq!((&json[0]["verdict"], &json[1]["verdict"]), (&"fail".into(), &"ok".into()));
    let items = json[0]["items"].as_array().unwrap();
    let robot = items.iter().find(|item| item["what"] == "robot in frames").expect("the item");
    assert!(robot["cause"].as_str().unwrap().contains("/robot_description"), "{robot}");
}

#[test]
fn what_cannot_be_read_ends_with_1() {
    let none = check(&["nowhere", "data/demo_tumble"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("nowhere"), "{}", text(&none.stderr));
    assert!(text(&none.stdout).contains("nothing suspicious"));
    assert_eq!(check(&["data/demo_tumble", "--cameras", "a,a"]).status.code(), Some(2));
}
