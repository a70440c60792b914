//! Depth as the image transport `compressedDepth` writes it: a header, then PNG or RVL.

use super::{Pixels, image_encoding, png, rvl};

/// The header: what is quantized (not used), and the two parameters of inverse depths.
const HEADER_BYTES: usize = 12;

/// Whether `data` is of this transport; its first publishers did not say so in `format`.
pub(super) fn is_depth(format: &str, data: &[u8]) -> bool {
    format.contains("compressedDepth") || data.get(HEADER_BYTES..).is_some_and(png::is_png)
}

/// Gives 16UC1 (mm, as they were), or 32FC1 (m, from inverse depths).
pub(super) fn decode(format: &str, data: &[u8]) -> Result<Pixels, String> {
    let Some((header, compressed)) = data.split_at_checked(HEADER_BYTES) else {
        return Err(format!("compressedDepth: {} bytes, the header alone has 12", data.len()));
    };
    let Pixels { size, encoding, data: depths } = if png::is_png(compressed) {
        png::decode(compressed)?
    } else if format.contains("rvl") {
        rvl::decode(compressed)?
    } else {
        return Err("compressedDepth is neither PNG nor RVL: set the transport's parameter \
                    `format` to png"
            .into());
    };
    if encoding != "16UC1" {
        return Err(format!("compressedDepth holds {encoding}, not 16-bit grey"));
    }
    // The first publishers wrote nothing but the encoding.
    let before = if format.contains(';') { image_encoding(format) } else { format.trim() };
    match before {
        "32FC1" => Ok(Pixels { size, encoding: "32FC1", data: metres(header, &depths)? }),
        "16UC1" | "mono16" => Ok(Pixels { size, encoding, data: depths }),
        _ => Err("compressedDepth of neither 16UC1 nor 32FC1: publish one of these".into()),
    }
}

/// Depths from inverse depths `value`: `a / (value - b)`, NaN for 0.
fn metres(header: &[u8], values: &[u8]) -> Result<Vec<u8>, String> {
    let parameter = |at: usize| {
        let bytes = header.get(at..at + 4)?.try_into().ok()?;
        Some(f32::from_le_bytes(bytes)).filter(|parameter| parameter.is_finite())
    };
    let (Some(a), Some(b)) = (parameter(4), parameter(8)) else {
        return Err("compressedDepth: quantization parameters are not finite".into());
    };
    let mut metres = vec![0; 2 * values.len()];
    for (out, value) in metres.chunks_exact_mut(4).zip(values.chunks_exact(2)) {
        let value = u16::from_le_bytes([value[0], value[1]]);
        let depth = if value == 0 { f32::NAN } else { a / (f32::from(value) - b) };
        out.copy_from_slice(&depth.to_le_bytes());
    }
    Ok(metres)
}
