//! Stochastic relative positions (masked attention, section 3.4, after Liutkus et al. 2021, whose sines they are):
//! M_ij = exp(N_ij), what a dot-product mask N that is added to softmax's logits becomes, of low rank in
//! expectation by random features of the softmax kernel.
//!
//! N_ij = Σ_c λ_c cos(ω_c·(p_i - p_j) + β_c) = a_i·b_j of waves c, a_i = √λ_c \[cos, sin\](ω_c·p_i),
//! b_j = √λ_c \[cos, sin\](ω_c·p_j - β_c). With r normal draws u, φ_u(a) = exp(u·a - |a|² / 2) / √r, the mask is
//! Σ_u φ_u(a_i) φ_u(b_j): positive, and in the mean over draws exp(N_ij). It strays the more the larger
//! |a|² = Σ λ_c is, which begins at 1.
//!
//! Learnt of each wave: λ_c = softplus(θ) / (C ln 2) of C waves, its phase β_c, and what is added to each axis of
//! its ω_c. A product costs r (2 C + its width) a node.

use super::low_rank::{of_features, product, to_features};
use super::{BackwardColumns, Mask, gradients_by_backward, sigmoid, softplus};
use forecloud::base::random::{draw, normal_pair};
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::dot;
use forecloud::base::simd::exp::exp;
use forecloud::{Error, Result};

/// Numbers of the factors at most (4 GiB each).
const MAX_NUMBERS: usize = 1 << 30;

/// The mask over nodes at positions.
#[derive(Debug, Clone)]
pub struct StochasticPositions {
    /// `[n, n_axes]`.
    positions: Vec<f32>,
    n_axes: usize,
    /// ω as given, `[waves, n_axes]`.
    frequencies: Vec<f32>,
    /// u, `[r, waves, 2]`: of each wave's cosine and sine.
    draws: Vec<f32>,
}

/// A wave's numbers.
struct Wave {
    /// √λ, and its derivative by θ.
    size: f32,
    slope: f64,
    phase: f32,
    omega: Vec<f32>,
}

impl StochasticPositions {
    /// The mask over nodes at `positions` `[n, n_axes]` (of any unit), with waves of angular `frequencies`
    /// `[waves, n_axes]` (radians for that unit) and `n_draws` draws of `seed`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both are of `n_axes` columns, at least one wave and one draw, and the factors of at
    /// most 2³⁰ numbers; [`Error::Config`] for a number that is not finite.
    pub fn new(
        positions: &[f32],
        frequencies: &[f32],
        n_axes: usize,
        n_draws: usize,
        seed: u64,
    ) -> Result<Self> {
        let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
        for (what, got) in [
            ("numbers of positions (axes x nodes)", positions.len()),
            ("numbers of frequencies (axes x waves)", frequencies.len()),
        ] {
            let expected = got.checked_div(n_axes).unwrap_or(0) * n_axes;
            if n_axes == 0 || got != expected {
                return shape(what, expected, got);
            }
        }
        let (n, n_waves) = (positions.len() / n_axes, frequencies.len() / n_axes);
        if n_waves == 0 || n_draws == 0 {
            return shape("waves and draws (at least)", 1, n_waves.min(n_draws));
        }
        let most = n_draws.saturating_mul(n.max(2 * n_waves));
        if most > MAX_NUMBERS {
            return shape("numbers of stochastic positions (at most)", MAX_NUMBERS, most);
        }
        if let Some(bad) = positions.iter().chain(frequencies).find(|x| !x.is_finite()) {
            let (key, problem) = ("positions, frequencies".into(), format!("{bad} is not finite"));
            return Err(Error::Config { key, problem });
        }
        let pairs = (0..n_draws * n_waves).flat_map(|at| normal_pair(draw(seed, 0, at as u64, 7)));
        let (positions, frequencies) = (positions.to_vec(), frequencies.to_vec());
        Ok(Self { positions, n_axes, frequencies, draws: pairs.collect() })
    }

    /// Its parameters: of each wave θ, the phase and what is added to ω, `[waves, 2 + n_axes]`.
    pub fn n_params(&self) -> usize {
        self.frequencies.len() / self.n_axes * (2 + self.n_axes)
    }

    fn n_draws(&self) -> usize {
        self.draws.len() * self.n_axes / (2 * self.frequencies.len())
    }

    fn waves(&self, params: &[f32]) -> Vec<Wave> {
        let n_waves = self.frequencies.len() / self.n_axes;
        let share = n_waves as f32 * std::f32::consts::LN_2;
        let each =
            params.chunks_exact(2 + self.n_axes).zip(self.frequencies.chunks_exact(self.n_axes));
        each.map(|(params, given)| {
            let size = (softplus(params[0]) / share).sqrt();
            // Of a wave that fades to nothing the derivative is 0, not 0 / 0.
            let slope =
                if size > 0.0 { sigmoid(params[0]) / f64::from(2.0 * size * share) } else { 0.0 };
            let omega = given.iter().zip(&params[2..]).map(|(given, added)| given + added);
            Wave { size, slope, phase: params[1], omega: omega.collect() }
        })
        .collect()
    }

    /// \[cos, sin\] of each wave of a node, `side` 0 of a_i and 1 of b_j.
    fn sines(&self, waves: &[Wave], side: usize, position: &[f32], sines: &mut [f32]) {
        for (wave, sines) in waves.iter().zip(sines.chunks_exact_mut(2)) {
            let back = if side == 1 { wave.phase } else { 0.0 };
            let angle = dot(&wave.omega, position) - back;
            (sines[0], sines[1]) = (angle.cos(), angle.sin());
        }
    }

    /// Factors φ of both sides, `[n, r]` each.
    fn factors(&self, waves: &[Wave], left: &mut [f32], right: &mut [f32]) {
        let (len, n_draws) = (2 * waves.len(), self.n_draws());
        let half = 0.5 * waves.iter().map(|wave| wave.size * wave.size).sum::<f32>();
        let share = 1.0 / (n_draws as f32).sqrt();
        with_scratch(len, |sines| {
            for (side, factor) in [left, right].into_iter().enumerate() {
                let nodes = self.positions.chunks_exact(self.n_axes);
                for (position, factor) in nodes.zip(factor.chunks_exact_mut(n_draws)) {
                    self.sines(waves, side, position, sines);
                    for (wave, sines) in waves.iter().zip(sines.chunks_exact_mut(2)) {
                        sines.iter_mut().for_each(|x| *x *= wave.size);
                    }
                    for (factor, draws) in factor.iter_mut().zip(self.draws.chunks_exact(len)) {
                        *factor = share * exp(dot(draws, sines) - half);
                    }
                }
            }
        });
    }

    /// Calls `f` with the waves and both factors.
    fn with_factors(&self, params: &[f32], f: impl FnOnce(&[Wave], &[f32], &[f32])) {
        let (waves, len) = (self.waves(params), self.n_nodes() * self.n_draws());
        with_scratch(2 * len, |factors| {
            let (left, right) = factors.split_at_mut(len);
            self.factors(&waves, left, right);
            f(&waves, left, right);
        });
    }

    /// Adds to the waves' gradients what one side says: `factor` φ `[n, r]`, whose gradient is
    /// `columns`_i·`features`_u.
    fn add_gradients(
        &self,
        (waves, side): (&[Wave], usize),
        factor: &[f32],
        [columns, features]: [&[f32]; 2],
        d_params: &mut [f64],
    ) {
        let (len, n_draws, width) =
            (2 * waves.len(), self.n_draws(), columns.len() / self.n_nodes().max(1));
        let mut sines = vec![0.0; len];
        // Of √λ [cos, sin] of one node, and of |a|² / 2.
        let mut d_a = vec![0.0f64; len];
        for (i, factor) in factor.chunks_exact(n_draws).enumerate() {
            let position = &self.positions[i * self.n_axes..][..self.n_axes];
            self.sines(waves, side, position, &mut sines);
            d_a.fill(0.0);
            let mut d_half = 0.0;
            for (u, (&phi, draws)) in factor.iter().zip(self.draws.chunks_exact(len)).enumerate() {
                let gain = dot(&columns[i * width..][..width], &features[u * width..][..width]);
                let d = f64::from(phi) * f64::from(gain);
                d_half -= d;
                d_a.iter_mut().zip(draws).for_each(|(sum, &u)| *sum += d * f64::from(u));
            }
            let each = waves.iter().zip(sines.chunks_exact(2)).zip(d_a.chunks_exact(2));
            let each = each.zip(d_params.chunks_exact_mut(2 + self.n_axes));
            for (((wave, sines), d_a), d_params) in each {
                let ([cos, sin], size) =
                    ([f64::from(sines[0]), f64::from(sines[1])], f64::from(wave.size));
                let d_size = d_a[0] * cos + d_a[1] * sin + d_half * size;
                d_params[0] += d_size * wave.slope;
                let d_angle = size * (d_a[1] * cos - d_a[0] * sin);
                if side == 1 {
                    d_params[1] -= d_angle;
                }
                for (d, &p) in d_params[2..].iter_mut().zip(position) {
                    *d += d_angle * f64::from(p);
                }
            }
        }
    }
}

impl Mask for StochasticPositions {
    fn n_nodes(&self) -> usize {
        self.positions.len() / self.n_axes
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.with_factors(params, |_, left, right| product(self.n_nodes(), left, right, x, y));
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.with_factors(params, |_, left, right| product(self.n_nodes(), right, left, x, y));
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        let n = self.n_nodes();
        let len = self.n_draws() * (x.len() / n.max(1));
        self.with_factors(params, |waves, left, right| {
            with_scratch(2 * len, |scratch| {
                let (of_x, of_dy) = scratch.split_at_mut(len);
                to_features(n, right, x, of_x);
                to_features(n, left, dy, of_dy);
                of_features(n, left, of_x, y);
                of_features(n, right, of_dy, dx);
                self.add_gradients((waves, 0), left, [dy, of_x], d_params);
                self.add_gradients((waves, 1), right, [x, of_dy], d_params);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_products, softplus64};
    use super::*;
    use forecloud::engine::ops::check::{f64s, numbers};

    /// √λ, phase and ω of each wave in f64.
    fn waves(mask: &StochasticPositions, params: &[f64]) -> Vec<(f64, f64, Vec<f64>)> {
        let (n_axes, given) = (mask.n_axes, f64s(&mask.frequencies));
        let n_waves = given.len() / n_axes;
        let each = params.chunks_exact(2 + n_axes).zip(given.chunks_exact(n_axes));
        each.map(|(params, given)| {
            let lambda = softplus64(params[0]) / (n_waves as f64 * std::f64::consts::LN_2);
            let omega = given.iter().zip(&params[2..]).map(|(given, added)| given + added);
            (lambda.sqrt(), params[1], omega.collect())
        })
        .collect()
    }

    fn angle(omega: &[f64], p: &[f32]) -> f64 {
        omega.iter().zip(p).map(|(omega, &p)| omega * f64::from(p)).sum()
    }

    /// The mask of its draws, entry by entry.
    fn dense(mask: &StochasticPositions, params: &[f64]) -> Vec<f64> {
        let (waves, n, n_axes) = (waves(mask, params), mask.n_nodes(), mask.n_axes);
        let draws = f64s(&mask.draws);
        let phi = |i: usize, side: f64, draws: &[f64]| -> f64 {
            let p = &mask.positions[i * n_axes..][..n_axes];
            let exponent =
                waves.iter().zip(draws.chunks_exact(2)).map(|((size, phase, omega), u)| {
                    let (sin, cos) = (angle(omega, p) - side * phase).sin_cos();
                    size * (u[0] * cos + u[1] * sin) - 0.5 * size * size
                });
            exponent.sum::<f64>().exp()
        };
        let (len, n_draws) = (2 * waves.len(), mask.n_draws() as f64);
        let entry = |at: usize| {
            let of = |draws: &[f64]| phi(at / n, 0.0, draws) * phi(at % n, 1.0, draws);
            draws.chunks_exact(len).map(of).sum::<f64>() / n_draws
        };
        (0..n * n).map(entry).collect()
    }

    #[test]
    fn the_mask_and_its_gradients_are_the_dense_ones() {
        for (n, n_axes, n_waves, n_draws) in
            [(11, 1, 3, 6), (9, 2, 2, 5), (1, 3, 1, 1), (0, 1, 1, 2)]
        {
            let (positions, frequencies) = (numbers(n * n_axes, 1), numbers(n_waves * n_axes, 2));
            let mask =
                StochasticPositions::new(&positions, &frequencies, n_axes, n_draws, 5).unwrap();
            let name = format!("{n} nodes, {n_axes} axes");
            assert_products(&name, &mask, mask.n_params(), 2e-5, |params| dense(&mask, params));
        }
    }

    /// In the mean over seeds it is exp(N), N the relative positions' mask, no symmetric one.
    #[test]
    fn the_mean_over_draws_is_the_exponential_of_the_dot_product_mask() {
        let (n, n_draws) = (7, 200_000);
        let (positions, frequencies) = (numbers(n, 1), numbers(3, 2));
        let mask = StochasticPositions::new(&positions, &frequencies, 1, n_draws, 5).unwrap();
        let params = f64s(&numbers(mask.n_params(), 6));
        let waves = waves(&mask, &params);
        let (mut off, mut asymmetry) = (0.0f64, 0.0f64);
        let exact = |i: usize, j: usize| -> f64 {
            let term = |(size, phase, omega): &(f64, f64, Vec<f64>)| {
                let apart = angle(omega, &positions[i..=i]) - angle(omega, &positions[j..=j]);
                size * size * (apart + phase).cos()
            };
            waves.iter().map(term).sum::<f64>().exp()
        };
        for (at, got) in dense(&mask, &params).into_iter().enumerate() {
            let want = exact(at / n, at % n);
            off = off.max((got / want - 1.0).abs());
            asymmetry = asymmetry.max((exact(at % n, at / n) / want - 1.0).abs());
        }
        assert!(off < 0.05, "off by {off} of an entry");
        assert!(asymmetry > 0.2, "phases tell before from after");
    }

    #[test]
    fn what_makes_no_mask_is_refused() {
        let refused = |positions: &[f32], frequencies: &[f32], n_axes, n_draws| {
            let mask = StochasticPositions::new(positions, frequencies, n_axes, n_draws, 0);
            mask.unwrap_err().to_string()
        };
        assert!(refused(&[1.0; 3], &[1.0; 2], 2, 1).contains("positions"));
        assert!(refused(&[1.0; 4], &[1.0; 3], 2, 1).contains("frequencies"));
        assert!(refused(&[1.0; 4], &[1.0; 2], 0, 1).contains("positions"));
        assert!(refused(&[1.0; 4], &[], 2, 1).contains("waves and draws"));
        assert!(refused(&[1.0; 4], &[1.0; 2], 2, 0).contains("waves and draws"));
        assert!(refused(&[1.0; 4], &[1.0; 2], 2, 1 << 40).contains("at most"));
        assert!(refused(&[f32::NAN; 4], &[1.0; 2], 2, 1).contains("NaN"));
        assert!(refused(&[1.0; 4], &[f32::INFINITY; 2], 2, 1).contains("inf"));
    }
}
