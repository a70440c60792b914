use std::sync::Arc;

use nalgebra::Translation3;

use super::*;
use crate::base::geometry::RigidMotion;
use crate::message::{CameraInfo, Header, Image};
use crate::predict::contacts::tests::prediction;
use crate::predict::robot_forecast::LinksAhead;
use crate::vision::frames::{ColorView, View};

/// Pixels of an image whose focal length is 220 pixels; of other sizes the same is seen.
const SIZE: [u32; 2] = [240, 180];
/// The wall behind all (m), and the place of the camera in the world: what is 1.5 m before it is at z = 0.
const WALL_M: f64 = 2.0;
const CAMERA_Z: f64 = -1.5;
/// What goes by goes so far in a step (m), along x; two steps lie between the frames.
const STEP_M: f64 = 0.03;
const N_STEPS: usize = 2;

/// A square before the camera: its middle (optical frame, m), half of its side (m), its colour.
#[derive(Clone, Copy)]
struct Card {
    middle: [f64; 3],
    half: f64,
    rgb: [u8; 3],
}

const RED: [u8; 3] = [200, 40, 40];
const GREEN: [u8; 3] = [40, 200, 40];
const GREY: [u8; 3] = [120; 3];

/// What goes by, a metre off.
const BY: [Card; 2] = [
    Card { middle: [-0.3, 0.2, 1.0], half: 0.08, rgb: RED },
    Card { middle: [0.2, -0.25, 1.0], half: 0.08, rgb: RED },
];
/// What may rest farther off, at the world's origin.
const REST: Card = Card { middle: [0.0, 0.0, 1.5], half: 0.15, rgb: GREEN };

/// How depths are sent and what is not measured.
#[derive(Clone, Copy)]
struct Sent {
    size: [u32; 2],
    is_metres: bool,
    has_colors: bool,
    /// Whether a point (optical frame, m, on what is seen) is measured.
    measured: fn([f64; 3]) -> bool,
}

const SENT: Sent = Sent { size: SIZE, is_metres: false, has_colors: true, measured: |_| true };

fn image(sent: &Sent, encoding: &str, data: Vec<u8>) -> Image {
    let [width, height] = sent.size;
    let step = data.len() as u32 / height;
    let header = Header::default();
    Image { header, height, width, encoding: encoding.into(), is_bigendian: false, step, data }
}

/// What a camera sees of `cards` before the wall.
fn camera(sent: &Sent, cards: &[Card]) -> CameraFrame {
    let [width, height] = sent.size;
    let focal = 220.0 * f64::from(width) / f64::from(SIZE[0]);
    let center = sent.size.map(|n| (f64::from(n) - 1.0) / 2.0);
    let (mut depths, mut colors) = (Vec::new(), Vec::new());
    for (v, u) in (0..height).flat_map(|v| (0..width).map(move |u| (v, u))) {
        let ray = [(f64::from(u) - center[0]) / focal, (f64::from(v) - center[1]) / focal];
        let is_hit = |card: &&Card| {
            (0..2).all(|i| (ray[i] * card.middle[2] - card.middle[i]).abs() <= card.half)
        };
        let hit = cards.iter().filter(is_hit).min_by(|a, b| a.middle[2].total_cmp(&b.middle[2]));
        let (z, rgb) = hit.map_or((WALL_M, GREY), |card| (card.middle[2], card.rgb));
        let is_measured = (sent.measured)([ray[0] * z, ray[1] * z, z]);
        if sent.is_metres {
            let depth_m = if is_measured { z as f32 } else { f32::NAN };
            depths.extend(depth_m.to_le_bytes());
        } else {
            let depth_mm = if is_measured { (1e3 * z) as u16 } else { 0 };
            depths.extend(depth_mm.to_le_bytes());
        }
        colors.extend(rgb);
    }
    let info = Arc::new(CameraInfo {
        header: Header::default(),
        height,
        width,
        distortion_model: "plumb_bob".into(),
        d: vec![],
        k: [focal, 0.0, center[0], 0.0, focal, center[1], 0.0, 0.0, 1.0],
        r: [0.0; 9],
        p: [0.0; 12],
    });
    let color = image(sent, "rgb8", colors);
    let color = ColorView { image: color, info: info.clone(), color_from_depth: None };
    let depth = image(sent, if sent.is_metres { "32FC1" } else { "16UC1" }, depths);
    let view = View::Depth { depth, info, color: sent.has_colors.then_some(color) };
    let world_from_camera = Translation3::new(0.0, 0.0, CAMERA_Z).into();
    CameraFrame { camera: 0, view, world_from_camera }
}

fn sights(cameras: &[CameraFrame]) -> Sights {
    let mut sights = Sights::default();
    sights.take(cameras);
    sights
}

fn going_by(way_m: f64) -> CommonMotion {
    let ahead = RigidMotion::shift([way_m as f32, 0.0, 0.0]);
    let back = RigidMotion::shift([-way_m as f32, 0.0, 0.0]);
    CommonMotion { ahead, back, typical_m: way_m.abs() as f32 }
}

/// Whether something rests beside a robot at `links`, as two frames tell of what goes by in `by` and of `resting`.
fn rests(sent: [Sent; 2], (by, resting): (&[Card], &[Card]), links: &LinksAhead) -> bool {
    let gone = |card: &Card| {
        let [x, y, z] = card.middle;
        Card { middle: [x + STEP_M * N_STEPS as f64, y, z], ..*card }
    };
    let now: Vec<Card> = by.iter().map(gone).chain(resting.iter().copied()).collect();
    let [then, now] = [[by, resting].concat(), now];
    let [then, now] = [(sent[0], then), (sent[1], now)].map(|(s, cards)| camera(&s, &cards));
    let robot = RobotNow::new(links, ROBOT_M);
    sights(&[now]).rest((&sights(&[then]), N_STEPS), &going_by(STEP_M), &robot)
}

/// As [`rests`], of images that are sent alike, without a robot.
fn rest(sent: Sent, by: &[Card], resting: &[Card]) -> bool {
    rests([sent; 2], (by, resting), &LinksAhead::default())
}

#[test]
fn what_rests_beside_what_goes_by_is_seen() {
    assert!(rest(SENT, &BY, &[REST]));
    assert!(!rest(SENT, &BY, &[]), "all goes by");
    let goes_too = [&BY[..], &[REST]].concat();
    assert!(!rest(SENT, &goes_too, &[]), "all goes by");
    assert!(rest(SENT, &[], &[REST]), "nothing goes by");
    // A few points beside many that move are no proof.
    let small = Card { half: 0.03, ..REST };
    assert!(rest(SENT, &[], &[small]));
    assert!(!rest(SENT, &BY, &[small]));
}

#[test]
fn what_carries_the_camera_does_not_tell() {
    // Nearer than all that goes by: a part of the base, a bumper.
    let own = Card { middle: [0.0, 0.0, 0.5], half: 0.05, rgb: GREEN };
    assert!(!rest(SENT, &BY, &[own]));
    assert!(rest(SENT, &[], &[own]), "its place alone is why it does not tell");
}

#[test]
fn what_is_near_to_the_robot_does_not_tell() {
    // A block of 10 cm at the world's origin.
    let at_origin = prediction(&[], &[], [0.0; 2], 0.0).links;
    let gripped = Card { half: 0.08, ..REST };
    assert!(rests([SENT; 2], (&[], &[gripped]), &LinksAhead::default()));
    assert!(!rests([SENT; 2], (&[], &[gripped]), &at_origin));
    let beside = Card { middle: [0.0, 0.4, 1.5], ..gripped };
    assert!(rests([SENT; 2], (&[], &[beside]), &at_origin));
}

#[test]
fn what_has_no_outline_tells_nothing() {
    assert!(!rest(SENT, &[], &[]), "a plain wall");
    // A picture on the wall is told by its colours alone.
    let picture = Card { middle: [0.0, 0.0, WALL_M], ..REST };
    assert!(rest(SENT, &BY, &[picture]));
    assert!(!rest(Sent { has_colors: false, ..SENT }, &BY, &[picture]));
    assert!(rest(Sent { has_colors: false, ..SENT }, &BY, &[REST]), "depths tell");
    // An edge along the motion, from side to side of the image, fits both.
    let strip = |y: f64| (0..9).map(move |i| [0.25 * f64::from(i) - 1.0, y, 1.5]);
    let beam: Vec<Card> = strip(0.1).map(|middle| Card { middle, ..REST }).collect();
    assert!(!rest(SENT, &BY, &beam));
}

#[test]
fn images_of_another_size_tell_the_same() {
    for sizes in [[SIZE, [120, 90]], [[120, 90], SIZE], [[720, 540]; 2], [[960, 720], SIZE]] {
        let sent = sizes.map(|size| Sent { size, ..SENT });
        let none = LinksAhead::default();
        assert!(rests(sent, (&BY, &[REST]), &none), "{sizes:?}");
        assert!(!rests(sent, (&BY, &[]), &none), "{sizes:?}");
    }
    // Hardly an image.
    for size in [[1, 1], [8, 8], [3, 200]] {
        assert!(!rest(Sent { size, ..SENT }, &BY, &[REST]), "{size:?}");
    }
}

#[test]
fn what_is_not_measured_tells_nothing() {
    for is_metres in [false, true] {
        let sent = Sent { is_metres, ..SENT };
        assert!(rest(sent, &BY, &[REST]));
        assert!(!rest(Sent { measured: |_| false, ..sent }, &BY, &[REST]));
        // Without what is behind it in one of the images, nobody knows whether it went on.
        let card_alone = Sent { measured: |p| p[2] < WALL_M, ..sent };
        for sent in [[sent, card_alone], [card_alone, sent]] {
            assert!(!rests(sent, (&[], &[REST]), &LinksAhead::default()));
        }
        // Holes here and there.
        let holes = |p: [f64; 3]| (40.0 * (p[0] + 0.7 * p[1])).rem_euclid(1.0) > 0.1;
        assert!(rest(Sent { measured: holes, ..sent }, &BY, &[REST]));
        assert!(!rest(Sent { measured: holes, ..sent }, &BY, &[]));
    }
}

#[test]
fn a_place_that_is_measured_in_part_tells_nothing() {
    let seen = |sent: Sent, cards: &[Card]| SeenImage::take(&camera(&sent, cards), None).unwrap();
    let card = seen(SENT, &[REST]);
    let (p, wanted) = card.point(SIZE.map(|n| n as usize / 2)).expect("the card is in the middle");
    let tells = |image: &SeenImage| image.tells(&image.world_from_camera.inverse(), &p, &wanted);
    assert_eq!(tells(&card), Told::Seen);
    // The wall, whole and striped: a pixel without a depth may hide the card.
    assert_eq!(tells(&seen(SENT, &[])), Told::Other);
    let stripes = |p: [f64; 3]| (40.0 * p[0]).rem_euclid(1.0) > 0.5;
    assert_eq!(tells(&seen(Sent { measured: stripes, ..SENT }, &[])), Told::Nothing);
}

#[test]
fn frames_of_other_cameras_and_broken_images_tell_nothing() {
    let seen = camera(&SENT, &[REST]);
    let none = LinksAhead::default();
    let robot = RobotNow::new(&none, ROBOT_M);
    let rest = |then: &[CameraFrame], now: &[CameraFrame]| {
        sights(now).rest((&sights(then), N_STEPS), &going_by(STEP_M), &robot)
    };
    let one = std::slice::from_ref(&seen);
    assert!(rest(one, one));
    assert!(!rest(&[], one) && !rest(one, &[]) && !rest(&[], &[]));
    assert!(!rest(&[CameraFrame { camera: 1, ..seen.clone() }], one), "another camera");
    let mut broken = seen.clone();
    if let View::Depth { depth, .. } = &mut broken.view {
        depth.data.truncate(100);
    }
    assert!(!rest(&[broken.clone()], one) && !rest(one, &[broken]));
}

#[test]
fn frames_are_so_far_apart_that_what_goes_by_is_elsewhere() {
    assert_eq!(Sights::steps_back(&going_by(0.03)), 2);
    assert_eq!(Sights::steps_back(&going_by(0.2)), 1);
    assert_eq!(Sights::steps_back(&going_by(0.001)), 5);
    for typical_m in [f32::NAN, 0.0, f32::INFINITY] {
        let motion = CommonMotion { typical_m, ..going_by(0.03) };
        assert!((1..=5).contains(&Sights::steps_back(&motion)), "{typical_m}");
    }
}
