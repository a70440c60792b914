//! Predictions of a rendered scene, of which geometry says how good they are.

use super::*;
use crate::method::Method;
use crate::region::Region;
use crate::scene::{Scene, way};
use crate::surface::Surfaces;
use forecloud::base::geometry::{PointTree, Vec3};
use forecloud::vision::cloud::Workspace;

const WIDE: Workspace = Workspace { min: [-9.0; 3], max: [9.0; 3] };
const STEP_SECS: f64 = 0.1;
/// Way of the box in one step (optical frame, m).
const WAY: [f64; 3] = [0.06, 0.01, 0.02];

fn hindsight(horizon: usize) -> Hindsight {
    Hindsight::new(Eye::new(WIDE, 512, 0), STEP_SECS, horizon, 0.025)
}

fn scene_at(secs: f64) -> Scene {
    Scene::default().moved(WAY.map(|way| way * secs / STEP_SECS))
}

/// Two predictions of every seventh pixel: what truly happens, and that nothing does.
fn group(secs: f64, horizon: usize) -> Group {
    let seen: Vec<_> = scene_at(secs).pixels().into_iter().step_by(7).collect();
    let start: Vec<Vec3> = seen.iter().map(|seen| seen.point).collect();
    let step = |on_box: bool| if on_box { way(WAY) } else { [0.0; 3] };
    let exact = vec![seen.iter().map(|seen| step(seen.on_box)).collect::<Vec<_>>(); horizon];
    let still = vec![vec![[0.0; 3]; start.len()]; horizon];
    let methods = [(Method::Model, exact.as_slice()), (Method::NothingMoves, &still)];
    Group::new(&start, methods)
}

/// Plays frames at `times` (s), a prediction from each; the findings, and the most frames held.
fn play(times: impl IntoIterator<Item = f64>, horizon: usize) -> (Findings, usize) {
    let (mut hindsight, mut n_held) = (hindsight(horizon), 0);
    for secs in times {
        let frame = scene_at(secs).frame(secs);
        hindsight.observe(&frame).unwrap();
        hindsight.expect(frame.stamp, vec![group(secs, horizon)]);
        n_held = n_held.max(hindsight.n_frames());
    }
    (hindsight.finish().unwrap(), n_held)
}

fn ticks(n: u32) -> impl Iterator<Item = f64> {
    (0..n).map(|i| f64::from(i) * STEP_SECS)
}

#[test]
fn the_exact_prediction_is_not_contradicted_and_the_one_that_stays_is() {
    let (findings, _) = play(ticks(4), 2);
    for step in 0..2 {
        let of = |method, region| findings.tallies.get(method, step, Some(region));
        let moving = of(Method::Model, Region::Moving);
        assert!(moving.n_points > 90, "{moving:?}");
        assert_eq!(moving.n_in_front, 0, "{moving:?}");
        let [_, agree, behind] = moving.shares().unwrap();
        // Behind: the wall that the box hides, and sides narrower than a pixel.
        assert!(agree > 0.6 && behind < 0.4, "{agree} {behind}");
        let still = of(Method::NothingMoves, Region::Moving);
        assert_eq!(still.n_points, moving.n_points, "regions don't depend on the prediction");
        assert!(still.n_in_front > 45, "{still:?}");
        // The wall lies 0.25 to 0.4 m behind the box; its own way in depth is 2 cm a step.
        let by_mm = still.violation_mm.sum / still.n_in_front as f64;
        assert!((15.0..400.0).contains(&by_mm), "{by_mm}");
        assert_eq!(moving.violation_mm.sum, 0.0);
        let chamfer = |tally: Tally| tally.chamfer_mm().unwrap();
        let floor = chamfer(of(Method::Observed, Region::Moving));
        assert!(chamfer(moving) < 0.5 * chamfer(still), "{moving:?} {still:?}");
        assert!(floor > 1.0 && floor < chamfer(still));
        for method in [Method::Model, Method::NothingMoves] {
            let resting = of(method, Region::Static);
            assert_eq!(resting.n_in_front, 0, "{resting:?}");
            assert!(resting.shares().unwrap()[1] > 0.98, "{resting:?}");
        }
    }
}

#[test]
fn what_the_recording_does_not_show_is_counted() {
    let counts = |n_observed, n_missing_gap, n_missing_end| StepCounts {
        n_observed,
        n_missing_gap,
        n_missing_end,
    };
    let (findings, _) = play(ticks(4), 3);
    assert_eq!(findings.steps, [counts(3, 0, 1), counts(2, 0, 2), counts(1, 0, 3)]);
    assert_eq!((findings.n_predictions, findings.n_between_steps), (3, 0));
    // Without the frame of 0.2 s, and one that comes 20 ms late, another 30 ms.
    let (findings, _) = play([0.0, 0.1, 0.3, 0.42, 0.53], 2);
    // Ends of the first step: 0.1 seen, 0.2 gap, 0.4 seen, 0.52 seen, 0.63 end; of the second: 0.2
    // gap, 0.3 seen, 0.5 gap, 0.62 end, 0.73 end.
    assert_eq!(findings.steps, [counts(3, 1, 1), counts(1, 2, 2)]);
    // Nothing comes in time.
    let (findings, _) = play([0.0, 0.5], 1);
    assert_eq!((findings.steps, findings.n_predictions), (vec![counts(0, 1, 1)], 0));
    assert_eq!(findings.tallies.get(Method::Model, 0, None), Tally::default());
}

#[test]
fn the_nearest_frame_shows_the_end_of_a_step() {
    // 0.09 s lies nearer to 0.1 s than 0.12 s does, though that is within the tolerance too.
    let near = play([0.0, 0.09, 0.12], 1).0;
    let mut hindsight = hindsight(1);
    let seen = scene_at(0.0).frame(0.0);
    hindsight.observe(&seen).unwrap();
    hindsight.expect(seen.stamp, vec![group(0.0, 1)]);
    hindsight.observe(&scene_at(0.09).frame(0.09)).unwrap();
    // The recording ends: still the nearest.
    let only = hindsight.finish().unwrap();
    assert_eq!(near.steps[0].n_observed, 1);
    assert_eq!(near.tallies, only.tallies);
}

#[test]
fn few_frames_are_held_however_fast_they_come() {
    let (slow, n_held) = play(ticks(9), 3);
    assert!(n_held <= 5, "{n_held}");
    let (fast, n_held) = play((0..24).map(|i| f64::from(i) / 30.0), 3);
    assert!(n_held <= 5, "{n_held}");
    assert_eq!((slow.n_between_steps, fast.n_between_steps), (0, 16));
    // 0.1 s is every third frame at 30 frames/s: the last start with all steps is that of 0.4 s.
    let observed: Vec<u64> = fast.steps.iter().map(|counts| counts.n_observed).collect();
    assert_eq!(observed, [7, 6, 5]);
}

#[test]
fn when_time_is_set_back_nothing_of_before_is_judged() {
    let (findings, _) = play([0.0, 0.1, 0.0, 0.1], 2);
    let observed: Vec<u64> = findings.steps.iter().map(|counts| counts.n_observed).collect();
    let missing: Vec<u64> = findings.steps.iter().map(|counts| counts.n_missing_end).collect();
    assert_eq!((observed, missing), (vec![2, 0], vec![2, 4]));
}

#[test]
fn frames_that_cannot_be_read_are_counted_with_the_cause() {
    let mut hindsight = hindsight(1);
    for secs in ticks(3) {
        let mut frame = scene_at(secs).frame(secs);
        if secs == STEP_SECS {
            let forecloud::vision::frames::View::Depth { depth, .. } = &mut frame.cameras[0].view
            else {
                panic!()
            };
            depth.encoding = "8UC4".into();
        }
        hindsight.observe(&frame).unwrap();
        hindsight.expect(frame.stamp, vec![group(secs, 1)]);
    }
    let findings = hindsight.finish().unwrap();
    assert_eq!((findings.n_unusable, findings.steps[0].n_missing_gap), (1, 1));
    assert!(findings.problems[0].contains("8UC4"), "{:?}", findings.problems);
    assert!(findings.problems[1].contains("no robot description"), "{:?}", findings.problems);
}

/// An observation of points alone, without depth images.
fn points(cloud: &[Vec3]) -> Observed {
    Observed {
        stamp: Stamp::default(),
        surfaces: Surfaces::default(),
        cloud: PointTree::new(cloud).unwrap(),
        tested: Vec::new(),
        drawn: [cloud.to_vec(), cloud.to_vec()],
        robot: None,
    }
}

#[test]
fn chamfer_distances_by_hand() {
    let (start, then) = (points(&[]), points(&[[0.0; 3], [0.0, 0.0, 0.1]]));
    // One point 30 mm beside the first; one 40 mm beside the second; one outside the workspace.
    let at = vec![[0.03, 0.0, 0.0], [0.0, 0.04, 0.1], [50.0, 0.0, 0.0]];
    let predicted = vec![(Method::Model, vec![at.clone()])];
    let groups = [Group { start: at, predicted }];
    let mut tallies = Tallies::default();
    judge::judge((&start, &then), &groups, 0, &WIDE, &mut tallies).unwrap();
    let tally = tallies.get(Method::Model, 0, None);
    assert_eq!((tally.n_points, tally.n_covered, tally.n_outside), (3, 0, 1));
    assert!((tally.to_observed_mm.get().unwrap() - 35.0).abs() < 1e-3);
    assert_eq!((tally.to_observed_mm.n, tally.to_predicted_mm.n), (2, 2));
    assert!((tally.to_predicted_mm.get().unwrap() - 35.0).abs() < 1e-3);
    assert!((tally.chamfer_mm().unwrap() - 35.0).abs() < 1e-3);
    assert_eq!((tally.coverage(), tally.shares()), (Some(0.0), None));
    // Nothing tells regions apart without depth images.
    assert_eq!(tallies.get(Method::Model, 0, Some(Region::Hidden)), tally);
    let observed = tallies.get(Method::Observed, 0, None);
    assert_eq!(observed.chamfer_mm(), Some(0.0));
}

#[test]
fn the_two_directions_differ_where_something_is_missed() {
    // Both predicted points lie on the first observed one: the second has none near it.
    let (start, then) = (points(&[]), points(&[[0.0; 3], [0.0, 0.0, 0.1]]));
    let at = vec![[0.0; 3]; 2];
    let predicted = vec![(Method::Model, vec![at.clone()])];
    let groups = [Group { start: at, predicted }];
    let mut tallies = Tallies::default();
    judge::judge((&start, &then), &groups, 0, &WIDE, &mut tallies).unwrap();
    let tally = tallies.get(Method::Model, 0, None);
    assert_eq!(tally.to_observed_mm.get(), Some(0.0));
    assert!((tally.to_predicted_mm.get().unwrap() - 50.0).abs() < 1e-3);
    assert!((tally.chamfer_mm().unwrap() - 25.0).abs() < 1e-3);
}

#[test]
fn shares_are_of_the_covered_points() {
    let mut tally = Tally::default();
    use crate::surface::Sight::{Agrees, Behind, InFront};
    for sight in [Some(InFront(0.01)), Some(InFront(0.03)), Some(Agrees), Some(Behind), None] {
        tally.see(sight);
    }
    assert_eq!(tally.coverage(), Some(0.8));
    assert_eq!(tally.shares(), Some([0.5, 0.25, 0.25]));
    assert!((tally.violation_mm.get().unwrap() - 10.0).abs() < 1e-5);
    let mut twice = tally;
    twice.merge(&tally);
    assert_eq!((twice.n_points, twice.shares()), (10, tally.shares()));
}
