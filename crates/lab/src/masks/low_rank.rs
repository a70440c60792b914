//! Masks of low rank, M = A Bᵀ of factors `[n, r]` (masked attention, section 3.4): given ones, and those of
//! stochastic positions (`stochastic_positions.rs`). A product goes to the r features and back: O(n r) a
//! column.

use super::Mask;
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{axpys, sum_of_rows, vectorized};
use forecloud::{Error, Result};

/// A mask of given factors. It has no parameters.
#[derive(Debug, Clone)]
pub struct LowRank {
    n: usize,
    /// A and B, `[n, r]`.
    factors: [Vec<f32>; 2],
}

impl LowRank {
    /// M_ij = `left`_i·`right`_j over `n` nodes, both factors `[n, r]` of one rank r.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both have as many numbers, r for each node; [`Error::Config`] for a number that
    /// is below 0 or not finite: attention divides by sums of M's entries, which may not cross 0.
    pub fn new(n: usize, left: Vec<f32>, right: Vec<f32>) -> Result<Self> {
        let expected = left.len() / n.max(1) * n;
        for got in [left.len(), right.len()] {
            if got != expected {
                let what = "numbers of a factor of a mask (rank x nodes)";
                return Err(Error::Shape { what, expected, got });
            }
        }
        let bad = |x: &&f32| !(**x >= 0.0 && x.is_finite());
        if let Some(bad) = left.iter().chain(&right).find(bad) {
            let problem = format!(
                "holds {bad}; all numbers must be finite and 0 or more, because attention divides by sums of \
                 the mask's entries: shift or square what is below 0"
            );
            return Err(Error::Config { key: "a factor of a mask".into(), problem });
        }
        Ok(Self { n, factors: [left, right] })
    }
}

/// y = A Bᵀ x of factors `[n, r]`.
pub(super) fn product(n: usize, left: &[f32], right: &[f32], x: &[f32], y: &mut [f32]) {
    let (rank, width) = (left.len() / n.max(1), x.len() / n.max(1));
    with_scratch(rank * width, |features| {
        to_features(n, right, x, features);
        of_features(n, left, features, y);
    });
}

vectorized! {
/// Features Bᵀ x `[r, width]`.
pub(super) fn to_features[simd](n: usize, factor: &'a [f32], x: &'a [f32], features: &'a mut [f32]) {
    let (rank, width) = (factor.len() / n.max(1), x.len() / n.max(1));
    features.fill(0.0);
    if rank * width > 0 {
        for (factor, x) in factor.chunks_exact(rank).zip(x.chunks_exact(width)) {
            for (&factor, features) in factor.iter().zip(features.chunks_exact_mut(width)) {
                axpys(simd, features, [factor], [x]);
            }
        }
    }
}
}

vectorized! {
/// y = A features.
pub(super) fn of_features[simd](n: usize, factor: &'a [f32], features: &'a [f32], y: &'a mut [f32]) {
    let (rank, width) = (factor.len() / n.max(1), y.len() / n.max(1));
    y.fill(0.0);
    if rank * width > 0 {
        for (factor, y) in factor.chunks_exact(rank).zip(y.chunks_exact_mut(width)) {
            sum_of_rows(simd, y, features, factor.iter().enumerate().map(|(r, &a)| (a, r)));
        }
    }
}
}

impl Mask for LowRank {
    fn n_nodes(&self) -> usize {
        self.n
    }

    fn apply(&self, _: &[f32], x: &[f32], y: &mut [f32]) {
        product(self.n, &self.factors[0], &self.factors[1], x, y);
    }

    fn apply_transposed(&self, _: &[f32], x: &[f32], y: &mut [f32]) {
        product(self.n, &self.factors[1], &self.factors[0], x, y);
    }

    fn gradients(&self, _: &[f32], _: &[f32], _: &[f32], _: &mut [f64]) {}
}

#[cfg(test)]
mod tests {
    use super::super::check::assert_products;
    use super::*;
    use forecloud::engine::ops::check::numbers;

    #[test]
    fn the_mask_is_the_product_of_its_factors() {
        for (n, rank) in [(13, 4), (5, 9), (1, 1), (7, 0), (0, 0)] {
            let [left, right] = [1, 2].map(|seed| -> Vec<f32> {
                numbers(n * rank, seed).iter().map(|x| x.abs()).collect()
            });
            let mask = LowRank::new(n, left.clone(), right.clone()).unwrap();
            assert_products(&format!("rank {rank}"), &mask, 0, 1e-5, |_| {
                let entry = |at: usize| {
                    let of = |r: usize| {
                        f64::from(left[at / n * rank + r]) * f64::from(right[at % n * rank + r])
                    };
                    (0..rank).map(of).sum()
                };
                (0..n * n).map(entry).collect()
            });
        }
    }

    #[test]
    fn factors_that_attention_could_not_divide_by_are_refused() {
        let refused = |n, left: &[f32], right: &[f32]| {
            LowRank::new(n, left.to_vec(), right.to_vec()).unwrap_err().to_string()
        };
        assert!(refused(2, &[1.0, 2.0], &[1.0, -2.0]).contains("holds -2"));
        assert!(refused(2, &[f32::NAN, 2.0], &[1.0, 2.0]).contains("holds NaN"));
        assert!(refused(2, &[1.0, 2.0], &[1.0, 2.0, 3.0, 4.0]).contains("factor"));
        assert!(refused(2, &[1.0; 3], &[1.0; 3]).contains("factor"));
        assert!(refused(0, &[1.0], &[1.0]).contains("factor"));
    }
}
