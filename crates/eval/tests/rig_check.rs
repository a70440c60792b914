//! What the check finds in the demo with a fault put in, and that it finds nothing without one.

#[path = "../../../tests/support/edited.rs"]
mod edited;
#[path = "../../../tests/support/faults.rs"]
mod faults;

use std::path::Path;

use edited::{later, write_messages_of};
use faults::*;
use forecloud::message::CameraInfo;
use forecloud::predict::rig::{Item, Verdict};
use forecloud::vision::frames::{CameraInput, CameraTopics, FramesConfig};
use forecloud_bag::bag::{Bag, RawMessage};
use forecloud_bag::recording::Recording;
use forecloud_eval::rig_check::{CheckReport, check};

/// The workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const TUMBLE: &str = "data/demo_tumble";

fn report(path: &Path, config: FramesConfig) -> CheckReport {
    let recording = Recording::open(path, config).unwrap();
    check(&recording, &Default::default()).unwrap()
}

/// The demo with what `edit` makes of each message, checked.
fn faulty(edit: impl FnMut(RawMessage) -> Vec<RawMessage>) -> CheckReport {
    let folder = tempfile::tempdir().unwrap();
    write_messages_of(TUMBLE, folder.path(), edit);
    report(folder.path(), FramesConfig::default())
}

/// The demo with messages of `topic` changed in place.
fn changed(topic: &str, edit: impl Fn(&mut RawMessage)) -> CheckReport {
    faulty(|mut message| {
        if &*message.topic == topic {
            edit(&mut message);
        }
        vec![message]
    })
}

/// The item that is not as it should be whose cause (or remedy) has the words.
fn found<'a>(report: &'a CheckReport, what: &str, words: &str) -> &'a Item {
    let has = |item: &&Item| {
        item.what.contains(what) && item.cause.as_deref().unwrap_or_default().contains(words)
    };
    assert!(report.verdict != Verdict::Ok);
    report.findings().find(has).unwrap_or_else(|| panic!("no '{words}' in\n{report}"))
}

#[test]
fn nothing_is_wrong_with_the_demos() {
    let tumble = report(&Path::new(ROOT).join(TUMBLE), FramesConfig::default());
    assert_eq!(tumble.verdict, Verdict::Ok, "{tumble}");
    assert_eq!((tumble.n_frames, tumble.n_with_robot), (50, 50));
    let mut config = FramesConfig::default();
    config.topics.cameras = vec![CameraTopics::of("camera_left")];
    let can = report(&Path::new(ROOT).join("data/demo_can"), config);
    assert_eq!(can.verdict, Verdict::Ok, "{can}");
}

#[test]
fn joints_in_degrees_are_found() {
    let report = changed("/joint_states", |message| edit_joints(message, |_, q| q.to_degrees()));
    found(&report, "robot in the picture", "degrees");
    found(&report, "joint limits", "degrees");
}

#[test]
fn joints_of_another_time_are_found() {
    for lag_ms in [50, -50] {
        let report = faulty(|message| match &*message.topic {
            "/joint_states" => vec![RawMessage {
                log_time_ns: message.log_time_ns,
                ..later(&message, i64::from(lag_ms) * 1_000_000)
            }],
            _ => vec![message],
        });
        let item = found(&report, "time of the joints", "stamped too late");
        assert!((item.values["lag_ms"] - f64::from(lag_ms)).abs() < 15.0, "{item}");
    }
}

#[test]
fn a_camera_that_is_off_is_found() {
    for axis in 0..3 {
        let report = changed("/tf_static", |message| {
            edit_transforms(message, |child, i, x| {
                let is_it = child == "camera_left_optical_frame" && i == axis;
                if is_it { x + 0.02 } else { x }
            });
        });
        let item = found(&report, "place of the robot", "camera 'camera_left'");
        assert!((item.values["off_mm"] - 20.0).abs() < 6.0, "{item}");
        found(&report, "overlap of camera_left and camera_right", "place of one of the cameras");
    }
}

#[test]
fn a_wrong_link_length_is_found() {
    for (joint, by, held) in [
        ("left_joint_4", [0.0, 0.0, 0.03], "left_link_4"),
        ("left_joint_6", [0.0, 0.03, 0.0], "left_link_6"),
    ] {
        let report = changed("/robot_description", |message| {
            edit_description(message, |urdf| move_origin(urdf, joint, by));
        });
        let item = found(&report, "place of the robot", &format!("'{held}' sits on"));
        assert!((item.values["off_mm"] - 30.0).abs() < 8.0, "{item}");
    }
}

#[test]
fn another_robots_description_is_found() {
    // All lengths are a third larger.
    let scaled = |urdf: &str| {
        let mut text = urdf.to_owned();
        for side in ["left", "right"] {
            for (joint, by) in [(2, 0.06), (3, 0.08), (4, 0.08), (5, 0.09), (6, 0.07), (7, 0.06)] {
                text = move_origin(&text, &format!("{side}_joint_{joint}"), [0.0, 0.03, by]);
            }
        }
        text
    };
    let report = changed("/robot_description", |message| edit_description(message, scaled));
    assert_eq!(found(&report, "robot in the picture", "another robot").verdict, Verdict::Fail);
    let report = changed("/robot_description", |message| {
        edit_description(message, |urdf| urdf.replace("_joint_", "_axis_"));
    });
    found(&report, "joint names", "another robot");
    found(&report, "robot in frames", "left_axis_1");
}

#[test]
fn a_prefix_is_found() {
    let report = changed("/robot_description", |message| {
        edit_description(message, |urdf| urdf.replace("<joint name=\"", "<joint name=\"arm/"));
    });
    found(&report, "joint names", "prefix 'arm/'");
}

#[test]
fn a_robot_at_the_origin_is_found() {
    let at_origin = |urdf: &str| {
        let mut text = String::new();
        for (i, part) in urdf.split("<joint ").enumerate() {
            let is_base = i > 0 && part.contains("<parent link=\"world\"");
            let origin = part.find("<origin").filter(|_| is_base);
            let end = origin.and_then(|at| Some(at + part[at..].find("/>")? + 2));
            text += if i > 0 { "<joint " } else { "" };
            text += &match origin.zip(end) {
                Some((at, end)) => format!("{}{}", &part[..at], &part[end..]),
                None => part.to_owned(),
            };
        }
        text
    };
    let report = changed("/robot_description", |message| edit_description(message, at_origin));
    found(&report, "robot in the picture", "the world's origin");
}

#[test]
fn two_publishers_that_contradict_each_other_are_found() {
    for at_ns in [10_000_000, 0] {
        let report = faulty(|message| {
            if &*message.topic != "/joint_states" {
                return vec![message];
            }
            let mut other = later(&message, at_ns);
            edit_joints(&mut other, |_, _| 0.0);
            vec![message, other]
        });
        found(&report, "sources of joints", "two nodes");
    }
}

#[test]
fn a_wrapped_plan_and_a_wrapped_state_are_found() {
    use std::f64::consts::{PI, TAU};
    let wrapped = |name: &str, q: f64| if name == "left_joint_1" { q + TAU } else { q };
    let report = changed("/planned_joints", |message| edit_plan(message, wrapped));
    found(&report, "plans and joints", "count turns differently");
    // The joint passes its half turn.
    let wrap = |name: &str, q: f64| match name {
        "left_joint_1" => (q + PI + 0.1 + PI).rem_euclid(TAU) - PI,
        _ => q,
    };
    let report = changed("/joint_states", |message| edit_joints(message, wrap));
    found(&report, "wrapped angles", "wraps angles");
}

#[test]
fn a_camera_without_calibration_is_found() {
    let report = changed("/camera_left/color/camera_info", clear_k);
    found(&report, "messages on /camera_left/color/camera_info", "K of 0");
    let item = found(&report, "frames", "focal lengths");
    // The camera is left out after a second.
    assert!(item.verdict != Verdict::Ok && report.n_frames < 50, "{report}");
}

#[test]
fn millimetres_read_as_metres_are_found() {
    let report = faulty(|mut message| {
        if message.topic.ends_with("/depth/image_raw") {
            millimetres_as_metres(&mut message);
        }
        vec![message]
    });
    found(&report, "depth of camera_left", "millimetres in a 32FC1 image");
}

#[test]
fn other_clocks_and_stamps_of_0_are_found() {
    let years_ns = 100_000_000_000_000_000;
    let report = faulty(|message| match &*message.topic {
        "/planned_joints" => {
            let log_time_ns = message.log_time_ns;
            vec![RawMessage { log_time_ns, ..later(&message, -years_ns) }]
        }
        _ => vec![message],
    });
    found(&report, "clocks", "two clocks");
    found(&report, "time of plans", "another clock");
    let report = changed("/joint_states", |message| message.data[4..12].fill(0));
    found(&report, "stamps of 0", "does not fill in header.stamp");
}

#[test]
fn binning_and_regions_that_the_images_contradict_are_found() {
    let topic = "/camera_left/color/camera_info";
    // The images are whole.
    for (binning, region) in [(2, [0, 0]), (1, [64, 48])] {
        let report = changed(topic, |message| reduce_info(message, None, binning, region));
        let item = found(&report, "size of camera_left", "binning or region of interest");
        assert_eq!(item.verdict, Verdict::Fail, "{item}");
    }
    // K is that of the binned images already.
    let info = info_of("camera_left");
    let full = [2 * info.width, 2 * info.height];
    let report = changed(topic, |message| reduce_info(message, Some(full), 2, [0, 0]));
    found(&report, "size of camera_left", "reduced twice");
    // No region of the image.
    let report = changed(topic, |message| reduce_info(message, None, 1, [9999, 9999]));
    found(&report, &format!("messages on {topic}"), "do not fit the calibrated image");
}

/// The calibration of a camera of the demo.
fn info_of(camera: &str) -> CameraInfo {
    let bag = Bag::open(Path::new(ROOT).join(TUMBLE)).unwrap();
    let topic = format!("/{camera}/color/camera_info");
    let mut messages = bag.messages_where(|name| name == topic);
    CameraInfo::decode(&messages.next().expect("a calibration").unwrap().data).unwrap()
}

/// The demo with clouds in the place of images, times `scale`, and what `edit` makes of the rest.
fn clouds(cameras: &[&str], scale: f32, mut edit: impl FnMut(&mut RawMessage)) -> CheckReport {
    let folder = tempfile::tempdir().unwrap();
    let infos: Vec<CameraInfo> = cameras.iter().map(|name| info_of(name)).collect();
    write_messages_of(TUMBLE, folder.path(), |mut message| {
        let camera =
            cameras.iter().position(|name| message.topic.starts_with(&format!("/{name}/")));
        match camera {
            Some(i) if message.topic.ends_with("/depth/image_raw") => {
                vec![cloud_of(&message, &infos[i], &format!("/{}/points", cameras[i]), scale)]
            }
            Some(_) => vec![],
            None if message.topic.starts_with("/camera_") => vec![],
            None => {
                edit(&mut message);
                vec![message]
            }
        }
    });
    let mut config = FramesConfig::default();
    let points = |name: &&str| CameraTopics::new(name, CameraInput::Points, true);
    config.topics.cameras = cameras.iter().map(points).collect();
    report(folder.path(), config)
}

#[test]
fn of_clouds_what_can_be_checked_is_and_what_cannot_is_said() {
    let both = ["camera_left", "camera_right"];
    let right = clouds(&both, 1.0, |_| {});
    assert_eq!(right.verdict, Verdict::Ok, "{right}");
    for camera in both {
        let of = |what: &str| {
            let name = format!("{what} {camera}");
            right.items.iter().find(|item| item.what == name).unwrap_or_else(|| panic!("{right}"))
        };
        assert!(of("calibration of").evidence.contains("can't be checked"), "{right}");
        assert!(of("robot in clouds of").values["on_share"] > 0.6, "{right}");
        assert!((0.2..3.0).contains(&of("clouds of").values["median_m"]), "{right}");
    }
    let degrees = clouds(&both, 1.0, |message| {
        if &*message.topic == "/joint_states" {
            edit_joints(message, |_, q| q.to_degrees());
        }
    });
    found(&degrees, "robot in clouds of", "not where the clouds show it");
    found(&clouds(&both, 1000.0, |_| {}), "clouds of camera_left", "millimetres");
    let askew = clouds(&both[..1], 1.0, |message| {
        if &*message.topic == "/tf_static" {
            edit_transforms(message, |child, i, x| {
                let is_it = child == "camera_left_optical_frame" && i == 3;
                if is_it { x + 0.3 } else { x }
            });
        }
    });
    found(&askew, "up", "world frame");
}
