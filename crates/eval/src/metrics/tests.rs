//! Errors against numbers worked out by hand.

use super::*;

const KINDS: [BodyKind; 4] =
    [BodyKind::Object, BodyKind::Object, BodyKind::Robot, BodyKind::Static];

/// The classes of the points of [`scene`].
const THERE: [Class; 4] = [Class::Moving, Class::Resting, Class::Robot, Class::Static];

/// An object's point that moves 10 mm a step in x, one that rests, one of a robot that moves 20 mm
/// a step in z, and one of the table; two steps.
fn scene() -> TrueMotion {
    let at =
        |h: f32| vec![[0.01 * h, 0.0, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 0.02 * h], [0.0, 1.0, 0.0]];
    TrueMotion::new(at(-1.0), (0..=2).map(|h| at(h as f32)), &KINDS)
}

fn still() -> Vec<Vec<Vec3>> {
    vec![vec![[0.0; 3]; 4]; 2]
}

fn scores(displacements: &[Vec<Vec3>]) -> Scores {
    let mut scores = Scores::default();
    scores.add("push", displacements, &scene()).unwrap();
    scores
}

fn assert_means(scores: &Scores, class: Class, expected_mm: [f64; 2]) {
    for (step, expected) in expected_mm.into_iter().enumerate() {
        let mean = scores.mean(class, step, None).get().unwrap();
        assert!((mean - expected).abs() < 1e-4, "{class:?} step {step}: {mean}, not {expected}");
    }
}

#[test]
fn a_perfect_prediction_has_no_error() {
    let step = vec![[0.01, 0.0, 0.0], [0.0; 3], [0.0, 0.0, 0.02], [0.0; 3]];
    let scores = scores(&[step.clone(), step]);
    THERE.into_iter().for_each(|class| assert_means(&scores, class, [0.0, 0.0]));
}

#[test]
fn if_nothing_moves_the_error_is_the_true_displacement() {
    let scores = scores(&still());
    assert_means(&scores, Class::Moving, [10.0, 20.0]);
    assert_means(&scores, Class::Resting, [0.0, 0.0]);
    assert_means(&scores, Class::Robot, [20.0, 40.0]);
    assert_means(&scores, Class::Static, [0.0, 0.0]);
}

#[test]
fn false_motion_is_that_of_the_step_and_errors_add_up() {
    let mut steps = still();
    steps[0] = vec![[0.0, 0.003, 0.004]; 4];
    let scores = scores(&steps);
    assert_means(&scores, Class::Static, [5.0, 0.0]);
    assert_means(&scores, Class::Resting, [5.0, 5.0]);
    assert_means(&scores, Class::Moving, [125f64.sqrt(), 425f64.sqrt()]);
}

#[test]
fn an_object_moves_beyond_two_millimetres_in_the_step() {
    let way = |first: f32, second: f32| {
        let at = |x: f32| vec![[x, 0.0, 0.0]];
        let positions = [at(0.0), at(first), at(first + second)];
        let truth = TrueMotion::new(at(0.0), positions, &[BodyKind::Object]);
        [truth.classes[0][0], truth.classes[1][0]]
    };
    assert_eq!(way(0.001_99, 0.002_01), [Class::Resting, Class::Moving]);
    assert_eq!(way(0.05, 0.0), [Class::Moving, Class::Resting]);
    // Robots and the table are what they are, however they move.
    let positions = [vec![[0.0; 3]; 2], vec![[0.1; 3]; 2]];
    let kinds = [BodyKind::Robot, BodyKind::Static];
    let truth = TrueMotion::new(vec![[0.0; 3]; 2], positions, &kinds);
    assert_eq!(truth.classes, [[Class::Robot, Class::Static]]);
}

#[test]
fn steps_beyond_the_truth_do_not_count() {
    let truth = scene();
    let mut long = still();
    long.push(vec![[1.0; 3]; 4]);
    let mut scores = Scores::default();
    scores.add("push", &long, &truth).unwrap();
    let counts: Vec<u64> = (0..3).map(|h| scores.mean(Class::Moving, h, None).n).collect();
    assert_eq!(counts, [1, 1, 0]);
    assert_eq!(scores.mean(Class::Moving, 2, None).get(), None);
}

#[test]
fn tasks_are_kept_apart_and_points_are_pooled() {
    let mut twice = Scores::default();
    let truth = scene();
    twice.add("push", &still(), &truth).unwrap();
    let mut tumble = Scores::default();
    let step = vec![[0.01, 0.0, 0.0]; 4];
    tumble.add("tumble", &[step.clone(), step], &truth).unwrap();
    twice.merge(&tumble);
    twice.merge(&tumble);
    let mean = |task| twice.mean(Class::Moving, 1, task).get().unwrap();
    assert!((mean(Some("push")) - 20.0).abs() < 1e-4);
    assert!(mean(Some("tumble")).abs() < 1e-4);
    assert!((mean(None) - 20.0 / 3.0).abs() < 1e-4);
    assert_eq!(twice.tasks().collect::<Vec<_>>(), ["push", "tumble"]);
}

#[test]
fn true_constant_velocity_is_exact_where_it_holds() {
    let truth = scene();
    let steps = super::super::baselines::constant_velocity(&truth.back, &truth.positions[0], 2);
    let scores = scores(&steps);
    THERE.into_iter().for_each(|class| assert_means(&scores, class, [0.0, 0.0]));
}

#[test]
fn displacements_of_other_particles_are_refused() {
    let result = Scores::default().add("push", &[vec![[0.0; 3]; 3]], &scene());
    assert!(matches!(result, Err(Error::Shape { expected: 4, got: 3, .. })), "{result:?}");
}

#[test]
fn falls_and_impacts_are_told_apart_and_count_as_moving() {
    // Falling by 98 mm more each step; struck from rest by 25 and by 35 mm; going on; the robot.
    let kinds =
        [BodyKind::Object, BodyKind::Object, BodyKind::Object, BodyKind::Object, BodyKind::Robot];
    let z = |zs: [f32; 5]| zs.map(|z| [0.0, 0.0, z]).to_vec();
    let back = z([0.0, 0.0, 0.0, -0.2, 0.0]);
    let positions =
        [z([0.0; 5]), z([-0.098, 0.025, 0.035, 0.2, 0.5]), z([-0.294, 0.05, 0.07, 0.4, 0.5])];
    let truth = TrueMotion::new(back, positions, &kinds);
    let mut scores = Scores::default();
    scores.add("tumble", &vec![vec![[0.0; 3]; 5]; 2], &truth).unwrap();
    let sudden = [0, 1].map(|step| scores.mean(Class::Sudden, step, None));
    assert_eq!(sudden.map(|mean| mean.n), [2, 1]);
    assert!((sudden[0].sum - (98.0 + 35.0)).abs() < 1e-3, "{sudden:?}");
    assert!((sudden[1].sum - 294.0).abs() < 1e-3, "{sudden:?}");
    assert_eq!(scores.mean(Class::Moving, 0, None).n, 4);
}
