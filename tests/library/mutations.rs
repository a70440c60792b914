//! Mutated messages of every type: they decode or give an error, within bounded memory, and what
//! decodes can be used.
//!
//! `FORECLOUD_MUTATIONS=1000000` sets how many; `FORECLOUD_MUTATION=n` runs the n-th alone.

use crate::samples;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use forecloud::message::*;
use forecloud::vision::camera::{Camera, ColorImage, DepthImage};
use forecloud::{Error, Result};

/// Mutations of a usual run.
const DEFAULT_MUTATIONS: u64 = 300_000;
const BYTES_PER_BYTE: usize = 16;
const BYTES_AT_LEAST: usize = 4 << 10;
/// Memory of a compressed image, for each pixel that it may have.
const BYTES_PER_PIXEL: usize = 24;
const DECODER_BYTES: usize = 2 << 20;

/// Counts the bytes that this thread holds, and the most since the last [`Counted::reset`].
struct Counted;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

impl Counted {
    fn add(bytes: isize) {
        let held = HELD.get() + bytes;
        HELD.set(held);
        PEAK.set(PEAK.get().max(held));
    }

    fn reset() {
        HELD.set(0);
        PEAK.set(0);
    }
}

// SAFETY: every call goes to `System` with the caller's own arguments; counting allocates nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::add(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are held while the contents move.
        Self::add(size as isize);
        Self::add(-(layout.size() as isize));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Draws of one mutation: splitmix64.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Changes `bytes` in one of the ways that bytes go wrong, or are made to.
fn mutate(bytes: &mut Vec<u8>, donor: &[u8], draws: &mut Draws) {
    if bytes.is_empty() {
        return bytes.extend_from_slice(donor);
    }
    let at = draws.below(bytes.len());
    let length = 1 + draws.below(16);
    let end = (at + length).min(bytes.len());
    match draws.below(8) {
        0 => bytes[at] ^= 1 << draws.below(8),
        1 => bytes[at] = draws.next() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let inserted: Vec<u8> = (0..length).map(|_| draws.next() as u8).collect();
            drop(bytes.splice(at..at, inserted));
        }
        5 => {
            let from = draws.below(donor.len());
            let part = donor[from..(from + 4 * length).min(donor.len())].to_vec();
            drop(bytes.splice(at..end, part));
        }
        6 => {
            let n = bytes.len() as u32;
            let value: u32 = draws.one_of(&[
                0,
                1,
                2,
                255,
                n,
                n / 2,
                1 << 12,
                1 << 16,
                1 << 24,
                (1 << 24) + 1,
                1 << 31,
                i32::MAX as u32,
                u32::MAX - 1,
                u32::MAX,
            ]);
            overwrite(bytes, at & !3, value.to_le_bytes(), draws);
        }
        _ => {
            let value: f64 = draws.one_of(&[0.0, -1.0, 1e-320, 1e308, f64::NAN, f64::INFINITY]);
            overwrite(bytes, (at & !7) + 4, value.to_le_bytes(), draws);
        }
    }
}

/// Sets a number, in either byte order, as far as it fits.
fn overwrite<const N: usize>(bytes: &mut [u8], at: usize, mut value: [u8; N], draws: &mut Draws) {
    if draws.below(2) == 0 {
        value.reverse();
    }
    for (byte, value) in bytes.iter_mut().skip(at).zip(value) {
        *byte = value;
    }
}

/// Makes the checksums of a PNG right again, so that what is behind them is tested too.
fn repair_png(bytes: &mut [u8]) {
    let Some(start) = bytes.windows(8).position(|window| window == b"\x89PNG\r\n\x1a\n") else {
        return;
    };
    let mut at = start + 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let end = at + 8 + length;
        let Some(checked) = bytes.get(at + 4..end) else { return };
        let checksum = crc32fast::hash(checked).to_be_bytes();
        let Some(target) = bytes.get_mut(end..end + 4) else { return };
        target.copy_from_slice(&checksum);
        at = end + 4;
    }
}

/// Decodes `bytes` as the type of the sample `name`, and uses what comes as its users do.
fn decode(name: &str, bytes: &[u8]) -> Result<()> {
    match name {
        "image" => use_image(&Image::decode(bytes)?),
        "camera_info" => use_camera(&CameraInfo::decode(bytes)?),
        "joint_state" => {
            let state = JointState::decode(bytes)?;
            assert!([0, state.names.len()].contains(&state.positions.len()));
            // What of it the robot needs must be numbers; that is known where the robot is.
        }
        "joint_trajectory" => {
            let plan = JointTrajectory::decode(bytes)?;
            assert!(plan.points.is_sorted_by_key(|point| point.time_from_start_nanos));
            let n = plan.joint_names.len();
            assert!(plan.points.iter().all(|point| point.positions.len() == n));
        }
        "tf" => {
            let poses = TfMessage::decode(bytes)?.transforms;
            let mut poses = poses.iter().map(|transform| transform.parent_from_child);
            assert!(poses.all(|pose| (pose.rotation.norm() - 1.0).abs() < 1e-9));
        }
        "pose_array" => drop(PoseArray::decode(bytes)?),
        "string" => drop(StringMessage::decode(bytes)?),
        "prediction" => {
            let prediction = Prediction::decode(bytes)?;
            assert_eq!(prediction.positions.len(), 3 * prediction.n_particles as usize);
        }
        "point_cloud2" => use_cloud(&PointCloud2::decode(bytes)?),
        compressed => {
            assert!(compressed.starts_with("compressed"), "no type of the name {compressed}");
            use_image(&CompressedImage::decode(bytes)?);
        }
    }
    Ok(())
}

fn use_image(image: &Image) {
    let last = image.height - 1;
    let known = image.bytes_per_pixel();
    assert!(known.is_none() || image.row(last).is_some_and(|row| !row.is_empty()));
    if let Ok(depths) = DepthImage::new(image) {
        assert_eq!(depths.row(last).count(), image.width as usize);
    }
    if let Ok(colors) = ColorImage::new(image) {
        assert_eq!(colors.row(last).count(), image.width as usize);
        assert!(colors.pixel([image.width - 1, last]).is_some());
    }
}

fn use_camera(info: &CameraInfo) {
    assert!(info.width > 0 && info.height > 0);
    let Ok(camera) = Camera::new(info) else { return };
    for pixel in [[0.0, 0.0], [f64::from(info.width - 1), f64::from(info.height - 1)]] {
        let ray = camera.ray(pixel);
        if camera.is_pinhole() || ray[0].is_nan() {
            continue;
        }
        let back = camera.project(ray).expect("a ray is in the range of the model");
        // Within 1e-8 of the focal lengths, which may be anything here.
        let gap =
            |i: usize| (back[i] - pixel[i]).abs() / (camera.focal[i] + camera.center[i].abs());
        assert!(gap(0) < 1e-8 && gap(1) < 1e-8, "{back:?}, not {pixel:?}");
    }
}

fn use_cloud(cloud: &PointCloud2) {
    let n_points = u64::from(cloud.width) * u64::from(cloud.height);
    let mut next = 0;
    cloud.for_each(|i, position, _| {
        assert!(i >= next && u64::from(i) < n_points);
        assert!(position.iter().all(|x| x.is_finite()) && position != [0.0; 3]);
        next = i + 1;
    });
}

/// What decoding may hold at once.
fn max_bytes(name: &str, n_bytes: usize) -> usize {
    let of_message = BYTES_AT_LEAST + BYTES_PER_BYTE * n_bytes;
    // Pixels of an image: what the compression may hold at best. A run of zeros has no limit.
    let max_pixels = if !name.starts_with("compressed") {
        return of_message;
    } else if name.contains("jpeg") {
        512 * n_bytes
    } else {
        MAX_PIXELS as usize
    };
    of_message + DECODER_BYTES + BYTES_PER_PIXEL * max_pixels.min(MAX_PIXELS as usize)
}

/// The n-th mutation of all: a sample's name, and its bytes.
fn mutation(n: u64, samples: &[(&'static str, Vec<u8>)]) -> (&'static str, Vec<u8>) {
    let mut draws = Draws(n.wrapping_mul(0xD134_2543_DE82_EF95));
    let (name, ref sample) = samples[draws.below(samples.len())];
    let donor = &samples[draws.below(samples.len())].1;
    let mut bytes = sample.clone();
    for _ in 0..=draws.below(4) {
        mutate(&mut bytes, donor, &mut draws);
    }
    if draws.below(2) == 0 {
        repair_png(&mut bytes);
    }
    (name, bytes)
}

#[derive(Default)]
struct Tally {
    n: u64,
    n_decoded: u64,
    peak_bytes: isize,
}

#[test]
fn mutated_messages_decode_or_are_errors() {
    let samples: Vec<_> = [false, true].into_iter().flat_map(samples::samples).collect();
    for (name, bytes) in &samples {
        decode(name, bytes).expect("a sample is valid");
    }
    let number = |key: &str| std::env::var(key).ok().map(|text| text.parse().expect("a number"));
    let n = number("FORECLOUD_MUTATIONS").unwrap_or(DEFAULT_MUTATIONS);
    let only: Option<u64> = number("FORECLOUD_MUTATION");
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for i in only.map_or(0..n, |only| only..only + 1) {
        let (name, bytes) = mutation(i, &samples);
        Counted::reset();
        let outcome = catch_unwind(AssertUnwindSafe(|| decode(name, &bytes)));
        let peak = PEAK.get();
        let again = format!("{name}: FORECLOUD_MUTATION={i} repeats it");
        let outcome = outcome.unwrap_or_else(|_| panic!("panicked on {again}"));
        let max = max_bytes(name, bytes.len());
        assert!(peak <= max as isize, "{peak} bytes, not {max}, of {}: {again}", bytes.len());
        if let Err(error) = &outcome {
            assert!(matches!(error, Error::Message { .. }), "{error}: {again}");
        }
        let tally = tallies.entry(name).or_default();
        tally.n += 1;
        tally.n_decoded += u64::from(outcome.is_ok());
        tally.peak_bytes = tally.peak_bytes.max(peak);
    }
    for (name, Tally { n, n_decoded, peak_bytes }) in &tallies {
        println!(
            "{name:<30} {n:>8} mutations, {n_decoded:>8} decoded, {peak_bytes:>9} bytes at most"
        );
    }
    // Mutations that all failed at once would test nothing.
    let all_kinds = tallies.values().all(|tally| tally.n_decoded > 0 && tally.n_decoded < tally.n);
    assert!(all_kinds || only.is_some() || n < DEFAULT_MUTATIONS);
}
