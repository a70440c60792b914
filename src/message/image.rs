//! `sensor_msgs/msg/Image`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::base::error::Result;

/// Pixels of a decompressed image, and points of a cloud, at most: [`crate::vision::cloud`] keeps the place
/// of each in 24 bits.
pub const MAX_PIXELS: u64 = 1 << 24;

/// An uncompressed image; row `y` starts at byte `y * step`.
///
/// Decoding checks that it has at least one pixel, that `data` holds `height` rows of `step`
/// bytes, and that a row of a known encoding fits into `step`.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// Time, and the optical frame of the camera.
    pub header: Header,
    /// Rows.
    pub height: u32,
    /// Pixels of a row.
    pub width: u32,
    /// Layout of a pixel: `rgb8`, `16UC1`, …
    pub encoding: String,
    /// Whether numbers of more than one byte are big endian.
    pub is_bigendian: bool,
    /// Bytes from one row to the next.
    pub step: u32,
    /// The rows.
    pub data: Vec<u8>,
}

impl Image {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated or its sizes don't belong together.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "sensor_msgs/msg/Image")?;
        let mut image = Self {
            header: Header::read(&mut reader)?,
            height: reader.u32("height")?,
            width: reader.u32("width")?,
            encoding: reader.string("encoding")?,
            is_bigendian: reader.u8("is_bigendian")? != 0,
            step: reader.u32("step")?,
            data: reader.u8s("data")?,
        };
        image.mend_step();
        if let Some((field, problem)) = image.problem() {
            return Err(reader.error(field, problem));
        }
        reader.finish()?;
        Ok(image)
    }

    /// Bytes of one pixel, or `None` if the encoding is not known.
    pub fn bytes_per_pixel(&self) -> Option<usize> {
        bytes_per_pixel(&self.encoding)
    }

    /// The bytes of row `y` without the padding after its last pixel.
    ///
    /// `None` if there is no such row or the encoding is not known.
    pub fn row(&self, y: u32) -> Option<&[u8]> {
        let start = (y < self.height).then_some(y as usize * self.step as usize)?;
        self.data.get(start..start + self.width as usize * self.bytes_per_pixel()?)
    }

    /// Where the data is as long as rows without padding, that is what they are, whatever `step` says.
    fn mend_step(&mut self) {
        let row_bytes = self.bytes_per_pixel().unwrap_or(0) as u64 * u64::from(self.width);
        let is_tight =
            row_bytes > 0 && row_bytes * u64::from(self.height) == self.data.len() as u64;
        if let Some(step) = u32::try_from(row_bytes).ok().filter(|_| is_tight) {
            self.step = step;
        }
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let Self { width, height, step, encoding, .. } = self;
        if *width == 0 || *height == 0 {
            return Some(("width", format!("an image of {width} x {height} pixels")));
        }
        let row_bytes = self.bytes_per_pixel().unwrap_or(0) as u64 * u64::from(*width);
        if row_bytes > u64::from(*step) {
            let problem = format!("{step} is less than {width} pixels of {encoding}: {row_bytes}");
            return Some(("step", problem));
        }
        let expected = u64::from(*step) * u64::from(*height);
        let got = self.data.len();
        (expected > got as u64)
            .then(|| ("data", format!("{height} rows of {step} bytes are {expected}, got {got}")))
    }
}

/// Sizes of the encodings of `sensor_msgs/image_encodings.hpp`.
fn bytes_per_pixel(encoding: &str) -> Option<usize> {
    match encoding {
        "mono8" => Some(1),
        "mono16" => Some(2),
        "rgb8" | "bgr8" => Some(3),
        "rgba8" | "bgra8" => Some(4),
        "rgb16" | "bgr16" => Some(6),
        "rgba16" | "bgra16" => Some(8),
        bayer if bayer.starts_with("bayer_") => match bayer {
            _ if bayer.ends_with("16") => Some(2),
            _ if bayer.ends_with('8') => Some(1),
            _ => None,
        },
        generic => generic_bytes_per_pixel(generic),
    }
}

/// OpenCV's names: bits, kind of number, channels (`32FC1`; `32F` is one channel).
fn generic_bytes_per_pixel(encoding: &str) -> Option<usize> {
    let kind = encoding.find(['U', 'S', 'F'])?;
    let (bits, rest) = encoding.split_at(kind);
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    let channels = match &rest[1..] {
        "" => 1,
        "C1" => 1,
        "C2" => 2,
        "C3" => 3,
        "C4" => 4,
        _ => return None,
    };
    Some(bytes * channels)
}
