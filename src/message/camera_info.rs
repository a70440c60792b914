//! `sensor_msgs/msg/CameraInfo`.

use std::fmt;

use super::cdr::CdrReader;
use super::header::Header;
use crate::base::error::Result;

/// Calibration of a camera, of the image as it is published.
///
/// All numbers are finite, and both focal lengths of `k` are positive.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraInfo {
    /// Time, and the optical frame of the camera (z forward, x right, y down).
    pub header: Header,
    /// Rows of the published image: of the region of interest, binned.
    pub height: u32,
    /// Pixels of a row.
    pub width: u32,
    /// Name of the distortion model: `plumb_bob`, …
    pub distortion_model: String,
    /// Parameters of the distortion; empty without distortion.
    pub d: Vec<f64>,
    /// Intrinsic matrix of the raw image, row by row: fx 0 cx, 0 fy cy, 0 0 1 (pixels).
    pub k: [f64; 9],
    /// Rectification rotation, row by row.
    pub r: [f64; 9],
    /// Projection matrix of the rectified image, 3 × 4, row by row.
    pub p: [f64; 12],
}

/// What of the calibrated image is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduction {
    /// Pixels that become one: x, y; 0 means 1.
    pub binning: [u32; 2],
    /// First column and row of the region of interest, in pixels before binning.
    pub offset: [u32; 2],
    /// Its width and height; all of it 0 means the whole image.
    pub size: [u32; 2],
}

impl Reduction {
    /// Whether the whole image is published as it was taken.
    pub fn is_none(&self) -> bool {
        self.binning.iter().all(|n| *n <= 1) && self.offset == [0; 2] && self.size == [0; 2]
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { binning: [bx, by], offset: [x, y], size: [width, height] } = self;
        write!(f, "binning of {bx} x {by} and a region of {width} x {height} at {x}, {y}")
    }
}

const MESSAGE_TYPE: &str = "sensor_msgs/msg/CameraInfo";

impl CameraInfo {
    /// Decodes a serialized message; binning and region of interest are applied to the size, `k`
    /// and `p`.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated, the camera is not calibrated, or the region
    /// of interest is none of the image.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, MESSAGE_TYPE)?;
        let (mut info, reduction) = Self::read(&mut reader)?;
        info.reduce(&reduction).map_err(|(field, problem)| reader.error(field, problem))?;
        reader.finish()?;
        Ok(info)
    }

    /// As it was published: without what region and binning change, and these.
    ///
    /// # Errors
    /// As [`CameraInfo::decode`], but for regions that are none of the image.
    pub fn published(bytes: &[u8]) -> Result<(Self, Reduction)> {
        let mut reader = CdrReader::new(bytes, MESSAGE_TYPE)?;
        let published = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(published)
    }

    fn read(reader: &mut CdrReader) -> Result<(Self, Reduction)> {
        let info = Self {
            header: Header::read(reader)?,
            height: reader.u32("height")?,
            width: reader.u32("width")?,
            distortion_model: reader.string("distortion_model")?,
            d: reader.f64s("d")?,
            k: reader.f64_array("k")?,
            r: reader.f64_array("r")?,
            p: reader.f64_array("p")?,
        };
        let reduction = Reduction::read(reader)?;
        match info.problem() {
            Some((field, problem)) => Err(reader.error(field, problem)),
            None => Ok((info, reduction)),
        }
    }

    /// The calibration of what is published of these images; none if region or binning leave nothing.
    pub fn reduced(&self, reduction: &Reduction) -> Option<Self> {
        let mut info = self.clone();
        info.reduce(reduction).ok()?;
        Some(info)
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let Self { width, height, d, k, r, p, .. } = self;
        for (field, values) in [("d", &d[..]), ("k", k), ("r", r), ("p", p)] {
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Some((field, format!("holds {value}")));
            }
        }
        if k[0] <= 0.0 || k[4] <= 0.0 {
            let problem = format!("focal lengths {} and {}: calibrate the camera", k[0], k[4]);
            return Some(("k", problem));
        }
        (*width == 0 || *height == 0).then(|| {
            let problem = format!(
                "calibrated for an image of {width} x {height} pixels: publish the image's size"
            );
            ("width", problem)
        })
    }

    /// The region first, then the binning, as `image_geometry` does: pixel 0 of a binned image is
    /// where pixel 0 of the region is.
    fn reduce(
        &mut self,
        Reduction { binning, offset, size }: &Reduction,
    ) -> std::result::Result<(), (&'static str, String)> {
        let full = [self.width, self.height];
        let is_whole = *offset == [0; 2] && *size == [0; 2];
        let size = if is_whole { full } else { *size };
        let is_inside = |i: usize| {
            size[i] > 0 && u64::from(offset[i]) + u64::from(size[i]) <= u64::from(full[i])
        };
        if !is_inside(0) || !is_inside(1) {
            let ([w, h], [x, y], [width, height]) = (size, offset, full);
            let problem = format!(
                "a region of {w} x {h} pixels at {x}, {y} of an image of {width} x {height}: \
                 publish it within the calibrated image, or all 0 for the whole"
            );
            return Err(("roi", problem));
        }
        let bins = binning.map(|n| n.max(1));
        let reduced = [size[0] / bins[0], size[1] / bins[1]];
        if reduced.contains(&0) {
            let problem = format!("bins of {} x {} pixels leave none", bins[0], bins[1]);
            return Err(("binning_x", problem));
        }
        [self.width, self.height] = reduced;
        let [dx, dy] = offset.map(f64::from);
        let [bx, by] = bins.map(f64::from);
        for (focal, center, offset, bin) in [(0, 2, dx, bx), (4, 5, dy, by)] {
            self.k[focal] /= bin;
            self.k[center] = (self.k[center] - offset) / bin;
        }
        for (focal, center, baseline, offset, bin) in [(0, 2, 3, dx, bx), (5, 6, 7, dy, by)] {
            self.p[focal] /= bin;
            self.p[center] = (self.p[center] - offset) / bin;
            self.p[baseline] /= bin;
        }
        Ok(())
    }
}

impl Reduction {
    fn read(reader: &mut CdrReader) -> Result<Self> {
        let binning = [reader.u32("binning_x")?, reader.u32("binning_y")?];
        let offset = [reader.u32("roi.x_offset")?, reader.u32("roi.y_offset")?];
        let [height, width] = [reader.u32("roi.height")?, reader.u32("roi.width")?];
        reader.u8("roi.do_rectify")?; // says where the rectified image is cut, not this one
        Ok(Self { binning, offset, size: [width, height] })
    }
}
