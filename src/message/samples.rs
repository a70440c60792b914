//! Valid messages of each type, for tests here and in `tests/`.

use super::encode::CdrWriter;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/compressed/", $name))
    };
}

/// A valid message of each type, with odd lengths so that alignment matters.
pub(crate) fn samples(big_endian: bool) -> Vec<(&'static str, Vec<u8>)> {
    let start = || CdrWriter::new(big_endian).header(12, 345_000_000, "world");
    let pose = [0.1, -0.2, 0.3, 0.0, 0.0, 2.0, 2.0];
    let mut all = vec![
        ("image", image(big_endian, "rgb8", 3, 2, 10, 20)),
        ("camera_info", camera_info(big_endian, 600.0, [0; 6])),
        (
            "joint_state",
            start()
                .strings(&["a", "joint"])
                .f64s(&[0.5, -1.5])
                .f64s(&[])
                .f64s(&[1.0, 2.0])
                .finish(),
        ),
        ("joint_trajectory", trajectory(big_endian, &[0, 100_000_000])),
        ("tf", start_of_tf(big_endian).string("camera").f64_array(&pose).finish()),
        ("pose_array", start().u32(1).f64_array(&pose).finish()),
        ("string", CdrWriter::new(big_endian).string("größe").finish()),
        ("prediction", prediction(big_endian, 2)),
        ("point_cloud2", point_cloud(big_endian)),
    ];
    all.extend(
        COMPRESSED.map(|(name, format, data)| (name, start().string(format).u8s(data).finish())),
    );
    all
}

/// Name, format and data: what `tests/data/compressed/generate.py` has made, and run lengths.
const COMPRESSED: [(&str, &str, &[u8]); 8] = [
    ("compressed jpeg", "rgb8; jpeg compressed bgr8", data!("color.jpg")),
    ("compressed progressive jpeg", "jpeg", data!("progressive.jpg")),
    ("compressed grey jpeg", "mono8; jpeg compressed mono8", data!("grey.jpg")),
    ("compressed png", "rgb8; png compressed bgr8", data!("rgb8.png")),
    ("compressed png of 16 bits", "rgb16; png compressed bgr16", data!("rgb16.png")),
    ("compressed depth", "16UC1; compressedDepth png", data!("depth_16UC1.bin")),
    ("compressed inverse depth", "32FC1; compressedDepth png", data!("depth_32FC1.bin")),
    ("compressed run lengths", "16UC1; compressedDepth rvl", &RUN_LENGTHS),
];

/// 4 x 3 depths after the two headers: 2 zeros, 500 501 499 700 65535, 5 zeros.
const RUN_LENGTHS: [u8; 32] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 0x23, 0xF1, 0x8D, 0x25, 0xDF, 0x8A,
    0x6E, 0xAA, 0x00, 0x00, 0x00, 0x35,
];

/// 3 x 2 points of 24 bytes, in rows of 80.
fn point_cloud(be: bool) -> Vec<u8> {
    let writer = CdrWriter::new(be).header(12, 345_000_000, "optical").u32(2).u32(3).u32(5);
    let fields = [("rgb", 4, 7), ("x", 8, 7), ("y", 12, 7), ("z", 16, 8), ("intensity", 0, 7)];
    let writer = fields.into_iter().fold(writer, |writer, (name, offset, datatype)| {
        writer.string(name).u32(offset).u8(datatype).u32(1)
    });
    let mut data = vec![0xA7; 2 * 80];
    for (i, point) in (0..6).map(|i| (i, 80 * (i / 3) + 24 * (i % 3))) {
        let mut put = |at: usize, little_endian: &[u8]| {
            let target = &mut data[point + at..point + at + little_endian.len()];
            target.copy_from_slice(little_endian);
            if be {
                target.reverse();
            }
        };
        let x = 0.25 * i as f32;
        put(0, &x.to_le_bytes());
        put(4, &(0x10203 * i as u32).to_le_bytes());
        put(8, &x.to_le_bytes());
        put(12, &(-x).to_le_bytes());
        put(16, &(2.0 * f64::from(x)).to_le_bytes());
    }
    writer.u8(u8::from(be)).u32(24).u32(80).u8s(&data).u8(1).finish()
}

pub(crate) fn start_of_tf(big_endian: bool) -> CdrWriter {
    CdrWriter::new(big_endian).u32(1).header(12, 345_000_000, "world")
}

pub(crate) fn image(
    be: bool,
    encoding: &str,
    width: u32,
    height: u32,
    step: u32,
    n_bytes: u8,
) -> Vec<u8> {
    let data: Vec<u8> = (0..n_bytes).collect();
    CdrWriter::new(be)
        .header(12, 345_000_000, "world")
        .u32(height)
        .u32(width)
        .string(encoding)
        .u8(u8::from(be))
        .u32(step)
        .u8s(&data)
        .finish()
}

pub(crate) fn camera_info(be: bool, focal: f64, rest: [u32; 6]) -> Vec<u8> {
    let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    let writer = CdrWriter::new(be)
        .header(12, 345_000_000, "world")
        .u32(480)
        .u32(640)
        .string("plumb_bob")
        .f64s(&[0.1, -0.05, 1e-3, 1e-3, 0.0])
        .f64_array(&[focal, 0.0, 320.0, 0.0, focal, 240.0, 0.0, 0.0, 1.0])
        .f64_array(&identity)
        .f64_array(&[0.0; 12]);
    rest.into_iter().fold(writer, CdrWriter::u32).u8(0).finish()
}

pub(crate) fn trajectory(be: bool, times: &[u32]) -> Vec<u8> {
    let writer = CdrWriter::new(be)
        .header(12, 345_000_000, "world")
        .strings(&["joint"])
        .u32(times.len() as u32);
    let point = |writer: CdrWriter, &nanos: &u32| {
        writer.f64s(&[0.25]).f64s(&[]).f64s(&[7.0]).f64s(&[]).i32(0).u32(nanos)
    };
    times.iter().fold(writer, point).finish()
}

pub(crate) fn prediction(be: bool, n_steps: u32) -> Vec<u8> {
    CdrWriter::new(be)
        .header(12, 345_000_000, "world")
        .f32(0.1)
        .u32(n_steps)
        .u32(1)
        .u64(42)
        .string("abc")
        .f32s(&[1.0, 2.0, 3.0])
        .f32s(&[0.5, 0.25, 0.125, -0.5, -0.25, -0.125])
        .u8s(&[255, 128, 0])
        .u32s(&[1 << 24 | 77])
        .f32s(&[0.01, 0.02])
        .f32s(&[0.03, 0.04])
        .i32(12)
        .u32(245_000_000)
        .u8(1)
        .u64s(&[7])
        .u16s(&[1])
        .u8s(&[3])
        .i32(11)
        .u32(5)
        .u64(9)
        .finish()
}
