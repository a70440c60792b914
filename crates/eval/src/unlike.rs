//! How much of what moved in the recordings was unlike all that the model knows.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use forecloud::predict::novelty::Unlike;

/// Particles of all predictions, each counted in each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlikeCounts {
    /// That moved, or of whose motion nothing was known.
    pub n_moving: u64,
    /// Of those, the unlike ones.
    pub n_unlike: u64,
    /// In what the unlike ones of a prediction differed most: name, and in how many predictions;
    /// the most usual first.
    pub most: Vec<(Cow<'static, str>, u64)>,
}

impl UnlikeCounts {
    /// Counts those of one more prediction.
    pub(super) fn add(&mut self, unlike: &Unlike) {
        self.n_moving += unlike.n_moving as u64;
        self.n_unlike += unlike.n_unlike as u64;
        let Some(difference) = unlike.most else { return };
        self.count(Cow::Borrowed(difference.name()), 1);
        self.sort();
    }

    /// Takes all that `other` has.
    pub fn merge(&mut self, other: &Self) {
        self.n_moving += other.n_moving;
        self.n_unlike += other.n_unlike;
        other.most.iter().for_each(|(name, n)| self.count(name.clone(), *n));
        self.sort();
    }

    fn count(&mut self, name: Cow<'static, str>, n: u64) {
        match self.most.iter_mut().find(|(own, _)| *own == name) {
            Some((_, count)) => *count += n,
            None => self.most.push((name, n)),
        }
    }

    fn sort(&mut self) {
        self.most.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    }

    /// Their share of what moves.
    pub fn share(&self) -> f64 {
        self.n_unlike as f64 / self.n_moving.max(1) as f64
    }
}
