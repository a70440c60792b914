//! Numbers that stay: boxes of points that move, touch, hide and come apart.

use super::*;
use crate::base::geometry::plus;
use crate::base::random::{draw, uniform};

const STEP_SECS: f64 = 0.1;
const RED: Vec3 = [0.8, 0.1, 0.1];
const BLUE: Vec3 = [0.1, 0.1, 0.8];

/// A table of 1 m, and boxes on it that are drawn anew in each frame.
struct Scene {
    tracker: ObjectTracker,
    map: ObjectMap,
    stamp: Stamp,
    now: Observation,
    start: StepState,
    displacements: Vec<Vec3>,
    /// Which box each particle is of.
    of: Vec<usize>,
    robot: Vec<Vec3>,
    /// Particles of a box, and its side (m).
    n_points: u64,
    side_m: f32,
}

impl Scene {
    fn new() -> Self {
        Self {
            tracker: ObjectTracker::default(),
            map: ObjectMap::default(),
            stamp: Stamp::from_secs(10.0),
            now: Observation::default(),
            start: StepState::default(),
            displacements: Vec::new(),
            of: Vec::new(),
            robot: Vec::new(),
            n_points: 60,
            side_m: 0.06,
        }
    }

    /// One step later there are `boxes` with sides of 6 cm: centre (m), motion in a step (m) and colour.
    fn see(&mut self, boxes: &[(Vec3, Vec3, Vec3)]) -> Vec<u64> {
        self.stamp = self.stamp.plus_secs(STEP_SECS);
        self.now.stamp = self.stamp;
        self.now.kinematic.clone_from(&self.robot);
        let particles = &mut self.now.particles;
        particles.positions.clear();
        particles.colors.clear();
        particles.support_m = Some(0.0);
        self.start.velocities.clear();
        self.displacements.clear();
        self.of.clear();
        let number =
            |of: usize, i: u64, axis: u64| uniform(draw(of as u64, self.stamp.nanos(), i, axis));
        for i in 0..300 {
            particles.positions.push([number(99, i, 0) - 0.5, number(99, i, 1) - 0.5, 0.0]);
            particles.colors.push([0.5; 3]);
            self.start.velocities.push([0.0; 3]);
            self.of.push(usize::MAX);
        }
        for (of, (center, motion, color)) in boxes.iter().enumerate() {
            for i in 0..self.n_points {
                let mut p: Vec3 = std::array::from_fn(|axis| number(of, i, axis as u64) - 0.5);
                // On a face.
                let axis = (number(of, i, 3) * 2.99) as usize;
                p[axis] = p[axis].signum() * 0.5;
                particles.positions.push(plus(center, &p.map(|x| self.side_m * x)));
                particles.colors.push(*color);
                self.start.velocities.push(*motion);
                self.of.push(of);
            }
        }
        let n = particles.positions.len();
        self.start.velocity_known = vec![1.0; n];
        self.start.positions.clone_from(&particles.positions);
        self.displacements.clone_from(&self.start.velocities);
        let ahead = [self.displacements.clone()];
        let classes = vec![MotionClass::Moving; n];
        let Self { tracker, now, start, map, .. } = self;
        tracker.follow(now, start, &classes, (&ahead, STEP_SECS), map);
        assert_eq!((map.number_of.len(), map.kinds.len()), (n, n));
        (0..boxes.len()).map(|of| self.number(of)).collect()
    }

    /// The number that most particles of a box have.
    fn number(&self, of: usize) -> u64 {
        let mut numbers: Vec<u64> = (0..self.of.len())
            .filter(|&i| self.of[i] == of)
            .map(|i| self.map.number_of[i])
            .collect();
        numbers.sort_unstable();
        let count = |number: u64| numbers.iter().filter(|n| **n == number).count();
        numbers.iter().copied().max_by_key(|&number| count(number)).unwrap()
    }
}

fn at(x: f32, y: f32) -> Vec3 {
    [x, y, 0.05]
}

#[test]
fn two_things_that_touch_keep_both_numbers() {
    let mut scene = Scene::new();
    let way = [0.02, 0.0, 0.0];
    for step in 0..30 {
        // One comes, both go on together, and it goes back.
        let x = if step < 20 { -0.3 + 0.02 * step as f32 } else { 0.5 - 0.02 * step as f32 };
        let motion = if step < 20 { way } else { [-0.02, 0.0, 0.0] };
        let pushed = if step < 20 { (x + 0.06).max(0.0) } else { 0.14 };
        let is_pushed = pushed > 0.0 && step < 20;
        let boxes = [
            (at(x, 0.0), motion, RED),
            (at(pushed, 0.0), if is_pushed { way } else { [0.0; 3] }, BLUE),
            (at(0.0, 0.3), [0.0; 3], RED),
        ];
        assert_eq!(scene.see(&boxes), [1, 2, 3], "step {step}");
    }
    let seen: Vec<u64> = scene.map.seen.iter().map(|seen| seen.number).collect();
    assert_eq!((seen, scene.map.n_followed), (vec![1, 2, 3], 30));
}

#[test]
fn out_of_sight_it_keeps_its_number_for_a_second() {
    let mut scene = Scene::new();
    let resting = (at(0.2, 0.0), [0.0; 3], BLUE);
    let place = |step: u8| at(-0.3 + 0.02 * f32::from(step), 0.3);
    let way = [0.02, 0.0, 0.0];
    (0..3).for_each(|step| drop(scene.see(&[resting, (place(step), way, RED)])));
    assert_eq!(scene.see(&[resting, (place(3), way, RED)]), [1, 2]);
    // Nine steps later it is where it was predicted to be, and the one at rest where it was.
    (0..8).for_each(|_| drop(scene.see(&[])));
    assert!(scene.map.seen.is_empty());
    assert_eq!(scene.see(&[resting, (place(12), way, RED)]), [1, 2]);
    // Longer than a second is too long, and what looks otherwise is something else.
    (0..12).for_each(|_| drop(scene.see(&[])));
    assert_eq!(scene.see(&[resting]), [3]);
    drop(scene.see(&[]));
    assert_eq!(scene.see(&[(at(0.2, 0.0), [0.0; 3], RED)]), [4]);
}

#[test]
fn what_moves_away_gets_a_number_and_what_is_hidden_in_the_middle_does_not() {
    let mut scene = Scene::new();
    // Three boxes in a row are one thing; then a hand hides the middle one.
    let row = |x: f32| (at(x, 0.0), [0.0; 3], RED);
    for _ in 0..3 {
        assert_eq!(scene.see(&[row(0.0), row(0.06), row(0.12)]), [1, 1, 1]);
    }
    for _ in 0..15 {
        assert_eq!(scene.see(&[row(0.0), row(0.12)]), [1, 1]);
    }
    assert_eq!(scene.see(&[row(0.0), row(0.06), row(0.12)]), [1, 1, 1]);
    // One end moves away: the larger part keeps the number.
    let mut last = Vec::new();
    for step in 1..6 {
        let gone = (at(0.12 + 0.02 * step as f32, 0.0), [0.02, 0.0, 0.0], RED);
        last = scene.see(&[row(0.0), row(0.06), gone]);
    }
    assert_eq!(last, [1, 1, 2]);
}

#[test]
fn walls_the_table_and_the_robot_have_no_number_until_they_move() {
    let mut scene = Scene::new();
    let wall = |x: f32, motion: Vec3| {
        (0..10).map(move |i| (at(x, -0.3 + 0.06 * i as f32), motion, RED)).collect::<Vec<_>>()
    };
    (0..5).for_each(|_| assert_eq!(scene.see(&wall(0.0, [0.0; 3])), [0; 10]));
    assert!(scene.map.seen.is_empty());
    assert_eq!(scene.map.kinds[..300], [ParticleKind::Support; 300]);
    for step in 1..6 {
        let numbers = scene.see(&wall(0.02 * step as f32, [0.02, 0.0, 0.0]));
        assert_eq!(numbers, [u64::from(step > 1); 10], "step {step}");
    }
    // What is at the robot from the first is of the robot.
    let mut scene = Scene::new();
    scene.robot = vec![at(0.0, 0.0), at(0.03, 0.0), at(-0.03, 0.0), [0.0, 0.0, 0.08]];
    scene.robot.extend([[0.0, 0.03, 0.05], [0.0, -0.03, 0.05], [0.0, 0.0, 0.02]]);
    (0..5).for_each(|_| assert_eq!(scene.see(&[(at(0.0, 0.0), [0.0; 3], RED)]), [0]));
}

#[test]
fn nothing_much_and_a_time_set_back_are_no_trouble() {
    let mut scene = Scene::new();
    assert!(scene.see(&[]).is_empty());
    let many: Vec<_> = (0..100)
        .map(|i| (at(-0.9 + 0.2 * (i % 10) as f32, -0.9 + 0.2 * (i / 10) as f32), [0.0; 3], RED))
        .collect();
    for _ in 0..2 {
        let mut numbers = scene.see(&many);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=100));
    }
    assert_eq!(scene.map.n_followed, 3);
    // Then all begins again.
    scene.stamp = Stamp::from_secs(3.0);
    let numbers = scene.see(&many);
    assert!(numbers.iter().all(|number| (1..=100).contains(number)), "{numbers:?}");
    assert_eq!((scene.map.n_followed, scene.map.since), (1, scene.stamp));
}

/// A thousand and more groups of six points, 20 cm apart, that each move by `way` (m) in a step, after so many.
fn groups(n: usize, steps: f32, way: impl Fn(usize) -> Vec3) -> Vec<(Vec3, Vec3, Vec3)> {
    let place = |i: usize| at(0.2 * (i % 32) as f32, 0.2 * (i / 32) as f32);
    (0..n).map(|i| (plus(&place(i), &way(i).map(|x| steps * x)), way(i), RED)).collect()
}

#[test]
fn a_thousand_small_groups_have_a_number_each_which_stays_and_none_is_given_twice() {
    let mut scene = Scene::new();
    (scene.n_points, scene.side_m) = (6, 0.02);
    let apart = |i: usize| [0.01 * (i % 3) as f32, 0.01 * (i % 2) as f32, 0.0];
    let mut numbers = Vec::new();
    for step in 0..6 {
        numbers = scene.see(&groups(1000, step as f32, apart));
    }
    let distinct = |numbers: &[u64]| {
        let mut distinct = numbers.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        distinct.len()
    };
    assert_eq!((distinct(&numbers), numbers.contains(&0)), (1000, false));
    // As messages tell it.
    let (told, of) = scene.map.indexed();
    assert_eq!((told.len(), of.iter().max()), (1000, Some(&1000)));
    assert_eq!(scene.see(&groups(1000, 6.0, apart)), numbers);
    // All but one go out of sight for half a second, and come again; then for long.
    (0..5).for_each(|_| drop(scene.see(&groups(1, 6.0, apart))));
    assert_eq!(scene.see(&groups(1000, 12.0, apart))[0], numbers[0]);
    (0..12).for_each(|_| drop(scene.see(&[])));
    assert!(scene.map.seen.is_empty());
    (0..3).for_each(|_| numbers = scene.see(&groups(1000, 0.0, |_| [0.0; 3])));
    assert_eq!(distinct(&numbers), 1000);
    assert!(numbers.iter().all(|number| *number > 1000), "of others, long gone");
    // Neighbours come together, in pairs, and part again: no number is given twice.
    let pairs = |i: usize| [[0.02, -0.02][i % 2], 0.0, 0.0];
    for step in [1, 2, 3, 4, 5, 4, 3, 2, 1, 0] {
        numbers = scene.see(&groups(1000, step as f32, pairs));
        let mut seen: Vec<u64> = scene.map.seen.iter().map(|seen| seen.number).collect();
        let n_seen = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), n_seen);
    }
    assert_eq!(distinct(&numbers), 1000);
    // None at all, and then as before.
    assert_eq!(scene.see(&[]), [0; 0]);
}

#[test]
fn over_minutes_numbers_change_less_than_once_a_minute_of_an_object() {
    // Six boxes go to and fro past each other and behind a screen for five minutes.
    let mut scene = Scene::new();
    let (mut known, mut n_switches) = ([0; 6], 0);
    let n_steps = 3000;
    for step in 0..n_steps {
        let place = |step: usize, i: usize| {
            let phase = 0.03 * step as f32 * (1.0 + 0.13 * i as f32);
            at(0.35 * phase.sin(), 0.12 * i as f32 - 0.3)
        };
        let all = (0..6).map(|i| {
            let [now, next] = [place(step, i), place(step + 1, i)];
            (now, std::array::from_fn(|axis| next[axis] - now[axis]), [RED, BLUE][i % 2])
        });
        // Nothing is seen of what lies between 10 and 20 cm.
        let all: Vec<(usize, (Vec3, Vec3, Vec3))> =
            all.enumerate().filter(|(_, (p, ..))| !(0.1..0.2).contains(&p[0])).collect();
        let boxes: Vec<_> = all.iter().map(|(_, of)| *of).collect();
        for ((i, _), number) in all.iter().zip(scene.see(&boxes)) {
            let before = std::mem::replace(&mut known[*i], number);
            n_switches += usize::from(before != 0 && before != number);
        }
    }
    let minutes = 6.0 * n_steps as f64 * STEP_SECS / 60.0;
    assert!((n_switches as f64) < minutes, "{n_switches} in {minutes} minutes of an object");
}
