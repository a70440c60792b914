//! `sensor_msgs/msg/CompressedImage`.

mod depth;
mod jpeg;
mod png;
mod rvl;
#[cfg(test)]
mod tests;

use super::cdr::CdrReader;
use super::header::Header;
use super::image::{Image, MAX_PIXELS};
use crate::base::error::Result;

/// Decoder of `sensor_msgs/msg/CompressedImage`; what it gives is an [`Image`].
pub struct CompressedImage;

/// What a decoder gives; rows without padding, numbers in little-endian order.
struct Pixels {
    size: [u32; 2],
    encoding: &'static str,
    data: Vec<u8>,
}

impl CompressedImage {
    /// Decodes a serialized message of the image transports `compressed` (JPEG, PNG) and
    /// `compressedDepth` (PNG, RVL).
    ///
    /// Gives rgb8, rgba8, mono8 or 16UC1 (16-bit grey), or bgr8 and bgra8 where `format` says that
    /// red and blue were swapped before the compression, as the transport's own subscriber reads
    /// it; of compressedDepth, 16UC1 (mm) or 32FC1 (m, NaN where nothing was measured). Colours of
    /// 16 bits lose the lower 8. What is compressed is told by its first bytes, not by `format`.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated or damaged, of another compression, or has
    /// more than [`MAX_PIXELS`].
    pub fn decode(bytes: &[u8]) -> Result<Image> {
        let mut reader = CdrReader::new(bytes, "sensor_msgs/msg/CompressedImage")?;
        let header = Header::read(&mut reader)?;
        let format = reader.str("format")?;
        let data = reader.bytes("data")?;
        let pixels = decode_data(format, data).map_err(|problem| {
            reader.error("data", format!("{problem} (format '{format:.64}')"))
        })?;
        reader.finish()?;
        let Pixels { size: [width, height], encoding, data } = pixels;
        Ok(Image {
            header,
            height,
            width,
            encoding: named_encoding(format, encoding),
            is_bigendian: false,
            // No more than MAX_PIXELS of a few bytes.
            step: (data.len() / height.max(1) as usize) as u32,
            data,
        })
    }
}

/// An error says what is wrong, and the remedy where there is one.
fn decode_data(format: &str, data: &[u8]) -> std::result::Result<Pixels, String> {
    if depth::is_depth(format, data) {
        depth::decode(format, data)
    } else if jpeg::is_jpeg(data) {
        if ["16UC1", "32FC1"].contains(&image_encoding(format)) {
            return Err(
                "depth compressed as JPEG has lost its values: subscribe to the transport \
                        compressedDepth, or set the transport's format to png"
                    .into(),
            );
        }
        jpeg::decode(data)
    } else if png::is_png(data) {
        png::decode(data)
    } else {
        let start = &data[..data.len().min(4)];
        Err(format!("neither JPEG nor PNG, starts with {start:02x?}: publish one of these"))
    }
}

/// The encoding before the compression, as the transports write it: `rgb8; jpeg compressed bgr8`.
fn image_encoding(format: &str) -> &str {
    format.split_once(';').map_or("", |(encoding, _)| encoding.trim())
}

/// The encoding to give to an image that was decoded to `decoded`.
///
/// The transport hands pixels to its encoder as blue, green, red; where `format` does not say so
/// of a colour image (old publishers), it handed them in the other order.
fn named_encoding(format: &str, decoded: &str) -> String {
    let before = image_encoding(format);
    let was_color = ["rgb", "bgr"].iter().any(|color| before.starts_with(color));
    let is_swapped = was_color && !format.contains("compressed bgr");
    match decoded {
        "rgb8" if is_swapped => "bgr8",
        "rgba8" if is_swapped => "bgra8",
        // The colours of a sensor's mosaic, compressed as if they were grey.
        "mono8" if before.starts_with("bayer_") => before,
        "16UC1" if before == "mono16" => before,
        decoded => decoded,
    }
    .to_owned()
}

/// Refuses sizes that nobody can use before anything is allocated.
///
/// `max_pixels_per_byte`: what the compression reaches at best.
fn check_size(
    size: [u32; 2],
    n_bytes: usize,
    max_pixels_per_byte: u64,
) -> std::result::Result<(), String> {
    let [width, height] = size;
    let n_pixels = u64::from(width) * u64::from(height);
    if n_pixels == 0 {
        return Err(format!("an image of {width} x {height} pixels"));
    }
    if n_pixels > MAX_PIXELS {
        return Err(format!("{width} x {height} pixels: at most {MAX_PIXELS} are supported"));
    }
    if n_pixels / max_pixels_per_byte > n_bytes as u64 {
        return Err(format!("{n_bytes} bytes can't hold {width} x {height} pixels: damaged"));
    }
    Ok(())
}
