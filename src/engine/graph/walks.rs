//! Random walks: independent, antithetic, repelling, and both.
//!
//! Every walker is, on its own, a simple random walk, so estimates made of them stay unbiased; what
//! differs is how the walkers from one node depend on each other. Sources: graph random features
//! (Reid et al. 2024b; Eq. 10 of GRF masking), antithetic termination (Reid et al. 2023), repelling
//! random walks (Reid et al. 2024a). Draws are by counter of (seed, stamp, root, hop, walk).

use super::WeightedGraph;
use crate::base::random::{draw, uniform};
use crate::{Error, Result};

/// How the walkers from one node depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// Not at all.
    Iid,
    /// The second half's halting draws are those of the first half plus ½, modulo 1.
    Antithetic,
    /// Walkers that stand in one node go on to different neighbours, as far as there are enough.
    Repelling,
    /// Both.
    AntitheticRepelling,
}

impl Sampler {
    /// All: what the tool's options and the tests run through.
    pub const ALL: [Self; 4] =
        [Self::Iid, Self::Antithetic, Self::Repelling, Self::AntitheticRepelling];

    /// Its name in options and model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iid => "iid",
            Self::Antithetic => "antithetic",
            Self::Repelling => "repelling",
            Self::AntitheticRepelling => "antithetic_repelling",
        }
    }
}

/// When a walk ends.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Halting {
    /// Before each hop with this probability, and after so many hops in any case.
    Probability {
        /// p_halt, in [0, 1).
        p_halt: f32,
        /// Most hops.
        max_hops: usize,
    },
    /// After exactly so many hops.
    Hops(usize),
}

/// How walks are sampled from each node.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkConfig {
    /// Dependence of the walkers.
    pub sampler: Sampler,
    /// Walkers from each node.
    pub n_walks: usize,
    /// Their length.
    pub halting: Halting,
    /// Weighs walks by edge weights over probabilities (Eq. 10); without, each visit counts 1
    /// (Eq. 24: an ad-hoc mask that estimates no function of W).
    pub importance: bool,
}

/// Most walkers from a node, and most hops.
const MAX_WALKS: usize = 1 << 12;
/// Most hops of a walk.
pub const MAX_HOPS: usize = 1 << 10;

impl Sampler {
    fn is_antithetic(self) -> bool {
        matches!(self, Self::Antithetic | Self::AntitheticRepelling)
    }

    fn is_repelling(self) -> bool {
        matches!(self, Self::Repelling | Self::AntitheticRepelling)
    }
}

impl Halting {
    fn p_halt(self) -> f32 {
        match self {
            Self::Probability { p_halt, .. } => p_halt,
            Self::Hops(_) => 0.0,
        }
    }

    /// Hops after which every walk has ended.
    pub fn max_hops(self) -> usize {
        match self {
            Self::Probability { max_hops, .. } => max_hops,
            Self::Hops(n) => n,
        }
    }
}

impl WalkConfig {
    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names what is wrong and what is allowed.
    pub fn validate(&self) -> Result<()> {
        let (n_walks, p_halt) = (self.n_walks, self.halting.p_halt());
        let n_hops = self.halting.max_hops();
        let problem = if !(1..=MAX_WALKS).contains(&n_walks) {
            format!("{n_walks} walks are not in 1..={MAX_WALKS}")
        } else if !(0.0..1.0).contains(&p_halt) {
            format!("a halting probability of {p_halt} is not in 0..1")
        } else if n_hops > MAX_HOPS {
            format!("{n_hops} hops are more than {MAX_HOPS}")
        } else {
            return Ok(());
        };
        Err(Error::Config { key: "walks".into(), problem })
    }
}

#[derive(Debug, Clone, Copy)]
struct Walker {
    node: u32,
    load: f64,
    /// Its number among the walkers of its root.
    walk: u32,
}

/// Samples the walks of one node after the other; keeps its memory.
#[derive(Debug, Clone, Default)]
pub struct WalkSampler {
    /// Those that have not ended.
    walkers: Vec<Walker>,
}

/// What the draws of one set of walks are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalkSeed {
    /// Seed.
    pub seed: u64,
    /// Stamp of the frame, ns.
    pub stamp_ns: i64,
}

impl WalkSeed {
    /// Of step `t` of a roll-out.
    pub fn step(self, t: usize) -> Self {
        Self { seed: self.seed ^ (t as u64) << 32, ..self }
    }
}

impl WalkSampler {
    /// Samples the walks from `root` on `graph`; `visit(node, hop, load)` sees each visit, the
    /// root's own (hop 0) of each walk included.
    ///
    /// `load`: product of weight · out-degree / (1 - p_halt) over the hops so far, that is w̃ / p
    /// (unitless); 1 without importance weights. A walk also ends in a node without edges.
    pub fn sample(
        &mut self,
        graph: &WeightedGraph,
        root: usize,
        config: &WalkConfig,
        seed: WalkSeed,
        mut visit: impl FnMut(u32, usize, f64),
    ) {
        let draws = Draws { seed, root: root as u64 };
        let keep = 1.0 / (1.0 - f64::from(config.halting.p_halt()));
        let start = |walk| Walker { node: root as u32, load: 1.0, walk };
        self.walkers.clear();
        self.walkers.extend((0..config.n_walks as u32).map(start));
        for walker in &self.walkers {
            visit(walker.node, 0, walker.load);
        }
        for hop in 0..config.halting.max_hops() {
            self.halt(config, draws, hop);
            self.walkers.retain(|w| !graph.neighbors(w.node as usize).is_empty());
            if self.walkers.is_empty() {
                return;
            }
            match config.sampler.is_repelling() {
                true => self.repel(graph, draws, hop, keep),
                false => self.hop(graph, draws, hop, keep),
            }
            for walker in &mut self.walkers {
                if !config.importance {
                    walker.load = 1.0;
                }
                visit(walker.node, hop + 1, walker.load);
            }
        }
    }

    fn halt(&mut self, config: &WalkConfig, draws: Draws, hop: usize) {
        let p_halt = config.halting.p_halt();
        if p_halt == 0.0 {
            return;
        }
        let half = match config.sampler.is_antithetic() {
            true => config.n_walks as u32 / 2,
            false => 0,
        };
        self.walkers.retain(|walker| {
            // Of an odd number, the last walker is on its own.
            let mirrored = (half..2 * half).contains(&walker.walk);
            let source = walker.walk - if mirrored { half } else { 0 };
            let u = draws.uniform(Use::Halt, hop, u64::from(source));
            let u = if mirrored { (u + 0.5) % 1.0 } else { u };
            u >= p_halt
        });
    }

    fn hop(&mut self, graph: &WeightedGraph, draws: Draws, hop: usize, keep: f64) {
        for walker in &mut self.walkers {
            let d = graph.neighbors(walker.node as usize).len();
            let u = draws.uniform(Use::Hop, hop, u64::from(walker.walk));
            walker.go(graph, place(u, d), keep);
        }
    }

    /// Of the walkers in one node, of out-degree d, each block of d leaves along all of its edges,
    /// shifted at random; the rest is spread evenly, from one random offset.
    fn repel(&mut self, graph: &WeightedGraph, draws: Draws, hop: usize, keep: f64) {
        self.walkers.sort_unstable_by_key(|walker| (walker.node, walker.walk));
        for group in self.walkers.chunk_by_mut(|a, b| a.node == b.node) {
            let node = group[0].node;
            let d = graph.neighbors(node as usize).len();
            for (block, walkers) in group.chunks_mut(d).enumerate() {
                let id = u64::from(node) << 16 | block as u64;
                let offset = draws.uniform(Use::Repel, hop, id);
                let m = walkers.len();
                for (i, walker) in walkers.iter_mut().enumerate() {
                    let u = offset + i as f32 / m as f32;
                    walker.go(graph, place(u % 1.0, d), keep);
                }
            }
        }
    }
}

impl Walker {
    /// Along edge `at` of its node.
    fn go(&mut self, graph: &WeightedGraph, at: usize, keep: f64) {
        let node = self.node as usize;
        let (neighbors, weights) = (graph.neighbors(node), graph.weights(node));
        self.node = neighbors[at];
        self.load *= f64::from(weights[at]) * neighbors.len() as f64 * keep;
    }
}

/// Which of `d` equal parts of [0, 1) holds `u`.
fn place(u: f32, d: usize) -> usize {
    ((u * d as f32) as usize).min(d - 1)
}

/// What a draw is for.
#[derive(Clone, Copy)]
enum Use {
    Halt,
    Hop,
    Repel,
}

#[derive(Clone, Copy)]
struct Draws {
    seed: WalkSeed,
    root: u64,
}

impl Draws {
    fn uniform(self, what: Use, hop: usize, id: u64) -> f32 {
        // Hops are below 2^10, walks below 2^12, nodes below 2^32 and blocks below 2^16.
        let stream = (what as u64) << 60 | (hop as u64) << 48 | id;
        uniform(draw(self.seed.seed, self.seed.stamp_ns, self.root, stream))
    }
}
