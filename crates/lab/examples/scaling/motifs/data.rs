//! Random graphs with a motif joined to them, or with a random graph as dense: what is to be told apart.

use anyhow::Result;
use clap::ValueEnum;
use forecloud::base::random::{draw, uniform};
use forecloud::engine::graph::loads::TransposedLoads;
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig, WalkSeed};
use forecloud::engine::graph::{Loads, WeightedGraph};
use forecloud_lab::masks::{Nodes, Rwgnk, StepMask};
use serde::Serialize;

/// Nodes of the graph that a motif is joined to.
const N_LARGE: u32 = 100;
/// Probability of each edge between it and the motif; the paper does not tell it.
const P_JOINED: f32 = 0.01;
/// Highest degrees of its neighbours that a node is told.
pub const N_FEATURES: usize = 5;
/// Hops of the walks.
pub const WALK_HOPS: usize = 3;
/// Walks of each node.
const N_WALKS: usize = 9;

#[derive(Clone, Copy, PartialEq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Motif {
    /// Three cliques of four nodes, in a ring
    Caveman,
    /// A ring of ten nodes
    Circle,
    /// A square grid of nine nodes
    Grid,
    /// Five rungs
    Ladder,
    /// Five rungs in a ring
    CircularLadder,
}

impl Motif {
    pub fn name(self) -> &'static str {
        match self {
            Self::Caveman => "caveman",
            Self::Circle => "circle",
            Self::Grid => "grid",
            Self::Ladder => "ladder",
            Self::CircularLadder => "circular ladder",
        }
    }

    /// Its nodes and edges.
    fn edges(self) -> (u32, Vec<(u32, u32)>) {
        let ring = |n: u32| (0..n).map(move |i| (i, (i + 1) % n));
        let rungs = |n: u32| (0..n).map(move |i| (i, n + i));
        let rails = |n: u32| (0..n - 1).flat_map(move |i| [(i, i + 1), (n + i, n + i + 1)]);
        match self {
            Self::Caveman => {
                let clique =
                    |c: u32| (0..4).flat_map(move |i| (0..i).map(move |j| (4 * c + j, 4 * c + i)));
                let between = (0..3).map(|c| (4 * c + 3, 4 * (c + 1) % 12));
                (12, (0..3).flat_map(clique).chain(between).collect())
            }
            Self::Circle => (10, ring(10).collect()),
            Self::Grid => {
                let right = (0..9).filter(|i| i % 3 < 2).map(|i| (i, i + 1));
                (9, right.chain((0..6).map(|i| (i, i + 3))).collect())
            }
            Self::Ladder => (10, rungs(5).chain(rails(5)).collect()),
            Self::CircularLadder => {
                (10, rungs(5).chain(rails(5)).chain([(4, 0), (9, 5)]).collect())
            }
        }
    }
}

/// A graph, as the nets see it.
pub struct Example {
    pub n: usize,
    /// The highest degrees of each node's neighbours, falling, then zeros: `[n, N_FEATURES]`, half of each.
    pub features: Vec<f32>,
    /// D^-½ (A + I) D^-½.
    pub smoothing: WeightedGraph,
    /// D^-½ A D^-½.
    pub unlooped: WeightedGraph,
    /// The random walk graph-nodes kernel.
    pub mask: Rwgnk,
    /// What its walks go along, edges of a node alike, and the seed of its first ones.
    walked: WeightedGraph,
    seed: WalkSeed,
    /// Graph random features, by row and by column: as many walks.
    pub loads: Loads,
    pub transposed: TransposedLoads,
    /// 1 with the motif, else 0.
    pub label: f32,
}

/// How walks are sampled.
const WALKS: WalkConfig = WalkConfig {
    sampler: Sampler::Repelling,
    n_walks: N_WALKS,
    halting: Halting::Hops(WALK_HOPS),
    importance: true,
};

impl Example {
    /// Draws the kernel's walks of an epoch; those of epoch 0 are the first ones.
    pub fn redraw(&mut self, epoch: usize) -> Result<()> {
        let (graph, positions) = (&self.walked, &vec![[0.0; 3]; self.n][..]);
        let (n_hops, walks, seed) = (WALK_HOPS, Some(WALKS), self.seed.step(epoch));
        self.mask.rebuild(&Nodes { positions, graph, n_hops, walks, cell_m: 0.04, seed })?;
        Ok(())
    }
}

/// Edges of a random graph of the nodes from `first` on.
fn random(
    first: u32,
    n: u32,
    p: f32,
    chance: &mut impl FnMut() -> f32,
    edges: &mut Vec<(u32, u32)>,
) {
    let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (first + i, first + j)));
    edges.extend(pairs.filter(|_| chance() < p));
}

/// Example `index` of a motif: even ones have it.
pub fn example(motif: Motif, seed: u64, index: usize) -> Result<Example> {
    let mut at = 0;
    let mut chance = || {
        at += 1;
        uniform(draw(seed, index as i64, at, motif as u64))
    };
    let (n_small, of_motif) = motif.edges();
    let degree = 2.0 * of_motif.len() as f32 / n_small as f32;
    let mut edges = Vec::new();
    random(0, N_LARGE, degree / (N_LARGE - 1) as f32, &mut chance, &mut edges);
    match index % 2 {
        0 => edges.extend(of_motif.iter().map(|&(i, j)| (N_LARGE + i, N_LARGE + j))),
        _ => random(N_LARGE, n_small, degree / (n_small - 1) as f32, &mut chance, &mut edges),
    }
    let between = (0..N_LARGE).flat_map(|i| (0..n_small).map(move |j| (i, N_LARGE + j)));
    edges.extend(between.filter(|_| chance() < P_JOINED));
    let n = (N_LARGE + n_small) as usize;
    let mut neighbors = vec![Vec::new(); n];
    for &(i, j) in &edges {
        neighbors[i as usize].push(j);
        neighbors[j as usize].push(i);
    }
    let degree = |i: u32| neighbors[i as usize].len();
    let mut features = vec![0.0; n * N_FEATURES];
    for (features, neighbors) in features.chunks_exact_mut(N_FEATURES).zip(&neighbors) {
        let mut degrees: Vec<usize> = neighbors.iter().map(|&j| degree(j)).collect();
        degrees.sort_unstable_by(|a, b| b.cmp(a));
        features.iter_mut().zip(degrees).for_each(|(f, degree)| *f = 0.5 * degree as f32);
    }
    let ways = (0u32..).zip(&neighbors).flat_map(|(i, ends)| ends.iter().map(move |&j| (i, j)));
    let walked: Vec<_> = ways.clone().map(|(i, j)| (i, j, 1.0 / degree(i) as f32)).collect();
    let smooth = |i: u32, j: u32| 1.0 / ((degree(i) + 1) as f32 * (degree(j) + 1) as f32).sqrt();
    let loops = (0..n as u32).map(|i| (i, i, smooth(i, i)));
    let root = |i: u32, j: u32| 1.0 / ((degree(i) * degree(j)) as f32).sqrt();
    let unlooped: Vec<_> = ways.clone().map(|(i, j)| (i, j, root(i, j))).collect();
    let smoothed: Vec<_> = ways.map(|(i, j)| (i, j, smooth(i, j))).chain(loops).collect();
    let walked = WeightedGraph::from_edges(n, &walked, true)?;
    let seed = WalkSeed { seed, stamp_ns: index as i64 };
    let (mut loads, mut transposed) = (Loads::default(), TransposedLoads::default());
    loads.rebuild_sampled(&walked, &WALKS, seed)?;
    transposed.rebuild(&loads);
    let mut example = Example {
        n,
        features,
        smoothing: WeightedGraph::from_edges(n, &smoothed, true)?,
        unlooped: WeightedGraph::from_edges(n, &unlooped, true)?,
        mask: Rwgnk::default(),
        walked,
        seed,
        loads,
        transposed,
        label: if index.is_multiple_of(2) { 1.0 } else { 0.0 },
    };
    example.redraw(0)?;
    Ok(example)
}
