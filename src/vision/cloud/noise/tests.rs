//! The noise against the figures that it is documented with, on scenes whose geometry is known.

use super::*;
use crate::message::{Header, Stamp};
use crate::vision::frames::CameraFrame;
use nalgebra::Isometry3;
use std::sync::Arc;

const SIZE: [u32; 2] = [320, 240];
const FOCAL_PX: f64 = 280.0;

/// Everything off but what a test sets.
fn quiet() -> SensorNoise {
    SensorNoise {
        disparity_sigma_px: 0.0,
        disparity_step_px: 0.0,
        edge_missing: 0.0,
        edge_flying: 0.0,
        grazing_missing: 0.0,
        hole_share: 0.0,
        // Hides nothing.
        baseline_m: 1e-3,
        ..SensorNoise::default()
    }
}

fn info() -> CameraInfo {
    CameraInfo {
        header: Header::default(),
        height: SIZE[1],
        width: SIZE[0],
        distortion_model: String::new(),
        d: Vec::new(),
        k: [FOCAL_PX, 0.0, 159.5, 0.0, FOCAL_PX, 119.5, 0.0, 0.0, 1.0],
        r: [0.0; 9],
        p: [0.0; 12],
    }
}

/// 32FC1 of the depths that `depth_m` gives each pixel (column, row).
fn image(stamp_ns: i64, depth_m: impl Fn(u32, u32) -> f32) -> Image {
    let pixels = (0..SIZE[1]).flat_map(|v| (0..SIZE[0]).map(move |u| (u, v)));
    Image {
        header: Header { stamp: Stamp::from_nanos(stamp_ns), frame_id: "optical".into() },
        height: SIZE[1],
        width: SIZE[0],
        encoding: "32FC1".into(),
        is_bigendian: false,
        step: 4 * SIZE[0],
        data: pixels.flat_map(|(u, v)| depth_m(u, v).to_le_bytes()).collect(),
    }
}

/// What `noise` makes of an image, row by row.
fn measured(noise: &SensorNoise, mut image: Image) -> Vec<f32> {
    noise.validate().unwrap();
    noise.apply_to(&mut image, &info(), 0).unwrap();
    depths(&image)
}

fn depths(image: &Image) -> Vec<f32> {
    let depth = DepthImage::new(image).unwrap();
    (0..SIZE[1]).flat_map(|v| depth.row(v)).collect()
}

fn share(depths: &[f32], is: impl Fn(f32) -> bool) -> f64 {
    depths.iter().filter(|&&depth| is(depth)).count() as f64 / depths.len() as f64
}

fn std_m(depths: &[f32], true_m: f32) -> f64 {
    let seen = depths.iter().filter(|depth| !depth.is_nan());
    let (mut sum, mut n) = (0.0, 0);
    for depth in seen {
        sum += f64::from(depth - true_m).powi(2);
        n += 1;
    }
    (sum / f64::from(n)).sqrt()
}

#[test]
fn the_error_grows_with_the_square_of_the_depth() {
    let noise = SensorNoise { disparity_step_px: 0.0, ..SensorNoise::default() };
    for (strength, depth_m, expected_m) in
        [(1.0, 0.5, 0.00094), (1.0, 1.0, 0.00377), (1.0, 1.5, 0.00849), (2.0, 1.0, 0.00755)]
    {
        let noise = SensorNoise { strength, ..noise };
        let found = std_m(&measured(&noise, image(5, |_, _| depth_m)), depth_m);
        assert!((found / expected_m - 1.0).abs() < 0.05, "{strength}, {depth_m} m: {found} m");
        let told = f64::from(noise.sigma_m(depth_m));
        assert!((told / expected_m - 1.0).abs() < 0.01, "{told} m");
    }
}

#[test]
fn steps_grow_with_the_square_of_the_depth() {
    let noise = SensorNoise { disparity_step_px: 1.0 / 32.0, baseline_m: 0.05, ..quiet() };
    for (depth_m, expected_m) in [(0.5f32, 0.00037), (1.0, 0.00147), (2.0, 0.0059)] {
        // A slope, so that all depths near this one occur.
        let slope = |u: u32, _| depth_m + u as f32 * 1e-4 * depth_m;
        let mut found = measured(&noise, image(5, slope));
        found.sort_by(f32::total_cmp);
        found.dedup();
        let steps = found.windows(2).map(|pair| pair[1] - pair[0]);
        let n = steps.len() as f32;
        assert!(n > 5.0, "{n} steps");
        let mean = (found[found.len() - 1] - found[0]) / n;
        assert!((mean / expected_m - 1.0).abs() < 0.1, "{depth_m} m: {mean} m");
        assert!(steps.clone().all(|step| (step / mean - 1.0).abs() < 0.1), "{depth_m} m");
    }
}

#[test]
fn neighbours_share_a_part_of_the_error() {
    let of = |noise: &SensorNoise, apart: usize| {
        let depths = measured(noise, image(5, |_, _| 1.0));
        let width = SIZE[0] as usize;
        let pairs = depths.chunks(width).flat_map(|row| row.iter().zip(&row[apart..]));
        let products: Vec<f64> = pairs.map(|(a, b)| f64::from((a - 1.0) * (b - 1.0))).collect();
        products.iter().sum::<f64>() / products.len() as f64 / std_m(&depths, 1.0).powi(2)
    };
    let base = SensorNoise { disparity_sigma_px: 0.08, baseline_m: 0.05, ..quiet() };
    let common = SensorNoise { correlated_share: 0.5, ..base };
    let near = of(&common, 1);
    assert!((0.3..0.5).contains(&near), "{near}");
    assert!(of(&common, 12).abs() < 0.02);
    assert!(of(&SensorNoise { correlated_share: 0.0, ..base }, 1).abs() < 0.02);
}

/// A board 0.8 m away before a wall 1.2 m away; its edges are at columns 100 and 200.
fn board(u: u32, _: u32) -> f32 {
    if (100..200).contains(&u) { 0.8 } else { 1.2 }
}

#[test]
fn what_one_imager_alone_sees_is_not_measured() {
    let noise = SensorNoise { baseline_m: 0.05, ..quiet() };
    let depths = measured(&noise, image(5, board));
    // 0.05 · 280 · (1 / 0.8 - 1 / 1.2) = 5.8 pixels of the wall, left of the board.
    for row in depths.chunks(SIZE[0] as usize) {
        let missing: Vec<usize> = (0..row.len()).filter(|&u| row[u].is_nan()).collect();
        assert_eq!(missing, [95, 96, 97, 98, 99]);
    }
}

#[test]
fn pixels_at_edges_are_missing_or_fly_and_planes_are_left_alone() {
    let noise = SensorNoise { edge_missing: 0.3, edge_flying: 0.2, ..quiet() };
    let depths = measured(&noise, image(5, board));
    let column = |u: usize| -> Vec<f32> { depths.iter().skip(u).step_by(320).copied().collect() };
    let edges: Vec<f32> = [99, 100, 199, 200].into_iter().flat_map(column).collect();
    // Two of each are 0.8 m away, two 1.2 m.
    let missing = share(&edges, f32::is_nan);
    assert!((missing - 0.3).abs() < 0.05, "{missing}");
    let flying = share(&edges, |depth| depth > 0.801 && depth < 1.199);
    assert!((flying - 0.2).abs() < 0.05, "{flying}");
    assert_eq!(share(&edges, |depth| !(depth.is_nan() || (0.799..1.201).contains(&depth))), 0.0);
    let others: Vec<f32> = (0..320)
        .filter(|u| ![99, 100, 199, 200].contains(u))
        .collect::<Vec<_>>()
        .into_iter()
        .flat_map(column)
        .collect();
    assert_eq!(
        share(&others, |depth| (depth - 0.8).abs() > 1e-4 && (depth - 1.2).abs() > 1e-4),
        0.0
    );
    // More are missing far away; a plane has no edge, however it is inclined.
    let far = measured(&noise, image(5, |u, v| 2.0 * board(u, v)));
    let far: Vec<f32> = far.iter().skip(99).step_by(320).copied().collect();
    let far_missing = share(&far, f32::is_nan);
    assert!((far_missing - 0.72).abs() < 0.08, "{far_missing}");
    let plane = image(5, |u, _| 1.0 / (0.2 + 0.004 * u as f32));
    let same = depths_differ(&depths_of(&noise, &plane), &depths_of(&quiet(), &plane));
    assert_eq!(same, 0);
}

fn depths_of(noise: &SensorNoise, image: &Image) -> Vec<f32> {
    measured(noise, image.clone())
}

fn depths_differ(a: &[f32], b: &[f32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count()
}

#[test]
fn grazing_surfaces_are_measured_less() {
    let noise = SensorNoise { grazing_missing: 0.8, ..quiet() };
    let missing = |tan: f32| {
        // Inverse depth 1 in the middle, with the slope that this angle of incidence makes.
        let slope = tan / FOCAL_PX as f32;
        let depths = measured(&noise, image(5, |u, _| 1.0 / (1.0 + slope * (u as f32 - 159.5))));
        let middle: Vec<f32> = depths.chunks(320).flat_map(|row| row[157..163].to_vec()).collect();
        share(&middle, f32::is_nan)
    };
    assert_eq!(missing(2.8), 0.0);
    let (some, most) = (missing(6.0), missing(60.0));
    assert!((some - 0.4).abs() < 0.05 && (most - 0.76).abs() < 0.06, "{some} {most}");
}

#[test]
fn holes_have_their_share_and_are_round() {
    for strength in [1.0, 2.0] {
        let noise = SensorNoise { strength, hole_share: 0.02, ..quiet() };
        let images = 20;
        let missing: f64 = (0..images)
            .map(|i| share(&measured(&noise, image(i, |_, _| 1.0)), f32::is_nan))
            .sum::<f64>()
            / images as f64;
        let expected = 0.02 * f64::from(strength);
        assert!((missing / expected - 1.0).abs() < 0.15, "{missing}, not {expected}");
    }
    let depths = measured(&SensorNoise { hole_share: 0.02, ..quiet() }, image(5, |_, _| 1.0));
    let inside = depths.windows(3).filter(|w| w[1].is_nan());
    let with_neighbours = inside.clone().filter(|w| w[0].is_nan() || w[2].is_nan()).count();
    assert!(with_neighbours * 10 > inside.count() * 8, "blobs, not specks");
}

#[test]
fn the_whole_model_by_the_figures_of_its_documentation() {
    // Half a wall 1 m away, half one that nothing was measured of.
    let depths =
        measured(&SensorNoise::default(), image(5, |_, v| if v < 120 { 1.0 } else { f32::NAN }));
    let missing = share(&depths, f32::is_nan) - 0.5;
    assert!((0.0..0.004).contains(&missing), "{missing}");
    let found = std_m(&depths, 1.0);
    assert!((found / 0.0038 - 1.0).abs() < 0.06, "{found} m");
}

#[test]
fn draws_are_those_of_seed_stamp_camera_and_recording() {
    let noise = SensorNoise::default();
    let clean = image(5, board);
    let base = depths_of(&noise, &clean);
    assert_eq!(depths_differ(&base, &depths_of(&noise, &clean)), 0);
    let mut other_camera = clean.clone();
    noise.apply_to(&mut other_camera, &info(), 1).unwrap();
    let others = [
        depths_of(&SensorNoise { seed: 1, ..noise }, &clean),
        depths_of(&noise, &image(6, board)),
        depths(&other_camera),
        depths_of(&noise.of_recording(Path::new("a/push_1")), &clean),
        depths_of(&noise.of_recording(Path::new("a/push_2")), &clean),
    ];
    let all: Vec<&Vec<f32>> = others.iter().chain([&base]).collect();
    for (i, a) in all.iter().enumerate() {
        for b in &all[..i] {
            assert!(depths_differ(a, b) > a.len() / 2);
        }
    }
    let moved = noise.of_recording(Path::new("elsewhere/push_1"));
    assert_eq!(moved, noise.of_recording(Path::new("a/push_1")));
    assert_eq!(noise, SensorNoise { seed: 0, ..moved });

    // Strengths of recordings are spread evenly from 0 to twice the own one.
    let drawn = |i: u64| SensorNoise { seed: i, strength: 0.5, ..noise }.with_drawn_strength();
    let strengths: Vec<f32> = (0..4000).map(|i| drawn(i).strength).collect();
    assert!(strengths.iter().all(|strength| (0.0..1.0).contains(strength)));
    for quarter in 0..4 {
        let low = quarter as f32 * 0.25;
        let found = share(&strengths, |strength| (low..low + 0.25).contains(&strength));
        assert!((found - 0.25).abs() < 0.03, "{found}");
    }
}

#[test]
fn encodings_are_kept_and_nothing_happens_at_strength_0() {
    let noise = SensorNoise { edge_missing: 1.0, ..quiet() };
    for (encoding, is_bigendian) in [("16UC1", false), ("16UC1", true), ("32FC1", true)] {
        let mut image = image(5, board);
        let values = depths(&image);
        let bytes = |depth_m: &f32| -> Vec<u8> {
            let mm = (depth_m * 1e3).round() as u16;
            match (encoding, is_bigendian) {
                ("16UC1", false) => mm.to_le_bytes().to_vec(),
                ("16UC1", true) => mm.to_be_bytes().to_vec(),
                _ => depth_m.to_be_bytes().to_vec(),
            }
        };
        // Rows that are longer than their pixels.
        let rows = values.chunks(320).map(|row| row.iter().flat_map(bytes).chain([7; 6]));
        image.data = rows.flatten().collect();
        image.step = image.data.len() as u32 / SIZE[1];
        (image.encoding, image.is_bigendian) = (encoding.into(), is_bigendian);
        let clean = image.clone();
        SensorNoise { strength: 0.0, ..SensorNoise::default() }
            .apply_to(&mut image, &info(), 0)
            .unwrap();
        assert_eq!(image, clean);
        noise.apply_to(&mut image, &info(), 0).unwrap();
        for (u, depth) in depths(&image)[320..640].iter().enumerate() {
            let wanted = board(u as u32, 0);
            // Both sides of both edges; at 0.8 m, four of five.
            match [99, 100, 199, 200].contains(&u) {
                true if wanted > 1.0 => assert!(depth.is_nan(), "{u}"),
                true => {}
                false => assert!((depth - wanted).abs() < 1e-4, "{u}: {depth}"),
            }
        }
        assert_eq!(image.data[image.step as usize - 6..image.step as usize], [7; 6]);
    }
}

#[test]
fn all_cameras_of_a_frame_are_disturbed_and_images_that_cannot_be_read_are_an_error() {
    let depth = image(5, board);
    let view = View::Depth { depth: depth.clone(), info: Arc::new(info()), color: None };
    let stamp = depth.header.stamp;
    let camera = CameraFrame { camera: 3, view, world_from_camera: Isometry3::identity() };
    let (robot, plan, robot_description) = (None, Vec::new(), None);
    let cameras = vec![camera];
    let mut frame =
        Frame { stamp, cameras, robot, plan, robot_description, world_from_workspace: None };
    let noise = SensorNoise::default();
    noise.apply(&mut frame).unwrap();
    let mut expected = depth;
    noise.apply_to(&mut expected, &info(), 3).unwrap();
    let View::Depth { depth, .. } = &mut frame.cameras[0].view else { panic!() };
    assert_eq!(depths_differ(&depths(depth), &depths(&expected)), 0);
    depth.encoding = "8UC1".into();
    assert!(noise.apply(&mut frame).is_err());
}

#[test]
fn values_that_make_no_sense_are_named() {
    let default = SensorNoise::default();
    for (wrong, name) in [
        (SensorNoise { strength: -1.0, ..default }, "strength"),
        (SensorNoise { strength: f32::NAN, ..default }, "strength"),
        (SensorNoise { baseline_m: 0.0, ..default }, "baseline_m"),
        (SensorNoise { edge_missing: 1.5, ..default }, "edge_missing"),
        (SensorNoise { hole_share: 0.5, ..default }, "hole_share"),
    ] {
        let message = wrong.validate().unwrap_err().to_string();
        assert!(message.contains(&format!("sensor_noise.{name}")), "{message}");
    }
}
