use super::*;
use crate::message::{CameraInfo, Header, Image};
use nalgebra::{Point3, Translation3, UnitQuaternion};
use std::sync::Arc;

const WIDE: Workspace = Workspace { min: [-1e3; 3], max: [1e3; 3] };

/// Camera of 4 x 3 pixels; pixel `i` is at `depths_mm[i]` and has colour (i, 2 i, 255).
fn camera(depths_mm: [u16; 12], world_from_camera: Isometry3<f64>) -> CameraFrame {
    let header = Header { stamp: Stamp::from_nanos(77), frame_id: "optical".into() };
    let image = |encoding: &str, step, data| {
        let header = header.clone();
        let encoding = encoding.to_owned();
        Image { header, height: 3, width: 4, encoding, is_bigendian: false, step, data }
    };
    let rgb = (0..12u8).flat_map(|i| [i, 2 * i, 255]).collect();
    let info = CameraInfo {
        header: header.clone(),
        height: 3,
        width: 4,
        distortion_model: String::new(),
        d: Vec::new(),
        k: [10.0, 0.0, 1.5, 0.0, 20.0, 1.0, 0.0, 0.0, 1.0],
        r: [0.0; 9],
        p: [0.0; 12],
    };
    let info = Arc::new(info);
    let color =
        ColorView { image: image("rgb8", 12, rgb), info: info.clone(), color_from_depth: None };
    let depth = image("16UC1", 8, depths_mm.iter().flat_map(|mm| mm.to_le_bytes()).collect());
    let view = View::Depth { depth, info, color: Some(color) };
    CameraFrame { camera: 0, view, world_from_camera }
}

/// The same as camera number `camera`.
fn numbered(camera: usize, frame: CameraFrame) -> CameraFrame {
    CameraFrame { camera, ..frame }
}

fn pose() -> Isometry3<f64> {
    let rotation = UnitQuaternion::from_euler_angles(0.3, -1.1, 2.5);
    Isometry3::from_parts(Translation3::new(0.5, -0.7, 1.1), rotation)
}

#[test]
fn points_by_hand_and_by_the_plain_transform() {
    let depths = std::array::from_fn(|i| if i == 5 { 0 } else { 1000 + 100 * i as u16 });
    let mut cloud = Cloud::default();
    let counts = cloud.from_cameras(&[camera(depths, Isometry3::identity())], &WIDE, None).unwrap();
    assert_eq!(counts, CloudCounts { n_pixels: 12, n_measured: 11, n_kept: 11 });
    // Pixel (0, 0) at 1 m: (0 - 1.5) / 10, (0 - 1) / 20.
    assert_near(cloud.positions[0], [-0.15, -0.05, 1.0]);
    assert_near(cloud.positions[10], [1.5 / 10.0 * 2.1, 0.05 * 2.1, 2.1]);
    assert_eq!(cloud.sources, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]);
    assert_eq!(cloud.colors[5], [6, 12, 255]);

    let local = cloud.positions.clone();
    let cameras = [camera(depths, Isometry3::identity()), numbered(1, camera(depths, pose()))];
    cloud.from_cameras(&cameras, &WIDE, None).unwrap();
    assert_eq!(cloud.len(), 22);
    assert_eq!(cloud.sources[11..13], [1 << 24, 1 << 24 | 1]);
    for (local, &world) in local.iter().zip(&cloud.positions[11..]) {
        let expected = pose() * Point3::from(local.map(f64::from));
        assert_near(world, expected.coords.into());
    }
}

fn assert_near(got: [f32; 3], expected: [f64; 3]) {
    let gap = (0..3).map(|i| (f64::from(got[i]) - expected[i]).abs()).fold(0.0, f64::max);
    assert!(gap < 1e-6, "{got:?}, not {expected:?}");
}

#[test]
fn only_the_workspace_is_kept() {
    let cameras = [camera([1000; 12], Isometry3::identity())];
    // Columns are at -0.15, -0.05, 0.05, 0.15; rows at -0.05, 0, 0.05.
    let workspace = Workspace { min: [-0.06, -0.01, 0.9], max: [0.2, 0.01, 1.1] };
    let mut cloud = Cloud::default();
    let counts = cloud.from_cameras(&cameras, &workspace, None).unwrap();
    assert_eq!(counts, CloudCounts { n_pixels: 12, n_measured: 12, n_kept: 3 });
    assert_eq!(cloud.sources, [5, 6, 7]);
    let above = Workspace { min: [-1.0, -1.0, 1.2], max: [1.0, 1.0, 2.0] };
    assert_eq!(cloud.from_cameras(&cameras, &above, None).unwrap().n_kept, 0);
    assert!(!Workspace::default().contains([f32::NAN, 0.0, 0.0]));
}

#[test]
fn nothing_measured_is_an_empty_cloud() {
    let mut cloud = Cloud::default();
    cloud.from_cameras(&[camera([900; 12], pose())], &WIDE, None).unwrap();
    let counts = cloud.from_cameras(&[camera([0; 12], pose())], &WIDE, None).unwrap();
    assert_eq!(counts, CloudCounts { n_pixels: 12, n_measured: 0, n_kept: 0 });
    assert!(cloud.is_empty() && cloud.colors.is_empty() && cloud.sources.is_empty());
    assert_eq!(cloud.from_cameras(&[], &WIDE, None).unwrap(), CloudCounts::default());
}

#[test]
fn an_error_leaves_no_points() {
    let good = camera([900; 12], pose());
    let mut bad = good.clone();
    let View::Depth { color: Some(color), .. } = &mut bad.view else { unreachable!() };
    color.image.encoding = "mono8".into();
    let mut cloud = Cloud::default();
    let error = cloud.from_cameras(&[good.clone(), bad], &WIDE, None).unwrap_err();
    assert!(matches!(error, Error::Encoding { .. }));
    assert!(cloud.is_empty());
    let mut other = good.clone();
    let View::Depth { info, .. } = &mut other.view else { unreachable!() };
    Arc::make_mut(info).width = 5;
    let error = cloud.from_cameras(&[other], &WIDE, None).unwrap_err();
    assert!(matches!(error, Error::ImageSize { got: [5, 3], .. }));
    let error = cloud.from_cameras(&[numbered(256, good)], &WIDE, None).unwrap_err();
    assert!(error.to_string().contains("camera 256"), "{error}");
}

#[test]
fn buffers_are_reused() {
    let cameras = [camera([900; 12], pose())];
    let mut cloud = Cloud::default();
    cloud.from_cameras(&cameras, &WIDE, None).unwrap();
    let before = (cloud.positions.as_ptr(), cloud.sources.as_ptr());
    cloud.from_cameras(&cameras, &WIDE, None).unwrap();
    assert_eq!(before, (cloud.positions.as_ptr(), cloud.sources.as_ptr()));
}

#[test]
fn noise_has_its_moments_lies_on_the_ray_and_repeats() {
    let noise = DepthNoise {
        seed: 3,
        sigma_base_m: 0.002,
        sigma_quadratic: 0.001,
        missing_probability: 0.2,
    };
    let stamp = Stamp::from_nanos(5);
    let readings: Vec<f32> = (0..40_000).map(|source| noise.apply(2.0, stamp, source)).collect();
    let seen: Vec<f64> = readings
        .iter()
        .filter(|depth| !depth.is_nan())
        .map(|&depth| f64::from(depth) - 2.0)
        .collect();
    let n = seen.len() as f64;
    assert!((n / 40_000.0 - 0.8).abs() < 0.01, "{n} seen");
    let sigma = (seen.iter().map(|error| error * error).sum::<f64>() / n).sqrt();
    assert!((sigma - 0.006).abs() < 1e-4, "{sigma}");
    assert!((seen.iter().sum::<f64>() / n).abs() < 2e-4);

    let camera = camera([1500; 12], Isometry3::identity());
    let (mut cloud, mut again) = (Cloud::default(), Cloud::default());
    cloud.from_cameras(std::slice::from_ref(&camera), &WIDE, Some(&noise)).unwrap();
    again.from_cameras(&[camera], &WIDE, Some(&noise)).unwrap();
    assert_eq!(cloud, again);
    assert!(!cloud.is_empty());
    for (position, source) in cloud.positions.iter().zip(&cloud.sources) {
        let [column, row] = [f64::from(source % 4), f64::from(source / 4)];
        let z = f64::from(position[2]);
        assert!((z - 1.5).abs() > 1e-9 && (z - 1.5).abs() < 0.05, "{z}");
        assert_near(*position, [(column - 1.5) / 10.0 * z, (row - 1.0) / 20.0 * z, z]);
    }
}
