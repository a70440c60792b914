//! JPEG, by way of `zune-jpeg`.

use super::{Pixels, check_size};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A block of 64 pixels takes a bit at least, in the first scan of a progressive image.
const MAX_PIXELS_PER_BYTE: u64 = 64 * 8;
/// Scans of a progressive image at most; encoders write about 10.
const MAX_SCANS: usize = 32;

pub(super) fn is_jpeg(data: &[u8]) -> bool {
    data.starts_with(&[0xFF, 0xD8, 0xFF])
}

/// Whether the end of the image has come: the decoder goes on with grey where it has not.
///
/// The last end may be that of a thumbnail; then the image starts behind it.
fn is_complete(data: &[u8]) -> bool {
    let is = |marker: u8| move |pair: &[u8]| pair == [0xFF, marker];
    let end = data.windows(2).rposition(is(0xD9));
    end.is_some_and(|end| !data[end..].windows(2).any(is(0xDA)))
}

/// Gives rgb8 or mono8. An image that ends early or is damaged is an error.
pub(super) fn decode(data: &[u8]) -> Result<Pixels, String> {
    if !is_complete(data) {
        return Err("JPEG: truncated".into());
    }
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_max_scans(MAX_SCANS)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(data), options);
    decoder.decode_headers().map_err(|error| format!("JPEG: {error}"))?;
    let info = decoder.info().ok_or("JPEG: no header")?;
    let size = [u32::from(info.width), u32::from(info.height)];
    check_size(size, data.len(), MAX_PIXELS_PER_BYTE).map_err(|error| format!("JPEG: {error}"))?;
    let encoding = match info.components {
        1 => {
            decoder.set_options(options.jpeg_set_out_colorspace(ColorSpace::Luma));
            "mono8"
        }
        3 => "rgb8",
        n => return Err(format!("JPEG of {n} colours: publish colour (3) or grey (1)")),
    };
    let data = decoder.decode().map_err(|error| format!("JPEG: {error}"))?;
    Ok(Pixels { size, encoding, data })
}
