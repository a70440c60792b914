//! Faults of rigs, put into messages in place: numbers of joint states, plans, transforms and calibrations
//! in CDR (little endian).

#![allow(dead_code)] // each test uses some of it

use forecloud::message::{CameraInfo, Image, StringMessage};
use forecloud::vision::camera::{Camera, DepthImage};
use forecloud_bag::bag::RawMessage;

use crate::edited::{cdr, string_message};

/// A walk over a message's fields.
struct Walk<'a> {
    data: &'a mut [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn new(message: &'a mut RawMessage) -> Self {
        Self { data: &mut message.data[4..], at: 0 }
    }

    fn word(&mut self) -> u32 {
        self.at = self.at.next_multiple_of(4);
        self.at += 4;
        u32::from_le_bytes(self.data[self.at - 4..self.at].try_into().unwrap())
    }

    fn text(&mut self) -> String {
        let length = self.word() as usize;
        let text = self.data[self.at..self.at + length.saturating_sub(1)].to_vec();
        self.at += length;
        String::from_utf8(text).unwrap()
    }

    /// Stamp and frame.
    fn header(&mut self) -> String {
        self.word();
        self.word();
        self.text()
    }

    fn texts(&mut self) -> Vec<String> {
        (0..self.word()).map(|_| self.text()).collect()
    }

    /// `n` numbers, each replaced by what `f` makes of its place and value.
    fn numbers(&mut self, n: usize, mut f: impl FnMut(usize, f64) -> f64) {
        for i in 0..n {
            self.at = self.at.next_multiple_of(8);
            let bytes = &mut self.data[self.at..self.at + 8];
            let value = f64::from_le_bytes((&*bytes).try_into().unwrap());
            bytes.copy_from_slice(&f(i, value).to_le_bytes());
            self.at += 8;
        }
    }
}

/// Positions of a joint state: `f` of the joint's name and its position.
pub fn edit_joints(message: &mut RawMessage, f: impl Fn(&str, f64) -> f64) {
    let mut walk = Walk::new(message);
    walk.header();
    let names = walk.texts();
    let n = walk.word() as usize;
    walk.numbers(n, |i, q| f(&names[i], q));
}

/// Positions of all points of a plan.
pub fn edit_plan(message: &mut RawMessage, f: impl Fn(&str, f64) -> f64) {
    let mut walk = Walk::new(message);
    walk.header();
    let names = walk.texts();
    for _ in 0..walk.word() {
        let n = walk.word() as usize;
        walk.numbers(n, |i, q| f(&names[i], q));
        // Velocities, accelerations, efforts; the time.
        for _ in 0..3 {
            let n = walk.word() as usize;
            walk.numbers(n, |_, value| value);
        }
        walk.word();
        walk.word();
    }
}

/// Translations and rotations of transforms: `f` of the child frame, the place of the number (x, y, z, then
/// the quaternion's x, y, z, w) and its value.
pub fn edit_transforms(message: &mut RawMessage, f: impl Fn(&str, usize, f64) -> f64) {
    let mut walk = Walk::new(message);
    for _ in 0..walk.word() {
        walk.header();
        let child = walk.text();
        walk.numbers(7, |i, value| f(&child, i, value));
    }
}

/// The matrix K of a calibration becomes 0.
pub fn clear_k(message: &mut RawMessage) {
    let mut walk = Walk::new(message);
    walk.header();
    walk.word();
    walk.word();
    walk.text();
    let n = walk.word() as usize;
    walk.numbers(n, |_, d| d);
    walk.numbers(9, |_, _| 0.0);
}

/// The description, changed.
pub fn edit_description(message: &mut RawMessage, f: impl Fn(&str) -> String) {
    let text = StringMessage::decode(&message.data).unwrap().data;
    message.data = string_message(&f(&text));
}

/// Moves the origin of a joint of a description by `by` (m, in its parent's frame).
pub fn move_origin(urdf: &str, joint: &str, by: [f64; 3]) -> String {
    let start = urdf.find(&format!("<joint name=\"{joint}\"")).expect("the joint");
    let key = "xyz=\"";
    let origin = start + urdf[start..].find("<origin").unwrap();
    let from = origin + urdf[origin..].find(key).unwrap() + key.len();
    let to = from + urdf[from..].find('"').unwrap();
    let moved = urdf[from..to].split_whitespace().zip(by);
    let moved: Vec<String> =
        moved.map(|(x, by)| format!("{}", x.parse::<f64>().unwrap() + by)).collect();
    format!("{}{}{}", &urdf[..from], moved.join(" "), &urdf[to..])
}

/// A 16UC1 image as 32FC1, its numbers as they were: millimetres.
pub fn millimetres_as_metres(message: &mut RawMessage) {
    let image = Image::decode(&message.data).unwrap();
    let values = image.data.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let data: Vec<u8> = values.flat_map(|value| f32::from(value).to_le_bytes()).collect();
    let (encoding, step) = ("32FC1".to_owned(), 4 * image.width);
    message.data = cdr(&Image { encoding, step, data, ..image });
}

/// Binning and region of interest of a calibration: the last of its numbers. `full`: width and height.
pub fn reduce_info(
    message: &mut RawMessage,
    full: Option<[u32; 2]>,
    binning: u32,
    region: [u32; 2],
) {
    let at = message.data.len() - 25;
    let [width, height] = region;
    for (i, value) in [binning, binning, 0, 0, height, width].into_iter().enumerate() {
        message.data[at + 4 * i..at + 4 * i + 4].copy_from_slice(&value.to_le_bytes());
    }
    if let Some([width, height]) = full {
        let mut walk = Walk::new(message);
        walk.header();
        let at = 4 + walk.at.next_multiple_of(4);
        message.data[at..at + 4].copy_from_slice(&height.to_le_bytes());
        message.data[at + 4..at + 8].copy_from_slice(&width.to_le_bytes());
    }
}

/// A cloud of the depth image in a message, every other pixel of every other row (m, camera's frame).
pub fn cloud_of(message: &RawMessage, info: &CameraInfo, topic: &str, scale: f32) -> RawMessage {
    let image = Image::decode(&message.data).unwrap();
    let (camera, depth) = (Camera::new(info).unwrap(), DepthImage::new(&image).unwrap());
    let [width, height] = depth.size();
    let mut points = Vec::new();
    for (u, v) in (0..height).step_by(2).flat_map(|v| (0..width).step_by(2).map(move |u| (u, v))) {
        let ray = camera.ray([f64::from(u), f64::from(v)]);
        let depth_m = scale * depth.at([u, v]);
        (0..3).for_each(|axis| points.extend((ray[axis] as f32 * depth_m).to_le_bytes()));
    }
    let mut out = Cdr(vec![0, 1, 0, 0]);
    // Stamp and frame, as they were.
    let length = 16 + u32::from_le_bytes(message.data[12..16].try_into().unwrap()) as usize;
    out.0.extend(&message.data[4..length]);
    out.word(1).word(points.len() as u32 / 12).word(3);
    for (name, offset) in [("x", 0), ("y", 4), ("z", 8)] {
        out.word(2);
        out.0.extend([name.as_bytes()[0], 0]);
        out.word(offset);
        out.0.push(7);
        out.word(1);
    }
    out.0.push(0);
    out.word(12).word(points.len() as u32).word(points.len() as u32);
    out.0.extend(&points);
    out.0.push(1);
    RawMessage { topic: topic.into(), log_time_ns: message.log_time_ns, data: out.0 }
}

/// A message that is being written.
struct Cdr(Vec<u8>);

impl Cdr {
    fn word(&mut self, word: u32) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(word.to_le_bytes());
        self
    }
}
