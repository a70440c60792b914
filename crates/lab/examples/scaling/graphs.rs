//! The graphs that are measured, by name.

#[path = "../../../../benches/support/demo.rs"]
mod demo;

use crate::theory::generate;
use anyhow::{Context, Result};
use clap::ValueEnum;
use demo::Demo;
use forecloud::engine::graph::{EdgeWeights, KnnGraph, WeightedGraph};
use serde::Serialize;

/// Neighbours of each node of the k-NN graph, as in the model.
const K: usize = 3;
/// Mean number of neighbours in a random graph.
const MEAN_DEGREE: f64 = 8.0;

#[derive(Clone, Copy, PartialEq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GraphName {
    /// Each node has two neighbours
    Ring,
    /// Square grid
    Grid,
    /// Random graph, 8 neighbours in the mean
    ErdosRenyi,
    /// 3 nearest neighbours of the particles of data/demo_tumble
    Knn,
}

/// Makes graphs; reads the demo recording once.
#[derive(Default)]
pub struct Graphs {
    demo: Option<Demo>,
}

impl GraphName {
    pub fn label(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Grid => "grid",
            Self::ErdosRenyi => "Erdős–Rényi",
            Self::Knn => "k-NN of a cloud",
        }
    }
}

impl Graphs {
    /// A graph of `n` nodes (of a grid: the next square). The k-NN graph is directed, with weights
    /// 1/k, as the model's; `symmetric` joins its nodes both ways.
    pub fn make(
        &mut self,
        name: GraphName,
        n: usize,
        symmetric: bool,
        seed: u64,
    ) -> Result<WeightedGraph> {
        let side = (1..n).find(|side| side * side >= n).unwrap_or(n);
        Ok(match name {
            GraphName::Ring => generate::ring(n)?,
            GraphName::Grid => generate::grid(side, side)?,
            GraphName::ErdosRenyi => {
                generate::erdos_renyi(n, (MEAN_DEGREE / n as f64).min(1.0), seed)?
            }
            GraphName::Knn if symmetric => generate::symmetric_knn(&self.neighbors(n)?.0)?,
            GraphName::Knn => self.knn(n, EdgeWeights::Uniform)?,
        })
    }

    /// The directed k-NN graph of `n` particles of the demo's cloud.
    pub fn knn(&mut self, n: usize, weights: EdgeWeights) -> Result<WeightedGraph> {
        let (knn, positions) = self.neighbors(n)?;
        let mut graph = WeightedGraph::default();
        graph.rebuild(&knn, &positions, weights);
        Ok(graph)
    }

    fn neighbors(&mut self, n: usize) -> Result<(KnnGraph, Vec<[f32; 3]>)> {
        if self.demo.is_none() {
            self.demo = Some(Demo::open()?);
        }
        let demo = self.demo.as_ref().context("the demo was not read")?;
        let positions = demo.particles(n)?.positions;
        let mut knn = KnnGraph::default();
        knn.rebuild(&positions, K)?;
        Ok((knn, positions))
    }
}
