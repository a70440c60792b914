//! `sensor_msgs/msg/CameraInfo`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::error::Result;

/// Calibration of a camera (without binning and region of interest, see [`CameraInfo::decode`]).
///
/// All numbers are finite, and both focal lengths of `k` are positive.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraInfo {
    /// Time, and the optical frame of the camera (z forward, x right, y down).
    pub header: Header,
    /// Rows of the calibrated image.
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

impl CameraInfo {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated, the camera is not calibrated, or the image
    /// is binned or cut (such images don't match `k`).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "sensor_msgs/msg/CameraInfo")?;
        let info = Self {
            header: Header::read(&mut reader)?,
            height: reader.u32("height")?,
            width: reader.u32("width")?,
            distortion_model: reader.string("distortion_model")?,
            d: reader.f64s("d")?,
            k: reader.f64_array("k")?,
            r: reader.f64_array("r")?,
            p: reader.f64_array("p")?,
        };
        if let Some((field, problem)) = info.problem() {
            return Err(reader.error(field, problem));
        }
        info.check_whole_image(&mut reader)?;
        reader.finish()?;
        Ok(info)
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let Self { d, k, r, p, .. } = self;
        for (field, values) in [("d", &d[..]), ("k", k), ("r", r), ("p", p)] {
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Some((field, format!("holds {value}")));
            }
        }
        (k[0] <= 0.0 || k[4] <= 0.0).then(|| {
            let problem = format!("focal lengths {} and {}: calibrate the camera", k[0], k[4]);
            ("k", problem)
        })
    }

    /// Binning 0 and 1 both mean none; a region of all zeros means the whole image.
    fn check_whole_image(&self, reader: &mut CdrReader) -> Result<()> {
        let binning = [reader.u32("binning_x")?, reader.u32("binning_y")?];
        if binning.iter().any(|&n| n > 1) {
            let [x, y] = binning;
            return Err(reader.error("binning_x", format!("binning {x} x {y} is not supported")));
        }
        let offset = [reader.u32("roi.x_offset")?, reader.u32("roi.y_offset")?];
        let [height, width] = [reader.u32("roi.height")?, reader.u32("roi.width")?];
        reader.u8("roi.do_rectify")?;
        let whole = [height, width] == [0, 0] || [height, width] == [self.height, self.width];
        if !whole || offset != [0, 0] {
            return Err(reader.error(
                "roi",
                format!("a region of {width} x {height} pixels: publish the whole image"),
            ));
        }
        Ok(())
    }
}
