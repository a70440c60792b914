//! Errors that a prediction may have, as its two radii tell: draws that are the same for all plans.

use super::goal::distance;

/// Errors that are looked at.
pub(super) const N_DRAWS: usize = 64;
/// Radius that half of all errors lie within over the standard deviation along an axis, if they are
/// normal: the root of the median of chi squared of three degrees.
const HALF_OVER_SIGMA: f64 = 1.538_17;
/// The same for 90 %: the root of their 0.9 quantile.
const MOST_OVER_SIGMA: f64 = 2.500_28;
// The model's sigma was calibrated on the motions of recordings. Plans that were searched for are those whose
// errors look good, and are carried out by a robot that has errors of its own: a hand meets a thing some
// millimetres earlier or later than the cameras show, so that of short ways little may come. The constants were found
// in the closed loop (docs/src/guide/planning.md), on seeds of its own.
/// Of a way w that a plan is predicted to move something, w² / (w + this) is what is to be expected (m).
const WAY_LOST_M: f64 = 0.015;
/// Standard deviation, along one axis, of where it ends, over that way, beside the model's own.
pub(super) const WAY_SIGMA: f64 = 0.2;
/// The least of it (m), but no more than half of the way.
const CONTACT_SIGMA_M: f64 = 0.006;

/// Where it is to be expected that is at `start` and predicted at `end` (m).
pub(super) fn expected(start: &[f64; 3], end: &[f64; 3]) -> [f64; 3] {
    let way = distance(start, end);
    let share = way / (way + WAY_LOST_M);
    std::array::from_fn(|axis| start[axis] + share * (end[axis] - start[axis]))
}

/// The radii that half, and 90 %, of the errors lie within (m), of what is predicted to go `way` (m)
/// by a plan.
pub(super) fn with_way(radii: [f64; 2], way: f64) -> [f64; 2] {
    let [half, most] = radii;
    let sigma = (WAY_SIGMA * way).max(CONTACT_SIGMA_M.min(0.5 * way));
    [half.hypot(HALF_OVER_SIGMA * sigma), most.hypot(MOST_OVER_SIGMA * sigma)]
}

/// Standard deviation along one axis (m) where half of all errors lie within `half` and 90 % within `most`
/// (m): the larger of the two that these would be of if errors were normal. Most of what rests stays to the
/// hair, so half of its errors lie within next to nothing: what may be struck shows in the other radius.
pub(super) fn sigma(half: f64, most: f64) -> f64 {
    (half / HALF_OVER_SIGMA).max(most / MOST_OVER_SIGMA)
}

/// Error number `draw` (m) of a place of which half of all errors lie within `half` and 90 % within
/// `most` (m). Lengths are the quantiles in equal shares: as the cube root within `half`, where normal
/// errors are; beyond, linear in the logarithm of the share that is longer (an exponential tail).
/// Directions go round the sphere by the golden angle.
pub(super) fn offset(draw: usize, half: f64, most: f64) -> [f64; 3] {
    let share = (draw as f64 + 0.5) / N_DRAWS as f64;
    let length = if share <= 0.5 {
        half * (2.0 * share).cbrt()
    } else {
        let tail = (2.0 * (1.0 - share)).ln() / 0.2f64.ln();
        half + (most.max(half) - half) * tail
    };
    // Not in step with the lengths: 37 and 64 have no common factor.
    let place = ((draw * 37) % N_DRAWS) as f64;
    let z = 1.0 - (2.0 * place + 1.0) / N_DRAWS as f64;
    let angle = place * 2.399_963_229_728_653;
    let across = (1.0 - z * z).sqrt();
    [across * angle.cos(), across * angle.sin(), z].map(|x| x * length)
}
