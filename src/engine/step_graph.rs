//! What the layers read of one step: graph, loads of the GRF attention, or what a registered layer needs; and
//! the settings by which masks are made.

use std::any::Any;

use serde::{Deserialize, Serialize};

use crate::base::geometry::Vec3;
use crate::engine::graph::loads::{MAX_PREFIXES, TransposedLoads};
use crate::engine::graph::walks::{WalkConfig, WalkSeed};
use crate::engine::graph::{EdgeWeights, KnnGraph, Loads, WeightedGraph};
use crate::engine::model::InterlacerConfig;
use crate::engine::registry::{LayerKind, Reads, StepData, StepTokens};
use crate::{Error, Result};

/// How the mask of the local layer is made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaskConfig {
    /// Weights of the k-NN graph's edges.
    pub edge_weights: EdgeWeights,
    /// Sampled walks; none takes all walks, which is exact.
    pub walks: Option<WalkConfig>,
    /// Side of the cells of masks that count cells (m).
    pub cell_m: f32,
}

impl Default for MaskConfig {
    fn default() -> Self {
        Self { edge_weights: EdgeWeights::default(), walks: None, cell_m: 0.04 }
    }
}

impl MaskConfig {
    /// Whether all is as it is without settings.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses settings that the local layer `name` does not read: nothing is to be set in vain.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting.
    pub fn validate_for(&self, name: &str, reads: Reads) -> Result<()> {
        let default = Self::default();
        let vain = [
            ("edge_weights", !reads.edge_weights && self.edge_weights != default.edge_weights),
            ("walks", !reads.walks && self.walks.is_some()),
            ("cell_m", !reads.cell && self.cell_m != default.cell_m),
        ];
        let Some((key, _)) = vain.into_iter().find(|(_, is_vain)| *is_vain) else { return Ok(()) };
        let problem = format!("the local layer {name} does not read it: leave it out");
        Err(Error::Config { key: format!("model.mask.{key}"), problem })
    }

    /// Checks all values, for a model with loads of `n_hops` hops.
    ///
    /// # Errors
    /// [`Error::Config`] names the value.
    pub fn validate(&self, n_hops: usize) -> Result<()> {
        self.edge_weights.validate()?;
        if !(1e-3..=10.0).contains(&self.cell_m) {
            let problem = format!("a cell of {} m is not in 0.001..=10", self.cell_m);
            return Err(Error::Config { key: "mask.cell_m".into(), problem });
        }
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
#[derive(Debug, Default)]
pub struct StepGraph {
    /// Neighbours; of models with GRF attention or a registered local layer.
    pub knn: KnnGraph,
    /// Merged loads by row; of models with GRF attention.
    pub loads: Loads,
    /// The same by column; only kept up to date in training.
    pub transposed: TransposedLoads,
    weighted: WeightedGraph,
    registered: Option<(LayerKind, Box<dyn StepData>)>,
}

impl StepGraph {
    /// Graph and loads of `positions` (m): `k` neighbours, `n_hops` hops.
    ///
    /// # Errors
    /// As [`KnnGraph::rebuild`], [`Loads::rebuild`] and [`Loads::rebuild_sampled`].
    pub fn rebuild(
        &mut self,
        positions: &[Vec3],
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

    /// Graph of `positions` (m), and what the registered local layer `kind` of a model of `config` reads of
    /// it; for a backward pass, too, if `training`.
    ///
    /// # Errors
    /// As [`KnnGraph::rebuild`], and what the layer lacks.
    pub fn rebuild_registered(
        &mut self,
        kind: LayerKind,
        positions: &[Vec3],
        config: &InterlacerConfig,
        mask: &MaskConfig,
        seed: WalkSeed,
        training: bool,
    ) -> Result<()> {
        self.knn.rebuild(positions, config.k)?;
        if self.registered.as_ref().is_none_or(|(known, _)| *known != kind) {
            self.registered = kind.step_data().map(|data| (kind, data));
        }
        let tokens = StepTokens { positions, knn: &self.knn, config, mask, seed, training };
        self.registered.as_mut().map_or(Ok(()), |(_, data)| data.rebuild(&tokens))
    }

    /// What the registered layer `kind` reads, if it was built.
    pub(crate) fn data_of(&self, kind: LayerKind) -> Option<&dyn StepData> {
        let (_, data) = self.registered.as_ref().filter(|(known, _)| *known == kind)?;
        Some(&**data)
    }

    /// What the registered layer of the last rebuild reads, if it is a `T`.
    pub fn data<T: StepData>(&self) -> Option<&T> {
        let data: &dyn Any = &*self.registered.as_ref()?.1;
        data.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::walks::{Halting, Sampler};

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
