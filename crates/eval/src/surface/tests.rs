//! Points against a scene whose geometry says what the right answers are.

use super::*;
use crate::scene::{Scene, WALL_M, plus, to_world, way, world_from_camera};

fn surfaces(scene: &Scene) -> Surfaces {
    Surfaces::new(&scene.frame(0.0)).unwrap()
}

/// Points of the box, and of the wall.
fn parts(scene: &Scene) -> [Vec<Vec3>; 2] {
    let (on_box, on_wall): (Vec<_>, Vec<_>) =
        scene.pixels().into_iter().partition(|seen| seen.on_box);
    [on_box, on_wall].map(|seen| seen.into_iter().map(|seen| seen.point).collect())
}

#[test]
fn what_was_seen_agrees_with_itself() {
    let scene = Scene::default();
    let [on_box, on_wall] = parts(&scene);
    assert!(on_box.len() > 700 && on_wall.len() > 10_000);
    let surfaces = surfaces(&scene);
    assert!(on_box.iter().chain(&on_wall).all(|x| surfaces.look(x) == Some(Sight::Agrees)));
}

#[test]
fn an_exact_prediction_has_nothing_in_front_and_all_visible_points_agree() {
    let scene = Scene::default();
    let [on_box, on_wall] = parts(&scene);
    for shift in [[0.22, 0.0, 0.0], [0.3, 0.1, -0.1], [0.0, 0.0, 0.1], [-0.05, -0.06, 0.2]] {
        let now = scene.moved(shift);
        let surfaces = surfaces(&now);
        let (mut n_visible, mut n_hidden, mut n_lost) = (0, 0, 0);
        for x in plus(&on_box, way(shift)).iter().chain(&on_wall) {
            let ([u, v], depth) = Scene::locate(x);
            let is_visible = now.cast(u, v).0 > depth - 1e-4;
            match surfaces.look(x) {
                Some(Sight::Agrees) => n_visible += 1,
                Some(Sight::Behind) if !is_visible => n_hidden += 1,
                // A side of the box, seen askew, can be narrower than a pixel: no pixel shows it.
                // Its points count as unknown, not as wrong. Front and wall must agree.
                Some(Sight::Behind) if depth != WALL_M && !on_front(&now, depth) => n_lost += 1,
                None => {} // moved out of the image
                other => panic!("{other:?} at {u}, {v}, {depth} after {shift:?}"),
            }
        }
        assert!(n_visible > 15_000 && n_lost < 100, "{n_visible} {n_lost}");
        // Something lies behind the box wherever it moved sideways.
        assert!(n_hidden > 0 || shift[0] == 0.0, "after {shift:?}");
    }
}

fn on_front(scene: &Scene, depth: f64) -> bool {
    (depth - scene.min[2]).abs() < 1e-5
}

#[test]
fn a_prediction_that_stays_is_in_front_where_the_box_left() {
    let scene = Scene::default();
    let [on_box, _] = parts(&scene);
    let now = scene.moved([0.09, 0.02, 0.0]);
    let surfaces = surfaces(&now);
    let (mut n_in_front, mut n_agree) = (0, 0);
    for x in &on_box {
        let (ray, depth) = Scene::locate(x);
        // What the nine pixels can show, and a pixel's rounding.
        let [low, high] = now.depths_around(ray, 1.6);
        let sight = surfaces.look(x);
        if low == WALL_M {
            let Some(Sight::InFront(by_m)) = sight else { panic!("{sight:?}") };
            assert!((f64::from(by_m) - (WALL_M - depth)).abs() < 1e-5, "{by_m}");
            n_in_front += 1;
        } else if (low - depth).abs() < 1e-3 && (high - depth).abs() < 1e-3 {
            assert_eq!(sight, Some(Sight::Agrees));
            n_agree += 1;
        }
    }
    // The box is 15 cm wide: three fifths of it were left, less a margin of pixels.
    let [left, still] = [n_in_front, n_agree].map(|n| f64::from(n) / on_box.len() as f64);
    assert!((0.5..0.7).contains(&left) && (0.2..0.5).contains(&still), "{left} {still}");
}

#[test]
fn along_the_ray_the_box_goes_away_or_comes_before_what_stays() {
    let scene = Scene::default();
    let face: Vec<Vec3> = parts(&scene)[0]
        .iter()
        .copied()
        .filter(|x| {
            let (ray, depth) = Scene::locate(x);
            let [low, high] = scene.depths_around(ray, 8.0);
            (depth - low).abs() < 1e-6 && (high - low).abs() < 1e-9
        })
        .collect();
    assert!(face.len() > 100);
    let away = surfaces(&scene.moved([0.0, 0.0, 0.05]));
    let near = surfaces(&scene.moved([0.0, 0.0, -0.05]));
    for x in &face {
        let sight = away.look(x);
        assert!(matches!(sight, Some(Sight::InFront(by)) if (by - 0.05).abs() < 1e-5), "{sight:?}");
        assert_eq!(near.look(x), Some(Sight::Behind));
    }
}

#[test]
fn the_tolerance_grows_with_depth() {
    let surfaces = surfaces(&Scene::default());
    let at = |depth: f64| surfaces.look(&to_world([0.3 * depth, 0.1 * depth, depth]));
    let tolerance = f64::from(tolerance_m(WALL_M as f32));
    assert!((tolerance - (0.005 + 0.005 * WALL_M * WALL_M)).abs() < 1e-6);
    assert_eq!(at(WALL_M - 0.95 * tolerance), Some(Sight::Agrees));
    assert_eq!(at(WALL_M + 0.95 * tolerance), Some(Sight::Agrees));
    assert!(matches!(at(WALL_M - 1.05 * tolerance), Some(Sight::InFront(_))));
    assert_eq!(at(WALL_M + 1.05 * tolerance), Some(Sight::Behind));
}

#[test]
fn only_pixels_with_a_measurement_say_anything() {
    let mut frame = Scene::default().frame(0.0);
    let View::Depth { depth, .. } = &mut frame.cameras[0].view else { panic!() };
    depth.data.fill(0);
    let blind = Surfaces::new(&frame).unwrap();
    assert_eq!(blind.look(&to_world([0.0, 0.0, 1.0])), None);
    let surfaces = surfaces(&Scene::default());
    // Just beyond the image's left and right edges, above, and behind the camera.
    for beyond in [[-0.56, 0.0, 1.0], [0.55, 0.0, 1.0], [0.0, -0.45, 1.0], [0.0, 0.0, -1.0]] {
        assert_eq!(surfaces.look(&to_world(beyond)), None, "{beyond:?}");
    }
    assert!(surfaces.look(&to_world([-0.51, -0.42, 1.0])).is_some());
    assert!(surfaces.look(&[f32::NAN; 3]).is_none());
}

#[test]
fn one_camera_that_sees_through_is_enough() {
    let scene = Scene::default();
    let frame = |scene: &Scene, behind: bool| {
        let mut frame = scene.frame(0.0);
        if behind {
            let turn = nalgebra::Translation3::new(0.0, 0.0, -0.1);
            frame.cameras[0].world_from_camera = world_from_camera() * turn;
        }
        frame.cameras.remove(0)
    };
    let both = |first: &Scene, second: &Scene| {
        let mut both = scene.frame(0.0);
        both.cameras = vec![frame(first, false), frame(second, true)];
        Surfaces::new(&both).unwrap()
    };
    let gone = scene.moved([0.3, 0.0, 0.0]);
    let x = to_world([-0.175, -0.025, 0.8]);
    // The second camera stands 0.1 m back: the point is 0.9 m before it, its wall 1.2 m.
    assert_eq!(both(&scene, &gone).look(&x).map(round), Some(Sight::InFront(0.3)));
    assert_eq!(both(&gone, &gone).look(&x).map(round), Some(Sight::InFront(0.3)), "the shortest");
    let nearer = scene.moved([0.0, 0.0, -0.1]);
    assert_eq!(both(&scene, &nearer).look(&x), Some(Sight::Agrees), "behind for the second");
    assert_eq!(both(&nearer, &nearer).look(&x), Some(Sight::Behind));
}

fn round(sight: Sight) -> Sight {
    match sight {
        Sight::InFront(by_m) => Sight::InFront((1e4 * by_m).round() / 1e4),
        other => other,
    }
}
