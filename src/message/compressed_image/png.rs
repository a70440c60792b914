//! PNG, by way of `png`.

use super::{MAX_PIXELS, Pixels, check_size};
use ::png::{BitDepth, ColorType, Decoder, Limits, Transformations};
use std::io::Cursor;

/// What deflate reaches at best: 1032 : 1.
const MAX_BITS_PER_BYTE: u64 = 1032 * 8;
/// Memory for a row, of 8 bytes a pixel at most, and for what stands beside the image.
const MAX_DECODER_BYTES: usize = 8 * MAX_PIXELS as usize + (1 << 20);

pub(super) fn is_png(data: &[u8]) -> bool {
    data.starts_with(b"\x89PNG\r\n\x1a\n")
}

/// Gives rgb8, rgba8, mono8, or 16UC1 for grey of 16 bits.
pub(super) fn decode(data: &[u8]) -> Result<Pixels, String> {
    let problem = |error: ::png::DecodingError| format!("PNG: {error}");
    let limits = Limits { bytes: MAX_DECODER_BYTES };
    let mut decoder = Decoder::new_with_limits(Cursor::new(data), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let info = decoder.read_header_info().map_err(problem)?;
    let (size, color, depth) = ([info.width, info.height], info.color_type, info.bit_depth);
    let max_pixels_per_byte = MAX_BITS_PER_BYTE / info.bits_per_pixel().max(1) as u64;
    check_size(size, data.len(), max_pixels_per_byte).map_err(|error| format!("PNG: {error}"))?;
    decoder.set_transformations(match (color, depth) {
        (ColorType::Grayscale, BitDepth::Sixteen) => Transformations::IDENTITY,
        (ColorType::Indexed, _) => Transformations::EXPAND,
        (_, BitDepth::One | BitDepth::Two | BitDepth::Four) => Transformations::EXPAND,
        _ => Transformations::STRIP_16,
    });
    let mut reader = decoder.read_info().map_err(problem)?;
    let mut data = vec![0; reader.output_buffer_size().ok_or("PNG: too large")?];
    let output = reader.next_frame(&mut data).map_err(problem)?;
    if [output.width, output.height] != size {
        return Err("PNG: animated".into());
    }
    let encoding = match (output.color_type, output.bit_depth) {
        (ColorType::Grayscale, BitDepth::Sixteen) => {
            data.chunks_exact_mut(2).for_each(|sample| sample.reverse()); // they are big endian
            "16UC1"
        }
        (ColorType::Grayscale, _) => "mono8",
        (ColorType::GrayscaleAlpha, _) => {
            data = data.chunks_exact(2).map(|grey_alpha| grey_alpha[0]).collect();
            "mono8"
        }
        (ColorType::Rgba, _) => "rgba8",
        (ColorType::Rgb | ColorType::Indexed, _) => "rgb8",
    };
    Ok(Pixels { size, encoding, data })
}
