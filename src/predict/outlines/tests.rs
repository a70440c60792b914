//! Plain things that slide, rest, turn, hide and touch, before one camera that looks down from 1 m.

use super::*;
use crate::base::geometry::length;
use crate::base::random::{draw, uniform};
use crate::predict::moving_camera::looked_down;
use crate::vision::cloud::Workspace;
use crate::vision::motion::N_BODY_FEATURES;
use crate::vision::particles::Particles;

const EYE: Vec3 = [0.0, 0.0, 1.0];
const RED: Vec3 = [0.8, 0.1, 0.1];
const SKIN: Vec3 = [0.8, 0.6, 0.5];

/// A box: its centre, sides (m) and turn about the vertical (rad).
#[derive(Clone, Copy)]
struct Thing(Vec3, Vec3, f32);

const CUBE: Vec3 = [0.06; 3];

fn cube(x: f32, y: f32) -> Thing {
    Thing([x, y, 0.05], CUBE, 0.3)
}

/// What is followed, and what was measured: that all rests.
struct Scene {
    outlines: Outlines,
    past: Observation,
    now: Observation,
    start: StepState,
    frame: i64,
    noise_m: f32,
    /// Where the box ends along y (m).
    box_m: f32,
    measured: Vec3,
    steps: f64,
}

impl Scene {
    fn new() -> Self {
        Self {
            outlines: Outlines::default(),
            past: Observation::default(),
            now: Observation::default(),
            start: StepState::default(),
            frame: 0,
            noise_m: 0.0,
            box_m: 0.6,
            measured: [0.0; 3],
            steps: 1.0,
        }
    }

    /// One step later there are `things`, seen as far as no square of 8 cm at `hands` is in front; each point drawn
    /// anew. Returns the mean motion (m) of the particles of the first one.
    fn see(&mut self, things: &[Thing], hands: &[Vec3]) -> Vec3 {
        self.draw(things, hands);
        self.follow()
    }

    fn draw(&mut self, things: &[Thing], hands: &[Vec3]) {
        self.frame += 1;
        let Self { now, frame, noise_m, box_m, .. } = self;
        let u = |of: u64, i: u64, k: u64| uniform(draw(of, *frame, i, k)) - 0.5;
        let workspace = Workspace { min: [-0.6, -*box_m, -0.6], max: [0.6, *box_m, 0.6] };
        now.looked = looked_down(0.0, workspace);
        now.cameras = vec![0];
        let cloud = &mut now.cloud;
        *cloud = Particles::default();
        (cloud.support_m, cloud.eyes) = (Some(0.0), vec![EYE]);
        let mut add = |p: Vec3, color: Vec3| {
            if now.looked.sees_from(0, &p) {
                cloud.positions.push(p);
                cloud.colors.push(color);
                cloud.sources.push(0);
            }
        };
        (0..2000).for_each(|i| add([u(90, i, 0), 0.8 * u(90, i, 1), 0.0], [0.5; 3]));
        for (of, Thing(center, sides, turn)) in (0..).zip(things) {
            let (sin, cos) = turn.sin_cos();
            for i in 0..600 {
                let mut p = [0, 1, 2].map(|k| u(of, i, k));
                // On a face.
                let axis = ((u(of, i, 3) + 0.5) * 2.99) as usize;
                p[axis] = p[axis].signum() * 0.5;
                let [x, y, z] = [0, 1, 2].map(|k| p[k] * sides[k]);
                let noise = [0, 1, 2].map(|k| *noise_m * 3.46 * u(of, i, 4 + k));
                let p = plus(&plus(center, &noise), &[cos * x - sin * y, sin * x + cos * y, z]);
                let is_hidden = |hand: &Vec3| {
                    let share = (EYE[2] - hand[2]) / (EYE[2] - p[2]);
                    (0..2).all(|k| (share * p[k] - hand[k]).abs() < 0.04)
                };
                if !hands.iter().any(is_hidden) {
                    add(p, RED);
                }
            }
        }
        for hand in hands {
            (0..400).for_each(|i| {
                add(plus(hand, &[0.08 * u(91, i, 0), 0.08 * u(91, i, 1), 0.0]), SKIN)
            });
        }
    }

    /// Follows to what was drawn; body 0 are the red ones.
    fn follow(&mut self) -> Vec3 {
        let Self { outlines, past, now, start, .. } = self;
        let every = |v: &[Vec3]| v.iter().copied().step_by(4).collect::<Vec<_>>();
        now.particles.positions = every(&now.cloud.positions);
        now.particles.colors = every(&now.cloud.colors);
        let n = now.particles.positions.len();
        *start = StepState {
            positions: now.particles.positions.clone(),
            velocities: vec![self.measured; n],
            extrapolated_motion: vec![self.measured; n],
            velocity_known: vec![0.3; n],
            bodies: vec![[0.0; N_BODY_FEATURES]; n],
            body_of: vec![NO_BODY; n],
            body_motions: vec![Some(RigidMotion::shift(self.measured))],
            ..StepState::default()
        };
        let is_red = |i: usize| now.particles.colors[i] == RED && start.positions[i][2] > 0.015;
        let red: Vec<usize> = (0..n).filter(|&i| is_red(i)).collect();
        red.iter().for_each(|&i| start.body_of[i] = 0);
        let before = (!past.outlines.is_empty()).then_some((&*past, self.steps));
        now.outlines = outlines.look(now, before).to_vec();
        outlines.correct(now, start);
        past.clone_from(now);
        let mut sum = [0.0; 3];
        red.iter().for_each(|&i| add(&mut sum, &start.velocities[i]));
        sum.map(|x| x / red.len().max(1) as f32)
    }
}

fn is_near(a: &Vec3, b: &Vec3) -> bool {
    distance(a, b) < 0.0005 + 0.05 * length(b)
}

#[test]
fn a_plain_box_that_slides_moves_although_it_is_measured_to_rest() {
    for (speed, noise_m) in [(0.003, 0.0), (0.008, 0.0), (0.02, 0.0), (0.008, 0.002)] {
        for way in [[1.0, 0.0, 0.0], [-0.6, 0.8, 0.0], [0.0, 0.6, 0.8]] {
            let way = way.map(|x| speed * x);
            let mut scene = Scene { noise_m, ..Scene::new() };
            let mut found = [0.0; 3];
            for i in 0..6 {
                let gone = way.map(|x| (i as f32 - 2.0) * x);
                found = scene.see(&[Thing(plus(&[0.0, 0.0, 0.15], &gone), CUBE, 0.3)], &[]);
                assert!(i > 2 || found == [0.0; 3], "{i} steps are too few");
            }
            let is_right = distance(&found, &way) < 0.0008 + 0.05 * speed;
            assert!(is_right, "{way:?} {noise_m}: {found:?}");
        }
    }
}

#[test]
fn its_particles_and_body_go_alike_and_others_stay() {
    let way = [0.008, 0.0, 0.0];
    let mut scene = Scene::new();
    for i in 0..5 {
        scene.see(&[cube(0.008 * i as f32, 0.0), cube(0.0, 0.25)], &[]);
        // What rests is of another body, as motion tells.
        let Scene { start, .. } = &scene;
        let is_far = |i: &usize| start.positions[*i][1] > 0.15;
        assert!((0..start.positions.len()).filter(is_far).all(|i| start.velocities[i] == [0.0; 3]));
    }
    let Scene { start, .. } = &scene;
    let mut n = 0;
    for i in (0..start.positions.len()).filter(|&i| start.body_of[i] == 0) {
        if start.positions[i][1] < 0.15 {
            n += 1;
            assert!(is_near(&start.velocities[i], &way) && start.velocity_known[i] == 1.0);
            assert_eq!(start.extrapolated_motion[i], start.velocities[i]);
            let told = [0, 1, 2].map(|k| MOTION_SCALE_M * start.bodies[i][k]);
            assert!(is_near(&told, &way) && start.bodies[i][..3] == start.bodies[i][3..6]);
        }
    }
    assert!(n > 50, "{n}");
    assert_eq!(start.body_motions[0], Some(RigidMotion::REST), "half of its particles rest");
    // Alone it is all of its body.
    for i in 5..7 {
        scene.see(&[cube(0.008 * i as f32, 0.0)], &[]);
    }
    let motion = scene.start.body_motions[0].expect("it is known");
    assert!(is_near(&motion.motion_of(&[0.3; 3]), &way));
    // The support plane and what is of no body stay.
    let Scene { start, .. } = &scene;
    let of_none = (0..start.positions.len()).filter(|&i| start.body_of[i] == NO_BODY);
    assert!(of_none.into_iter().all(|i| start.velocities[i] == [0.0; 3]));
}

#[test]
fn what_is_measured_short_gets_the_rest_and_keeps_its_turn() {
    let way = [0.012, 0.0, 0.0];
    let slide = |scene: &mut Scene| {
        (0..6).map(|i| scene.see(&[cube(0.012 * i as f32 - 0.03, 0.0)], &[])).last().unwrap()
    };
    for measured in [0.0, 0.008, 0.011, 0.016] {
        let mut scene = Scene { measured: [measured, 0.0, 0.0], ..Scene::new() };
        assert!(is_near(&slide(&mut scene), &way), "{measured}");
    }
    // Steps that took longer.
    let mut slow = Scene { steps: 1.25, ..Scene::new() };
    assert!(is_near(&slide(&mut slow), &way.map(|x| x / 1.25)));
}

#[test]
fn what_rests_rests_for_all_the_noise() {
    for noise_m in [0.001, 0.002, 0.004] {
        let mut scene = Scene { noise_m, ..Scene::new() };
        for i in 0..40 {
            let things = [cube(0.0, 0.0), Thing([0.2, 0.1, 0.04], [0.2, 0.03, 0.05], 1.0)];
            assert_eq!(scene.see(&things, &[]), [0.0; 3], "{noise_m} m, frame {i}");
        }
    }
}

#[test]
fn what_a_hand_hides_does_not_move() {
    // A hand goes over it; two hide all but a slit, which goes along it; one shows ever more of one end.
    let bar = Thing([0.0, 0.0, 0.04], [0.3, 0.04, 0.04], 0.0);
    for (thing, gaps) in [(cube(0.0, 0.0), vec![0.0]), (bar, vec![0.0]), (bar, vec![-0.06, 0.06])] {
        for speed in [0.004, 0.008, 0.015] {
            let mut scene = Scene::new();
            for i in -12..12 {
                let hands: Vec<Vec3> =
                    gaps.iter().map(|gap| [gap + speed * i as f32, 0.0, 0.3]).collect();
                let found = scene.see(&[thing], &hands);
                assert_eq!(found, [0.0; 3], "{gaps:?} {speed}, frame {i}");
            }
        }
    }
}

#[test]
fn what_grows_turns_stops_or_is_cut_does_not_move() {
    let rests = |name: &str, thing: &dyn Fn(f32) -> Thing| {
        let mut scene = Scene::new();
        for i in 0..12 {
            assert_eq!(scene.see(&[thing(i as f32)], &[]), [0.0; 3], "{name}, frame {i}");
        }
    };
    // One end stays.
    rests("grows", &|i| Thing([0.004 * i, 0.0, 0.05], [0.1 + 0.008 * i, 0.06, 0.06], 0.0));
    rests("turns", &|i| Thing([0.0, 0.0, 0.05], [0.12, 0.04, 0.06], 0.1 * i));
    // In the frame after it has stopped.
    let mut scene = Scene::new();
    for i in 0..12 {
        let found = scene.see(&[cube(0.008 * (i as f32).min(6.0), 0.0)], &[]);
        let moves = (3..=6).contains(&i);
        assert_eq!(found != [0.0; 3], moves, "stops, frame {i}: {found:?}");
    }
}

#[test]
fn what_comes_into_view_along_itself_goes_as_its_end_does() {
    let cut = |at: &dyn Fn(f32) -> Thing| {
        let mut scene = Scene::new();
        (0..12).map(|i| scene.see(&[at(i as f32)], &[])).collect::<Vec<_>>()
    };
    // A forearm that comes in, goes out, comes aslant; the border of the image is at half a metre.
    for (way, turn) in [([0.008, 0.0], 0.0), ([-0.008, 0.0], 0.0), ([0.0078, 0.0017], 0.21)] {
        let found = cut(&|i| {
            let at = [-0.45 + way[0] * i, way[1] * i, 0.1];
            Thing(at, [0.4, 0.06, 0.06], turn)
        });
        let right = found[5..].iter().filter(|v| distance(v, &[way[0], way[1], 0.0]) < 0.002);
        assert!(right.count() >= 6, "{way:?} {turn}: {found:?}");
    }
    // What rests, turns about a place outside, or is uncovered by a hand goes nowhere along itself.
    let rests = cut(&|_| Thing([-0.45, 0.0, 0.1], [0.4, 0.06, 0.06], 0.1));
    assert!(rests.iter().all(|v| *v == [0.0; 3]), "{rests:?}");
    let turns = cut(&|i| {
        let angle = 0.03 * i - 0.15;
        Thing([-0.6 + 0.2 * angle.cos(), 0.2 * angle.sin(), 0.1], [0.4, 0.06, 0.06], angle)
    });
    assert!(turns.iter().all(|v| v[0].abs() < 0.001), "{turns:?}");
    let mut scene = Scene::new();
    for i in 0..24 {
        let bar = Thing([-0.4, 0.0, 0.04], [0.4, 0.04, 0.04], 0.0);
        let found = scene.see(&[bar], &[[-0.35 + 0.008 * i as f32, 0.0, 0.3]]);
        assert_eq!(found, [0.0; 3], "frame {i}");
    }
}

#[test]
fn what_the_box_cuts_goes_nowhere_else() {
    // A bar aslant that comes along y: its part in a narrow box seems to go along x, both ends alike.
    let mut scene = Scene { box_m: 0.04, ..Scene::new() };
    for i in 0..8 {
        let bar = Thing([0.0, 0.008 * i as f32 - 0.03, 0.05], [0.25, 0.03, 0.03], 0.8);
        let off_m = distance(&scene.see(&[bar], &[]), &[0.0, 0.008, 0.0]);
        assert!(off_m < 0.0081, "frame {i}: {off_m} m, standing still would be off by 8 mm");
    }
}

#[test]
fn what_is_found_again_is_near_and_looks_alike() {
    let ends = |side: f32| [[0.0, side]; N_DIRECTIONS];
    let then = Outline::new(100, RED, ends(0.06));
    assert_eq!(then.came(&then, 1.0), Some(0.0));
    let grown = Outline::new(100, RED, ends(0.09));
    let others = [Outline::new(300, RED, ends(0.06)), Outline::new(100, SKIN, ends(0.06)), grown];
    assert!(others.iter().all(|other| other.came(&then, 1.0).is_none()));
    let gone = Outline::new(100, RED, [[0.04, 0.1]; N_DIRECTIONS]);
    assert!(gone.came(&then, 1.0).is_none() && gone.came(&then, 2.0).is_some());
}

#[test]
fn what_comes_together_or_apart_does_not_move_otherwise() {
    // One slides towards another that rests, and they hang together from there on.
    let mut scene = Scene::new();
    for i in 0..20 {
        let x = (-0.15 + 0.01 * i as f32).min(-0.061);
        scene.see(&[Thing([x, 0.0, 0.05], CUBE, 0.0), Thing([0.0, 0.0, 0.05], CUBE, 0.0)], &[]);
        for (p, v) in scene.start.positions.iter().zip(&scene.start.velocities) {
            assert!(p[0] < -0.035 || *v == [0.0; 3], "frame {i}: {p:?} {v:?}");
        }
    }
}

#[test]
fn on_a_turntable_a_round_thing_goes_as_its_middle_does() {
    // 0.05 rad a step at 0.2 m: what is nearly round looks the same however it turns.
    let mut scene = Scene::new();
    let mut found = [0.0; 3];
    let at = |i: f32| [0.2 * (0.05 * i).cos(), 0.2 * (0.05 * i).sin(), 0.05];
    for i in 0..8 {
        found = scene.see(&[Thing(at(i as f32), CUBE, 0.0)], &[]);
    }
    let way = minus(&at(7.0), &at(6.0));
    assert!(distance(&found, &way) < 0.2 * length(&way), "{found:?} {way:?}");
}

#[test]
fn what_the_robot_touches_is_left_to_it() {
    let mut scene = Scene::new();
    for i in 0..6 {
        let x = 0.008 * i as f32;
        scene.now.kinematic = vec![[x - 0.05, 0.0, 0.05]];
        assert_eq!(scene.see(&[cube(x, 0.0)], &[]), [0.0; 3]);
    }
}

#[test]
fn nothing_and_what_is_no_number_are_no_trouble() {
    let mut scene = Scene::new();
    assert_eq!(scene.see(&[], &[]), [0.0; 3]);
    for bad in [f32::NAN, f32::INFINITY, 1e30] {
        for i in 0..6 {
            scene.draw(&[cube(0.008 * i as f32, 0.0)], &[]);
            scene.now.cloud.positions[0] = [bad; 3];
            let last = scene.now.cloud.positions.len() - 1;
            scene.now.cloud.positions[last][2] = bad;
            assert!(scene.follow().iter().all(|x| x.is_finite()));
        }
    }
    // Nobody knows where the camera stands.
    let mut scene = Scene::new();
    for i in 0..6 {
        scene.draw(&[cube(0.008 * i as f32, 0.0)], &[]);
        scene.now.cloud.eyes[0] = [f32::NAN; 3];
        assert_eq!(scene.follow(), [0.0; 3]);
    }
    // No cloud at all.
    let mut empty = Outlines::default();
    assert!(empty.look(&Observation::default(), None).is_empty());
    empty.correct(&Observation::default(), &mut StepState::default());
}
