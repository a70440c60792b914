//! Counter-based draws: a draw is a hash of its coordinates, never of a sequence.
//!
//! The same prediction follows on any number of threads, on a GPU, and after dropped frames.

/// Hash of `(seed, stamp_ns, particle, stream)`: 64 uniform bits.
///
/// `stream` tells apart the uses of one particle (walk and hop, noise axis, …). The mixing is the
/// finaliser of SplitMix64 (Steele, Lea and Flood 2014), applied once per coordinate.
#[inline]
pub fn draw(seed: u64, stamp_ns: i64, particle: u64, stream: u64) -> u64 {
    let mut hash = mix(seed ^ 0x9e37_79b9_7f4a_7c15);
    hash = mix(hash ^ stamp_ns as u64);
    hash = mix(hash ^ particle);
    mix(hash ^ stream)
}

/// Uniform number in [0, 1) from the upper 24 bits of `bits`.
#[inline]
pub fn uniform(bits: u64) -> f32 {
    (bits >> 40) as f32 * (1.0 / (1u64 << 24) as f32)
}

/// Two independent standard normal numbers from one draw (Box and Muller).
#[inline]
pub fn normal_pair(bits: u64) -> [f32; 2] {
    // 32 bits each; the half step keeps the logarithm finite.
    let u = ((bits >> 32) as f32 + 0.5) * (1.0 / 4_294_967_296.0);
    let v = (bits as u32) as f32 * (std::f32::consts::TAU / 4_294_967_296.0);
    let radius = (-2.0 * u.min(1.0).ln()).max(0.0).sqrt();
    [radius * v.cos(), radius * v.sin()]
}

#[inline]
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_draws_have_the_moments_of_a_uniform() {
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|i| f64::from(uniform(draw(1, 2, i, 3)))).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let var = draws.iter().map(|u| (u - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 0.005, "mean {mean}");
        assert!((var - 1.0 / 12.0).abs() < 0.002, "variance {var}");
    }

    #[test]
    fn normal_draws_have_the_moments_of_a_normal() {
        let n = 100_000;
        let draws: Vec<f64> =
            (0..n).flat_map(|i| normal_pair(draw(7, -5, i, 0))).map(f64::from).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let var = draws.iter().map(|x| x * x).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!((var - 1.0).abs() < 0.02, "variance {var}");
    }

    #[test]
    fn each_coordinate_changes_the_draw() {
        let base = draw(1, 2, 3, 4);
        assert_ne!(base, draw(0, 2, 3, 4));
        assert_ne!(base, draw(1, 3, 3, 4));
        assert_ne!(base, draw(1, 2, 4, 4));
        assert_ne!(base, draw(1, 2, 3, 5));
        assert_eq!(base, draw(1, 2, 3, 4));
    }
}
