//! Validation recordings for data that has none: a share of the training recordings, held out.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::dataset::Dataset;
use super::reading::read;
use super::stretches::{FEW, STRETCH_SECS};
use forecloud::predict::config::check;
use forecloud::{Error, Result};
use forecloud_bag::recording::Recording;

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
    /// differ in noise and in how far windows reach; returns their names. Fewer than ten are cut into
    /// stretches of 20 s first, which count as recordings from then on.
    ///
    /// # Errors
    /// [`Error::Config`] for a share that is none, or too little in `train`; what makes a recording
    /// unusable.
    pub fn apply(self, train: &mut Dataset, validation: &mut Dataset) -> Result<Vec<String>> {
        check("hold_out", self.share, Self::SHARE, "")?;
        if train.n_recordings() < FEW {
            train.cut(STRETCH_SECS);
        }
        let n = train.n_recordings();
        if n < 2 {
            let problem = format!(
                "{n} training recording shorter than {:.0} s is too little to hold some of it out for \
                 validation: add recordings, or some whose split is 'val' (python -m sim.generate \
                 --split val)",
                1.5 * STRETCH_SECS
            );
            return Err(Error::Config { key: "hold_out".into(), problem });
        }
        let n_held = ((self.share * n as f64).round() as usize).clamp(1, n - 1);
        let mut places: Vec<(Vec<u8>, usize)> =
            train.recordings().zip(train.stretches()).map(|part| self.key(part)).zip(0..).collect();
        places.sort_unstable();
        let places: BTreeSet<usize> = places[..n_held].iter().map(|&(_, i)| i).collect();
        let held = train.take_out(&places);
        let into: &Dataset = validation;
        let paths: BTreeSet<&Path> = held.iter().map(|(path, _)| path.as_path()).collect();
        let episodes: Result<Vec<_>> =
            paths.into_par_iter().map(|path| read(Recording::glimpse(path)?, into)).collect();
        let stretches = episodes?.into_iter().flat_map(|episode| {
            match held.contains(&(episode.path.clone(), 0)) {
                true => vec![episode],
                false => episode.cut(STRETCH_SECS),
            }
        });
        let mut names = Vec::new();
        for stretch in stretches {
            if held.contains(&(stretch.path.clone(), stretch.stretch)) {
                names.push(stretch.name());
                validation.push(stretch);
            }
        }
        Ok(names)
    }

    /// What recordings are chosen by: the hash of their names, and of the stretch.
    fn key(self, (path, stretch): (&Path, u32)) -> Vec<u8> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let mut hash = Sha256::new().chain_update(self.seed.to_le_bytes()).chain_update(name);
        if stretch > 0 {
            hash.update(stretch.to_le_bytes());
        }
        hash.finalize().to_vec()
    }
}
