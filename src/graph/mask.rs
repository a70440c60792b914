//! The mask of the local attention: which walks on which weights, and the loads of one step.

use serde::{Deserialize, Serialize};

use super::loads::{MAX_PREFIXES, TransposedLoads};
use super::walks::{WalkConfig, WalkSeed};
use super::{Anchors, EdgeWeights, KnnGraph, Loads, WeightedGraph};
use crate::{Error, Result};

/// How the mask M = Σ_t f_t W^t is made.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaskConfig {
    /// Weights of the k-NN graph's edges.
    pub edge_weights: EdgeWeights,
    /// Sampled walks; none takes all walks, which is exact.
    pub walks: Option<WalkConfig>,
}

impl MaskConfig {
    /// Whether all is as it is without settings.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks all values, for a model with loads of `n_hops` hops.
    ///
    /// # Errors
    /// [`Error::Config`] names the value.
    pub fn validate(&self, n_hops: usize) -> Result<()> {
        self.edge_weights.validate()?;
        let Some(walks) = self.walks else { return Ok(()) };
        walks.validate()?;
        let wrong = |problem| Err(Error::Config { key: "mask.walks".into(), problem });
        let max_hops = walks.halting.max_hops();
        if max_hops != n_hops {
            let given = format!("walks of up to {max_hops} hops");
            return wrong(format!("{given}, but the model's n_hops is {n_hops}"));
        }
        let n_visits = walks.n_walks * max_hops + 1;
        if n_visits > MAX_PREFIXES {
            let most = (MAX_PREFIXES - 1) / max_hops.max(1);
            return wrong(format!(
                "{} walks of {max_hops} hops are more than {most}",
                walks.n_walks
            ));
        }
        Ok(())
    }
}

/// The graph of one step, as a training pass needs it.
#[derive(Debug, Default, Clone)]
pub struct StepGraph {
    /// Neighbours; of models with GRF attention or message passing.
    pub knn: KnnGraph,
    /// Merged loads by row; of models with GRF attention.
    pub loads: Loads,
    /// The same by column; only kept up to date in training.
    pub transposed: TransposedLoads,
    /// Anchors of message passing; only kept up to date for models that have it.
    pub anchors: Anchors,
    weighted: WeightedGraph,
}

impl StepGraph {
    /// Graph and anchors of `positions` (m) for message passing: `k` neighbours, every
    /// `anchor_stride`-th node an anchor.
    ///
    /// # Errors
    /// As [`KnnGraph::rebuild`] and [`Anchors::rebuild`].
    pub fn rebuild_anchors(
        &mut self,
        positions: &[[f32; 3]],
        k: usize,
        anchor_stride: usize,
    ) -> Result<()> {
        self.knn.rebuild(positions, k)?;
        self.anchors.rebuild(positions, anchor_stride)
    }

    /// Graph and loads of `positions` (m): `k` neighbours, `n_hops` hops.
    ///
    /// # Errors
    /// As [`KnnGraph::rebuild`], [`Loads::rebuild`] and [`Loads::rebuild_sampled`].
    pub fn rebuild(
        &mut self,
        positions: &[[f32; 3]],
        k: usize,
        n_hops: usize,
        mask: &MaskConfig,
        seed: WalkSeed,
    ) -> Result<()> {
        self.knn.rebuild(positions, k)?;
        if mask.is_default() {
            return self.loads.rebuild(&self.knn, n_hops);
        }
        self.weighted.rebuild(&self.knn, positions, mask.edge_weights);
        match &mask.walks {
            None => self.loads.rebuild(&self.weighted, n_hops),
            Some(walks) => self.loads.rebuild_sampled(&self.weighted, walks, seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::walks::{Halting, Sampler};
    use super::*;

    #[test]
    fn walks_must_be_as_long_as_the_model_has_loads() {
        let walks = WalkConfig {
            sampler: Sampler::Iid,
            n_walks: 4,
            halting: Halting::Hops(2),
            importance: true,
        };
        let mask = MaskConfig { walks: Some(walks), ..MaskConfig::default() };
        assert!(mask.validate(2).is_ok());
        assert!(mask.validate(3).unwrap_err().to_string().contains("n_hops"));
        // As many as the graph stage takes.
        let of = |n_walks| MaskConfig { walks: Some(WalkConfig { n_walks, ..walks }), ..mask };
        assert!(of(511).validate(2).is_ok());
        assert!(of(512).validate(2).unwrap_err().to_string().contains("more than 511"));
        let none = MaskConfig { walks: Some(WalkConfig { n_walks: 0, ..walks }), ..mask };
        assert!(none.validate(2).is_err());
    }
}
