//! The draw: the points of a cloud with the smallest keys.

use rayon::prelude::*;

use super::support::{self, Support};
use super::{SUPPORT_M, Sampling};
use crate::base::random::draw;
use crate::vision::cloud::Cloud;

/// Stream of [`draw`] that gives each point its sampling key.
const KEY_STREAM: u64 = 0;
/// Parts that a cloud is looked at in side by side, and points of a part at least.
pub(super) const N_PARTS: usize = 16;
const LEAST_PART: usize = 4096;

/// A point of the cloud with the key that it is chosen or ordered by; ties go by source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub key: u64,
    source: u32,
    pub index: u32,
}

/// Draws points of a cloud; keeps its memory between calls.
#[derive(Debug, Default)]
pub(super) struct Draw {
    histograms: Vec<Vec<u32>>,
    parts: Vec<Vec<Candidate>>,
    drawn: Vec<Candidate>,
    support: Option<Support>,
}

impl Draw {
    /// Draws `n` points, or all if there are not more: see [`super::Particles::sample_thinned`].
    pub fn draw(&mut self, cloud: &Cloud, n: usize, sampling: &Sampling) {
        self.support = support::find(&cloud.positions, SUPPORT_M, &mut self.histograms);
        let stride = sampling.support_stride.max(1);
        let n_on_it = self.support.map_or(0, |support| support.n_points);
        let n_taking_part = cloud.len() - n_on_it + n_on_it / stride;
        // So many keys are looked at that hardly ever too few are: keys are uniform.
        let mut wanted = n as f64 + 6.0 * (n as f64).sqrt() + 64.0;
        self.drawn.clear();
        if n == 0 {
            return;
        }
        loop {
            let share = wanted / n_taking_part.max(1) as f64;
            let highest = if share < 0.5 { (share * (1u64 << 63) as f64) as u64 } else { u64::MAX };
            self.collect(cloud, sampling, highest);
            if self.drawn.len() >= n || highest == u64::MAX {
                break;
            }
            wanted *= 4.0;
        }
        keep_smallest(&mut self.drawn, n);
    }

    /// Copies the `n` smallest of what was drawn into `out`, in no order.
    pub fn copy(&self, n: usize, out: &mut Vec<Candidate>) {
        out.clone_from(&self.drawn);
        keep_smallest(out, n);
    }

    /// Height of the support plane of the cloud that was drawn from (m).
    pub fn support_m(&self) -> Option<f32> {
        self.support.map(|support| support.height_m)
    }

    /// All points whose key is at most `highest`.
    fn collect(&mut self, cloud: &Cloud, sampling: &Sampling, highest: u64) {
        let Sampling { seed, stamp_ns, support_stride, .. } = *sampling;
        let (support_m, stride) = (self.support_m(), support_stride.max(1) as u64);
        let of = part_of(cloud.len());
        self.parts.resize_with(N_PARTS, Vec::new);
        let points = cloud.positions.par_chunks(of).zip(cloud.sources.par_chunks(of));
        let parts = self.parts.par_iter_mut().zip(points).enumerate();
        parts.for_each(|(part, (out, (positions, sources)))| {
            out.clear();
            let indices = (part * of) as u32..;
            for ((index, position), &source) in indices.zip(positions).zip(sources) {
                let bits = draw(seed, stamp_ns, u64::from(source), KEY_STREAM);
                // Those that are thinned out come behind all others; other bits than those that order
                // the keys decide who takes part.
                let is_thinned = || {
                    support_m.is_some_and(|height| (position[2] - height).abs() < SUPPORT_M)
                        && !u64::from(bits as u32).is_multiple_of(stride)
                };
                if bits >> 1 <= highest {
                    let key = bits >> 1 | u64::from(is_thinned()) << 63;
                    if key <= highest {
                        out.push(Candidate { key, source, index });
                    }
                }
            }
        });
        self.drawn.clear();
        let n_parts = cloud.len().div_ceil(of);
        self.parts[..n_parts].iter().for_each(|part| self.drawn.extend_from_slice(part));
    }
}

/// Points of a part of a cloud of `n`.
pub(super) fn part_of(n: usize) -> usize {
    n.div_ceil(N_PARTS).max(LEAST_PART)
}

/// Keeps the `n` smallest, in no order.
fn keep_smallest(candidates: &mut Vec<Candidate>, n: usize) {
    if n < candidates.len() {
        if n > 0 {
            candidates.select_nth_unstable(n - 1);
        }
        candidates.truncate(n);
    }
}
