use super::*;
use crate::vision::motion::N_BODY_FEATURES;
use crate::base::random::{draw, uniform};

const PLACE: (Vec3, f32) = ([0.0; 3], 0.5);
/// Particles that move, and behind them as many that rest.
const N: usize = 40;

/// A body whose particles move by about `speed_m` a step, scattered by `seed`; behind it what rests.
fn start(speed_m: f32, seed: u64) -> StepState {
    let random = |i: usize, axis: u64| uniform(draw(seed, 0, i as u64, axis)) - 0.5;
    let place = |i: usize| [0.2 * random(i, 0), 0.2 * random(i, 1), 0.2 + 0.1 * random(i, 2)];
    let speed_m = speed_m * (1.0 + 0.3 * random(2 * N, 0));
    let mut body = [0.0; N_BODY_FEATURES];
    (body[3], body[10], body[16]) = (speed_m / 0.05, 1.0 + 0.5 * random(2 * N, 1), 1.0);
    let of = |moving: [f32; 3]| [vec![moving; N], vec![[0.0; 3]; N]].concat();
    StepState {
        positions: (0..2 * N).map(place).collect(),
        velocities: of([speed_m, 0.0, 0.0]),
        onward: of([speed_m, 0.0, 0.0]),
        bodies: [vec![body; N], vec![[0.0; N_BODY_FEATURES]; N]].concat(),
        body_of: [vec![0; N], vec![NO_BODY; N]].concat(),
        body_motions: vec![None],
        support_m: Some(0.0),
        velocity_known: vec![1.0; 2 * N],
        ..StepState::default()
    }
}

fn situations() -> Vec<Situation> {
    [vec![Situation::Moving; N], vec![Situation::Resting; N]].concat()
}

fn seen(start: &StepState) -> Seen {
    let mut seen = Seen::default();
    Novelty::default().look(start, &situations(), PLACE, &mut seen);
    seen
}

/// Found on recordings of bodies that go on for half of their motion.
fn familiar(n_recordings: u64) -> Result<Familiar> {
    let mut finding = Finding::default();
    for recording in 0..n_recordings {
        finding.next_recording();
        for frame in 0..10 {
            let start = start(0.02, 100 * recording + frame);
            let at = |t: f32| -> Vec<Vec3> {
                let moves = |(p, v): (&Vec3, &Vec3)| [p[0] + 0.5 * t * v[0], p[1], p[2]];
                start.positions.iter().zip(&start.onward).map(moves).collect()
            };
            let positions = [at(0.0), at(1.0), at(2.0)];
            finding.add(&seen(&start), &situations(), &positions, |_, _| true);
        }
    }
    finding.familiar(2)
}

fn judged(familiar: &Familiar, start: &StepState) -> Unlike {
    let mut unlike = Unlike::default();
    Novelty::default().judge(familiar, start, &seen(start), &mut unlike);
    unlike
}

#[test]
fn hardly_anything_like_the_recordings_is_unlike_and_what_differs_is_with_the_cause() {
    let familiar = familiar(20).unwrap();
    let n_unlike: usize =
        (0..200).map(|seed| judged(&familiar, &start(0.02, 10_000 + seed)).n_unlike).sum();
    assert!(n_unlike <= 200 * N / 20, "{n_unlike}");
    let unlike = judged(&familiar, &start(0.5, 1));
    assert_eq!((unlike.n_moving, unlike.n_unlike), (N, N));
    // A body is unlike as a whole; what rests is nothing.
    assert!(unlike.distances[..N].iter().all(|&d| d > 1.0 && d == unlike.distances[0]));
    assert!(unlike.distances[N..].iter().all(|&d| d == 0.0));
    let most = unlike.most.unwrap();
    assert_eq!(most.name(), "speed");
    assert!((0.3..0.7).contains(&most.value), "{most}");
    assert!(most.usual[0] < 0.02 && most.usual[1] > 0.02 && most.usual[1] < 0.1, "{most}");
    assert!(most.to_string().contains("m a step, usually 0.0"), "{most}");
}

#[test]
fn what_is_unlike_leans_on_what_lasts_of_its_motion_and_is_less_sure() {
    let familiar = familiar(20).unwrap();
    // Half of the motion lasts, as it was in the recordings.
    for step in 0..2 {
        let lasting = familiar.lasting(Situation::Moving, step);
        assert!((lasting - 0.5 * (step + 1) as f32).abs() < 0.06, "{lasting}");
    }
    assert_eq!(familiar.lasting(Situation::Moving, 9), familiar.lasting(Situation::Moving, 1));
    let start = start(0.5, 1);
    let (seen, situations) = (seen(&start), situations());
    let model = vec![vec![[0.0, 0.1, 0.0]; 2 * N]; 2];
    let mut novelty = Novelty::default();
    let leaning_at = |distance: f32, novelty: &mut Novelty| {
        let distances = [vec![distance; N], vec![0.0; N]].concat();
        let n_unlike = if distance > 1.0 { N } else { 0 };
        let unlike = Unlike { distances, n_moving: N, n_unlike, most: None };
        let mut displacements = model.clone();
        novelty.lean(&familiar, &seen, &situations, &unlike, &mut displacements);
        displacements
    };
    let far = leaning_at(5.0, &mut novelty);
    let lasting = [0, 1].map(|step| familiar.lasting(Situation::Moving, step));
    let after_two = far[0][0][0] + far[1][0][0];
    assert!((far[0][0][0] - lasting[0] * start.onward[0][0]).abs() < 1e-6);
    assert!((after_two - lasting[1] * start.onward[0][0]).abs() < 1e-6);
    assert_eq!((far[0][0][1], far[0][N]), (0.0, [0.0, 0.1, 0.0]), "what rests is the model's");
    let mut radii = [vec![vec![0.01; 2 * N]; 2]];
    novelty.widen(&mut radii);
    let apart = far[0][0][0].hypot(0.1);
    assert!((radii[0][0][0] - apart.hypot(0.01)).abs() < 1e-6 && radii[0][0][N] == 0.01);
    // The next prediction, which may not lean, is not less sure for this one.
    novelty.look(&start, &situations, PLACE, &mut Seen::default());
    let mut radii = [vec![vec![0.01; 2 * N]; 2]];
    novelty.widen(&mut radii);
    assert!(radii[0].iter().flatten().all(|&radius| radius == 0.01));
    // Nothing turns back.
    let mut turning = familiar.clone();
    turning.lasting[0] = vec![0.5, 2.0, 1.0];
    let lasting = [0, 1, 2, 9].map(|step| turning.lasting(Situation::Moving, step));
    assert_eq!(lasting, [0.5, 2.0, 2.0, 2.0]);
    // In between it is in between, and below the limit the model's to the bit, also of its radii.
    let half = leaning_at(1.25, &mut novelty);
    assert!((half[0][0][1] - 0.05).abs() < 1e-6 && half[0][0][0] > 0.0);
    assert_eq!(leaning_at(0.99, &mut novelty), model);
    let mut radii = [vec![vec![0.01; 2 * N]; 2]];
    novelty.widen(&mut radii);
    assert!(radii[0].iter().flatten().all(|&radius| radius == 0.01));
}

/// What is usual is told of the kind that differs: particles of no body are held against such.
#[test]
fn what_is_no_body_is_told_beside_what_is_none() {
    let mut familiar = familiar(20).unwrap();
    familiar.kinds[1].mean[0] = 1e-4f32.ln();
    let mut start = start(0.5, 1);
    (start.bodies, start.body_of) = (Vec::new(), vec![NO_BODY; 2 * N]);
    let unlike = judged(&familiar, &start);
    let most = unlike.most.unwrap();
    assert_eq!((unlike.n_unlike, most.name()), (N, "speed"));
    assert!(most.usual[1] < 0.01, "{most}");
}

#[test]
fn each_step_depends_on_those_before_it_alone() {
    let (familiar, start) = (familiar(20).unwrap(), start(0.5, 1));
    let (seen, unlike) = (seen(&start), judged(&familiar, &start));
    let step = |t: f32| vec![[0.0, 0.1 * t, 0.0]; 2 * N];
    let leant = |mut displacements: Vec<Vec<Vec3>>| {
        let mut novelty = Novelty::default();
        novelty.lean(&familiar, &seen, &situations(), &unlike, &mut displacements);
        displacements
    };
    let (long, short) = (leant(vec![step(1.0), step(2.0), step(3.0)]), leant(vec![step(1.0)]));
    assert_eq!(long[0], short[0]);
}

#[test]
fn too_few_recordings_and_numbers_that_are_none_are_refused() {
    assert!(familiar(7).unwrap_err().to_string().contains("fewer than 8 recordings"));
    let good = familiar(8).unwrap();
    for change in [
        |f: &mut Familiar| f.kinds[0].limit = 0.0,
        |f: &mut Familiar| f.kinds[1].mean[2] = f32::NAN,
        |f: &mut Familiar| f.kinds[0].precision[1][1] = f32::INFINITY,
        |f: &mut Familiar| f.kinds[0].deviation[3] = -1.0,
        |f: &mut Familiar| f.lasting[0].clear(),
        |f: &mut Familiar| f.lasting[1] = vec![f32::NAN],
        |f: &mut Familiar| f.lasting[1] = vec![1.0; 101],
    ] {
        let mut wrong = good.clone();
        change(&mut wrong);
        assert!(wrong.validate().unwrap_err().to_string().contains("familiar"));
    }
    // A hostile precision makes no distance that is no number.
    let mut wrong = good.clone();
    wrong.kinds[0].precision = [[-1e30; N_TRAITS]; N_TRAITS];
    wrong.validate().unwrap();
    assert!(judged(&wrong, &start(0.5, 1)).distances.iter().all(|d| !d.is_nan()));
}
