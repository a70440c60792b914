use super::*;
use crate::message::encode::CdrWriter;
use crate::message::{CameraInfo, Header, Image, PointCloud2, Stamp};
use crate::vision::frames::ColorView;
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

fn counts_of(n_pixels: usize, n_measured: usize, n_kept: usize) -> CloudCounts {
    CloudCounts { n_pixels, n_measured, n_kept, n_uncolored: 0 }
}

fn pose() -> Isometry3<f64> {
    let rotation = UnitQuaternion::from_euler_angles(0.3, -1.1, 2.5);
    Isometry3::from_parts(Translation3::new(0.5, -0.7, 1.1), rotation)
}

#[test]
fn points_by_hand_and_by_the_plain_transform() {
    let depths = std::array::from_fn(|i| if i == 5 { 0 } else { 1000 + 100 * i as u16 });
    let mut cloud = Cloud::default();
    let counts = cloud.from_cameras(&[camera(depths, Isometry3::identity())], &WIDE).unwrap();
    assert_eq!(counts, counts_of(12, 11, 11));
    // Pixel (0, 0) at 1 m: (0 - 1.5) / 10, (0 - 1) / 20.
    assert_near(cloud.positions[0], [-0.15, -0.05, 1.0]);
    assert_near(cloud.positions[10], [1.5 / 10.0 * 2.1, 0.05 * 2.1, 2.1]);
    assert_eq!(cloud.sources, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]);
    assert_eq!(cloud.colors[5], [6, 12, 255]);

    let local = cloud.positions.clone();
    let cameras = [camera(depths, Isometry3::identity()), numbered(1, camera(depths, pose()))];
    cloud.from_cameras(&cameras, &WIDE).unwrap();
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
    let counts = cloud.from_cameras(&cameras, &workspace).unwrap();
    assert_eq!(counts, counts_of(12, 12, 3));
    assert_eq!(cloud.sources, [5, 6, 7]);
    let above = Workspace { min: [-1.0, -1.0, 1.2], max: [1.0, 1.0, 2.0] };
    assert_eq!(cloud.from_cameras(&cameras, &above).unwrap().n_kept, 0);
    assert!(!Workspace::default().contains([f32::NAN, 0.0, 0.0]));
}

#[test]
fn nothing_measured_is_an_empty_cloud() {
    let mut cloud = Cloud::default();
    cloud.from_cameras(&[camera([900; 12], pose())], &WIDE).unwrap();
    let counts = cloud.from_cameras(&[camera([0; 12], pose())], &WIDE).unwrap();
    assert_eq!(counts, counts_of(12, 0, 0));
    assert!(cloud.is_empty() && cloud.colors.is_empty() && cloud.sources.is_empty());
    assert_eq!(cloud.from_cameras(&[], &WIDE).unwrap(), CloudCounts::default());
}

#[test]
fn an_error_leaves_no_points() {
    let good = camera([900; 12], pose());
    let mut bad = good.clone();
    let View::Depth { color: Some(color), .. } = &mut bad.view else { unreachable!() };
    color.image.encoding = "yuv422".into();
    let mut cloud = Cloud::default();
    let error = cloud.from_cameras(&[good.clone(), bad], &WIDE).unwrap_err();
    assert!(matches!(error, Error::Encoding { .. }));
    assert!(cloud.is_empty());
    let mut other = good.clone();
    let View::Depth { info, .. } = &mut other.view else { unreachable!() };
    Arc::make_mut(info).width = 5;
    let error = cloud.from_cameras(&[other], &WIDE).unwrap_err();
    assert!(matches!(error, Error::ImageSize { got: [5, 3], .. }));
    let error = cloud.from_cameras(&[numbered(256, good)], &WIDE).unwrap_err();
    assert!(error.to_string().contains("camera 256"), "{error}");
}

#[test]
fn buffers_are_reused() {
    let cameras = [camera([900; 12], pose())];
    let mut cloud = Cloud::default();
    cloud.from_cameras(&cameras, &WIDE).unwrap();
    let before = (cloud.positions.as_ptr(), cloud.sources.as_ptr());
    cloud.from_cameras(&cameras, &WIDE).unwrap();
    assert_eq!(before, (cloud.positions.as_ptr(), cloud.sources.as_ptr()));
}

/// Bytes of a depth image, or of a colour image.
fn image_of(encoding: &str, [width, height]: [u32; 2], data: Vec<u8>) -> Image {
    let header = Header { stamp: Stamp::from_nanos(77), frame_id: "optical".into() };
    let (encoding, step) = (encoding.to_owned(), data.len() as u32 / height);
    Image { header, height, width, encoding, is_bigendian: false, step, data }
}

fn info_of([width, height]: [u32; 2], focal: f64, d: &[f64]) -> Arc<CameraInfo> {
    let header = Header { frame_id: "optical".into(), ..Header::default() };
    let [cx, cy] = [width, height].map(|n| (f64::from(n) - 1.0) / 2.0);
    Arc::new(CameraInfo {
        header,
        height,
        width,
        distortion_model: "plumb_bob".into(),
        d: d.to_vec(),
        k: [focal, 0.0, cx, 0.0, focal, cy, 0.0, 0.0, 1.0],
        r: [0.0; 9],
        p: [0.0; 12],
    })
}

/// A wall 2 m away and, on the right half of the depth image, a board 1 m away; the colour image
/// has a colour of its own in each column. `color_from_depth` moves points by `x` metres.
fn board_and_wall(x: f64, color_size: [u32; 2], color_focal: f64) -> CameraFrame {
    let size = [40, 30];
    let depths = (0..30).flat_map(|_| (0..40u16).map(|u| if u < 20 { 2000u16 } else { 1000 }));
    let depth = image_of("16UC1", size, depths.flat_map(u16::to_le_bytes).collect());
    let columns = (0..color_size[1]).flat_map(|_| (0..color_size[0]).map(|u| [u as u8, 1, 2]));
    let color = ColorView {
        image: image_of("rgb8", color_size, columns.flatten().collect()),
        info: info_of(color_size, color_focal, &[]),
        color_from_depth: Some(Isometry3::translation(x, 0.0, 0.0)),
    };
    let view = View::Depth { depth, info: info_of(size, 40.0, &[]), color: Some(color) };
    CameraFrame { camera: 2, view, world_from_camera: pose() }
}

#[test]
fn points_have_the_colours_that_the_other_camera_sees_there() {
    let mut cloud = Cloud::default();
    // The colour camera lies 5 cm to the right: points of the wall move 1 pixel to the left in its
    // image, those of the board 2. It sees the wall behind the board's left edge.
    let counts = cloud.from_cameras(&[board_and_wall(-0.05, [40, 30], 40.0)], &WIDE).unwrap();
    assert_eq!((counts.n_kept, cloud.len()), (1200, 1200));
    let row = &cloud.colors[15 * 40..16 * 40];
    assert_eq!(row[0], GREY, "left of the colour image");
    for (u, color) in row.iter().enumerate().skip(1) {
        let expected = if u < 20 { u - 1 } else { u - 2 };
        // Where the board's edge is, the wall's last column is hidden by it.
        let is_hidden = u == 19;
        let expected = if is_hidden { GREY } else { [expected as u8, 1, 2] };
        assert_eq!(*color, expected, "column {u}");
    }
    assert_eq!(counts.n_uncolored, 2 * 30);
    assert_eq!(cloud.sources[41], (2 << 24) | 41);

    // From the left, nothing is hidden, and the board goes out of the image.
    let counts = cloud.from_cameras(&[board_and_wall(0.05, [40, 30], 40.0)], &WIDE).unwrap();
    assert_eq!(counts.n_uncolored, 2 * 30);
    let row = &cloud.colors[15 * 40..16 * 40];
    assert_eq!([row[0], row[19], row[20], row[37]], [1, 20, 22, 39].map(|u| [u, 1, 2]));
    assert_eq!(row[38..], [GREY; 2]);
}

#[test]
fn a_larger_colour_image_has_no_gaps_through_which_hidden_points_show() {
    let mut cloud = Cloud::default();
    for (size, focal) in [([108, 81], 108.0), ([240, 180], 240.0), ([20, 15], 20.0)] {
        let scale = focal / 40.0;
        let view = board_and_wall(-0.2, size, focal);
        let counts = cloud.from_cameras(&[view], &WIDE).unwrap();
        // The wall moves by 4 pixels of the depth image, the board by 8: columns 16 to 19 of the
        // wall are hidden, and 4 of each row lie outside; the rows at the edges may be cut.
        for (i, color) in cloud.colors.iter().enumerate().filter(|(i, _)| (40..1160).contains(i)) {
            let u = i % 40;
            let moved = u as f64 - if u < 20 { 4.0 } else { 8.0 };
            let column = (moved + 0.5) * scale - 0.5;
            match u {
                17..=19 => assert_eq!(*color, GREY, "column {u} of {size:?} is hidden"),
                5..15 | 21..40 => {
                    let gap = (f64::from(color[0]) - column).abs();
                    assert!(gap <= 0.51, "column {u} of {size:?}: {color:?}, not {column}");
                }
                _ => {}
            }
        }
        assert!(counts.n_uncolored >= 7 * 30 && counts.n_uncolored <= 10 * 30, "{counts:?}");
    }
}

#[test]
fn a_lens_with_distortion_bends_the_rays_and_is_kept() {
    let size = [40, 30];
    let info = info_of(size, 40.0, &[-0.2, 0.05, 0.001, -0.002, 0.0]);
    let depth = image_of("16UC1", size, [0xE8, 0x03].repeat(1200));
    let view = |info: &Arc<CameraInfo>| {
        let view = View::Depth { depth: depth.clone(), info: info.clone(), color: None };
        [CameraFrame { camera: 0, view, world_from_camera: pose() }]
    };
    let mut cloud = Cloud::default();
    let counts = cloud.from_cameras(&view(&info), &WIDE).unwrap();
    assert_eq!((counts.n_kept, counts.n_uncolored), (1200, 1200));
    assert!(cloud.colors.iter().all(|color| *color == GREY));
    let lens = crate::vision::camera::Camera::new(&info).unwrap();
    for (position, source) in cloud.positions.iter().zip(&cloud.sources) {
        let ray = lens.ray([f64::from(source % 40), f64::from(source / 40)]);
        assert_near(*position, (pose() * Point3::from(ray)).coords.into());
    }
    // The same calibration in a new message keeps the rays; another one does not.
    let mut rays = |info: &Arc<CameraInfo>| {
        cloud.from_cameras(&view(info), &WIDE).unwrap();
        let table = cloud.optics.depth.of(0, info).unwrap().table().unwrap();
        table.map(|table| table.row(0).as_ptr())
    };
    let first = rays(&info);
    assert!(first.is_some());
    assert_eq!(rays(&info), first);
    assert_eq!(rays(&Arc::new((*info).clone())), first);
    assert_eq!(rays(&info_of(size, 40.0, &[0.0; 5])), None);
    let moved = rays(&info_of(size, 40.0, &[-0.1, 0.0, 0.0, 0.0, 0.0]));
    assert!(moved.is_some());
}

/// A cloud of 3 points and one that was not measured, with or without colours.
fn points(has_color: bool) -> PointCloud2 {
    let mut data = Vec::new();
    for point in [[1.0f32, 2.0, 3.0], [f32::NAN; 3], [-1.0, 0.0, 0.5], [0.0, 0.0, 9.0]] {
        point.iter().for_each(|x| data.extend(x.to_le_bytes()));
        data.extend([7, 8, 9, 0]); // blue, green, red
    }
    let mut message = CdrWriter::new(false).header(0, 77, "base").u32(2).u32(2);
    message = message.u32(if has_color { 4 } else { 3 });
    for (name, offset) in ["x", "y", "z", "rgb"].into_iter().zip([0, 4, 8, 12]) {
        if has_color || name != "rgb" {
            message = message.string(name).u32(offset).u8(7).u32(1);
        }
    }
    let message = message.u8(0).u32(16).u32(32).u8s(&data).u8(0);
    PointCloud2::decode(message.finish()).unwrap()
}

fn points_of(camera: usize, has_color: bool) -> CameraFrame {
    let view = View::Points(points(has_color));
    CameraFrame { camera, view, world_from_camera: pose() }
}

#[test]
fn clouds_are_posed_cropped_and_coloured() {
    let mut cloud = Cloud::default();
    let counts = cloud.from_cameras(&[points_of(3, true)], &WIDE).unwrap();
    assert_eq!(counts, counts_of(4, 3, 3));
    assert_eq!(cloud.sources, [3 << 24, 3 << 24 | 2, 3 << 24 | 3]);
    assert_eq!(cloud.colors, [[9, 8, 7]; 3]);
    let there = |point: [f64; 3]| (pose() * Point3::from(point)).coords.into();
    assert_near(cloud.positions[0], there([1.0, 2.0, 3.0]));
    assert_near(cloud.positions[1], there([-1.0, 0.0, 0.5]));

    let middle = cloud.positions[1];
    let [min, max] = [-0.1, 0.1].map(|x| middle.map(|m| m + x));
    let cropped = Workspace { min, max };
    let counts = cloud.from_cameras(&[points_of(3, false)], &cropped).unwrap();
    assert_eq!(counts, CloudCounts { n_uncolored: 1, ..counts_of(4, 3, 1) });
    assert_eq!((cloud.positions[0], cloud.colors[0]), (middle, GREY));
    assert!(cloud.from_cameras(&[points_of(256, true)], &WIDE).is_err() && cloud.is_empty());
}
