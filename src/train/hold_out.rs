//! Validation recordings for data that has none: a share of the training recordings, held out.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::dataset::Dataset;
use super::reading::read;
use crate::config::check;
use crate::recording::Recording;
use crate::{Error, Result};

/// Which recordings are held out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HoldOut {
    /// Share of the recordings; one at least is held out, and one is left.
    pub share: f64,
    /// Seed of the choice, which is by the recordings' names: more recordings change little of it.
    pub seed: u64,
}

impl Default for HoldOut {
    fn default() -> Self {
        Self { share: 0.1, seed: 0 }
    }
}

impl HoldOut {
    /// What `share` may be.
    pub const SHARE: RangeInclusive<f64> = 0.001..=0.9;

    /// Moves recordings from `train` to `validation`, where they are read again, as the two may
    /// differ in noise and in how far windows reach; returns their paths.
    ///
    /// # Errors
    /// [`Error::Config`] for a share that is none, or less than two recordings in `train`; what
    /// makes a recording unusable.
    pub fn apply(self, train: &mut Dataset, validation: &mut Dataset) -> Result<Vec<PathBuf>> {
        check("hold_out", self.share, Self::SHARE, "")?;
        let n = train.n_recordings();
        if n < 2 {
            let problem = format!(
                "{n} training recordings are too few to hold one out for validation: add \
                 recordings, or some whose split is 'val' (python -m sim.generate --split val)"
            );
            return Err(Error::Config { key: "hold_out".into(), problem });
        }
        let n_held = ((self.share * n as f64).round() as usize).clamp(1, n - 1);
        let mut places: Vec<(Vec<u8>, usize)> =
            train.recordings().enumerate().map(|(i, path)| (self.key(path), i)).collect();
        places.sort_unstable();
        let places: BTreeSet<usize> = places[..n_held].iter().map(|&(_, i)| i).collect();
        let held = train.take_out(&places);
        let into: &Dataset = validation;
        let episodes: Result<Vec<_>> =
            held.par_iter().map(|path| read(Recording::glimpse(path)?, into)).collect();
        episodes?.into_iter().for_each(|episode| validation.push(episode));
        Ok(held)
    }

    /// What recordings are chosen by: the hash of their names.
    fn key(self, path: &Path) -> Vec<u8> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        Sha256::new().chain_update(self.seed.to_le_bytes()).chain_update(name).finalize().to_vec()
    }
}
