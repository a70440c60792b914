//! The plane that things stand on: the height at which most points of a cloud lie.

/// Height of a bin of the histogram (m): the noise of a depth camera at a metre.
const BIN_M: f32 = 0.004;
/// Bins at most: how high a cloud reaches is the user's.
const MAX_BINS: usize = 4096;
/// Heights are summed up in this unit (m), as integers: their order, and on a GPU that of its threads,
/// changes nothing.
const UNIT_M: f64 = 1.0 / (1u64 << 30) as f64;
/// Share of the points that make a plane a support.
const MIN_SHARE: f32 = 0.15;

/// Height (world z, m) of the horizontal plane within `half_band_m` of which most of `positions`
/// lie; none where less than 15 % do. `histogram` is scratch. Linear in the points.
pub(crate) fn height(
    positions: &[[f32; 3]],
    half_band_m: f32,
    histogram: &mut Vec<u32>,
) -> Option<f32> {
    let bound = |init: f32, pick: fn(f32, f32) -> f32| {
        positions.iter().fold(init, |bound, p| pick(bound, p[2]))
    };
    let (min, max) = (bound(f32::INFINITY, f32::min), bound(f32::NEG_INFINITY, f32::max));
    let bin_m = BIN_M.max((max - min) / (MAX_BINS - 1) as f32);
    // Bounds of bins don't depend on the lowest point, which noise moves.
    let low = (min / bin_m).floor() * bin_m;
    let n_bins = (((max - low) / bin_m) as usize + 1).min(MAX_BINS + 1);
    histogram.clear();
    histogram.resize(n_bins, 0);
    for p in positions {
        // The conversion saturates below 0 and reads NaN as 0.
        let bin = ((p[2] - low) / bin_m) as usize;
        histogram[bin.min(n_bins - 1)] += 1;
    }
    // A plane between two bins counts in both.
    let in_pair = |i: usize| histogram[i] + histogram.get(i + 1).copied().unwrap_or(0);
    let fullest = (0..n_bins).max_by_key(|&i| (in_pair(i), std::cmp::Reverse(i)))?;
    let center = low + (fullest + 1) as f32 * bin_m;
    let (mut sum, mut count) = (0i64, 0u32);
    for p in positions.iter().filter(|p| (p[2] - center).abs() < half_band_m) {
        sum = sum.wrapping_add((f64::from(p[2]) / UNIT_M) as i64);
        count += 1;
    }
    let is_enough = count as f32 >= MIN_SHARE * positions.len() as f32;
    (count > 0 && is_enough).then(|| (sum as f64 / f64::from(count) * UNIT_M) as f32)
}
