//! Particles from images: the same as the CPU's, number for number.

use nalgebra::{Isometry3, Translation3, UnitQuaternion};

use super::super::kernels::{CloudBuffers, DRAW_ROUNDS, DrawBuffers, SamplerSettings, sorted_len};
use super::super::sampler::Sampler;
use super::*;
use crate::base::random::{draw, uniform};
use crate::engine::backend::RawSampler;
use crate::message::{CameraInfo, Header, Image};
use crate::vision::cloud::Workspace;
use crate::vision::cloud::raw::are_raw;
use crate::vision::frames::{CameraFrame, ColorView, View};
use crate::vision::particles::{CpuSampler, ParticleSampler, Particles, Sampling};

/// A depth camera and the images that it sends.
#[derive(Clone)]
pub struct Camera {
    number: usize,
    size: [u32; 2],
    depth: &'static str,
    color: Option<&'static str>,
    is_big: bool,
    /// Bytes behind the pixels of a row.
    padding: u32,
    distortion: &'static str,
    /// Share of the pixels that see a table; of the others some see nothing.
    table: f32,
}

pub const PLAIN: Camera = Camera {
    number: 0,
    size: [37, 23],
    depth: "16UC1",
    color: Some("rgb8"),
    is_big: false,
    padding: 0,
    distortion: "",
    table: 0.5,
};

impl Camera {
    fn image(&self, encoding: &str, pixels: Vec<Vec<u8>>) -> Image {
        let [width, height] = self.size;
        let n_bytes = pixels.first().map_or(0, Vec::len) as u32;
        let mut data = Vec::new();
        for row in pixels.chunks(width as usize) {
            data.extend(row.concat());
            data.extend((0..self.padding).map(|_| 0xa5));
        }
        let (header, step) = (Header::default(), n_bytes * width + self.padding);
        let encoding = encoding.into();
        Image { header, height, width, encoding, is_bigendian: self.is_big, step, data }
    }

    /// What it sees from 1.2 m above, tilted a little; `seed` tells frames apart.
    pub fn frame(&self, seed: u64) -> CameraFrame {
        let [width, height] = self.size;
        let random =
            |i: u32, stream: u64| uniform(draw(seed, self.number as i64, i.into(), stream));
        let depth = |i: u32| {
            let x = random(i, 0);
            let depth_m = match () {
                () if x < self.table => 1.2 + 0.004 * random(i, 1),
                () if x < self.table + 0.1 => 0.0,
                () => 0.7 + 0.6 * random(i, 1),
            };
            match self.depth {
                "16UC1" => {
                    let mm = (1e3 * depth_m) as u16;
                    (if self.is_big { mm.to_be_bytes() } else { mm.to_le_bytes() }).to_vec()
                }
                _ => {
                    let depth_m = if depth_m == 0.0 { f32::NAN } else { depth_m };
                    let bytes = if self.is_big { f32::to_be_bytes } else { f32::to_le_bytes };
                    bytes(depth_m).to_vec()
                }
            }
        };
        let n_channels = match self.color {
            Some("rgb8" | "bgr8") => 3,
            Some("bgra8") => 4,
            Some("mono16") => 2,
            _ => 1,
        };
        let channel = |i: u32| (0..n_channels).map(|c| (256.0 * random(i, 5 + c)) as u8).collect();
        let (f, d) = (1.1 * f64::from(width), vec![0.1, -0.05, 0.01, 0.02]);
        let info = Arc::new(CameraInfo {
            header: Header::default(),
            height,
            width,
            distortion_model: self.distortion.into(),
            d: if self.distortion.is_empty() { Vec::new() } else { d },
            k: [f, 0.0, f64::from(width) / 2.1, 0.0, f, f64::from(height) / 1.9, 0.0, 0.0, 1.0],
            r: [0.0; 9],
            p: [0.0; 12],
        });
        let all = || 0..width * height;
        let color = self.color.map(|encoding| {
            let image = self.image(encoding, all().map(channel).collect());
            ColorView { image, info: info.clone(), color_from_depth: None }
        });
        let depth = self.image(self.depth, all().map(depth).collect());
        let (tilt, away) = (0.003 * seed as f64, 0.1 * self.number as f64);
        let down = UnitQuaternion::from_euler_angles(std::f64::consts::PI + tilt, 0.01, 0.3);
        let world_from_camera = Isometry3::from_parts(Translation3::new(away, 0.05, 1.2), down);
        CameraFrame {
            camera: self.number,
            view: View::Depth { depth, info, color },
            world_from_camera,
        }
    }
}

pub fn sampling(seed: u64, support_stride: usize) -> Sampling {
    let workspace = Workspace { min: [-0.4, -0.3, -0.05], max: [0.45, 0.35, 0.6] };
    Sampling { seed, stamp_ns: 1_000_000_007 * seed as i64 - 3, workspace, support_stride }
}

/// Draws by the device and by the CPU, which are the same; the device's.
fn check(
    device: &mut Sampler,
    frame: &[CameraFrame],
    sampling: &Sampling,
    n: [usize; 2],
) -> [Particles; 2] {
    assert!(are_raw(frame));
    let mut cpu = CpuSampler::default();
    let mut expected = [Particles::default(), Particles::default()];
    let mut found = expected.clone();
    let [first, second] = &mut expected;
    cpu.sample(frame, sampling, [(first, n[0]), (second, n[1])]).unwrap();
    let raw = cpu.optics().raw(frame).unwrap();
    let [first, second] = &mut found;
    device.sample(&raw, sampling, [(first, n[0]), (second, n[1])]).unwrap();
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected.sources, found.sources, "{sampling:?}, {n:?}");
        assert_eq!(expected.positions, found.positions);
        assert_eq!(expected.colors, found.colors);
        assert_eq!(expected.support_m, found.support_m);
    }
    found
}

fn frame(cameras: &[Camera], seed: u64) -> Vec<CameraFrame> {
    cameras.iter().map(|camera| camera.frame(seed)).collect()
}

#[test]
fn particles_of_all_kinds_of_images_are_the_cpus() {
    let kinds = [
        vec![PLAIN],
        vec![Camera { depth: "32FC1", is_big: true, color: Some("bgr8"), ..PLAIN }],
        vec![Camera { is_big: true, padding: 7, color: Some("bgra8"), ..PLAIN }],
        vec![Camera { color: Some("mono8"), distortion: "plumb_bob", ..PLAIN }],
        vec![Camera { color: Some("mono16"), distortion: "equidistant", depth: "32FC1", ..PLAIN }],
        vec![
            Camera { color: None, ..PLAIN },
            Camera { number: 2, size: [19, 41], distortion: "plumb_bob", ..PLAIN },
            Camera { number: 5, size: [1, 1], table: 1.0, ..PLAIN },
            Camera { number: 255, depth: "32FC1", ..PLAIN },
        ],
    ];
    let mut device = Sampler::new(gpu());
    for (cameras, seed) in kinds.iter().zip(1..) {
        let frame = frame(cameras, seed);
        let [few, all] = check(&mut device, &frame, &sampling(seed, 8), [200, 5000]);
        assert_eq!(few.len(), 200);
        assert!(all.len() > 300, "{} points", all.len());
        assert!(all.support_m.is_some_and(|height| height.abs() < 0.05), "{:?}", all.support_m);
        // A workspace with the cameras in it, where what was not measured would be.
        let workspace = Workspace { min: [-1.0; 3], max: [1.0, 1.0, 2.0] };
        check(&mut device, &frame, &Sampling { workspace, ..sampling(seed, 8) }, [200, 5000]);
        // Those of a lower density are the first ones to take part.
        assert!(few.sources.iter().all(|source| all.sources.contains(source)));
    }
}

#[test]
fn draws_of_any_number_and_stride_are_the_cpus() {
    let frame = frame(&[PLAIN, Camera { number: 1, ..PLAIN }], 3);
    let mut device = Sampler::new(gpu());
    for (seed, stride, n) in
        [(1, 1, [1, 2]), (2, 0, [0, 129]), (3, 3, [256, 255]), (4, 1000, [700, 900])]
    {
        let [first, second] = check(&mut device, &frame, &sampling(seed, stride), n);
        assert_eq!([first.len(), second.len()], n);
    }
    // Nothing is on a support plane where none is looked at, or what is there lies at all heights.
    for table in [0.0, 0.05] {
        let frame = [Camera { table, ..PLAIN }.frame(9)];
        let [drawn, _] = check(&mut device, &frame, &sampling(5, 8), [100, 50]);
        assert_eq!(drawn.support_m, None);
    }
}

#[test]
fn frames_without_points_give_none() {
    let mut device = Sampler::new(gpu());
    let far = Isometry3::from_parts(Translation3::new(9.0, 0.0, 0.0), UnitQuaternion::identity());
    let out_of_sight = [CameraFrame { world_from_camera: far, ..PLAIN.frame(1) }];
    for frame in [&out_of_sight[..], &[]] {
        let [first, second] = check(&mut device, frame, &sampling(1, 8), [10, 20]);
        assert!(first.is_empty() && second.is_empty() && first.support_m.is_none());
    }
}

#[test]
fn frame_after_frame_replays_one_graph_until_sizes_change() {
    let distorted = Camera { number: 1, distortion: "plumb_bob", ..PLAIN };
    let cameras = [PLAIN, distorted.clone()];
    let mut device = Sampler::new(gpu());
    for seed in 1..4 {
        // Poses, images and settings change, and fewer are wanted.
        let n = [100 - 10 * seed as usize, 300];
        check(&mut device, &frame(&cameras, seed), &sampling(seed, 8), n);
    }
    assert_eq!(device.n_captures, 1);
    let other_lens = Camera { distortion: "equidistant", ..distorted.clone() };
    check(&mut device, &frame(&[PLAIN, other_lens], 4), &sampling(4, 8), [100, 300]);
    assert_eq!(device.n_captures, 2, "rays of another lens");
    check(&mut device, &frame(&[PLAIN], 5), &sampling(5, 8), [100, 300]);
    check(&mut device, &frame(&cameras, 6), &sampling(6, 8), [400, 300]);
    assert_eq!(device.n_captures, 4);
}

#[test]
fn what_is_no_registered_image_is_left_to_the_cpu() {
    let [first, second] = [PLAIN, Camera { number: 1, ..PLAIN }].map(|camera| camera.frame(1));
    assert!(are_raw(&[first.clone(), second.clone()]) && are_raw(&[]));
    assert!(!are_raw(&[second.clone(), first.clone()]), "sources ascend");
    assert!(!are_raw(&[first.clone(), first.clone()]));
    let mut of_two_lenses = first;
    if let View::Depth { color: Some(color), .. } = &mut of_two_lenses.view {
        color.color_from_depth = Some(Isometry3::identity());
    }
    assert!(!are_raw(&[of_two_lenses, second]));
}

/// Keys of a frame never tie, being hashes of 63 bits; here most of them do.
#[test]
fn ties_go_by_pixel_to_the_last_digit() {
    let (n, room) = (1500usize, 1024usize);
    for (wanted, n_keys) in [(1u32, 1u64), (700, 1), (1024, 2), (333, 3), (500, 900)] {
        let mut memory = Memory::new();
        let key = |i: u64| draw(1, 0, i % n_keys, 7) >> 1;
        // Some were not measured.
        let key = |i: u64| if i.is_multiple_of(7) { u64::MAX } else { key(i) };
        let keys: Vec<u64> = (0..n as u64).map(key).collect();
        let n_points = keys.iter().filter(|key| **key != u64::MAX).count();
        let settings = SamplerSettings { wanted: [0, wanted], ..SamplerSettings::default() };
        let sorted = memory.empty::<u64>(sorted_len(room));
        let pixels = memory.put(&vec![0u32; room]);
        let cloud = CloudBuffers {
            pictures: 0,
            settings: memory.put(&[settings]).address(),
            positions: memory.put(&vec![0.0f32; 3 * n]).address(),
            colors: memory.put(&vec![0u32; n]).address(),
            keys: memory.put(&keys).address(),
            histogram: 0,
            sum: 0,
            bounds: 0,
            counts: memory.put(&[n_points as u32, 0]).address(),
            support: 0,
            n_pictures: 0,
            n: n as u32,
        };
        let of = DrawBuffers {
            ranks: memory.empty::<u64>(2 * (DRAW_ROUNDS + 1)).address(),
            counts: memory.put(&vec![0u32; 256 * DRAW_ROUNDS]).address(),
            n_drawn: memory.put(&[0u32]).address(),
            sorted: sorted.address(),
            positions: memory.empty::<f32>(3 * room).address(),
            colors: memory.empty::<u32>(room).address(),
            pixels: pixels.address(),
            number: 1,
            n_sorted: sorted.len() as u32,
        };
        memory.gpu.draw_particles(&cloud, &of, room, sorted).unwrap();
        let measured = (0..n as u32).filter(|&i| keys[i as usize] != u64::MAX);
        let mut expected: Vec<u32> = measured.collect();
        expected.sort_by_key(|&i| (keys[i as usize], i));
        expected.truncate(wanted as usize);
        // All lie in one cell.
        expected.sort_unstable();
        assert_eq!(memory.get(pixels)[..wanted as usize], expected, "{wanted} of {n_keys} keys");
    }
}
