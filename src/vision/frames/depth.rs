//! Depth images as the rest knows them: 16UC1 in millimetres, 32FC1 in metres, 0 where nothing was measured.

use crate::message::Image;

/// Readings that are looked at for the unit.
const N_LOOKED_AT: usize = 4096;
/// Half of all readings lie beyond so much, in the image's numbers, and hardly any below the other: no depth
/// camera sees so far (m), so that they are millimetres.
const FAR: f32 = 100.0;
const NEAR: f32 = 50.0;
/// Share of the readings that may be nearer.
const FEW: f32 = 0.05;

/// The image with its depths in known units.
///
/// 65,535 of 16UC1 is what drivers write where nothing was measured. A 32FC1 image in millimetres, which
/// REP 118 does not allow, becomes one in metres, where its numbers leave no doubt.
pub(super) fn in_known_units(mut image: Image) -> Image {
    let step = (image.step as usize).max(1);
    match image.encoding.as_str() {
        "16UC1" | "mono16" => {
            for row in image.data.chunks_mut(step) {
                let largest = row.chunks_exact_mut(2).filter(|value| **value == [0xff; 2]);
                largest.for_each(|value| value.fill(0));
            }
        }
        "32FC1" if is_in_millimetres(&image) => {
            let is_big = image.is_bigendian;
            for bytes in image.data.chunks_mut(step).flat_map(|row| row.chunks_exact_mut(4)) {
                let metres = 1e-3 * number(bytes, is_big);
                bytes.copy_from_slice(&match is_big {
                    true => metres.to_be_bytes(),
                    false => metres.to_le_bytes(),
                });
            }
        }
        _ => {}
    }
    image
}

fn is_in_millimetres(image: &Image) -> bool {
    let n_pixels = image.data.len() / 4;
    let stride = n_pixels.div_ceil(N_LOOKED_AT).max(1);
    let rows = image.data.chunks(image.step.max(1) as usize);
    let readings = rows.flat_map(|row| row.chunks_exact(4)).step_by(stride);
    let readings = readings.map(|bytes| number(bytes, image.is_bigendian));
    let mut readings: Vec<f32> = readings.filter(|z| z.is_finite() && *z > 0.0).collect();
    if readings.is_empty() {
        return false;
    }
    readings.sort_by(f32::total_cmp);
    let at = |share: f32| readings[((readings.len() - 1) as f32 * share) as usize];
    at(0.5) > FAR && at(FEW) > NEAR
}

fn number(bytes: &[u8], is_big: bool) -> f32 {
    let bytes = bytes.try_into().unwrap_or_default();
    if is_big { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Header;
    use crate::vision::camera::DepthImage;

    /// Depths (m) that are read of one row.
    fn read(encoding: &str, is_bigendian: bool, data: Vec<u8>) -> Vec<f32> {
        let n_bytes = if encoding == "32FC1" { 4 } else { 2 };
        let (step, header) = (data.len() as u32, Header::default());
        let (width, encoding) = (step / n_bytes, encoding.to_owned());
        let image = Image { header, height: 1, width, encoding, is_bigendian, step, data };
        let image = in_known_units(image);
        DepthImage::new(&image).unwrap().row(0).collect()
    }

    #[test]
    fn the_largest_number_is_no_reading() {
        for is_big in [false, true] {
            let bytes = |z: u16| if is_big { z.to_be_bytes() } else { z.to_le_bytes() };
            for encoding in ["16UC1", "mono16"] {
                let data = [1000, u16::MAX, 0, 65_534].map(bytes).concat();
                let depths = read(encoding, is_big, data);
                assert!(depths[0] == 1.0 && (depths[3] - 65.534).abs() < 1e-4, "{depths:?}");
                assert!(depths[1].is_nan() && depths[2].is_nan(), "{depths:?}");
            }
        }
    }

    #[test]
    fn millimetres_are_told_from_metres() {
        for is_big in [false, true] {
            let read = |depths: &[f32]| {
                let bytes = |z: &f32| if is_big { z.to_be_bytes() } else { z.to_le_bytes() };
                read("32FC1", is_big, depths.iter().flat_map(bytes).collect())
            };
            let [near, far] = [450.0f32, 2300.0];
            let mm = read(&[near, far, f32::NAN, 0.0, 1200.0]);
            assert!((mm[0] - 0.45).abs() < 1e-6 && (mm[1] - 2.3).abs() < 1e-6, "{mm:?}");
            assert!(mm[2].is_nan() && mm[3].is_nan());
            assert_eq!(read(&[0.45, 2.3, 30.0]), [0.45, 2.3, 30.0]);
            // A scene in metres before a sky that is far away.
            let sky = [vec![0.5f32; 10], vec![1e4; 30]].concat();
            assert_eq!(read(&sky)[..10], [0.5; 10]);
            assert!(read(&[f32::NAN, 0.0]).iter().all(|z| z.is_nan()));
        }
    }
}
