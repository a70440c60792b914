//! Costs and plans from a frame of a recording: library and tool, one thread and two.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forecloud::engine::model::Model;
use forecloud::message::JointTrajectory;
use forecloud::planner::candidates::{Candidate, Candidates, Snapshot};
use forecloud::planner::costs::{Goal, Reach, Select, Zone};
use forecloud::planner::{PlanSettings, Planned, Planner};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Predictor;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::goal_file::read_goal;
use forecloud_bag::plans_file::read_plans;
use forecloud_bag::recording::Recording;

fn path(relative: &str) -> PathBuf {
    Path::new(crate::ROOT).join(relative)
}

/// Of the first frame that can be predicted; all of the recording's robot.
fn snapshot(n_particles: usize) -> Snapshot {
    let model = Model::load(&path("models/small.safetensors")).unwrap();
    let frames = FramesConfig::default();
    let recording = Recording::open(&path("tests/data/tiny_push"), frames).unwrap();
    let place = recording.place(&model.config.workspace).unwrap();
    let config = PredictorConfig {
        horizon: 1,
        n_particles,
        workspace: place.map(|place| place.workspace),
        origin: place.map_or([0.0; 3], |place| place.origin),
        ..PredictorConfig::default()
    };
    let mut predictor = Predictor::new(model, config).unwrap();
    predictor.set_robot(&recording.robot_description().unwrap().unwrap(), "world").unwrap();
    let mut taken = None;
    let _ = recording.play(|frame, _| match predictor.step(&frame).unwrap() {
        Some(_) => {
            taken = Some(predictor.snapshot().unwrap());
            Err(())
        }
        None => Ok(()),
    });
    taken.unwrap()
}

/// The highest thing on the table goes 8 cm along x.
fn goal_yaml() -> &'static str {
    "select:\n  body: [0.0, 0.0, 0.1]\nreach:\n  pose:\n    translation: [0.08, 0.0, 0.0]\n\
     tolerance: 0.02\nleave_weight: 0.2\nlength_weight: 0.001\nkappa: 0.5\n"
}

fn goal() -> Goal {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("goal.yaml");
    std::fs::write(&file, goal_yaml()).unwrap();
    read_goal(&file).unwrap()
}

/// Plans in which joint `i % n` of the robot moves; as the tool reads them.
fn plans_yaml(snapshot: &Snapshot, n: usize) -> String {
    let names = snapshot.robot().unwrap().joint_names().to_vec();
    let mut text = String::from("plans:\n");
    for i in 0..n {
        let joint = i % names.len();
        let (from, to) = (snapshot.joints()[joint], snapshot.joints()[joint] + 0.1);
        text += &format!(
            "  - joint_names: [{}]\n    points:\n      - {{time: 0, positions: [{from:?}]}}\n      \
             - {{time: 0.5, positions: [{to:?}]}}\n",
            names[joint]
        );
    }
    text
}

fn plans(snapshot: &Snapshot, n: usize) -> Vec<JointTrajectory> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plans.yaml");
    std::fs::write(&file, plans_yaml(snapshot, n)).unwrap();
    read_plans(&file).unwrap()
}

#[test]
fn many_at_once_are_each_as_alone_on_any_number_of_threads() {
    let snapshot = snapshot(256);
    let judge = snapshot.judge(&goal()).unwrap();
    let plans: Vec<Candidate> =
        plans(&snapshot, 5).into_iter().map(|plan| Candidate { plan, n_steps: 5 }).collect();
    let [one, three] = [1, 3].map(|n_threads| {
        let mut candidates = Candidates::new(n_threads).unwrap();
        candidates.evaluate(&snapshot, &judge, &plans, || true).unwrap()
    });
    assert_eq!(format!("{one:?}"), format!("{three:?}"));
    // As `predict` rolls it out: the target's way is that of the prediction.
    let mut candidates = Candidates::new(2).unwrap();
    for (plan, cost) in plans.iter().zip(&one) {
        let rolled = candidates.predict(&snapshot, plan.plan.clone(), 5).unwrap();
        let mut places = judge.target_places();
        let wanted: Vec<[f64; 3]> = places.iter().map(|p| judge.wanted(p)).collect();
        for step in &rolled.displacements {
            for (p, &i) in places.iter_mut().zip(judge.target()) {
                (0..3).for_each(|axis| p[axis] += f64::from(step[i as usize][axis]));
            }
        }
        let off = places.iter().zip(&wanted).map(|(p, q)| {
            (0..3).map(|axis| (p[axis] - q[axis]) * (p[axis] - q[axis])).sum::<f64>().sqrt()
        });
        let mean = off.sum::<f64>() / places.len() as f64;
        assert_eq!(mean.to_bits(), cost.unwrap().reach.to_bits());
    }
    // Out of time: the first is there, and says what it says with time.
    let late = candidates.evaluate(&snapshot, &judge, &plans, || false).unwrap();
    assert_eq!(format!("{:?}", late[0]), format!("{:?}", one[0]));
    assert!(late[1..].iter().all(Option::is_none));
}

#[test]
fn the_tool_tells_the_librarys_costs_to_the_bit() {
    let snapshot = snapshot(256);
    let judge = snapshot.judge(&goal()).unwrap();
    let all: Vec<Candidate> =
        plans(&snapshot, 2).into_iter().map(|plan| Candidate { plan, n_steps: 5 }).collect();
    let costs = Candidates::new(1).unwrap().evaluate(&snapshot, &judge, &all, || true).unwrap();
    let costs: Vec<_> = costs.into_iter().flatten().collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("goal.yaml"), goal_yaml()).unwrap();
    std::fs::write(folder.path().join("plans.yaml"), plans_yaml(&snapshot, 2)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_forecloud"))
        .current_dir(crate::ROOT)
        .args(["evaluate", "tests/data/tiny_push", "--particles", "256", "--steps", "5", "--json"])
        .arg("--goal")
        .arg(folder.path().join("goal.yaml"))
        .arg("--plans")
        .arg(folder.path().join("plans.yaml"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["costs"], serde_json::to_value(&costs).unwrap());
    assert_eq!(told["n_target"], judge.target().len());
    // A key that is none is an error, with the key.
    std::fs::write(folder.path().join("goal.yaml"), "selekt: {}\n").unwrap();
    let told = read_goal(&folder.path().join("goal.yaml")).unwrap_err().to_string();
    assert!(told.contains("selekt"), "{told}");
}

#[test]
fn plans_that_no_robot_could_follow_are_refused_by_number() {
    let snapshot = snapshot(128);
    let judge = snapshot.judge(&goal()).unwrap();
    let good = plans(&snapshot, 2);
    let mut candidates = Candidates::new(1).unwrap();
    let mut told = |change: &dyn Fn(&mut JointTrajectory)| {
        let mut all = good.clone();
        change(&mut all[1]);
        let all: Vec<_> = all.into_iter().map(|plan| Candidate { plan, n_steps: 5 }).collect();
        let outcome = candidates.evaluate(&snapshot, &judge, &all, || true);
        outcome.err().map_or_else(String::new, |error| error.to_string())
    };
    assert_eq!(told(&|_| ()), "");
    let beyond = told(&|plan| plan.points[1].positions[0] = 9.0);
    assert!(beyond.contains("plan 1: point 1 puts 'left_joint_2' at 9.000, beyond"), "{beyond}");
    let other = told(&|plan| plan.joint_names[0] = "elbow".into());
    assert!(other.contains("plan 1: the robot has no joint 'elbow'"), "{other}");
    let nan = told(&|plan| plan.points[0].positions[0] = f64::NAN);
    assert!(nan.contains("plan 1: point 0 puts 'left_joint_2' at NaN"), "{nan}");
    let elsewhere = told(&|plan| plan.points[0].positions[0] += 0.4);
    assert!(elsewhere.contains("plan 1: joint 'left_joint_2' starts 0.4"), "{elsewhere}");
    let fast = told(&|plan| plan.points[1].time_from_start_nanos = 100_000);
    assert!(fast.contains("plan 1: joint 'left_joint_2' would move at 1000.00 rad/s"), "{fast}");
    let stamp = snapshot.stamp();
    let over = told(&|plan| plan.header.stamp = stamp.plus_secs(-3.0));
    assert!(over.contains("plan 1: it was over 2.5 s before the frame"), "{over}");
    assert_eq!(told(&|plan| plan.header.stamp = stamp.plus_secs(-0.2)), "", "under way");
}

#[test]
fn the_point_where_the_robot_is_may_be_left_out_of_a_plan() {
    let snapshot = snapshot(128);
    let judge = snapshot.judge(&goal()).unwrap();
    let plan = plans(&snapshot, 1).remove(0);
    let mut left_out = plan.clone();
    left_out.points.remove(0);
    let all = [plan.clone(), left_out.clone()].map(|plan| Candidate { plan, n_steps: 5 });
    let mut candidates = Candidates::new(1).unwrap();
    let costs = candidates.evaluate(&snapshot, &judge, &all, || true).unwrap();
    assert_eq!(format!("{:?}", costs[0]), format!("{:?}", costs[1]));
    assert!(costs[0].unwrap().length > 0.09, "it moves: {costs:?}");
    let [told, untold] =
        [plan, left_out].map(|plan| candidates.predict(&snapshot, plan, 5).unwrap().displacements);
    assert_eq!(told, untold);
}

#[test]
fn the_body_is_chosen_of_all_particles() {
    let snapshot = snapshot(256);
    let everywhere = Zone { min: [-9.0; 3], max: [9.0; 3] };
    let all = Goal::new(Select::Region(everywhere), Reach::Box(everywhere));
    let mut n_other = 0;
    for place in snapshot.judge(&all).unwrap().target_places() {
        let goal = Goal { select: Select::Body(place), ..all.clone() };
        let Ok(whole) = snapshot.judge(&goal) else { continue };
        let whole = whole.target_places();
        let (thin, judge) = snapshot.for_plans(&goal, 32).unwrap();
        assert!(judge.target_places().iter().all(|p| whole.contains(p)), "{place:?}");
        // Of the few that are left alone, it would often be another.
        let alone = snapshot.thinned(32).judge(&goal);
        n_other += usize::from(
            alone.is_err() || alone.unwrap().target_places().iter().any(|p| !whole.contains(p)),
        );
        assert!([32, 256].contains(&thin.n_particles()));
    }
    assert!(n_other > 10, "{n_other}");
}

#[test]
fn files_with_a_byte_order_mark_are_read_and_times_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("marked.yaml");
    std::fs::write(&file, format!("\u{feff}{}", goal_yaml())).unwrap();
    assert_eq!(read_goal(&file).unwrap(), goal());
    let text = "\u{feff}plans:\n  - joint_names: [a]\n    points: [{time: 0.5, positions: [0]}]\n";
    std::fs::write(&file, text).unwrap();
    assert_eq!(read_plans(&file).unwrap().len(), 1);
    std::fs::write(&file, text.replace("0.5", "1e6")).unwrap();
    let told = read_plans(&file).unwrap_err().to_string();
    assert!(told.contains("plan 0: time 1000000 s is not in 0..1000000"), "{told}");
}

fn settings() -> PlanSettings {
    PlanSettings {
        budget: None,
        max_plans: 24,
        n_steps: 40,
        n_particles: 128,
        ..Default::default()
    }
}

fn planned(n_threads: usize, goal: &Goal, settings: &PlanSettings) -> Planned {
    let mut planner = Planner::new(n_threads).unwrap();
    planner.plan(&snapshot(256), goal, settings, |_| true).unwrap()
}

#[test]
fn the_same_seed_finds_the_same_plan_on_any_number_of_threads() {
    let [one, two] = [1, 2].map(|n_threads| planned(n_threads, &goal(), &settings()));
    assert_eq!(one.plan, two.plan);
    assert_eq!(
        format!("{:?} {}", one.cost, one.message),
        format!("{:?} {}", two.cost, two.message)
    );
    assert!(one.n_plans > 0 && one.n_plans <= 24, "{}", one.message);
    assert!(one.cost.cost <= one.idle.cost, "standing still is always a candidate");
}

#[test]
fn what_is_found_is_within_limits_and_costs_what_it_is_told() {
    let snapshot = snapshot(256);
    let found = planned(1, &goal(), &settings());
    let robot = snapshot.robot().unwrap();
    for (column, name) in found.plan.joint_names.iter().enumerate() {
        let joint = robot.joint_names().iter().position(|other| other == name).unwrap();
        let limits = robot.limits()[joint];
        for pair in found.plan.points.windows(2) {
            let [a, b] = [&pair[0], &pair[1]].map(|point| point.positions[column]);
            let nanos = pair[1].time_from_start_nanos - pair[0].time_from_start_nanos;
            assert!((limits.lower..=limits.upper).contains(&b));
            assert!((b - a).abs() <= limits.speed * nanos as f64 * 1e-9 + 1e-6);
        }
        let first = found.plan.points[0].positions[column];
        assert_eq!(first, snapshot.joints()[joint], "it starts where the robot is");
    }
    let (thin, judge) = snapshot.for_plans(&goal(), 128).unwrap();
    let all = [Candidate { plan: found.plan.clone(), n_steps: found.n_steps }];
    let cost = Candidates::new(1).unwrap().evaluate(&thin, &judge, &all, || true).unwrap();
    assert_eq!(format!("{:?}", cost[0].unwrap()), format!("{:?}", found.cost));
}

#[test]
fn goals_that_are_reached_or_out_of_reach_are_told() {
    let there = Goal { tolerance: 0.5, ..goal() };
    let reached = planned(1, &there, &settings());
    assert!(!reached.success && reached.n_plans == 0, "{}", reached.message);
    assert!(reached.message.starts_with("the goal is reached already"), "{}", reached.message);
    // In no time nothing can be done.
    let short = PlanSettings { n_steps: 3, tool_links: vec!["left_hand".into()], ..settings() };
    let told = planned(1, &goal(), &short).message;
    assert!(told.contains("longer than n_steps") || told.contains("no plan"), "{told}");
    let in_no_time = PlanSettings { budget: Some(Duration::ZERO), ..settings() };
    let told = planned(1, &goal(), &in_no_time).message;
    assert!(told.contains("the budget of 0 s was over before the first was drawn"), "{told}");
    let mut planner = Planner::new(1).unwrap();
    let snapshot = snapshot(128);
    let mut refused = |goal: &Goal, settings: &PlanSettings| {
        planner.plan(&snapshot, goal, settings, |_| true).unwrap_err().to_string()
    };
    let settings = settings();
    let unknown = PlanSettings { tool_links: vec!["spoon".into()], ..settings.clone() };
    assert!(refused(&goal(), &unknown).contains("no link 'spoon'; its links are: "));
    let unknown = PlanSettings { joint_names: vec!["elbow".into()], ..settings.clone() };
    assert!(refused(&goal(), &unknown).contains("no joint 'elbow'"));
    let endless = PlanSettings { max_plans: 0, ..settings.clone() };
    assert!(refused(&goal(), &endless).contains("max_plans: 0 without a budget"));
    for secs in [-1.0, 1.5e19, f64::NAN] {
        let told = PlanSettings::budget_of(secs).unwrap_err().to_string();
        assert_eq!(told, format!("budget: {secs} s is not in 0..=86400"));
    }
    let budget = Some(Duration::from_secs(15_000_000_000_000_000_000));
    let told = refused(&goal(), &PlanSettings { budget, ..settings.clone() });
    assert!(told.contains("budget: 15000000000000000000 s is not in 0..=86400"), "{told}");
    let zone = Zone { min: [3.0; 3], max: [4.0; 3] };
    let nothing = Goal::new(Select::Region(zone), Reach::Box(zone));
    assert!(refused(&nothing, &settings).contains("region: no particle lies in"));
}

#[test]
fn why_no_frame_can_be_planned_from_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("goal.yaml"), goal_yaml()).unwrap();
    let told = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        command.current_dir(crate::ROOT).args(["plan", "tests/data/tiny_push", "--max-plans", "1"]);
        let output = command.arg("--goal").arg(folder.path().join("goal.yaml")).args(more).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let nowhere = told(&["-p", "world_frame:=nowhere"]);
    assert!(nowhere.contains("no path from 'nowhere'") && !nowhere.contains("--at"), "{nowhere}");
    let late = told(&["--at", "60"]);
    assert!(late.contains("choose an earlier --at, as the last one is at 0.5 s"), "{late}");
}
