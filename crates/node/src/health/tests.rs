use std::time::Duration;

use super::{About, Cause, Facts, Level, Publisher, Status, Topic};
use forecloud::engine::motion_class::MotionClass;
use forecloud::message::Stamp;
use forecloud::predict::last_miss::{Outcome, Outcomes};
use forecloud::predict::moving_camera::PoseError;
use forecloud::robot::kinematics::RobotMode;

const IMAGE: &str = "sensor_msgs/msg/Image";
const INFO: &str = "sensor_msgs/msg/CameraInfo";

fn at(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

/// A node of one camera, with a model that takes the robot and has steps of 0.1 s.
fn facts() -> Facts {
    let topics = [
        ("/cam/color/image_raw", IMAGE, true),
        ("/cam/color/camera_info", INFO, true),
        ("/joint_states", "sensor_msgs/msg/JointState", true),
        ("/planned_joints", "trajectory_msgs/msg/JointTrajectory", false),
        ("/robot_description", "std_msgs/msg/String", false),
    ];
    let topics = topics.map(|(name, kind, required)| Topic::new(name, name, kind, required));
    let about = About {
        world_frame: "world".into(),
        model_file: "m.safetensors".into(),
        model_hash: "0123".into(),
        step_secs: 0.1,
        robot: RobotMode::Required,
    };
    Facts::new(about, topics.into())
}

/// All is well from `start` for `n` tenths of a second; the last tenth's time.
fn well(facts: &mut Facts, start_secs: f64, n: usize) -> f64 {
    facts.robot(Ok(&[]));
    for i in 0..n {
        let secs = start_secs + 0.1 * i as f64;
        tenth(facts, secs, |_| true);
        facts.frame(at(secs), 3.0);
        facts.working(at(secs), 0);
        facts.predicted(at(secs), 50.0, 2048, true);
        facts.rests();
    }
    start_secs + 0.1 * (n - 1) as f64
}

/// A message on each topic that `comes` picks.
fn tenth(facts: &mut Facts, secs: f64, comes: impl Fn(&str) -> bool) {
    let names: Vec<String> = facts.topics.iter().map(|topic| topic.key.clone()).collect();
    for name in names.iter().filter(|name| comes(name)) {
        facts.heard(at(secs), name, Some(Stamp::from_secs(1e9 + secs)), 1000);
    }
}

fn status(facts: &Facts, secs: f64, name: &str) -> Status {
    let mut statuses = facts.report(at(secs));
    let place = statuses.iter().position(|status| status.name == name).unwrap();
    statuses.remove(place)
}

/// The status has this level, and its message these parts.
fn assert_status(facts: &Facts, secs: f64, name: &str, level: Level, told: &[&str]) {
    let status = status(facts, secs, name);
    assert_eq!(status.level, level, "{name} at {secs} s: {}", status.message);
    for part in told {
        assert!(status.message.contains(part), "{part} is not in: {}", status.message);
    }
    let bad = matches!(level, Level::Warn | Level::Error);
    assert_eq!(bad, status.message.contains("Remedy: "), "{}", status.message);
}

#[test]
fn a_start_is_no_problem_and_a_good_run_neither() {
    let mut facts = facts();
    for secs in [0.0, 1.9] {
        for status in facts.report(at(secs)).iter().filter(|status| status.name != "latency") {
            assert_eq!(status.level, Level::Ok, "{status:?}");
        }
    }
    let end = well(&mut facts, 0.5, 80);
    for status in facts.report(at(end)) {
        assert_eq!(status.level, Level::Ok, "{status:?}");
        assert!(!status.message.is_empty());
    }
}

#[test]
fn statuses_are_always_the_same_ones() {
    let mut facts = facts();
    let names = |facts: &Facts, secs| -> Vec<&str> {
        facts.report(at(secs)).iter().map(|status| status.name).collect()
    };
    let before = names(&facts, 0.0);
    well(&mut facts, 0.0, 10);
    assert_eq!(names(&facts, 100.0), before);
    let mut unique = before.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), before.len());
}

#[test]
fn silent_images_are_named_with_who_should_send_them() {
    let mut facts = facts();
    let image = "/cam/color/image_raw";
    assert_status(&facts, 2.5, "images", Level::Error, &[image, "(never)", "camera_info"]);
    facts.publishers(0, vec![]);
    facts.publishers(1, vec![]);
    let nobody = ["(never; published by nobody)", "start what publishes them"];
    assert_status(&facts, 2.5, "images", Level::Error, &nobody);
    let publisher = Publisher { node: "/driver".into(), mismatch: None };
    facts.publishers(0, vec![publisher.clone()]);
    let heard = ["image_raw (never; published by /driver)", "config/fastdds_large_clouds.xml"];
    assert_status(&facts, 2.5, "images", Level::Error, &heard);
    facts.publishers(0, vec![Publisher { mismatch: Some("is X".into()), ..publisher }]);
    assert_status(&facts, 2.5, "images", Level::Error, &["as the status 'topics' says"]);

    let end = well(&mut facts, 3.0, 10);
    assert_status(&facts, end + 2.0, "images", Level::Ok, &[]);
    assert_status(&facts, end + 7.0, "images", Level::Error, &[image, "for 7 s"]);
    // A calibration comes once.
    assert!(!status(&facts, end + 7.0, "images").message.contains("camera_info"));
}

#[test]
fn a_silent_topic_is_a_warning_while_frames_come() {
    let mut facts = facts();
    well(&mut facts, 0.0, 1);
    for i in 0..30 {
        let secs = 0.1 * f64::from(i);
        tenth(&mut facts, secs, |name| !name.contains("image_raw"));
        facts.frame(at(secs), 3.0);
    }
    assert_status(&facts, 2.9, "images", Level::Warn, &["/cam/color/image_raw"]);
}

#[test]
fn a_problem_becomes_an_error_where_nothing_else_succeeds_and_is_forgotten() {
    for (cause, name) in [
        (Cause::Transform, "transforms"),
        (Cause::Joints, "joints"),
        (Cause::Calibration, "cameras"),
        (Cause::Unpaired, "cameras"),
        (Cause::Workspace, "workspace"),
        (Cause::Rejected, "predictions"),
        (Cause::History, "predictions"),
    ] {
        let mut facts = facts();
        let end = well(&mut facts, 0.0, 20);
        facts.trouble(at(end), cause, 2, "no x. Remedy: y");
        let told = ["no x", "(2 in the last 5 s)"];
        assert_status(&facts, end, name, Level::Warn, &told);
        assert_status(&facts, end + 1.1, name, Level::Error, &told);
        let end = well(&mut facts, end + 0.1, 20);
        assert_status(&facts, end, name, Level::Warn, &told);
        let end = well(&mut facts, end + 0.1, 50);
        assert_status(&facts, end, name, Level::Ok, &[]);
    }
}

#[test]
fn how_far_tf_of_a_moving_camera_is_off_is_told_and_much_of_it_is_a_warning() {
    let mut facts = facts();
    let end = well(&mut facts, 0.0, 20);
    let values = |facts: &Facts, at: f64| status(facts, at, "transforms").values;
    assert!(!values(&facts, end).iter().any(|(key, _)| key.starts_with("moving_camera")));
    let error = |facts: &mut Facts, secs: f64, mm: f32| {
        let error = PoseError { shift_m: 1e-3 * mm, turn_rad: 0.01 };
        (0..10).for_each(|_| facts.pose_error(at(secs), &error));
    };
    error(&mut facts, end, 4.0);
    assert_status(&facts, end, "transforms", Level::Ok, &[]);
    let told = values(&facts, end);
    let told = |key: &str| told.iter().find(|(known, _)| known == key).map(|(_, value)| &**value);
    assert_eq!(told("moving_camera_error_mm"), Some("4.0"));
    assert_eq!(told("moving_camera_error_degrees"), Some("0.57"));
    error(&mut facts, end + 1.0, 30.0);
    assert_status(&facts, end + 1.0, "transforms", Level::Warn, &["off by 17 mm", "Remedy"]);
}

#[test]
fn a_world_frame_that_moves_is_a_warning_as_long_as_it_is_known() {
    let mut facts = facts();
    let end = well(&mut facts, 0.0, 20);
    facts.moving_world = Some("the world frame moves: Remedy: 'odom'".into());
    for secs in [end, end + 20.0] {
        assert_status(&facts, secs, "transforms", Level::Warn, &["world frame moves", "'odom'"]);
    }
    facts.moving_world = None;
    assert_status(&facts, end, "transforms", Level::Ok, &[]);
}

#[test]
fn cameras_that_are_left_out_are_named() {
    let mut facts = facts();
    facts.absent_cameras(["wrist"].into_iter());
    facts.trouble(at(0.0), Cause::LeftOut, 1, "left out: its stamps lie behind");
    // For as long as it is so, not for as long as a problem is remembered.
    let told = ["without wrist", "its stamps lie behind"];
    assert_status(&facts, 20.0, "cameras", Level::Warn, &told);
    facts.absent_cameras(std::iter::empty());
    assert_status(&facts, 0.0, "cameras", Level::Ok, &[]);
}

#[test]
fn the_robot_description_is_missed_refused_and_received() {
    let mut facts = facts();
    let name = "robot description";
    assert_status(&facts, 2.9, name, Level::Ok, &["waiting"]);
    assert_status(&facts, 3.1, name, Level::Error, &["/robot_description (never)"]);
    facts.about.robot = RobotMode::Optional;
    let told = ["/robot_description (never)", "robot: none"];
    assert_status(&facts, 3.1, name, Level::Warn, &told);
    assert_status(&facts, 3.1, "plan", Level::Ok, &["no robot is known"]);
    facts.trouble(at(3.0), Cause::Robot, 1, "frames go on without the robot");
    assert_status(&facts, 3.1, name, Level::Warn, &["frames go on"]);
    facts.about.robot = RobotMode::Required;
    facts.robot(Err("no link. Remedy: z".into()));
    assert_status(&facts, 1.0, name, Level::Error, &["no link"]);
    facts.robot(Ok(&["meshes are not loaded".into()]));
    assert_status(&facts, 9.0, name, Level::Ok, &["received"]);
    assert_eq!(status(&facts, 9.0, name).values[0].1, "meshes are not loaded");
    facts.robot(Err("no link. Remedy: z".into()));
    assert_status(&facts, 9.0, name, Level::Warn, &["the one before is used"]);
    facts.about.robot = RobotMode::None;
    assert_status(&facts, 9.0, name, Level::Ok, &["no robot"]);
}

#[test]
fn predictions_without_a_plan_are_a_warning() {
    let mut facts = facts();
    assert_status(&facts, 3.1, "plan", Level::Warn, &["/planned_joints (never)"]);
    well(&mut facts, 0.0, 10);
    assert_status(&facts, 3.1, "plan", Level::Ok, &[]);
    facts.predicted(at(3.1), 1.0, 10, false);
    assert_status(&facts, 3.1, "plan", Level::Warn, &["keep their velocity"]);
    // One that came once and is followed is enough.
    let mut followed = facts.clone();
    followed.predicted(at(3.2), 1.0, 10, true);
    assert_status(&followed, 3.2, "plan", Level::Ok, &["plans arrive"]);
    assert_status(&facts, 9.0, "plan", Level::Ok, &[]);
    facts.about.robot = RobotMode::None;
    assert_status(&facts, 3.1, "plan", Level::Ok, &["takes none"]);
}

#[test]
fn latencies_over_a_step_are_late() {
    let mut facts = facts();
    assert_status(&facts, 1.0, "latency", Level::Stale, &[]);
    (1..=150).for_each(|ms| facts.predicted(at(1.0), ms as f32, 10, true));
    assert_status(&facts, 1.5, "latency", Level::Warn, &["50 of 150", "100 ms"]);
    let value = |key: &str| {
        let status = status(&facts, 1.5, "latency");
        status.values.into_iter().find(|(known, _)| known == key).unwrap().1
    };
    // Of the last hundred: 51 to 150 ms.
    assert_eq!((value("p50_ms").as_str(), value("p99_ms").as_str()), ("100.0", "149.0"));
    assert_status(&facts, 9.0, "latency", Level::Stale, &[]);
}

#[test]
fn frames_that_are_passed_over_matter_where_predictions_come_too_rarely() {
    let run = |period_secs: f64| {
        let mut facts = facts();
        let n = (10.0 / period_secs) as u64;
        for i in 0..n {
            let secs = i as f64 * period_secs;
            facts.working(at(secs), 2 * i);
            facts.predicted(at(secs), 50.0, 10, true);
        }
        facts
    };
    assert_status(&run(0.1), 9.95, "load", Level::Ok, &["skipped"]);
    let slow = run(0.2);
    assert_status(&slow, 9.95, "load", Level::Warn, &["5.0 predictions a second", "asks for 10.0"]);
    assert_status(&slow, 20.0, "load", Level::Ok, &[]);
}

#[test]
fn a_scene_that_is_predicted_badly_is_told_until_it_is_over() {
    let (moving, resting) = (MotionClass::Moving as usize, MotionClass::Resting as usize);
    let run = |n_within: u32| {
        let mut facts = facts();
        let mut outcomes = Outcomes::default();
        outcomes[moving] = Outcome { n: 100, n_within };
        outcomes[resting] = Outcome { n: 900, n_within: 900 };
        (0..20).for_each(|i| facts.turned_out(at(0.1 * f64::from(i)), &outcomes));
        facts
    };
    assert_status(&run(90), 2.0, "outcome", Level::Ok, &["90 % of what moved"]);
    assert_status(&run(30), 2.0, "outcome", Level::Warn, &["only 30 %", "Remedy"]);
    assert_status(&run(30), 9.0, "outcome", Level::Ok, &["nothing moved"]);
}

#[test]
fn images_lost_on_the_way_are_told() {
    let run = |lost: &dyn Fn(usize) -> bool| {
        let mut facts = facts();
        for i in 0..50 {
            tenth(&mut facts, 0.1 * i as f64, |name| !name.contains("image_raw") || !lost(i));
        }
        facts
    };
    assert_status(&run(&|_| false), 4.9, "transport", Level::Ok, &[]);
    assert_status(&run(&|i| i == 7), 4.9, "transport", Level::Ok, &[]);
    let told = ["5 of 50 on /cam/color/image_raw", "lost before the node"];
    assert_status(&run(&|i| i % 10 == 5), 4.9, "transport", Level::Warn, &told);
    assert_status(&run(&|i| i % 25 != 0), 4.9, "transport", Level::Error, &["47 of 49 on"]);
    assert_status(&run(&|i| i % 10 == 5), 20.0, "transport", Level::Ok, &[]);
    assert!(run(&|i| i % 10 == 5).images_at(at(4.9)).2);
}

#[test]
fn time_that_is_set_back_again_and_again_is_an_error() {
    let mut facts = facts();
    for (secs, level) in [(1.0, Level::Warn), (2.0, Level::Warn), (3.0, Level::Error)] {
        facts.trouble(at(secs), Cause::TimeJump, 1, "went back");
        assert_status(&facts, secs, "time", level, &["went back", "clocks"]);
    }
    assert_status(&facts, 9.0, "time", Level::Ok, &[]);
}

#[test]
fn bad_messages_are_told_by_topic() {
    let mut facts = facts();
    facts.bad_message(at(0.5), "/joint_states", 3, "field `name`");
    let told = ["3 bad ones on /joint_states", "field `name`"];
    assert_status(&facts, 0.6, "messages", Level::Warn, &told);
    assert_status(&facts, 9.0, "messages", Level::Ok, &[]);
    assert_eq!(status(&facts, 9.0, "messages").values, [("/joint_states".into(), "3".into())]);
}

#[test]
fn the_first_cause_is_told_with_what_followed() {
    let mut facts = facts();
    for i in 0..30 {
        let now = at(0.1 * f64::from(i));
        facts.trouble(now, Cause::Calibration, 1, &format!("frame {i}: K is 0. Remedy: calibrate"));
    }
    facts.trouble(at(3.0), Cause::Calibration, 1, "no calibration has come");
    let told =
        ["frame 0: K is 0. Remedy: calibrate; then: no calibration has come (31 in the last 5 s)"];
    assert_status(&facts, 3.0, "cameras", Level::Error, &told);
}

#[test]
fn publishers_that_do_not_fit_and_topics_without_are_told() {
    let mut facts = facts();
    let mismatch = Some("is volatile. Remedy: publish it transient local".to_owned());
    let unfit = vec![Publisher { node: "/rsp".into(), mismatch }];
    // Told once as news.
    assert_eq!(facts.publishers(4, unfit.clone()), unfit);
    assert_eq!(facts.publishers(4, unfit), []);
    let told = ["/robot_description of /rsp is volatile"];
    assert_status(&facts, 0.5, "topics", Level::Warn, &told);
    facts.publishers(4, vec![Publisher { node: "/rsp".into(), mismatch: None }]);
    assert_status(&facts, 0.5, "topics", Level::Ok, &[]);
    // That of a topic with nobody, the status that misses its messages says.
    facts.publishers(2, vec![]);
    assert_status(&facts, 3.5, "topics", Level::Ok, &[]);
    assert!(
        status(&facts, 3.5, "topics").values.contains(&("/joint_states".into(), "nobody".into()))
    );
}

#[test]
fn a_predictor_that_is_stuck_is_told() {
    let mut facts = facts();
    let end = well(&mut facts, 0.0, 20);
    facts.working(at(end), 0);
    assert_status(&facts, end + 1.9, "predictions", Level::Ok, &[]);
    assert_status(&facts, end + 3.2, "predictions", Level::Error, &["on one frame for 3 s"]);
    facts.rests();
    assert_status(&facts, end + 7.1, "predictions", Level::Stale, &["none for 7 s"]);
}

#[test]
fn shared_memory_passes_on_what_was_found() {
    let mut facts = facts();
    facts.memory(vec!["too small. Remedy: more".into()], vec![("free".into(), "1".into())]);
    assert_status(&facts, 0.0, "shared memory", Level::Warn, &["too small"]);
    assert_eq!(status(&facts, 0.0, "shared memory").values.len(), 1);
}

#[test]
fn a_gpu_that_is_not_used_is_a_warning_as_long_as_it_is_not() {
    let mut facts = facts();
    facts.device("cpu", None);
    assert_eq!(status(&facts, 1.0, "model").level, Level::Ok);
    facts.device("cpu", Some("predictions run on the CPU: cuda:0: too old"));
    let status = status(&facts, 1e4, "model");
    assert_eq!(status.level, Level::Warn);
    assert!(status.message.contains("too old"), "{}", status.message);
    assert!(status.values.contains(&("device".into(), "cpu".into())));
}

#[test]
fn the_rig_is_told_once_it_was_looked_at() {
    use forecloud::predict::rig::{Item, Verdict};
    let mut facts = facts();
    assert_eq!(status(&facts, 1.0, "rig").level, Level::Ok);
    let fine = Item::ok("robot in the picture", "99 % seen").value("seen_share", 0.99);
    facts.rig = Some(vec![fine.clone()]);
    let told = status(&facts, 1.0, "rig");
    assert_eq!((told.level, &*told.message), (Level::Ok, "robot in the picture: 99 % seen"));
    assert_eq!(told.values, [("robot in the picture: seen_share".into(), "0.990".into())]);
    let off =
        Item::wrong(Verdict::Fail, "place of the robot", "20 mm off", "its base", "measure it");
    facts.rig = Some(vec![fine, off]);
    let told = status(&facts, 1.0, "rig");
    assert_eq!(told.level, Level::Warn);
    assert!(told.message.contains("20 mm off") && told.message.ends_with("measure it"));
}
