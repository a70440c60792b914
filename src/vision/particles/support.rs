//! The plane that things stand on: the height at which most points of a cloud lie.

use rayon::prelude::*;

use super::draw::{N_PARTS, part_of};

/// Height of a bin of the histogram (m): the noise of a depth camera at a metre.
const BIN_M: f32 = 0.004;
/// Bins at most: how high a cloud reaches is the user's.
const MAX_BINS: usize = 4096;
/// Heights are summed up in this unit (m), as integers: their order, and on a GPU that of its threads,
/// changes nothing.
const UNIT_M: f64 = 1.0 / (1u64 << 30) as f64;
/// Share of the points that make a plane a support.
const MIN_SHARE: f32 = 0.15;

/// A plane that things stand on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Support {
    /// Its height (world z, m).
    pub height_m: f32,
    /// Points on it, about.
    pub n_points: usize,
}

/// The horizontal plane within `half_band_m` of which most of `positions` lie; none where less than 15 %
/// do. `histograms` are scratch. Linear in the points, side by side on all threads; the same on any number
/// of them.
pub(crate) fn find(
    positions: &[[f32; 3]],
    half_band_m: f32,
    histograms: &mut Vec<Vec<u32>>,
) -> Option<Support> {
    let parts = || positions.par_chunks(part_of(positions.len()));
    let bounds = |part: &[[f32; 3]]| {
        let none = (f32::INFINITY, f32::NEG_INFINITY);
        part.iter().fold(none, |(min, max), p| (min.min(p[2]), max.max(p[2])))
    };
    let both = |a: (f32, f32), b: (f32, f32)| (a.0.min(b.0), a.1.max(b.1));
    let (min, max) = parts().map(bounds).reduce(|| bounds(&[]), both);
    let bin_m = BIN_M.max((max - min) / (MAX_BINS - 1) as f32);
    // Bounds of bins don't depend on the lowest point, which noise moves.
    let low = (min / bin_m).floor() * bin_m;
    let n_bins = (((max - low) / bin_m) as usize + 1).min(MAX_BINS + 1);
    histograms.resize_with(N_PARTS, Vec::new);
    for histogram in histograms.iter_mut() {
        histogram.clear();
        histogram.resize(n_bins, 0);
    }
    histograms.par_iter_mut().zip(parts()).for_each(|(histogram, part)| {
        for p in part {
            // The conversion saturates below 0 and reads NaN as 0.
            let bin = ((p[2] - low) / bin_m) as usize;
            histogram[bin.min(n_bins - 1)] += 1;
        }
    });
    let (histogram, others) = histograms.split_first_mut()?;
    for other in others {
        histogram.iter_mut().zip(other).for_each(|(sum, n)| *sum += *n);
    }
    // A plane between two bins counts in both.
    let in_pair = |i: usize| histogram[i] + histogram.get(i + 1).copied().unwrap_or(0);
    let fullest = (0..n_bins).max_by_key(|&i| (in_pair(i), std::cmp::Reverse(i)))?;
    let center = low + (fullest + 1) as f32 * bin_m;
    let of_part = |part: &[[f32; 3]]| {
        let (mut sum, mut count) = (0i64, 0u32);
        for p in part.iter().filter(|p| (p[2] - center).abs() < half_band_m) {
            sum = sum.wrapping_add((f64::from(p[2]) / UNIT_M) as i64);
            count += 1;
        }
        (sum, count)
    };
    let add = |a: (i64, u32), b: (i64, u32)| (a.0.wrapping_add(b.0), a.1 + b.1);
    let (sum, count) = parts().map(of_part).reduce(|| (0, 0), add);
    let is_enough = count as f32 >= MIN_SHARE * positions.len() as f32;
    let height_m = (sum as f64 / f64::from(count) * UNIT_M) as f32;
    (count > 0 && is_enough).then_some(Support { height_m, n_points: count as usize })
}
