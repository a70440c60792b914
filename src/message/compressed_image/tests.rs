use super::super::encode::CdrWriter;
use super::*;
use crate::base::error::Error;
use crate::vision::camera::{ColorImage, DepthImage};

/// Made by `tests/data/compressed/generate.py` with OpenCV, as ROS's image transports do.
macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/compressed/", $name))
    };
}

const WIDTH: u32 = 37;
const HEIGHT: u32 = 29;

fn message(big_endian: bool, format: &str, data: &[u8]) -> Vec<u8> {
    CdrWriter::new(big_endian).header(12, 345_000_000, "optical").string(format).u8s(data).finish()
}

fn decode(format: &str, data: &[u8]) -> Image {
    let image = CompressedImage::decode(&message(false, format, data)).expect(format);
    assert_eq!(CompressedImage::decode(&message(true, format, data)).unwrap(), image);
    assert_eq!(
        (image.header.frame_id.as_str(), image.header.stamp.nanos()),
        ("optical", 12_345_000_000)
    );
    image
}

fn problem(format: &str, data: &[u8]) -> String {
    match CompressedImage::decode(&message(false, format, data)) {
        Err(Error::Message { field: "data", problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

/// Colours of the test image, as the generator makes them.
fn rgb(u: u32, v: u32) -> [u8; 3] {
    [(6 * u) as u8, (8 * v) as u8, (250 - 3 * u - 4 * v) as u8]
}

fn depth_mm(u: u32, v: u32) -> u32 {
    if (u + v).is_multiple_of(5) { 0 } else { 500 + 17 * u * v }
}

/// Largest difference of a colour from `expected`.
fn error(image: &Image, expected: impl Fn(u32, u32) -> [u8; 3]) -> u8 {
    let colors = ColorImage::new(image).unwrap();
    assert_eq!(colors.size(), [WIDTH, HEIGHT]);
    let mut largest = 0;
    for v in 0..HEIGHT {
        let row: Vec<[u8; 3]> = colors.row(v).collect();
        assert_eq!(row.len(), WIDTH as usize);
        for (u, got) in (0..).zip(row) {
            let expected = expected(u, v);
            largest = (0..3).map(|i| got[i].abs_diff(expected[i])).fold(largest, u8::max);
        }
    }
    largest
}

#[test]
fn jpegs_as_opencv_reads_them() {
    let opencv = data!("color.rgb");
    let at = |u, v| {
        let at = 3 * (v * WIDTH + u) as usize;
        [opencv[at], opencv[at + 1], opencv[at + 2]]
    };
    for format in ["rgb8; jpeg compressed bgr8", "bgr8; jpeg compressed bgr8", "jpeg", "jpg", ""] {
        let image = decode(format, data!("color.jpg"));
        assert_eq!(image.encoding, "rgb8");
        assert!(error(&image, at) <= 3, "{} from OpenCV's reading", error(&image, at));
        assert!(error(&image, rgb) <= 12, "{} from the original", error(&image, rgb));
    }
    let image = decode("jpeg", data!("progressive.jpg"));
    assert!(error(&image, at) <= 3, "{}", error(&image, at));
    let grey = decode("mono8; jpeg compressed mono8", data!("grey.jpg"));
    assert_eq!((grey.encoding.as_str(), grey.step), ("mono8", WIDTH));
    assert!(error(&grey, |u, _| [(6 * u) as u8; 3]) <= 4);
}

/// Before `compressed bgr8`, publishers gave their encoder red and blue the wrong way round.
#[test]
fn swapped_colours_are_swapped_back() {
    let swapped = |u, v| {
        let [r, g, b] = rgb(u, v);
        [b, g, r]
    };
    for format in ["rgb8; jpeg compressed rgb8", "bgr8; jpeg compressed "] {
        let image = decode(format, data!("color.jpg"));
        assert_eq!(image.encoding, "bgr8");
        assert!(error(&image, swapped) <= 12);
    }
    assert_eq!(error(&decode("rgba8; png compressed rgba8", data!("rgba8.png")), swapped), 0);
    let mosaic = decode("bayer_rggb8; jpeg compressed mono8", data!("grey.jpg"));
    assert!(ColorImage::new(&mosaic).unwrap_err().to_string().contains("bayer_rggb8"));
}

#[test]
fn pngs_are_exact() {
    let png = "rgb8; png compressed bgr8";
    assert_eq!(error(&decode(png, data!("rgb8.png")), rgb), 0);
    assert_eq!(error(&decode("png", data!("rgba8.png")), rgb), 0);
    assert_eq!(error(&decode("rgb16; png compressed bgr16", data!("rgb16.png")), rgb), 0);
    let grey = decode("mono8; png compressed ", data!("grey8.png"));
    assert_eq!(error(&grey, |u, _| [(6 * u) as u8; 3]), 0);
    for (format, encoding) in [
        ("16UC1; png compressed ", "16UC1"),
        ("mono16; png compressed mono16", "mono16"),
        ("png", "16UC1"),
    ] {
        let image = decode(format, data!("depth16.png"));
        assert_eq!((image.encoding.as_str(), image.step), (encoding, 2 * WIDTH));
        check_depths(&image, 0.0);
    }
}

/// Checks that depths are those of the generator within `relative` of them.
fn check_depths(image: &Image, relative: f32) {
    let depths = DepthImage::new(image).unwrap();
    assert_eq!(depths.size(), [WIDTH, HEIGHT]);
    let mut n_measured = 0;
    for v in 0..HEIGHT {
        for (u, got) in (0..).zip(depths.row(v)) {
            let expected = depth_mm(u, v) as f32 * 1e-3;
            // The transport leaves out what is farther than 10 m.
            if expected == 0.0 || (relative > 0.0 && expected >= 10.0) {
                assert!(got.is_nan(), "{got} at {u}, {v}");
            } else {
                n_measured += 1;
                assert!((got - expected).abs() <= relative * expected, "{got}, not {expected}");
            }
        }
    }
    assert!(n_measured > 500, "{n_measured}");
}

#[test]
fn compressed_depths() {
    for format in ["16UC1; compressedDepth png", "16UC1; compressedDepth", "16UC1"] {
        let image = decode(format, data!("depth_16UC1.bin"));
        assert_eq!(image.encoding, "16UC1");
        check_depths(&image, 0.0);
    }
    for format in ["32FC1; compressedDepth png", "32FC1; compressedDepth", "32FC1"] {
        let image = decode(format, data!("depth_32FC1.bin"));
        assert_eq!((image.encoding.as_str(), image.step), ("32FC1", 4 * WIDTH));
        // Inverse depths of 10100 / m: a step is 1e-4 m at 1 m, 1e-2 m at 10 m.
        check_depths(&image, 1.1e-3);
    }
}

/// 7 x 5 depths and their code by the codec of `compressed_depth_image_transport`.
#[test]
fn run_lengths_of_depths_as_ros_writes_them() {
    let code = "00f18d13efa80e153aefa83dbeade1dbc3af5c11db1abeada1debfe13831fccafcca97de11c3af3c\
                13a2c8bcefa1decfb5fa5eabd2a9b81168cdce13e98d97dec9da2f710097de28";
    let code: Vec<u8> = (0..code.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&code[at..at + 2], 16).unwrap())
        .collect();
    let data = |width: u32, height: u32, code: &[u8]| {
        [&[0; 12], &width.to_le_bytes()[..], &height.to_le_bytes(), code].concat()
    };
    let format = "16UC1; compressedDepth rvl";
    let image = decode(format, &data(7, 5, &code));
    let expected = |u: u32, v: u32| match (u, v) {
        (6, 0) => 65535,
        _ if (u + v).is_multiple_of(4) => 0,
        _ => (500 + 3701 * u * v) as u16,
    };
    let expected: Vec<u8> = (0..35).flat_map(|i| expected(i % 7, i / 7).to_le_bytes()).collect();
    assert_eq!((image.step, &image.data), (14, &expected));
    // All of it is zero: 35 = 0b100_011, no other value.
    let zeros = decode(format, &data(7, 5, &[0, 0, 0, 0xB4]));
    assert_eq!(zeros.data, vec![0; 70]);
    for (width, height, code) in [
        (7, 5, &code[..code.len() - 4]),
        (6, 4, &code[..]),
        (6, 5, &[0, 0, 0, 0xB4]),
        (7, 5, &[0xFF; 40]),
        (7, 5, &[]),
    ] {
        assert!(problem(format, &data(width, height, code)).contains("RVL"));
    }
    assert!(problem(format, &[0; 19]).contains("header"));
    assert!(problem(format, &data(0, 5, &code)).contains("0 x 5"));
    assert!(problem(format, &data(4097, 4096, &code)).contains("16777216"));
}

#[test]
fn others_are_refused_with_the_remedy() {
    for (format, data, expected) in [
        ("h264", &b"\0\0\0\x01abc"[..], "JPEG nor PNG"),
        ("jpeg", b"", "JPEG nor PNG"),
        ("16UC1; jpeg compressed mono8", data!("grey.jpg"), "compressedDepth"),
        ("32FC1; compressedDepth tiff", &[7; 40], "png"),
        ("32FC1; compressedDepth", &[7; 11], "header"),
        ("8UC1; compressedDepth png", data!("depth_16UC1.bin"), "32FC1"),
        ("png", data!("depth_16UC1.bin"), "32FC1"),
    ] {
        let text = problem(format, data);
        assert!(text.contains(expected) && text.contains(format), "{format}: {text}");
    }
    let mut infinite = data!("depth_32FC1.bin").to_vec();
    infinite[8..12].copy_from_slice(&f32::INFINITY.to_le_bytes());
    assert!(problem("32FC1; compressedDepth png", &infinite).contains("finite"));
    let colored = [&[0; 12], &data!("rgb8.png")[..]].concat();
    assert!(problem("16UC1; compressedDepth png", &colored).contains("rgb8"));
}

#[test]
fn sizes_that_no_data_can_fill_are_refused() {
    // Height and width in a JPEG's frame header, which follows the marker FF C0.
    let mut jpeg = data!("color.jpg").to_vec();
    let at = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap() + 5;
    for (size, expected) in [([0x0F, 0xFF, 0x0F, 0xFF], "can't hold"), ([0xFF; 4], "16777216")] {
        jpeg[at..at + 4].copy_from_slice(&size);
        let text = problem("jpeg", &jpeg);
        assert!(text.contains(expected), "{text}");
    }
    let png = |width: u32, height: u32| {
        let mut data = data!("rgb8.png").to_vec();
        data[16..20].copy_from_slice(&width.to_be_bytes());
        data[20..24].copy_from_slice(&height.to_be_bytes());
        let checksum = crc32fast::hash(&data[12..29]);
        data[29..33].copy_from_slice(&checksum.to_be_bytes());
        data
    };
    assert_eq!(png(WIDTH, HEIGHT), data!("rgb8.png"));
    for (width, height, expected) in
        [(4000, 4000, "can't hold"), (u32::MAX >> 1, 3, "16777216"), (60, 60, "PNG")]
    {
        let text = problem("png", &png(width, height));
        assert!(text.contains(expected), "{text}");
    }
}

/// A part of an image is never given for the whole.
#[test]
fn truncated_images_are_errors() {
    for (format, data) in [
        ("jpeg", &data!("color.jpg")[..]),
        ("jpeg", data!("progressive.jpg")),
        ("jpeg", data!("grey.jpg")),
        ("png", data!("rgb8.png")),
        ("png", data!("depth16.png")),
        ("32FC1; compressedDepth", data!("depth_32FC1.bin")),
    ] {
        let whole = decode(format, data);
        for n in 0..data.len() {
            if let Ok(image) = CompressedImage::decode(&message(false, format, &data[..n])) {
                assert!(image == whole, "{format} of {} bytes, cut at {n}", data.len());
            }
        }
    }
}
