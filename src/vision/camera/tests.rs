use super::*;
use crate::message::{Header, Image};

fn info(k: [f64; 9], d: &[f64]) -> CameraInfo {
    CameraInfo {
        header: Header { frame_id: "optical".into(), ..Header::default() },
        height: 480,
        width: 640,
        distortion_model: "plumb_bob".into(),
        d: d.to_vec(),
        k,
        r: [0.0; 9],
        p: [0.0; 12],
    }
}

const K: [f64; 9] = [500.0, 0.0, 320.5, 0.0, 400.0, 240.0, 0.0, 0.0, 1.0];

fn image(encoding: &str, is_bigendian: bool, [width, height]: [u32; 2], step: u32) -> Image {
    let data = vec![0xAB; (step * height) as usize];
    let header = Header { frame_id: "optical".into(), ..Header::default() };
    Image { header, height, width, encoding: encoding.into(), is_bigendian, step, data }
}

#[test]
fn rays_by_hand_and_back() {
    let camera = Camera::new(&info(K, &[0.0; 5])).unwrap();
    assert_eq!(camera.ray([320.5, 240.0]), [0.0, 0.0, 1.0]);
    assert_eq!(camera.ray([420.5, 140.0]), [0.2, -0.25, 1.0]);
    assert_eq!(camera.project([0.2 * 3.0, -0.25 * 3.0, 3.0]), Some([420.5, 140.0]));
    for pixel in [[0.0, 0.0], [639.0, 479.0], [13.0, 401.0]] {
        for depth in [0.01, 1.0, 77.0] {
            let back = camera.project(camera.ray(pixel).map(|x| x * depth)).unwrap();
            assert!((0..2).all(|i| (back[i] - pixel[i]).abs() < 1e-9), "{back:?}, not {pixel:?}");
        }
    }
    assert_eq!(camera.project([0.0, 0.0, -1.0]), None);
    assert_eq!(camera.project([0.0, 0.0, 0.0]), None);
}

#[test]
fn distortion_and_broken_matrices_are_refused() {
    let problem = |k, d: &[f64]| Camera::new(&info(k, d)).unwrap_err().to_string();
    assert!(Camera::new(&info(K, &[])).is_ok());
    for (i, value) in [(0, 0.0), (4, -1.0), (2, f64::NAN), (1, 0.5), (0, f64::INFINITY)] {
        let mut k = K;
        k[i] = value;
        assert!(problem(k, &[]).contains("pinhole"), "k[{i}] = {value}");
    }
}

fn row(image: &Image, v: u32) -> Vec<f32> {
    DepthImage::new(image).unwrap().row(v).collect()
}

#[test]
fn depths_in_either_encoding_and_byte_order() {
    for big in [false, true] {
        let mut mm = image("16UC1", big, [3, 2], 9);
        let mut m = image("32FC1", big, [3, 2], 13);
        for (i, depth) in [1234u16, 1, 65535].into_iter().enumerate() {
            let bytes = if big { depth.to_be_bytes() } else { depth.to_le_bytes() };
            mm.data[9 + 2 * i..][..2].copy_from_slice(&bytes);
            let metres = f32::from(depth) * 1e-3;
            let bytes = if big { metres.to_be_bytes() } else { metres.to_le_bytes() };
            m.data[13 + 4 * i..][..4].copy_from_slice(&bytes);
        }
        for got in [row(&mm, 1), row(&m, 1)] {
            assert_eq!(got.len(), 3);
            assert!((got[0] - 1.234).abs() < 1e-6, "{got:?}");
            assert!(got[1].is_nan(), "1 mm is too near");
            assert!((got[2] - 65.535).abs() < 1e-5, "{got:?}");
        }
        assert!(row(&mm, 2).is_empty());
    }
}

#[test]
fn what_is_not_measured_is_nan() {
    let mut image = image("32FC1", false, [6, 1], 24);
    let depths = [0.0, f32::NAN, f32::INFINITY, -1.0, 101.0, 2.5];
    for (bytes, depth) in image.data.chunks_exact_mut(4).zip(depths) {
        bytes.copy_from_slice(&depth.to_le_bytes());
    }
    let got = row(&image, 0);
    assert!(got[..5].iter().all(|depth| depth.is_nan()), "{got:?}");
    assert_eq!(got[5], 2.5);
    let zeros = Image { data: vec![0; 4], ..super::tests::image("16UC1", false, [2, 1], 4) };
    assert!(row(&zeros, 0).iter().all(|depth| depth.is_nan()));
}

#[test]
fn other_layouts_are_refused_with_what_is_read() {
    let text = DepthImage::new(&image("8UC1", false, [2, 2], 2)).unwrap_err().to_string();
    assert!(text.contains("8UC1") && text.contains("16UC1") && text.contains("32FC1"), "{text}");
    let color = image("yuv422", false, [2, 2], 4);
    let text = ColorImage::new(&color).unwrap_err().to_string();
    assert!(text.contains("yuv422") && text.contains("rgb8"), "{text}");
    let mut short = image("16UC1", false, [2, 2], 4);
    short.data.pop();
    assert!(matches!(DepthImage::new(&short), Err(Error::Camera { .. })));
    let narrow = image("32FC1", false, [2, 2], 7);
    assert!(matches!(DepthImage::new(&narrow), Err(Error::Camera { .. })));
}

#[test]
fn colours_in_every_encoding() {
    let pixels = [[1u8, 2, 3], [50, 100, 200], [255, 0, 7]];
    let swap = |[r, g, b]: [u8; 3]| [b, g, r];
    let grey = |[r, _, _]: [u8; 3]| [r; 3];
    type Expected<'a> = (&'a str, fn([u8; 3]) -> Vec<u8>, &'a dyn Fn([u8; 3]) -> [u8; 3]);
    let cases: [Expected; 10] = [
        ("rgb8", |p| p.to_vec(), &|p| p),
        ("bgr8", |p| p.to_vec(), &swap),
        ("8UC3", |p| p.to_vec(), &swap),
        ("rgba8", |[r, g, b]| vec![r, g, b, 99], &|p| p),
        ("bgra8", |[r, g, b]| vec![r, g, b, 99], &swap),
        ("8UC4", |[r, g, b]| vec![r, g, b, 99], &swap),
        ("mono8", |[r, ..]| vec![r], &grey),
        ("8UC1", |[r, ..]| vec![r], &grey),
        ("mono16", |[r, g, _]| vec![g, r], &grey),
        ("mono16", |[r, g, _]| vec![r, g], &grey),
    ];
    for (i, (encoding, write, read)) in cases.into_iter().enumerate() {
        let mut image = image(encoding, i == 9, [3, 2], 13);
        let bytes: Vec<u8> = pixels.into_iter().flat_map(write).collect();
        image.data[13..13 + bytes.len()].copy_from_slice(&bytes);
        let colors = ColorImage::new(&image).unwrap();
        assert_eq!(colors.size(), [3, 2]);
        let expected = pixels.map(read);
        assert_eq!(colors.row(1).collect::<Vec<_>>(), expected, "{encoding}");
        for (u, expected) in (0..).zip(expected) {
            assert_eq!(colors.pixel([u, 1]), Some(expected), "{encoding}");
        }
        let beside = [[3, 1], [0, 2], [u32::MAX, 0], [0, u32::MAX], [4, 0]];
        assert!(beside.iter().all(|&pixel| colors.pixel(pixel).is_none()), "{encoding}");
        assert!(colors.row(2).next().is_none());
        image.step = 2;
        assert!(matches!(ColorImage::new(&image), Err(Error::Camera { .. })), "{encoding}");
    }
    for encoding in ["yuv422", "bayer_rggb8", "rgb16", "16UC1", "32FC1", "8UC2", ""] {
        let text = ColorImage::new(&image(encoding, false, [2, 2], 16)).unwrap_err().to_string();
        assert!(text.contains("bgra8") && text.contains("image_proc"), "{text}");
    }
}

#[test]
fn an_image_of_impossible_size_is_refused() {
    let huge = Image {
        width: u32::MAX,
        height: u32::MAX,
        step: u32::MAX,
        ..image("rgb8", false, [1, 1], 3)
    };
    assert!(matches!(ColorImage::new(&huge), Err(Error::Camera { .. })));
    let depth = Image { encoding: "32FC1".into(), ..huge };
    assert!(matches!(DepthImage::new(&depth), Err(Error::Camera { .. })));
}
