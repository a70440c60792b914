//! What a camera's calibration and its depth values tell by themselves.

use super::item::{Item, Verdict};
use crate::message::{CameraInfo, Image, Reduction};
use crate::vision::camera::{DEPTH_RANGE_M, DepthImage};

/// Principal points lie in the middle: at least this share of the image from each edge.
const MIDDLE: std::ops::RangeInclusive<f64> = 0.25..=0.75;
/// Focal lengths in units of the image's width: fields of view from 20 to 150 degrees.
const FOCAL: std::ops::RangeInclusive<f64> = 0.13..=2.9;
/// How much the two focal lengths of a camera differ at most, and K and P (shares).
const SQUARE: f64 = 0.1;
const K_AND_P: f64 = 0.01;
/// How far a principal point is from the middle (share of the image's size) of a calibration of these images at
/// most, and of one of others at least.
const CENTERED: f64 = 0.08;
const OFF_CENTER: f64 = 0.15;
/// Rows whose depths are looked at.
const N_ROWS: u32 = 32;
/// Share of the pixels without depth from which on something is wrong.
const MANY_EMPTY: f64 = 0.9;
/// Share of 65,535 (no reading of some drivers) that is told.
const MANY_FULL: f64 = 0.01;
/// Median depths that tables and rooms have (m).
const USUAL_M: std::ops::RangeInclusive<f32> = 0.12..=15.0;

/// What is wrong with a camera's calibration; one item of one that looks right.
///
/// `name`: of the camera; `topics`: those of its images.
pub fn calibration_items(name: &str, info: &CameraInfo, topics: &[&str]) -> Vec<Item> {
    let what = format!("calibration of {name}");
    let CameraInfo { width, height, k, p, d, .. } = info;
    let (size, focal, center) =
        ([f64::from(*width), f64::from(*height)], [k[0], k[4]], [k[2], k[5]]);
    let numbers = format!(
        "{width} x {height} pixels, focal lengths {:.1} and {:.1}, principal point {:.1}, {:.1}",
        focal[0], focal[1], center[0], center[1]
    );
    let wrong = |verdict, evidence: String, cause: &str, remedy: &str| {
        Item::wrong(verdict, what.clone(), evidence, cause, remedy)
    };
    let mut items = Vec::new();
    if (0..2).any(|i| !MIDDLE.contains(&(center[i] / size[i]))) {
        let cause = "the calibration is of another resolution or crop than the images";
        let remedy = "publish the calibration of these images, scaled with them";
        items.push(wrong(
            Verdict::Fail,
            format!("the principal point is not in the middle: {numbers}"),
            cause,
            remedy,
        ));
    } else if !FOCAL.contains(&(focal[0] / size[0])) || (focal[0] / focal[1] - 1.0).abs() > SQUARE {
        let cause = "the calibration is of another resolution, or made up";
        let remedy = "calibrate the camera, or publish its driver's own camera_info";
        items.push(wrong(
            Verdict::Warn,
            format!("unusual focal lengths: {numbers}"),
            cause,
            remedy,
        ));
    }
    let is_distorted = d.iter().any(|d| d.abs() > 1e-9);
    let is_rectified = topics.iter().any(|topic| topic.contains("rect"));
    let has_p = p[0] > 0.0 && p[5] > 0.0;
    let off = [(k[0], p[0]), (k[4], p[5]), (k[2], p[2]), (k[5], p[6])];
    let off = off.map(|(k, p)| (k - p).abs() / size[0]).into_iter().fold(0.0, f64::max);
    if is_rectified && is_distorted {
        let cause = "the images are rectified, and the calibration is that of the raw ones";
        let remedy =
            "publish a calibration without distortion, whose K is P, beside rectified images";
        let text = format!("distortion {d:.3?} beside rectified images ({})", topics.join(", "));
        items.push(wrong(Verdict::Warn, text, cause, remedy));
    } else if has_p && off > K_AND_P && !is_distorted {
        let cause = "the images are rectified with P, and read with K";
        let remedy = "publish the calibration of the images that are published: K equal to P";
        let text = format!("K and P differ by {:.1} % of the width: {numbers}", 100.0 * off);
        items.push(wrong(Verdict::Warn, text, cause, remedy).value("k_p_off_share", off));
    }
    if items.is_empty() {
        items.push(Item::ok(what, numbers));
    }
    items
}

/// That a calibration is of another size than the images, whose size (pixels) is `image`; none if it is not.
/// `published`: the calibration without its region and binning, and these.
pub fn size_item(
    name: &str,
    info: &CameraInfo,
    published: Option<&(CameraInfo, Reduction)>,
    image: [u32; 2],
) -> Option<Item> {
    let what = format!("size of {name}");
    let size = [info.width, info.height];
    let reduced = published.filter(|(_, reduction)| !reduction.is_none());
    if size == image {
        let (full, reduction) = reduced?;
        // What K would say of these images without being reduced, too.
        let center = |info: &CameraInfo| {
            let off = |center: f64, size: u32| (center / f64::from(size) - 0.5).abs();
            off(info.k[2], image[0]).max(off(info.k[5], image[1]))
        };
        let is_done = center(full) < CENTERED && center(info) > OFF_CENTER;
        return is_done.then(|| {
            Item::wrong(
                Verdict::Fail,
                what,
                format!(
                    "{reduction} are applied to K, whose principal point {:.1}, {:.1} is the middle of the \
                     images of {} x {} pixels without that",
                    full.k[2], full.k[5], image[0], image[1]
                ),
                "K is that of the reduced images already: it would be reduced twice",
                "publish the calibration of the whole sensor with its binning and region, or that of the \
                 images with both 0",
            )
        });
    }
    let evidence = format!(
        "the calibration is for images of {} x {} pixels{}, and they have {} x {}",
        size[0],
        size[1],
        reduced.map_or(String::new(), |(full, reduction)| format!(
            " ({} x {} with {reduction})",
            full.width, full.height
        )),
        image[0],
        image[1]
    );
    let (cause, remedy) = match reduced {
        Some(_) => (
            "binning or region of interest of camera_info are not what was done to the images",
            "publish binning 0 and a region of 0 with images of the whole sensor, or reduce the images so",
        ),
        None => (
            "the calibration is of another resolution than the images",
            "publish the calibration of these images, scaled with them",
        ),
    };
    Some(Item::wrong(Verdict::Fail, what, evidence, cause, remedy))
}

/// Depth values of some images of a camera.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DepthValues {
    encoding: String,
    n: u64,
    n_empty: u64,
    n_full: u64,
    n_beyond: u64,
    /// As published, in what should be metres.
    values: Vec<f32>,
}

impl DepthValues {
    /// Takes those of an image; none of one that is no depth image.
    pub fn add(&mut self, image: &Image) {
        let Ok(depth) = DepthImage::new(image) else { return };
        self.encoding.clone_from(&image.encoding);
        let [_, height] = depth.size();
        let full_m = f32::from(u16::MAX) * 1e-3;
        for v in (0..height).step_by(height.div_ceil(N_ROWS).max(1) as usize) {
            for depth_m in depth.raw_row(v) {
                self.n += 1;
                match depth_m {
                    depth_m if depth_m.is_nan() || depth_m == 0.0 => self.n_empty += 1,
                    depth_m if depth_m == full_m => self.n_full += 1,
                    depth_m => {
                        self.n_beyond +=
                            u64::from(!(DEPTH_RANGE_M[0]..=DEPTH_RANGE_M[1]).contains(&depth_m));
                        // Of each image some: the median needs no more.
                        if self.n.is_multiple_of(7) && depth_m.is_finite() {
                            self.values.push(depth_m);
                        }
                    }
                }
            }
        }
    }

    /// The median (m).
    pub fn median_m(&self) -> Option<f32> {
        let mut values = self.values.clone();
        let middle = values.len() / 2;
        (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f32::total_cmp).1)
    }
}

/// What a camera's depth values tell of their unit and of how many there are; none if none came.
pub fn depth_item(name: &str, depths: &DepthValues) -> Option<Item> {
    let what = format!("depth of {name}");
    let DepthValues { encoding, n, n_empty, n_full, n_beyond, .. } = depths;
    let share = |count: u64| count as f64 / (*n).max(1) as f64;
    if *n == 0 {
        return None;
    }
    let median_m = depths.median_m();
    let numbers = format!(
        "{encoding}, median {:.3} m, {:.1} % without, {:.1} % 65535",
        median_m.unwrap_or(f32::NAN),
        100.0 * share(*n_empty),
        100.0 * share(*n_full)
    );
    let item = match median_m {
        None => Item::wrong(
            Verdict::Fail,
            what,
            format!("no depth was measured: {numbers}"),
            "the depth stream is empty: the sensor is covered, off, or too near",
            "look at the depth image (rqt_image_view), and at the driver's log",
        ),
        Some(median_m) if !USUAL_M.contains(&median_m) || share(*n_beyond) > 0.5 => {
            let (cause, remedy) = match encoding.as_str() {
                "32FC1" if median_m > *USUAL_M.end() => (
                    "millimetres in a 32FC1 image, which holds metres",
                    "publish 16UC1 in millimetres, or divide by 1000",
                ),
                _ if median_m > *USUAL_M.end() => (
                    "a 16UC1 image in tenths of a millimetre or another unit than millimetres",
                    "set the driver's depth unit to 1 mm",
                ),
                "32FC1" => ("another unit than metres", "publish metres in 32FC1 images"),
                _ => (
                    "a 16UC1 image in metres or centimetres, which holds millimetres",
                    "publish 16UC1 in millimetres, or 32FC1 in metres",
                ),
            };
            // Frames read that as it is meant.
            let is_known = encoding == "32FC1" && median_m > *USUAL_M.end();
            let verdict = if is_known { Verdict::Warn } else { Verdict::Fail };
            Item::wrong(verdict, what, format!("unusual depths: {numbers}"), cause, remedy)
        }
        Some(_) if share(*n_empty) > MANY_EMPTY => Item::wrong(
            Verdict::Warn,
            what,
            format!("few depths were measured: {numbers}"),
            "the scene is too near, too far, too dark or too shiny for the sensor",
            "change the sensor's preset or place",
        ),
        Some(_) if share(*n_full) > MANY_FULL => Item::wrong(
            Verdict::Warn,
            what,
            numbers,
            "the driver writes 65535 where nothing was measured",
            "nothing, if they are read as no depth; else write 0",
        ),
        Some(_) => Item::ok(what, numbers),
    };
    let median_m = f64::from(median_m.unwrap_or(f32::NAN));
    let item = item.value("median_m", median_m).value("empty_share", share(*n_empty));
    Some(item.value("full_share", share(*n_full)))
}
