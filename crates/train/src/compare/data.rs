//! The recordings of a comparison.

use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;

/// The recordings of a comparison; [`super::Settings::horizons`] tells how far their windows must reach.
pub struct Data {
    /// To train on.
    pub train: Dataset,
    /// To choose learning rates by.
    pub validation: Dataset,
    /// For the table.
    pub test: Dataset,
}

/// Recordings and windows of each split, by which other data is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSummary {
    /// `[recordings, windows, windows in which objects move]` to train on.
    pub train: [usize; 3],
    /// To choose learning rates by.
    pub validation: [usize; 3],
    /// For the table.
    pub test: [usize; 3],
}

impl DataSummary {
    /// Of `data`.
    pub fn of(data: &Data) -> Self {
        let counts = |data: &Dataset| [data.n_recordings(), data.n_windows(), data.n_active()];
        Self {
            train: counts(&data.train),
            validation: counts(&data.validation),
            test: counts(&data.test),
        }
    }
}
