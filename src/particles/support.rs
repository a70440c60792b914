//! The plane that things stand on: the height at which most points of a cloud lie.

use crate::cloud::Workspace;

/// Height of a bin of the histogram (m): the noise of a depth camera at a metre.
const BIN_M: f32 = 0.004;
/// Bins at most: the workspace's height is the user's.
const MAX_BINS: usize = 4096;
/// Points within this of the height lie on the plane (m).
const HALF_BAND_M: f32 = 0.008;
/// Share of the points that make a plane a support.
const MIN_SHARE: f32 = 0.15;

/// Height (world z, m) of the horizontal plane that most of `positions` lie on; none where less
/// than 15 % do. `histogram` is scratch. Linear in the points.
pub(super) fn height(
    positions: &[[f32; 3]],
    workspace: &Workspace,
    histogram: &mut Vec<u32>,
) -> Option<f32> {
    let (low, high) = (workspace.min[2], workspace.max[2]);
    let bin_m = BIN_M.max((high - low) / MAX_BINS as f32);
    let n_bins = ((high - low) / bin_m) as usize + 1;
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
    let mut sum = (0.0f64, 0u32);
    for p in positions.iter().filter(|p| is_on(**p, center)) {
        sum = (sum.0 + f64::from(p[2]), sum.1 + 1);
    }
    let is_enough = sum.1 as f32 >= MIN_SHARE * positions.len() as f32;
    (sum.1 > 0 && is_enough).then(|| (sum.0 / f64::from(sum.1)) as f32)
}

/// Whether `position` lies on the support plane at `height`.
pub(super) fn is_on(position: [f32; 3], height: f32) -> bool {
    (position[2] - height).abs() < HALF_BAND_M
}
