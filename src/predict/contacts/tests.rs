use std::sync::Arc;

use nalgebra::Isometry3;

use super::*;
use crate::engine::motion_class::MotionClass;
use crate::predict::robot_forecast::LinksAhead;
use crate::robot::kinematics::Robot;

/// A block of 10 cm that slides along x, from -1 to 1 m.
const ROBOT: &str = r#"<robot name="r"><link name="world"/>
    <link name="block"><visual><geometry><box size="0.1 0.1 0.1"/></geometry></visual></link>
    <joint name="slide" type="prismatic"><parent link="world"/><child link="block"/>
      <axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"#;
const N_STEPS: usize = 10;

/// A prediction of particles at `places`, each of which moves by its `ways` in each of ten steps of 0.1 s, with
/// `sigmas`; the block is at x = 0 and goes by `robot_m` in each step.
pub(in crate::predict) fn prediction(
    places: &[Vec3],
    ways: &[Vec3],
    sigmas: [f32; 2],
    robot_m: f64,
) -> Prediction {
    let mut prediction = without_robot(places, ways, sigmas);
    let mut robot = Robot::from_urdf(ROBOT, 1024, "world").unwrap();
    let rows: Vec<Vec<Isometry3<f32>>> = (0..=N_STEPS)
        .map(|step| {
            let mut row = Vec::new();
            robot.place_links(&[robot_m * step as f64], &mut row).unwrap();
            row
        })
        .collect();
    prediction.links = LinksAhead::of(Arc::new(robot), &rows);
    prediction
}

fn without_robot(places: &[Vec3], ways: &[Vec3], sigmas: [f32; 2]) -> Prediction {
    let mut prediction = Prediction {
        displacements: vec![ways.to_vec(); N_STEPS],
        sigmas: sigmas.map(|sigma| vec![vec![sigma; places.len()]; N_STEPS]),
        situations: vec![MotionClass::Moving; places.len()],
        step_secs: 0.1,
        ..Prediction::default()
    };
    prediction.particles.positions = places.to_vec();
    prediction
}

/// A centimetre before a surface counts as a touch.
fn settings() -> ContactSettings {
    ContactSettings { touch_m: 0.01, ..ContactSettings::default() }
}

fn found(prediction: &Prediction) -> Vec<Contact> {
    prediction.contacts(&settings()).contacts
}

#[test]
fn what_comes_at_a_resting_link_is_announced_in_time() {
    // From 40 cm before the block's side, 5 cm a step: it touches, 1 cm early, after 6.8 steps.
    let told = prediction(&[[0.45, 0.0, 0.0]], &[[-0.05, 0.0, 0.0]], [0.002, 0.005], 0.0);
    let contacts = told.contacts(&settings());
    assert!(contacts.has_robot && (contacts.horizon_secs - 1.0).abs() < 1e-6);
    let [contact] = &contacts.contacts[..] else { panic!("{contacts:?}") };
    assert_eq!((contact.link.as_str(), contact.object), ("block", None));
    assert!((contact.time_secs - 0.78).abs() < 0.02, "{contact:?}");
    assert!((contact.place[0] - 0.06).abs() < 0.01 && contact.place[1] == 0.0, "{contact:?}");
    assert!(contact.probability > 0.95 && contact.min_distance_m < 0.004, "{contact:?}");
}

#[test]
fn a_link_that_comes_is_as_what_comes_to_it() {
    let comes = found(&prediction(&[[0.45, 0.0, 0.0]], &[[-0.05, 0.0, 0.0]], [0.01, 0.03], 0.0));
    let goes = found(&prediction(&[[0.45, 0.0, 0.0]], &[[0.0; 3]], [0.01, 0.03], 0.05));
    let both = found(&prediction(&[[0.45, 0.0, 0.0]], &[[-0.05, 0.0, 0.0]], [0.01, 0.03], 0.05));
    assert!((comes[0].time_secs - goes[0].time_secs).abs() < 1e-4, "{comes:?} {goes:?}");
    assert!((goes[0].place[0] - 0.45).abs() < 1e-6, "{goes:?}");
    assert!((both[0].time_secs - 0.5 * comes[0].time_secs).abs() < 0.02, "{both:?}");
}

#[test]
fn a_fast_thing_is_not_stepped_over() {
    // It passes the block within one step, and through it; sure of itself.
    let told = prediction(&[[0.6, 0.0, 0.0]], &[[-0.5, 0.0, 0.0]], [0.001, 0.002], 0.0);
    let contacts = found(&told);
    assert!(contacts[0].probability > 0.9, "{contacts:?}");
    assert!((contacts[0].time_secs - 0.108).abs() < 0.005, "{contacts:?}");
}

#[test]
fn what_passes_by_is_as_probable_as_its_error_reaches() {
    let passing = |sigmas| {
        let told = prediction(&[[0.45, 0.1, 0.0]], &[[-0.05, 0.0, 0.0]], sigmas, 0.0);
        found(&told).first().map(|contact| (contact.probability, contact.min_distance_m))
    };
    assert_eq!(passing([0.005, 0.015]), None, "sure to pass at 5 cm");
    let (unsure, distance) = passing([0.05, 0.1]).unwrap();
    assert!((0.05..0.5).contains(&unsure), "{unsure}");
    assert!((distance - 0.05).abs() < 0.003, "{distance}");
    assert!(passing([0.1, 0.2]).unwrap().0 > unsure);
    // Of a model that does not tell, what is expected to touch does.
    let mut plain = prediction(&[[0.45, 0.0, 0.0]], &[[-0.05, 0.0, 0.0]], [0.01; 2], 0.0);
    plain.sigmas = Default::default();
    assert_eq!(found(&plain)[0].probability, 1.0);
}

#[test]
fn what_touches_now_is_held_or_is_the_robots_is_no_contact_to_come() {
    // On the block's side, pressed into it; beside where it touches; and far from there.
    let pressed = prediction(&[[0.055, 0.0, 0.0]], &[[-0.002, 0.0, 0.0]], [0.02, 0.05], 0.0);
    assert_eq!(found(&pressed), [], "touches now");
    let beside = [[0.055, 0.0, 0.0], [0.1, 0.0, 0.0]];
    let ways = [[0.0; 3], [-0.005, 0.0, 0.0]];
    assert_eq!(found(&prediction(&beside, &ways, [0.01, 0.03], 0.0)), []);
    let apart = [[0.055, 0.0, 0.0], [0.2, 0.0, 0.0]];
    let ways = [[0.0; 3], [-0.02, 0.0, 0.0]];
    assert_eq!(found(&prediction(&apart, &ways, [0.01, 0.03], 0.0)).len(), 1);
    // Carried along 2 cm before its side, and standing there beside a resting robot.
    let held = prediction(&[[0.07, 0.0, 0.0]], &[[0.05, 0.0, 0.0]], [0.05, 0.1], 0.05);
    assert_eq!(found(&held), []);
    let stands = prediction(&[[0.07, 0.0, 0.0]], &[[0.0; 3]], [0.05, 0.1], 0.0);
    assert_eq!(found(&stands), []);
    // A particle of the robot itself.
    let mut own = prediction(&[[0.45, 0.0, 0.0]], &[[-0.05, 0.0, 0.0]], [0.01, 0.03], 0.0);
    own.situations = vec![MotionClass::Robot];
    assert_eq!(found(&own), []);
}

#[test]
fn what_the_robot_will_push_away_is_touched() {
    // It rests 20 cm before the block's side, and is predicted to keep 2 cm before it once it comes.
    let mut pushed = prediction(&[[0.25, 0.0, 0.0]], &[[0.0; 3]], [0.002, 0.005], 0.05);
    for (step, ways) in pushed.displacements.iter_mut().enumerate().skip(3) {
        ways[0] = [if step == 3 { 0.02 } else { 0.05 }, 0.0, 0.0];
    }
    pushed.situations = vec![MotionClass::Flying];
    assert_eq!(found(&pushed), [], "what flies stays nowhere");
    // As a hand may stop that goes out of the way.
    for situation in [MotionClass::Resting, MotionClass::Moving] {
        pushed.situations = vec![situation];
        let contacts = found(&pushed);
        assert!(contacts[0].probability > 0.9 && (contacts[0].time_secs - 0.38).abs() < 0.02);
        assert_eq!(contacts[0].place, [0.25, 0.0, 0.0]);
    }
    // What the robot carries comes along: the end of it that is 5 cm before the hand is not run into.
    let places = [[0.065, 0.0, 0.0], [0.1, 0.0, 0.0]];
    let mut carried = prediction(&places, &[[0.05, 0.0, 0.0]; 2], [0.002, 0.005], 0.05);
    assert_eq!(found(&carried).len(), 1, "it may stop");
    carried.objects.number_of = vec![7, 7];
    assert_eq!(found(&carried), []);
    // Of the robot itself, seen 15 mm beside a link.
    let mut own = prediction(&[[0.065, 0.0, 0.0]], &[[0.05, 0.0, 0.0]], [0.002, 0.005], 0.05);
    own.situations = vec![MotionClass::Resting];
    assert_eq!(found(&own), []);
}

#[test]
fn each_object_has_its_contact_and_none_that_touches_now() {
    // One object is pressed against the block and comes with another part of it, 20 cm off; another comes.
    let places = [[0.055, 0.0, 0.0], [0.25, 0.0, 0.0], [0.3, 0.03, 0.0], [0.3, -0.03, 0.0]];
    let ways = [[0.0; 3], [-0.05, 0.0, 0.0], [-0.05, 0.0, 0.0], [-0.04, 0.0, 0.0]];
    let mut told = prediction(&places, &ways, [0.002, 0.005], 0.0);
    let objects = |told: &Prediction| {
        let contacts = found(told);
        let mut objects: Vec<_> = contacts.iter().map(|contact| contact.object).collect();
        objects.sort_unstable();
        objects
    };
    told.objects.number_of = vec![7, 7, 1 << 40, 0];
    assert_eq!(objects(&told), [None, Some(1 << 40)]);
    told.objects.number_of = vec![8, 7, 1 << 40, 0];
    assert_eq!(objects(&told), [None, Some(7), Some(1 << 40)]);
}

#[test]
fn a_thousand_particles_of_one_error_are_no_thousand_trials() {
    let passes = |n| {
        let told =
            prediction(&vec![[0.45, 0.1, 0.0]; n], &vec![[-0.05, 0.0, 0.0]; n], [0.05, 0.1], 0.0);
        found(&told)[0].probability
    };
    assert_eq!(passes(1), passes(1000));
}

#[test]
fn without_a_robot_or_particles_there_are_no_contacts_and_that_is_said() {
    let told = without_robot(&[[0.45, 0.0, 0.0]], &[[-0.05, 0.0, 0.0]], [0.01, 0.03]);
    let contacts = told.contacts(&ContactSettings::default());
    assert!(!contacts.has_robot && contacts.contacts.is_empty());
    let nothing = prediction(&[], &[], [0.01, 0.03], 0.1).contacts(&ContactSettings::default());
    assert!(nothing.has_robot && nothing.contacts.is_empty());
    assert_eq!(Prediction::default().contacts(&ContactSettings::default()), Contacts::default());
}

#[test]
fn what_is_not_finite_touches_nothing() {
    let places = [[f32::NAN; 3], [f32::INFINITY, 0.0, 0.0], [0.45, 0.0, 0.0]];
    let mut told = prediction(&places, &[[-0.05, 0.0, 0.0]; 3], [0.01, 0.03], 0.0);
    assert_eq!(found(&told).len(), 1);
    told.displacements[3] = vec![[f32::NAN; 3]; 3];
    told.sigmas[1][2] = vec![f32::NAN; 3];
    assert!(found(&told).iter().all(|contact| contact.probability.is_finite()));
}

/// The formula of the head, against draws of errors.
#[test]
fn the_probability_is_that_of_isotropic_errors() {
    use crate::base::random::{draw, uniform};
    for (gap, radii) in [(0.01, [0.01, 0.03]), (0.03, [0.01, 0.03]), (-0.005, [0.02, 0.03])] {
        let n = 200_000;
        let beyond = (0..n).filter(|&i| {
            let [u, v, side] = [0, 1, 2].map(|k| uniform(draw(5, 0, i, k)));
            let (from, to) = match u {
                u if u < 0.5 => (0.0, radii[0]),
                u if u < 0.9 => (radii[0], radii[1]),
                _ => (radii[1], 2.0 * radii[1]),
            };
            (from + v * (to - from)) * (2.0 * side - 1.0) > gap
        });
        let share = beyond.count() as f32 / n as f32;
        let told = touch_probability(gap, radii);
        assert!((share - told).abs() < 0.005, "{share} of draws, {told} told at {gap}");
    }
    assert_eq!(touch_probability(0.0, [0.01, 0.03]), 0.5);
    assert_eq!(touch_probability(0.07, [0.01, 0.03]), 0.0);
    assert_eq!(touch_probability(-0.07, [0.01, 0.03]), 1.0);
    assert!(touch_probability(0.01, [0.0, 0.0]).is_finite());
}
