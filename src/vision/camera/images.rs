//! Readings of depth and colour images, in the layouts that cameras publish.

use crate::base::error::{Error, Result};
use crate::message::Image;

/// Nearest and farthest depth that counts as a measurement, metres.
pub const DEPTH_RANGE_M: [f32; 2] = [0.01, 100.0];

/// Bytes of a checked image.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "read by devices beside the CPU"))]
pub struct Layout<'a> {
    /// All rows.
    pub data: &'a [u8],
    /// Bytes from a row to the next.
    pub step: usize,
    /// Bytes of a pixel.
    pub n_bytes: usize,
    /// Whether the highest byte of a number comes first.
    pub is_big: bool,
}

impl<'a> Layout<'a> {
    fn new(image: &'a Image, n_bytes: usize) -> Self {
        let step = image.step as usize;
        let n_used = step * image.height as usize;
        let data = image.data.get(..n_used).unwrap_or(&image.data);
        Self { data, step, n_bytes, is_big: image.is_bigendian }
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

    /// How its bytes lie: pixel (column, row) begins at `row · step + column · n_bytes`.
    pub(crate) fn layout(&self) -> Layout<'a> {
        Layout::new(self.image, self.format.n_bytes())
    }

    /// Depths of row `v` along the optical axis, metres: one per column; NaN where nothing was
    /// measured (zero, not finite, or out of [`DEPTH_RANGE_M`]). No values if there is no such row.
    pub fn row(&self, v: u32) -> impl Iterator<Item = f32> + use<'a> {
        // A NaN is in no range.
        self.raw_row(v).map(|depth_m| {
            if (DEPTH_RANGE_M[0]..=DEPTH_RANGE_M[1]).contains(&depth_m) {
                depth_m
            } else {
                f32::NAN
            }
        })
    }

    /// As [`DepthImage::row`], and what can't be a measurement as it was published.
    pub fn raw_row(&self, v: u32) -> impl Iterator<Item = f32> + use<'a> {
        let (format, big) = (self.format, self.image.is_bigendian);
        let n_bytes = format.n_bytes();
        let rows = row_bytes(self.image, v, n_bytes).chunks_exact(n_bytes);
        rows.map(move |bytes| format.reading(bytes, big))
    }

    /// Depth of the pixel (column, row), as [`DepthImage::row`]; NaN beside the image.
    pub fn at(&self, [u, v]: [u32; 2]) -> f32 {
        let n_bytes = self.format.n_bytes();
        let row = row_bytes(self.image, v, n_bytes);
        let bytes = row.get(u as usize * n_bytes..).and_then(|rest| rest.get(..n_bytes));
        let depth_m =
            bytes.map_or(f32::NAN, |bytes| self.format.reading(bytes, self.image.is_bigendian));
        if (DEPTH_RANGE_M[0]..=DEPTH_RANGE_M[1]).contains(&depth_m) { depth_m } else { f32::NAN }
    }
}

/// Overwrites the readings of a depth image: `depths_m` row by row, in metres, in the image's
/// encoding (16UC1: rounded to millimetres). What it can't hold, and NaN, is not measured.
///
/// # Errors
/// As [`DepthImage::new`]; [`Error::Shape`] if there is not one depth per pixel.
pub fn write_depths(image: &mut Image, depths_m: &[f32]) -> Result<()> {
    let depth = DepthImage::new(image)?;
    let (format, big) = (depth.format, image.is_bigendian);
    let (width, step) = (image.width as usize, image.step as usize);
    let expected = width * image.height as usize;
    if depths_m.len() != expected {
        let (what, got) = ("depths of an image (one per pixel)", depths_m.len());
        return Err(Error::Shape { what, expected, got });
    }
    let n_bytes = format.n_bytes();
    for (row, depths_m) in image.data.chunks_mut(step.max(1)).zip(depths_m.chunks(width.max(1))) {
        for (bytes, &depth_m) in row.chunks_exact_mut(n_bytes).zip(depths_m) {
            match format {
                Format::Millimetres => {
                    // The conversion cuts off, saturates and makes NaN 0.
                    let value = (depth_m * 1e3 + 0.5) as u16;
                    let value = if value == u16::MAX { 0 } else { value };
                    bytes.copy_from_slice(&match big {
                        true => value.to_be_bytes(),
                        false => value.to_le_bytes(),
                    });
                }
                Format::Metres => bytes.copy_from_slice(&match big {
                    true => depth_m.to_be_bytes(),
                    false => depth_m.to_le_bytes(),
                }),
            }
        }
    }
    Ok(())
}

impl Format {
    /// Metres.
    fn reading(self, bytes: &[u8], big: bool) -> f32 {
        match (self, bytes) {
            (Self::Millimetres, &[a, b]) => {
                let value =
                    if big { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) };
                f32::from(value) * 1e-3
            }
            (Self::Metres, &[a, b, c, d]) => {
                let bytes = [a, b, c, d];
                if big { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) }
            }
            _ => f32::NAN,
        }
    }

    fn n_bytes(self) -> usize {
        match self {
            Self::Millimetres => 2,
            Self::Metres => 4,
        }
    }
}

/// A colour or grey image whose layout has been checked.
#[derive(Debug, Clone, Copy)]
pub struct ColorImage<'a> {
    image: &'a Image,
    n_bytes: usize,
    /// Which bytes of a pixel are red, green and blue.
    channels: [usize; 3],
}

impl<'a> ColorImage<'a> {
    /// Checks the encoding of `image` and that its rows are there.
    ///
    /// Read are rgb8, bgr8, rgba8, bgra8, mono8 and mono16 (its upper byte: grey = value / 256);
    /// 8UC1 as mono8, 8UC3 as bgr8 and 8UC4 as bgra8, which is OpenCV's order and RViz's reading.
    ///
    /// # Errors
    /// [`Error::Encoding`] for others; [`Error::Camera`] if the data is shorter than its rows.
    pub fn new(image: &'a Image) -> Result<Self> {
        let (n_bytes, channels) = match image.encoding.as_str() {
            "rgb8" => (3, [0, 1, 2]),
            "bgr8" | "8UC3" => (3, [2, 1, 0]),
            "rgba8" => (4, [0, 1, 2]),
            "bgra8" | "8UC4" => (4, [2, 1, 0]),
            "mono8" | "8UC1" => (1, [0; 3]),
            "mono16" => (2, [usize::from(!image.is_bigendian); 3]),
            _ => {
                let supported = "rgb8, bgr8, rgba8, bgra8, mono8 or mono16 (image_proc converts)";
                return Err(encoding_error("colour image", image, supported));
            }
        };
        check_rows(image, n_bytes)?;
        Ok(Self { image, n_bytes, channels })
    }

    /// Width and height, pixels.
    pub fn size(&self) -> [u32; 2] {
        [self.image.width, self.image.height]
    }

    /// As [`DepthImage::layout`], and which bytes of a pixel are red, green and blue.
    pub(crate) fn layout(&self) -> (Layout<'a>, [usize; 3]) {
        (Layout::new(self.image, self.n_bytes), self.channels)
    }

    /// Red, green and blue of each column of row `v`; no values if there is no such row.
    pub fn row(&self, v: u32) -> impl Iterator<Item = [u8; 3]> + use<'a> {
        let channels = self.channels;
        let pixels = row_bytes(self.image, v, self.n_bytes).chunks_exact(self.n_bytes);
        pixels.map(move |bytes| channels.map(|channel| bytes[channel]))
    }

    /// Red, green and blue of the pixel (column, row), if there is such a pixel.
    pub fn pixel(&self, [u, v]: [u32; 2]) -> Option<[u8; 3]> {
        let start = u as usize * self.n_bytes;
        let row = row_bytes(self.image, v, self.n_bytes);
        let bytes = row.get(start..start + self.n_bytes)?;
        Some(self.channels.map(|channel| bytes[channel]))
    }
}

/// Checks that `got` (width, height) is the size of the depth image.
pub fn check_size(
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
    let row = u64::from(image.width) * bytes_per_pixel as u64;
    let needed = u64::from(image.step) * u64::from(image.height);
    if row <= u64::from(image.step) && needed <= image.data.len() as u64 {
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
