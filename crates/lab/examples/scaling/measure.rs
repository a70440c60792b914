//! The measurements: what the tables show, and what `crates/lab/tests/lab/scaling.rs` holds against the theory.

use crate::theory::bounds::{self, AttentionFlops};
use crate::theory::generate;
use crate::theory::series::{self, Side, kernels};
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig, WalkSeed};
use forecloud::engine::graph::{Loads, WeightedGraph};
use serde::Serialize;

/// Terms of a kernel's power series: with ‖U‖ ≤ 0.25 the rest is below 1e-20.
const N_TERMS: usize = 16;
/// Scale of U = 0.25 D^-½ A D^-½: the heat kernel exp(σ² W), σ = 0.5, of GRF masking's appendix E.
const SCALE: f32 = 0.25;
/// Thresholds of deviations in each factor of ten, and the range that they cover.
const THRESHOLDS_PER_DECADE: i32 = 40;
const DECADES: std::ops::RangeInclusive<i32> = -3..=1;
/// Share of deviations beyond the one that measurement and bound are compared at.
pub const TAIL: f64 = 0.05;

/// Mean and its standard error.
pub type Mean = [f64; 2];

/// Walks that halt; those of more than 1,000 hops are as good as never.
pub fn walks(sampler: Sampler, n_walks: usize, p_halt: f32) -> WalkConfig {
    let halting = Halting::Probability { p_halt, max_hops: 1000 };
    WalkConfig { sampler, n_walks, halting, importance: true }
}

fn p_halt(config: &WalkConfig) -> f64 {
    match config.halting {
        Halting::Probability { p_halt, .. } => p_halt.into(),
        Halting::Hops(_) => 0.0,
    }
}

/// Draws of one trial; the stamp keeps them apart from those that made a random graph.
fn trial_seed(seed: u64, trial: u64, config: &WalkConfig) -> WalkSeed {
    WalkSeed { seed: seed + trial, stamp_ns: config.n_walks as i64 }
}

/// Floating-point operations of attention over a path of tokens.
#[derive(Debug, Serialize)]
pub struct Flops {
    pub n_tokens: usize,
    pub softmax: f64,
    pub linear: f64,
    pub masked: Mean,
    /// Distinct nodes that the walks from a token visit.
    pub nonzero: Mean,
}

/// Mean and standard error over `n_seeds` sets of walks.
pub fn flops(
    flops: AttentionFlops,
    config: &WalkConfig,
    n_seeds: u64,
    seed: u64,
) -> forecloud::Result<Flops> {
    let graph = generate::path(flops.n_tokens)?;
    let mean_nonzero = |trial| {
        let nonzero = series::nonzero_entries(&graph, config, trial_seed(seed, trial, config));
        nonzero.iter().sum::<usize>() as f64 / nonzero.len() as f64
    };
    let means: Vec<f64> = (0..n_seeds).map(mean_nonzero).collect();
    let nonzero = series::mean_and_standard_error(&means);
    Ok(Flops {
        n_tokens: flops.n_tokens,
        softmax: flops.softmax(),
        linear: flops.linear(),
        masked: nonzero.map(|x| flops.masked(x)),
        nonzero,
    })
}

/// Non-zero entries of graph random features, against lemma 3.3.
#[derive(Debug, Serialize)]
pub struct Sparsity {
    pub n_nodes: usize,
    pub n_walks: usize,
    pub n_features: usize,
    pub mean: f64,
    /// Entries that a share 1 - δ of the features doesn't exceed.
    pub quantile: usize,
    pub max: usize,
    /// Bound as the lemma states it, n b, and share of the features within it.
    pub bound_as_stated: f64,
    pub share_within_as_stated: f64,
    /// The same with whole walks, n ⌈b⌉.
    pub bound: f64,
    pub share_within: f64,
}

/// Of at least `min_features` features: all nodes, as many times as it takes.
pub fn sparsity(
    graph: &WeightedGraph,
    config: &WalkConfig,
    delta: f64,
    min_features: usize,
    seed: u64,
) -> Sparsity {
    let n_trials = min_features.div_ceil(graph.len().max(1)) as u64;
    let of_trial = |trial| series::nonzero_entries(graph, config, trial_seed(seed, trial, config));
    let mut nonzero: Vec<usize> = (0..n_trials).flat_map(of_trial).collect();
    nonzero.sort_unstable();
    let n_features = nonzero.len();
    let share =
        |bound: f64| nonzero.partition_point(|&x| x as f64 <= bound) as f64 / n_features as f64;
    let (n_walks, p_halt) = (config.n_walks, p_halt(config));
    let bound = bounds::nonzero_bound(n_walks, p_halt, delta);
    let bound_as_stated = bounds::nonzero_bound_as_stated(n_walks, p_halt, delta);
    let at = ((1.0 - delta) * n_features as f64).ceil() as usize;
    Sparsity {
        n_nodes: graph.len(),
        n_walks,
        n_features,
        mean: nonzero.iter().sum::<usize>() as f64 / n_features as f64,
        quantile: nonzero[at.clamp(1, n_features) - 1],
        max: nonzero[n_features - 1],
        bound_as_stated,
        share_within_as_stated: share(bound_as_stated),
        bound,
        share_within: share(bound),
    }
}

/// How often entries of an estimated mask are off by more than each of some thresholds, against
/// theorem 3.2.
#[derive(Debug, Serialize)]
pub struct Tail {
    pub n_walks: usize,
    /// Largest load of a walk (Eq. 21).
    pub c: f64,
    /// Largest sum of absolute loads of a walk that was seen: at most c.
    pub largest_load: f64,
    pub thresholds: Vec<f64>,
    /// Share of the trials, in that entry of the mask where it is largest.
    pub measured: Vec<f64>,
    pub bound: Vec<f64>,
    /// Deviations that 5 % of the trials exceed, as measured (in the worst entry) and by the bound.
    pub deviation: f64,
    pub deviation_bound: f64,
}

impl Tail {
    /// Whether no share of the trials is above the bound.
    pub fn holds(&self) -> bool {
        self.measured.iter().zip(&self.bound).all(|(measured, bound)| measured <= bound)
    }
}

/// Deviations of the heat kernel's estimate on `graph`, `n_walks` from each node for either side.
///
/// Of the symmetric estimate the entries off the diagonal, of which the theorem is.
pub fn tail(
    graph: &WeightedGraph,
    side: Side,
    config: &WalkConfig,
    n_trials: u64,
    seed: u64,
) -> Tail {
    let graph = graph.clone().normalized(SCALE);
    let n = graph.len();
    let alpha = kernels::exponential(N_TERMS);
    let (exact, f) = (series::dense(&graph, &alpha), side.coefficients(&alpha));
    let entry_counts = |i: usize, j: usize| match side {
        Side::Symmetric => i < j,
        Side::Asymmetric => true,
    };
    let thresholds = thresholds();
    // For each entry, trials by the number of thresholds that their deviation exceeds.
    let mut trials = vec![0u32; n * n * (thresholds.len() + 1)];
    for trial in 0..n_trials {
        let features = series::features(&graph, &f, config, trial_seed(seed, trial, config));
        let estimate = match side {
            Side::Symmetric => series::gram(&features, n),
            Side::Asymmetric => features,
        };
        for (entry, (a, b)) in estimate.iter().zip(&exact).enumerate() {
            if entry_counts(entry / n, entry % n) {
                let exceeded = thresholds.partition_point(|&t| t < (a - b).abs());
                trials[entry * (thresholds.len() + 1) + exceeded] += 1;
            }
        }
    }
    let mut measured = vec![0f64; thresholds.len()];
    for of_entry in trials.chunks_exact(thresholds.len() + 1) {
        let mut beyond = 0;
        for (worst, n_beyond) in measured.iter_mut().zip(&of_entry[1..]).rev() {
            beyond += n_beyond;
            *worst = worst.max(f64::from(beyond) / n_trials as f64);
        }
    }
    let c = bounds::load_bound(&graph, &f, p_halt(config));
    let below = measured.iter().position(|share| *share <= TAIL);
    Tail {
        n_walks: config.n_walks,
        c,
        largest_load: largest_load(&graph, &f, config, seed),
        bound: thresholds.iter().map(|&t| bounds::tail_bound(side, t, config.n_walks, c)).collect(),
        deviation: below.map_or(f64::INFINITY, |at| thresholds[at]),
        deviation_bound: bounds::deviation_bound(side, TAIL, config.n_walks, c),
        thresholds,
        measured,
    }
}

fn thresholds() -> Vec<f64> {
    let per_decade = THRESHOLDS_PER_DECADE;
    let steps = DECADES.start() * per_decade..=DECADES.end() * per_decade;
    steps.map(|step| 10f64.powf(f64::from(step) / f64::from(per_decade))).collect()
}

/// Largest L1 norm of a single walk's loads among 100 walks from every node.
fn largest_load(graph: &WeightedGraph, f: &[f64], config: &WalkConfig, seed: u64) -> f64 {
    let single = WalkConfig { n_walks: 1, ..*config };
    let magnitudes: Vec<f64> = f.iter().map(|f| f.abs()).collect();
    let of_trial = |trial| {
        let loads = series::features(graph, &magnitudes, &single, trial_seed(seed, trial, &single));
        let rows = loads.chunks_exact(graph.len()).map(|row| row.iter().sum());
        rows.fold(0.0, f64::max)
    };
    (0..100).map(of_trial).fold(0.0, f64::max)
}

/// Error and sparsity on Erdős–Rényi graphs, for one sampler.
#[derive(Debug, Serialize)]
pub struct ErdosRenyi {
    pub n_nodes: usize,
    pub edge_probability: f64,
    pub sampler: Sampler,
    /// ‖M̂ - M‖_F / ‖M‖_F of the heat kernel.
    pub error: Mean,
    /// Share of the features' entries that are not zero.
    pub nonzero_share: Mean,
}

/// Means over `n_trials` graphs, the same for all samplers.
pub fn erdos_renyi(
    n_nodes: usize,
    edge_probability: f64,
    side: Side,
    configs: &[WalkConfig],
    n_trials: u64,
    seed: u64,
) -> forecloud::Result<Vec<ErdosRenyi>> {
    let alpha = kernels::exponential(N_TERMS);
    let f = side.coefficients(&alpha);
    let mut measured = vec![[const { Vec::new() }; 2]; configs.len()];
    for trial in 0..n_trials {
        let graph = generate::erdos_renyi(n_nodes, edge_probability, seed + trial)?;
        let graph = graph.normalized(SCALE);
        let exact = series::dense(&graph, &alpha);
        for (config, [errors, shares]) in configs.iter().zip(&mut measured) {
            let seed = trial_seed(seed, trial, config);
            let estimate = series::estimate(&graph, &f, side, config, seed);
            errors.push(series::relative_squared_error(&estimate, &exact).sqrt());
            let nonzero = series::nonzero_entries(&graph, config, seed).iter().sum::<usize>();
            shares.push(nonzero as f64 / (n_nodes * n_nodes) as f64);
        }
    }
    let rows = configs.iter().zip(measured).map(|(config, [errors, shares])| ErdosRenyi {
        n_nodes,
        edge_probability,
        sampler: config.sampler,
        error: series::mean_and_standard_error(&errors),
        nonzero_share: series::mean_and_standard_error(&shares),
    });
    Ok(rows.collect())
}

/// Walks of exactly three hops, as the model's.
pub fn three_hops(sampler: Sampler, n_walks: usize) -> WalkConfig {
    WalkConfig { sampler, n_walks, halting: Halting::Hops(3), importance: true }
}

/// Masks M = Σ W^t, t ≤ 3, of walks of three hops.
pub struct Prefixes<'a> {
    graph: &'a WeightedGraph,
    exact: Vec<f64>,
    /// Relative squared error of the mask of enumerated walks, and its entries a row.
    pub enumerated: (f64, f64),
}

const THREE_HOPS: [f64; 4] = [1.0; 4];

impl<'a> Prefixes<'a> {
    /// Of all nodes of `graph`.
    pub fn new(graph: &'a WeightedGraph) -> forecloud::Result<Self> {
        let n = graph.len();
        let exact = series::dense(graph, &THREE_HOPS);
        let mut loads = Loads::default();
        loads.rebuild(graph, THREE_HOPS.len() - 1)?;
        let mut mask = vec![0.0; n * n];
        for i in 0..n {
            let row = loads.row(i);
            for (&j, of_hops) in row.nodes.iter().zip(row.loads.chunks_exact(THREE_HOPS.len())) {
                mask[i * n + j as usize] = of_hops.iter().map(|&load| f64::from(load)).sum();
            }
        }
        let error = series::relative_squared_error(&mask, &exact);
        let enumerated = (error, loads.n_entries() as f64 / n as f64);
        Ok(Self { graph, exact, enumerated })
    }

    /// Of sampled walks: relative squared error of the mask, and its mean number of entries a row.
    pub fn sampled(&self, config: &WalkConfig, n_trials: u64, seed: u64) -> (Mean, f64) {
        let mut nonzero = 0;
        let of_trial = |trial| {
            let seed = trial_seed(seed, trial, config);
            nonzero += series::nonzero_entries(self.graph, config, seed).iter().sum::<usize>();
            let mask = series::features(self.graph, &THREE_HOPS, config, seed);
            series::relative_squared_error(&mask, &self.exact)
        };
        let errors: Vec<f64> = (0..n_trials).map(of_trial).collect();
        let n_rows = n_trials as f64 * self.graph.len() as f64;
        (series::mean_and_standard_error(&errors), nonzero as f64 / n_rows)
    }
}
