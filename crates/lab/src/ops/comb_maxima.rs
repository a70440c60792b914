//! The largest score of each query and comb of keys, without the scores in memory.
//!
//! A comb is every [`LANES`]-th key of a block, so that it lies at one lane of vectors: sums over the width
//! and the largest of them stay in registers.

use pulp::Simd;

use forecloud::base::simd::{WithSimd, dispatch, load, prefetch, store, vectorized};
use forecloud::engine::ops::linear::Mat;

/// Combs of a block of keys.
pub(super) const LANES: usize = 16;
/// Vectors of sums at a time: enough to hide how long a multiply-add takes, few enough for the registers.
const SUMS: usize = 12;

/// By how many rows they are fetched before they are turned.
const AHEAD: usize = 32;

/// Queries and keys as the kernel reads them, in memory that is kept.
#[derive(Default)]
pub(super) struct CombMaxima {
    /// Queries, as many at a time as there are sums for: `[n / queries, width, queries]`.
    queries: Vec<f32>,
    /// Of a block: `[n / LANES, width, LANES]`.
    keys: Vec<f32>,
}

struct LanesInUse;

impl WithSimd for LanesInUse {
    type Output = usize;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

impl CombMaxima {
    /// Takes the queries `[n, width]`.
    pub fn set_queries(&mut self, queries: Mat<'_>) {
        let at_once = (SUMS * dispatch(LanesInUse) / LANES).max(1);
        turn(queries, at_once, &mut self.queries);
    }

    /// Writes the largest score of each query and comb of the block of `keys` `[n, width]` (n ≥ 1) to
    /// places `at..` of the query's row in `maxima`, rows of length `stride`.
    pub fn of_keys(&mut self, keys: Mat<'_>, maxima: &mut [f32], stride: usize, at: usize) {
        turn(keys, LANES, &mut self.keys);
        let (width, rest) = (keys.cols, keys.rows % LANES);
        if rest > 0 && keys.rows > LANES {
            // In place of keys that are not there, those before them on their lanes.
            let last = self.keys.len() - width * LANES;
            let (before, last) = self.keys.split_at_mut(last);
            let before = &before[before.len() - width * LANES..];
            for (to, from) in last.chunks_exact_mut(LANES).zip(before.chunks_exact(LANES)) {
                to[rest..].copy_from_slice(&from[rest..]);
            }
        }
        let n_combs = keys.rows.min(LANES);
        all_maxima(&self.queries, &self.keys, width, maxima, stride, at..at + n_combs);
    }
}

/// Rows by `at_once`, each of these turned; zeros behind the last.
fn turn(rows: Mat<'_>, at_once: usize, turned: &mut Vec<f32>) {
    let width = rows.cols;
    turned.resize(rows.rows.next_multiple_of(at_once) * width, 0.0);
    for (index, turned) in turned.chunks_exact_mut((width * at_once).max(1)).enumerate() {
        for lane in 0..at_once {
            let row = index * at_once + lane;
            // Rows lie far apart.
            if row + AHEAD < rows.rows {
                prefetch(&rows.data[(row + AHEAD) * rows.stride..][..width]);
            }
            let places = turned[lane..].iter_mut().step_by(at_once);
            match row < rows.rows {
                true => {
                    let row = &rows.data[row * rows.stride..][..width];
                    places.zip(row).for_each(|(to, &x)| *to = x);
                }
                false => places.for_each(|to| *to = 0.0),
            }
        }
    }
}

vectorized! {
fn all_maxima[simd](
    queries: &'a [f32],
    keys: &'a [f32],
    width: usize,
    maxima: &'a mut [f32],
    stride: usize,
    places: std::ops::Range<usize>,
) {
    match S::F32_LANES {
        16 => rows_maxima::<S, 1, 12>(simd, queries, keys, width, maxima, stride, places),
        8 => rows_maxima::<S, 2, 6>(simd, queries, keys, width, maxima, stride, places),
        4 => rows_maxima::<S, 4, 3>(simd, queries, keys, width, maxima, stride, places),
        _ => rows_maxima::<S, 16, 1>(simd, queries, keys, width, maxima, stride, places),
    }
}
}

/// `R` queries at a time; `N` vectors are [`LANES`] numbers.
#[inline(always)]
fn rows_maxima<S: Simd, const N: usize, const R: usize>(
    simd: S,
    queries: &[f32],
    keys: &[f32],
    width: usize,
    maxima: &mut [f32],
    stride: usize,
    places: std::ops::Range<usize>,
) {
    let rows = maxima.chunks_mut(R * stride);
    for (queries, rows) in queries.chunks_exact(R * width).zip(rows) {
        let mut largest = [[simd.splat_f32s(f32::NEG_INFINITY); N]; R];
        for keys in keys.chunks_exact(LANES * width) {
            let mut sums = [[simd.splat_f32s(0.0); N]; R];
            for (q, keys) in queries.chunks_exact(R).zip(keys.chunks_exact(LANES)) {
                let keys = load::<S, N>(simd, keys);
                for r in 0..R {
                    let q = simd.splat_f32s(q[r]);
                    for n in 0..N {
                        sums[r][n] = simd.mul_add_e_f32s(q, keys[n], sums[r][n]);
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    largest[r][n] = simd.max_f32s(sums[r][n], largest[r][n]);
                }
            }
        }
        for (largest, row) in largest.into_iter().zip(rows.chunks_exact_mut(stride)) {
            let mut numbers = [0.0; LANES];
            store(simd, &mut numbers, largest);
            row[places.clone()].copy_from_slice(&numbers[..places.len()]);
        }
    }
}
