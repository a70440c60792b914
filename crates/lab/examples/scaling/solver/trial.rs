//! Random graphs, demands, and the true answers.

use anyhow::Result;
use clap::ValueEnum;
use forecloud::base::random::{draw, normal_pair, uniform};
use forecloud::engine::graph::WeightedGraph;
use forecloud_lab::solver::Laplacian;
use nalgebra::{DMatrix, DVector};
use serde::Serialize;

pub const NODES: usize = 10;
/// Demands on each graph.
pub const DEMANDS: usize = NODES;
/// Eigenvectors of a connected graph but the constant one.
pub const MODES: usize = NODES - 1;

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// All edges.
    Full,
    /// A ring with skip links of one length, 2, 4, 6 or 8.
    SkipLinks,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    Flow,
    Embedding,
    Heat,
}

/// Of the heat kernel exp(-S L).
pub const S: f64 = 0.5;
pub const TASKS: [(Task, &str); 3] =
    [(Task::Flow, "electric flow"), (Task::Embedding, "embedding"), (Task::Heat, "heat kernel")];

impl Task {
    /// What the task makes of an eigenvalue.
    pub fn of_eigenvalue(self, value: f64) -> f64 {
        match self {
            Task::Flow => 1.0 / value,
            Task::Embedding => 1.0 / value.sqrt(),
            Task::Heat => (-S * value).exp(),
        }
    }
}

/// Numbers by mode.
pub type Modes = [f64; MODES];

/// One graph, demands, and the true answers.
pub struct Trial {
    pub laplacian: Laplacian,
    /// `[NODES, DEMANDS]`, a row a node.
    pub demands: Vec<f32>,
    /// Without that of the constants.
    pub eigenvalues: Modes,
    /// Of each demand, by mode.
    pub along: Vec<Modes>,
    /// True answers of each task, `[NODES, DEMANDS]`.
    pub answers: [DMatrix<f64>; 3],
}

impl Trial {
    pub fn demands(&self) -> DMatrix<f64> {
        DMatrix::from_row_iterator(NODES, DEMANDS, self.demands.iter().map(|&x| f64::from(x)))
    }
}

pub fn trial(family: Family, seed: u64, index: u64) -> Result<Trial> {
    let chance = |at: u64| uniform(draw(seed, index as i64, at, 1));
    let skip = 2 + 2 * (4.0 * chance(1000)) as usize;
    let pairs = (0..NODES).flat_map(|i| (i + 1..NODES).map(move |j| (i, j)));
    let is_edge = |&(i, j): &(usize, usize)| {
        let way = (j - i).min(NODES - (j - i));
        family == Family::Full || way == 1 || way == skip.min(NODES - skip)
    };
    let conductance = |(i, j): (usize, usize)| {
        let u = 4.0 * chance((i * NODES + j) as u64) - 2.0;
        (i as u32, j as u32, (-u).exp())
    };
    let edges: Vec<_> = pairs.filter(is_edge).map(conductance).collect();
    let laplacian = Laplacian::new(&WeightedGraph::from_edges(NODES, &edges, false)?)?;
    let normal = |at| normal_pair(draw(seed, index as i64, at, 2))[0];
    let mut demands: Vec<f32> = (0..(NODES * DEMANDS) as u64).map(normal).collect();
    laplacian.center(&mut demands);
    let eigen = laplacian.dense().symmetric_eigen();
    let columns = demands.iter().map(|&x| f64::from(x));
    let along = eigen.eigenvectors.tr_mul(&DMatrix::from_row_iterator(NODES, DEMANDS, columns));
    let answers = TASKS.map(|(task, _)| {
        let of = |value| if value < 1e-9 { 0.0 } else { task.of_eigenvalue(value) };
        let mapped = DMatrix::from_diagonal(&eigen.eigenvalues.map(of)) * &along;
        &eigen.eigenvectors * mapped
    });
    let kept: Vec<usize> = (0..NODES).filter(|&i| i != eigen.eigenvalues.imin()).collect();
    let eigenvalues = std::array::from_fn(|mode| eigen.eigenvalues[kept[mode]]);
    let of_demand = |c: usize| std::array::from_fn(|mode| along[(kept[mode], c)]);
    let along = (0..DEMANDS).map(of_demand).collect();
    Ok(Trial { laplacian, demands, eigenvalues, along, answers })
}

/// Squared distance of the answer from the true one, both of length one; the mean over the demands.
pub fn loss(answers: &DMatrix<f64>, exact: &DMatrix<f64>) -> f64 {
    let of = |c: usize| {
        let (answer, exact): (DVector<f64>, DVector<f64>) =
            (answers.column(c).into(), exact.column(c).into());
        let norm = answer.norm();
        if norm > 0.0 { (answer / norm - exact.normalize()).norm_squared() } else { 1.0 }
    };
    (0..DEMANDS).map(of).sum::<f64>() / DEMANDS as f64
}
