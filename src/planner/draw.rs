//! Draws of plans, kind by kind: normal numbers about a mean that moves towards the best.

use super::N_ELITES;
use super::motion::Situation;
use crate::base::random::{draw, normal_pair, uniform};

/// Kinds of motion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A tool goes behind the target and pushes it straight on; the tool's number.
    Push(usize),
    /// A tool moves straight, with what it holds.
    Carry(usize),
    /// The joints go through drawn positions.
    Spline,
}

/// Numbers that a push is drawn from.
pub(super) const N_PUSH: usize = 6;
/// Numbers that a carry is drawn from.
pub(super) const N_CARRY: usize = 4;
/// Positions of the joints that a spline goes through.
pub(super) const N_KNOTS: usize = 2;
/// Share of a mean and a spread that the best replace at once.
const RATE: f64 = 0.7;
/// Least spread: the search never stands still.
const LEAST: f64 = 0.08;
/// Spread at the start.
const FIRST: f64 = 1.0;

/// What one kind is drawn by.
struct Cloud {
    kind: Kind,
    mean: Vec<f64>,
    spread: Vec<f64>,
    /// Share of the draws.
    share: f64,
}

/// Draws plans, one after the other.
pub(super) struct Sampler {
    seed: u64,
    clouds: Vec<Cloud>,
    n_drawn: u64,
}

impl Sampler {
    /// All kinds of motion that the situation has.
    pub fn new(seed: u64, situation: &Situation) -> Self {
        Self::of(seed, situation.kinds())
    }

    /// Of these kinds, each with the number of its numbers and its share of the draws.
    pub fn of(seed: u64, kinds: Vec<(Kind, usize, f64)>) -> Self {
        let cloud = |(kind, n, share): (Kind, usize, f64)| Cloud {
            kind,
            mean: vec![0.0; n],
            spread: vec![FIRST; n],
            share,
        };
        let clouds: Vec<Cloud> = kinds.into_iter().map(cloud).collect();
        Self { seed, clouds, n_drawn: 0 }
    }

    /// The next draw.
    pub fn draw(&mut self) -> (Kind, Vec<f64>) {
        let number = self.n_drawn;
        self.n_drawn += 1;
        let total: f64 = self.clouds.iter().map(|cloud| cloud.share).sum();
        let mut at = f64::from(uniform(draw(self.seed, 0, number, 0))) * total;
        let last = self.clouds.len().saturating_sub(1);
        let chosen = self.clouds.iter().position(|cloud| {
            at -= cloud.share;
            at < 0.0
        });
        let cloud = &self.clouds[chosen.unwrap_or(last)];
        let normal = |i: usize| {
            let pair = normal_pair(draw(self.seed, 1, number, i as u64));
            f64::from(pair[0]).clamp(-2.5, 2.5)
        };
        let numbers = cloud.mean.iter().zip(&cloud.spread).enumerate();
        (cloud.kind, numbers.map(|(i, (mean, spread))| mean + spread * normal(i)).collect())
    }

    /// Draws nearer to the best from now on: `ranked` are all so far, the best first.
    pub fn learn<'a>(&mut self, ranked: impl Iterator<Item = (Kind, &'a [f64])> + Clone) {
        let best: Vec<Kind> = ranked.clone().take(2 * N_ELITES).map(|(kind, _)| kind).collect();
        for cloud in &mut self.clouds {
            let elites = ranked.clone().filter(|(kind, _)| *kind == cloud.kind);
            let elites: Vec<&[f64]> = elites.take(N_ELITES).map(|(_, numbers)| numbers).collect();
            if elites.len() >= 2 {
                let n = elites.len() as f64;
                for (i, (mean, spread)) in cloud.mean.iter_mut().zip(&mut cloud.spread).enumerate()
                {
                    let of_best = elites.iter().map(|numbers| numbers[i]).sum::<f64>() / n;
                    let squares = elites.iter().map(|numbers| (numbers[i] - of_best).powi(2));
                    let of_spread = (squares.sum::<f64>() / n).sqrt();
                    *mean += RATE * (of_best - *mean);
                    *spread = (*spread + RATE * (of_spread - *spread)).max(LEAST);
                }
            }
            // Kinds that are among the best are drawn more often; none is given up.
            let n_best = best.iter().filter(|kind| **kind == cloud.kind).count();
            if !best.is_empty() {
                let wanted = n_best as f64 / best.len() as f64;
                cloud.share += RATE * (wanted.max(0.03) - cloud.share);
            }
        }
    }
}
