use super::*;
use crate::metrics::TrueMotion;
use forecloud_bag::recording::BodyKind;

const HORIZON: usize = 3;

fn setting(budget_bytes: usize) -> Setting {
    let workspace = Workspace { min: [-1.0; 3], max: [1.0; 3] };
    Setting { step_secs: 0.1, horizon: HORIZON, tolerance_secs: 0.02, workspace, budget_bytes }
}

/// Two particles at `x` and beyond, of a frame of that time.
fn prediction(at_ms: i64, x: f32) -> Prediction {
    let mut prediction = Prediction {
        stamp: Stamp::from_nanos(at_ms * 1_000_000),
        displacements: vec![vec![[0.01, 0.0, 0.0]; 2]; HORIZON],
        ..Prediction::default()
    };
    prediction.history_stamp = prediction.stamp.plus_secs(-0.1);
    prediction.history = vec![[x, 0.0, 0.0]];
    prediction.particles.positions = vec![[x, 0.0, 0.0], [x + 0.1, 0.0, 0.0]];
    prediction.particles.colors = vec![[0.5; 3]; 2];
    prediction
}

/// A frame whose objects move by `way_m` in each step.
fn watch_known(scenes: &mut Scenes, at_ms: i64, way_m: f32) {
    let prediction = prediction(at_ms, 0.0);
    let now = &prediction.particles.positions;
    let steps =
        (0..=HORIZON).map(|step| now.iter().map(|x| [x[0], x[1], way_m * step as f32]).collect());
    let truth = TrueMotion::new(now.clone(), steps, &[BodyKind::Object; 2]);
    let (stamp, task) = (prediction.stamp, Some("t"));
    let frame =
        Replayed { stamp, cameras: &[], task, prediction: Some(&prediction), truth: Some(&truth) };
    scenes.watch(&frame).unwrap();
}

fn chosen_ms(scenes: &Scenes) -> Vec<(usize, i64)> {
    let chosen = scenes.chosen().into_iter();
    chosen.map(|(recording, scene)| (recording, scene.stamp.nanos() / 1_000_000)).collect()
}

#[test]
fn the_most_active_frames_are_kept_and_none_of_the_same_motion() {
    let mut scenes = Scenes::new(setting(1 << 20));
    // Two bursts of motion, around 0.7 s and 2.0 s.
    for step in 0..30 {
        let way_m = if step == 7 {
            0.05
        } else if step == 20 {
            0.04
        } else {
            0.01
        };
        watch_known(&mut scenes, 100 * step, way_m);
    }
    scenes.end_recording().unwrap();
    let chosen = chosen_ms(&scenes);
    assert!(chosen.contains(&(0, 700)) && chosen.contains(&(0, 2000)), "{chosen:?}");
    assert_eq!(chosen.len(), MAX_OF_RECORDING);
    assert!(chosen.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 300), "{chosen:?}");
    assert_eq!(scenes.spans(), [Some([Stamp::default(), Stamp::from_secs(2.9)])]);
}

#[test]
fn a_small_budget_goes_to_the_best_frame_of_each_recording() {
    let mut scenes = Scenes::new(setting(1 << 20));
    watch_known(&mut scenes, 0, 0.01);
    scenes.end_recording().unwrap();
    let one_bytes = scenes.chosen()[0].1.json.len();
    let mut scenes = Scenes::new(setting(2 * one_bytes + one_bytes / 2));
    for way_m in [0.05, 0.02] {
        watch_known(&mut scenes, 0, way_m);
        watch_known(&mut scenes, 1000, way_m + 0.01);
        scenes.end_recording().unwrap();
    }
    // The second recording's best before the first one's second, though that moves more.
    assert_eq!(chosen_ms(&scenes), [(0, 1000), (1, 1000)]);
    let mut scenes = Scenes::new(setting(10));
    watch_known(&mut scenes, 0, 0.01);
    scenes.end_recording().unwrap();
    assert_eq!(chosen_ms(&scenes), []);
}

#[test]
fn without_truth_a_frame_waits_for_what_is_seen_later() {
    let mut scenes = Scenes::new(setting(1 << 20));
    let mut show = |at_ms: i64, x: f32| {
        let prediction = prediction(at_ms, x);
        let stamp = prediction.stamp;
        let frame = Replayed {
            stamp,
            cameras: &[],
            task: None,
            prediction: Some(&prediction),
            truth: None,
        };
        scenes.watch(&frame).unwrap();
    };
    // 0.1 s late by 30 ms: too much. Then 0.2 s, early by 10 ms; 0.3 s twice, the nearer counts.
    for (at_ms, x) in [(0, 0.0), (130, 0.1), (190, 0.5), (285, 0.6), (302, 0.7), (900, 0.0)] {
        show(at_ms, x);
    }
    scenes.end_recording().unwrap();
    let chosen = scenes.chosen();
    let first: serde_json::Value = serde_json::from_str(&chosen[0].1.json).unwrap();
    assert_eq!(chosen[0].1.stamp.nanos(), 0);
    let seen = first["seen"].as_array().unwrap();
    let is_there: Vec<bool> = seen.iter().map(|seen| !seen.is_null()).collect();
    assert_eq!(is_there, [false, true, true]);
    assert_eq!(first["truth"], serde_json::Value::Null);
    // Both points are 0.6 m from the nearest one at the start.
    assert!((chosen[0].1.activity - (0.6 + 0.7)).abs() < 1e-3, "{}", chosen[0].1.activity);
}

#[test]
fn time_that_is_set_back_begins_anew() {
    let mut scenes = Scenes::new(setting(1 << 20));
    for at_ms in [0, 100, 200, 50, 150, 250] {
        let prediction = prediction(at_ms, 0.001 * at_ms as f32);
        let stamp = prediction.stamp;
        let frame = Replayed {
            stamp,
            cameras: &[],
            task: None,
            prediction: Some(&prediction),
            truth: None,
        };
        scenes.watch(&frame).unwrap();
    }
    scenes.end_recording().unwrap();
    assert_eq!(chosen_ms(&scenes).len(), 1);
    assert!(scenes.later.end().is_empty());
}
