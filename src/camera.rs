//! Pinhole cameras and the readings of depth images.
//!
//! Optical frame: x right, y down, z forward, metres (REP 103). Pixel centres lie at integer
//! coordinates.

use crate::error::{Error, Result};
use crate::message::{CameraInfo, Image};

/// Nearest and farthest depth that counts as a measurement, metres.
pub const DEPTH_RANGE_M: [f32; 2] = [0.01, 100.0];

/// Intrinsic parameters of a camera without distortion, pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pinhole {
    /// Focal lengths: x, y.
    pub focal: [f64; 2],
    /// Principal point: column, row.
    pub center: [f64; 2],
}

impl Pinhole {
    /// The camera that `info` describes, read from its matrix `k`.
    ///
    /// # Errors
    /// [`Error::Camera`] if a distortion coefficient is not zero, or `k` is not that of a camera.
    pub fn new(info: &CameraInfo) -> Result<Self> {
        let error = |problem| {
            let frame_id = info.header.frame_id.clone();
            Err(Error::Camera { frame_id, problem })
        };
        if info.d.iter().any(|&d| d != 0.0) {
            return error(format!(
                "distortion '{}' {:?} comes in a later version: rectify the images \
                 (image_proc) and use their camera info",
                info.distortion_model, info.d
            ));
        }
        let [fx, skew, cx, _, fy, cy, ..] = info.k;
        let is_focal = |f: f64| f.is_finite() && f > 0.0;
        if !is_focal(fx) || !is_focal(fy) || !cx.is_finite() || !cy.is_finite() || skew != 0.0 {
            return error(format!("matrix k {:?} is not that of a pinhole camera", info.k));
        }
        Ok(Self { focal: [fx, fy], center: [cx, cy] })
    }

    /// Point at depth 1 m behind the pixel (column, row), optical frame.
    pub fn ray(&self, pixel: [f64; 2]) -> [f64; 3] {
        let axis = |i: usize| (pixel[i] - self.center[i]) / self.focal[i];
        [axis(0), axis(1), 1.0]
    }

    /// Pixel (column, row) that sees `point` (optical frame, m); `None` behind the camera.
    pub fn project(&self, point: [f64; 3]) -> Option<[f64; 2]> {
        let pixel = |i: usize| self.focal[i] * point[i] / point[2] + self.center[i];
        (point[2] > 0.0).then(|| [pixel(0), pixel(1)])
    }
}

/// How the bytes of a depth pixel are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `16UC1`: millimetres.
    Millimetres,
    /// `32FC1`: metres.
    Metres,
}

/// A depth image whose layout has been checked.
#[derive(Debug, Clone, Copy)]
pub struct DepthImage<'a> {
    image: &'a Image,
    format: Format,
}

impl<'a> DepthImage<'a> {
    /// Checks the encoding of `image` and that its rows are there.
    ///
    /// # Errors
    /// [`Error::Encoding`] for encodings other than 16UC1 (mm) and 32FC1 (m); [`Error::Camera`]
    /// if the data is shorter than its rows.
    pub fn new(image: &'a Image) -> Result<Self> {
        let format = match image.encoding.as_str() {
            // `mono16` is what some drivers call 16UC1.
            "16UC1" | "mono16" => Format::Millimetres,
            "32FC1" => Format::Metres,
            _ => return Err(encoding_error("depth image", image, "16UC1 (mm) or 32FC1 (m)")),
        };
        check_rows(image, format.n_bytes())?;
        Ok(Self { image, format })
    }

    /// Width and height, pixels.
    pub fn size(&self) -> [u32; 2] {
        [self.image.width, self.image.height]
    }

    /// Depths of row `v` along the optical axis, metres: one per column; NaN where nothing was
    /// measured (zero, not finite, or out of [`DEPTH_RANGE_M`]). No values if there is no such row.
    pub fn row(&self, v: u32) -> impl Iterator<Item = f32> + use<'a> {
        let n_bytes = self.format.n_bytes();
        let big = self.image.is_bigendian;
        let format = self.format;
        row_bytes(self.image, v, n_bytes).chunks_exact(n_bytes).map(move |bytes| {
            let depth = match (format, bytes) {
                (Format::Millimetres, &[a, b]) => {
                    let value =
                        if big { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) };
                    f32::from(value) * 1e-3
                }
                (Format::Metres, &[a, b, c, d]) => {
                    let bytes = [a, b, c, d];
                    if big { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) }
                }
                _ => f32::NAN,
            };
            // A NaN is in no range.
            if (DEPTH_RANGE_M[0]..=DEPTH_RANGE_M[1]).contains(&depth) { depth } else { f32::NAN }
        })
    }
}

impl Format {
    fn n_bytes(self) -> usize {
        match self {
            Self::Millimetres => 2,
            Self::Metres => 4,
        }
    }
}

/// A colour image whose layout has been checked.
#[derive(Debug, Clone, Copy)]
pub struct ColorImage<'a> {
    image: &'a Image,
}

impl<'a> ColorImage<'a> {
    /// Checks that `image` is rgb8 and as large as its depth image (`size`: width, height).
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::ImageSize`], or [`Error::Camera`] if the data is shorter than
    /// its rows.
    pub fn new(image: &'a Image, size: [u32; 2]) -> Result<Self> {
        if image.encoding != "rgb8" {
            return Err(encoding_error("colour image", image, "rgb8"));
        }
        check_size("colour image", &image.header.frame_id, size, [image.width, image.height])?;
        check_rows(image, 3)?;
        Ok(Self { image })
    }

    /// Red, green and blue of each column of row `v`.
    pub fn row(&self, v: u32) -> impl Iterator<Item = [u8; 3]> + use<'a> {
        row_bytes(self.image, v, 3).chunks_exact(3).map(|rgb| [rgb[0], rgb[1], rgb[2]])
    }
}

/// Checks that `got` (width, height) is the size of the depth image.
pub(crate) fn check_size(
    what: &'static str,
    frame_id: &str,
    expected: [u32; 2],
    got: [u32; 2],
) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::ImageSize { what, frame_id: frame_id.to_owned(), expected, got })
}

fn encoding_error(what: &'static str, image: &Image, supported: &'static str) -> Error {
    let frame_id = image.header.frame_id.clone();
    Error::Encoding { what, frame_id, got: image.encoding.clone(), supported }
}

/// Decoding has checked this too; images can also be built by hand.
fn check_rows(image: &Image, bytes_per_pixel: usize) -> Result<()> {
    let row = image.width as usize * bytes_per_pixel;
    let needed = image.step as usize * image.height as usize;
    if row <= image.step as usize && needed <= image.data.len() {
        return Ok(());
    }
    let problem = format!(
        "{} bytes do not hold {} rows of {} bytes with {} pixels of {}",
        image.data.len(),
        image.height,
        image.step,
        image.width,
        image.encoding
    );
    Err(Error::Camera { frame_id: image.header.frame_id.clone(), problem })
}

fn row_bytes(image: &Image, v: u32, bytes_per_pixel: usize) -> &[u8] {
    let start = v as usize * image.step as usize;
    let end = start + image.width as usize * bytes_per_pixel;
    if v < image.height { image.data.get(start..end).unwrap_or(&[]) } else { &[] }
}

#[cfg(test)]
mod tests;
