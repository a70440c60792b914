//! e^x in plain arithmetic, so that loops over it become SIMD.

/// Largest argument that [`exp`] does not cut: e^88 is the last that f32 holds.
pub const MAX_ARGUMENT: f32 = 88.0;
/// Smallest argument that [`exp`] does not cut: smaller results are no normal numbers.
const MIN_ARGUMENT: f32 = -87.0;

/// ln 2 in two parts: the first is short, so that its multiples by whole numbers are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = (std::f64::consts::LN_2 - LN_2_HIGH as f64) as f32;
/// Adding it rounds to a whole number, which then stands in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// e^x within 3 units in the last place; `x` is cut to -87..=88.
///
/// e^x = 2^n e^r with whole n and |r| ≤ ln(2)/2, and e^r by its Taylor series to r⁷: the first
/// term that is left out is below 2^-27.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(MIN_ARGUMENT, MAX_ARGUMENT);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut sum = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * r + coefficient;
    }
    let power = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    sum * f32::from_bits(power.wrapping_add(127) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_exponential_function() {
        for i in -87_000..=88_000 {
            let x = i as f32 * 1e-3 + 1e-4 * (i % 7) as f32;
            if (MIN_ARGUMENT..=MAX_ARGUMENT).contains(&x) {
                let error = f64::from(exp(x)) / f64::from(x).exp() - 1.0;
                assert!(error.abs() < 3.0 * f64::from(f32::EPSILON), "{x}: {error:e}");
            }
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) > 0.0 && exp(-1e9) < 1.7e-38);
        assert!(exp(1e9).is_finite() && exp(1e9) > 1e38);
    }
}
