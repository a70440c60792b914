//! Candidate plans from the frames of a recording, held against the live predictions.

use std::path::{Path, PathBuf};

use forecloud::engine::model::Model;
use forecloud::engine::motion_class::MotionClass;
use forecloud::engine::rollout_input::Evidence;
use forecloud::message::{JointTrajectory, Stamp};
use forecloud::planner::candidates::{Candidates, Snapshot};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::predict::robot_reach::{NEVER, RobotReach};
use forecloud::robot::kinematics::RobotMode;
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::{Frame, FramesConfig};
use forecloud::{Error, Result};
use forecloud_bag::recording::Recording;

fn path(relative: &str) -> PathBuf {
    Path::new(crate::ROOT).join(relative)
}

fn recording() -> Recording {
    Recording::open(&path("tests/data/tiny_push"), FramesConfig::default()).unwrap()
}

fn frames() -> Vec<Frame> {
    let mut frames = Vec::new();
    let keep = |frame, _| -> Result<()> {
        frames.push(frame);
        Ok(())
    };
    recording().play(keep).unwrap();
    frames
}

fn config() -> PredictorConfig {
    PredictorConfig { horizon: 3, n_particles: 512, seed: 7, ..PredictorConfig::default() }
}

fn predictor() -> Predictor {
    predictor_of(config())
}

fn predictor_of(config: PredictorConfig) -> Predictor {
    let model = Model::load(&path("models/small.safetensors")).unwrap();
    let mut predictor = Predictor::new(model, config).unwrap();
    let urdf = recording().robot_description().unwrap().unwrap();
    predictor.set_robot(&urdf, "world").unwrap();
    predictor
}

/// The plan that the live prediction of `frame` follows.
fn plan(frame: &Frame) -> JointTrajectory {
    frame.plan.last().expect("the recording has plans").as_ref().clone()
}

/// `plan`, with the robot moving `factor` times as far.
fn scaled(plan: &JointTrajectory, factor: f64) -> JointTrajectory {
    let mut scaled = plan.clone();
    let first = plan.points[0].positions.clone();
    for point in &mut scaled.points {
        for (q, first) in point.positions.iter_mut().zip(&first) {
            *q = first + factor * (*q - first);
        }
    }
    scaled
}

fn assert_equal(got: &Prediction, expected: &Prediction) {
    assert_eq!((got.stamp, got.seed), (expected.stamp, expected.seed));
    assert_eq!(got.particles.positions, expected.particles.positions);
    assert_eq!(got.particles.colors, expected.particles.colors);
    assert_eq!(got.particles.sources, expected.particles.sources);
    let bits = |prediction: &Prediction| -> Vec<u32> {
        let steps = prediction.displacements.iter().flatten().flatten();
        steps.map(|d| d.to_bits()).collect()
    };
    assert_eq!(bits(got), bits(expected));
    assert_eq!((got.n_planned, &got.sigmas), (expected.n_planned, &expected.sigmas));
}

#[test]
fn the_live_plan_as_candidate_gives_the_live_prediction_bit_for_bit() {
    let (mut predictor, mut candidates) = (predictor(), Candidates::new(2).unwrap());
    let mut n_compared = 0;
    for frame in &frames() {
        let Some(live) = predictor.step(frame).unwrap().cloned() else { continue };
        let snapshot = predictor.snapshot().unwrap();
        assert_eq!((snapshot.stamp(), snapshot.n_particles()), (live.stamp, 512));
        let same = candidates.predict(&snapshot, plan(frame), 3).unwrap();
        assert_equal(&same, &live);
        assert_eq!(same.history, live.history);
        n_compared += 1;
    }
    assert_eq!(n_compared, 5);
}

#[test]
fn from_when_a_candidate_reaches_it_a_thing_is_judged_without_its_past() {
    let (mut predictor, mut candidates) = (predictor(), Candidates::new(1).unwrap());
    let frames = frames();
    for frame in &frames[..4] {
        predictor.step(frame).unwrap();
    }
    let snapshot = predictor.snapshot().unwrap();
    let rests = Evidence {
        model: 0.0,
        goes_on: 0.0,
        rests: 1.0,
        misses_m: [0.0; 2],
        has_rested: false,
        keeps: 1.0,
        steady: None,
        until: NEVER,
    };
    let n = snapshot.n_particles();
    let mut with = |known: Option<Evidence>| {
        let mut snapshot = snapshot.clone();
        snapshot.scene.evidence = vec![known; n];
        candidates.predict(&snapshot, plan(&frames[3]), 3).unwrap()
    };
    let start = &snapshot.scene.start;
    let mut reach = RobotReach::default();
    let reached = reach.find(start, &snapshot.scene.kinematic, |_| true).to_vec();
    let reached = |i: usize| reached.get(start.body_of[i] as usize).copied();
    let [known, unknown] = [Some(rests), None].map(&mut with);
    let (mut n_near, mut n_far) = (0, 0);
    for i in (0..n).filter(|&i| known.situations[i] != MotionClass::Robot) {
        // What the rows of its plan tell of the step's end.
        let is_reached = |step: usize| reached(i).is_some_and(|row| row <= step as u32 + 2);
        for step in 0..3 {
            let [way, without] = [&known, &unknown].map(|of| of.displacements[step][i]);
            if is_reached(step) {
                // Where what pushes it rests, it waits for that.
                assert!(
                    way == without || way == [0.0; 3],
                    "{i} in step {step}: {way:?} {without:?}"
                );
                n_near += usize::from(way != [0.0; 3]);
            } else {
                assert_eq!(way, [0.0; 3], "{i} in step {step}");
                n_far += usize::from(reached(i).is_some());
            }
        }
    }
    assert!(n_near > 0 && n_far > 0, "{n_near} {n_far}");
}

#[test]
fn of_fewer_particles_what_loses_its_body_loses_its_past() {
    let mut predictor = predictor();
    for frame in &frames()[..4] {
        predictor.step(frame).unwrap();
    }
    let mut snapshot = predictor.snapshot().unwrap();
    let known = snapshot.scene.evidence.iter().flatten().next().copied();
    assert!(known.is_some(), "some body has a past");
    snapshot.scene.evidence.fill(known);
    // Numbers of bodies are fewer than particles.
    snapshot.scene.start.body_of.iter_mut().enumerate().for_each(|(i, body)| *body = i as u32 % 32);
    let thin = snapshot.thinned(16);
    let numbers = thin.scene.start.body_of.iter().zip(&thin.scene.evidence);
    assert!(numbers.clone().any(|(&body, _)| body < 16) && numbers.len() == 16);
    for (&body, known) in numbers {
        assert_eq!(known.is_some(), body < 16, "body {body}");
    }
}

#[test]
fn how_sure_the_robots_way_is_depends_on_how_far_its_plan_goes() {
    let (frames, horizon) = (frames(), 10);
    let with = |change: &dyn Fn(&mut Frame)| {
        let mut predictor = predictor_of(PredictorConfig { horizon, ..config() });
        for frame in &frames[..3] {
            let mut frame = frame.clone();
            change(&mut frame);
            predictor.step(&frame).unwrap();
        }
        let snapshot = predictor.snapshot().unwrap();
        let mut still = plan(&frames[2]);
        let first = still.points[0].positions.clone();
        still.points.iter_mut().for_each(|point| point.positions.clone_from(&first));
        let still = Candidates::new(1).unwrap().predict(&snapshot, still, horizon).unwrap();
        let mut frame = frames[3].clone();
        change(&mut frame);
        (predictor.step(&frame).unwrap().unwrap().clone(), still)
    };
    let (planned, still) = with(&|_| {});
    assert_eq!((planned.n_planned, still.n_planned), (horizon, 0));
    let (unplanned, _) = with(&|frame| frame.plan.clear());
    assert_eq!(unplanned.n_planned, 0);
    // On the same particle of the robot, after the last step: a robot that has said nothing seldom moves
    // at once.
    let i = planned.situations.iter().position(|s| *s == MotionClass::Robot).unwrap();
    assert_eq!(unplanned.situations[i], MotionClass::Robot);
    let most = |prediction: &Prediction| prediction.sigmas[1][horizon - 1][i];
    assert!(most(&unplanned) > 1.2 * most(&planned), "{} {}", most(&unplanned), most(&planned));
}

#[test]
fn another_plan_moves_the_scene_otherwise_and_the_order_of_plans_does_not_matter() {
    let (mut predictor, mut candidates) = (predictor(), Candidates::new(1).unwrap());
    let frames = frames();
    for frame in &frames[..4] {
        predictor.step(frame).unwrap();
    }
    let snapshot = predictor.snapshot().unwrap();
    // No faster than the joints can.
    let plans = [1.0, -1.0, 0.3].map(|factor| scaled(&plan(&frames[3]), factor));
    let mut predict = |i: usize, n_steps| {
        candidates.predict(&snapshot, plans[i].clone(), n_steps).unwrap().displacements
    };
    let forward = [0, 1, 2].map(|i| predict(i, 3));
    let backward = [2, 1, 0].map(|i| predict(i, 3));
    assert!(forward.iter().eq(backward.iter().rev()));
    assert_ne!(forward[0], forward[1]);
    assert_ne!(forward[1], forward[2]);
    // Fewer and more steps than the live prediction; the first ones are the same.
    assert_eq!(predict(1, 1)[..], forward[1][..1]);
    assert_eq!(predict(1, 5)[..3], forward[1][..]);
}

#[test]
fn candidates_do_not_disturb_the_live_prediction() {
    let frames = frames();
    let mut alone = predictor();
    let expected: Vec<_> = frames.iter().map(|frame| alone.step(frame).unwrap().cloned()).collect();
    let mut live = predictor();
    std::thread::scope(|scope| {
        let (wishes, wished) = std::sync::mpsc::channel::<(Snapshot, JointTrajectory)>();
        let other = scope.spawn(move || {
            let mut candidates = Candidates::new(1).unwrap();
            let predict = |(snapshot, plan)| candidates.predict(&snapshot, plan, 4).unwrap();
            wished.into_iter().map(predict).count()
        });
        for (frame, expected) in frames.iter().zip(&expected) {
            let prediction = live.step(frame).unwrap().cloned();
            assert_eq!(prediction.is_some(), expected.is_some());
            if let (Some(got), Some(expected)) = (prediction, expected) {
                assert_equal(&got, expected);
                let plan = scaled(&plan(frame), 0.5);
                wishes.send((live.snapshot().unwrap(), plan)).unwrap();
            }
        }
        drop(wishes);
        assert_eq!(other.join().unwrap(), 5);
    });
}

#[test]
fn without_a_prediction_there_is_no_snapshot() {
    let frames = frames();
    let model = Model::load(&path("models/small.safetensors")).unwrap();
    let required = PredictorConfig { robot: RobotMode::Required, ..config() };
    let fresh = Predictor::new(model, required).unwrap();
    assert!(matches!(fresh.snapshot(), Err(Error::NoRobot)));
    let mut predictor = predictor();
    assert!(matches!(predictor.snapshot(), Err(Error::NoPrediction)));
    assert!(predictor.step(&frames[0]).unwrap().is_none());
    assert!(matches!(predictor.snapshot(), Err(Error::NoPrediction)));
    predictor.step(&frames[1]).unwrap().expect("frame 0 is its history");
    assert!(predictor.snapshot().is_ok());
    assert_eq!(predictor.forget(), 2);
    assert!(matches!(predictor.snapshot(), Err(Error::NoPrediction)));
    assert!(predictor.step(&frames[2]).unwrap().is_none(), "what was forgotten is no history");
}

#[test]
fn steps_and_plans_that_make_no_sense_are_refused() {
    let (mut predictor, mut candidates) = (predictor(), Candidates::new(1).unwrap());
    let frames = frames();
    predictor.step(&frames[0]).unwrap();
    predictor.step(&frames[1]).unwrap();
    let snapshot = predictor.snapshot().unwrap();
    let good = plan(&frames[1]);
    for n_steps in [0, 101, usize::MAX] {
        let told = candidates.predict(&snapshot, good.clone(), n_steps).unwrap_err();
        assert!(told.to_string().contains("is not in 1..=100"), "{told}");
    }
    let mut unknown = good.clone();
    unknown.joint_names[0] = "third_arm".into();
    let told = candidates.predict(&snapshot, unknown, 3).unwrap_err().to_string();
    assert!(told.contains("no joint 'third_arm'") && told.contains("left_joint_1"), "{told}");
    // The model's passes look ten steps ahead, and longer predictions farther.
    let mut late = good.clone();
    late.header.stamp = Stamp::from_nanos(snapshot.stamp().nanos() + 900_000_000);
    for (n_steps, ends) in [(3, "of 0.3 s ends"), (8, "of 0.8 s ends")] {
        let told = candidates.predict(&snapshot, late.clone(), n_steps).unwrap_err().to_string();
        assert!(told.contains("starts 0.9 s after the frame") && told.contains(ends), "{told}");
    }
    let told = candidates.predict(&snapshot, late, 10).unwrap_err().to_string();
    assert!(
        told.contains("begin where the robot is"),
        "in time, but elsewhere than the robot is: {told}"
    );
    assert!(candidates.predict(&snapshot, good, 3).is_ok());
}

#[test]
fn only_another_workspace_makes_the_history_unusable() {
    let frames = frames();
    let mut predictor = predictor();
    predictor.step(&frames[0]).unwrap();
    let other = PredictorConfig { horizon: 2, n_particles: 300, seed: 1, ..config() };
    predictor.set_config(other).unwrap();
    let prediction = predictor.step(&frames[1]).unwrap().expect("the history is kept");
    assert_eq!((prediction.displacements.len(), prediction.seed), (2, 1));
    assert_eq!(prediction.particles.len(), 300);

    let bad = PredictorConfig { horizon: 0, ..other };
    assert!(predictor.set_config(bad).is_err());
    assert_eq!(*predictor.config(), other, "nothing has changed");

    // The model's own box, named.
    let workspace = predictor.model().config.workspace;
    let named = PredictorConfig { workspace: Some(workspace), ..other };
    predictor.set_config(named).unwrap();
    assert!(predictor.step(&frames[2]).unwrap().is_some());
    let max = [workspace.max[0], workspace.max[1], 0.3];
    let low = Workspace { min: workspace.min, max };
    predictor.set_config(PredictorConfig { workspace: Some(low), ..other }).unwrap();
    assert!(predictor.step(&frames[3]).unwrap().is_none());
    let prediction = predictor.step(&frames[4]).unwrap().expect("frame 3 is its history");
    assert!(prediction.particles.positions.iter().all(|p| p[2] <= 0.3));
}
