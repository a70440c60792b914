//! The k-NN graph of the particles, and the walks on it, merged into loads.

use anyhow::ensure;
use criterion::{BenchmarkId, Criterion};
use forecloud::engine::graph::{KnnGraph, Loads};
use forecloud::engine::model::ModelConfig;

use super::support::Demo;
use super::{SIZES, set_size};

/// The graph by the grid: the neighbours that the k-d tree finds.
pub fn neighbors(criterion: &mut Criterion, demo: &Demo) -> anyhow::Result<()> {
    let k = ModelConfig::default().k;
    let mut group = criterion.benchmark_group("knn");
    for n in SIZES {
        let positions = demo.particles(n)?.positions;
        let (mut grid, mut tree) = (KnnGraph::default(), KnnGraph::default());
        grid.rebuild(&positions, k)?;
        tree.rebuild_by_tree(&positions, k)?;
        let same = (0..n).all(|i| grid.neighbors(i) == tree.neighbors(i));
        ensure!(same, "grid and tree differ at {n} points");
        set_size(&mut group, n);
        group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
            bencher.iter(|| grid.rebuild(&positions, k));
        });
    }
    group.finish();
    Ok(())
}

/// All walks and their merged loads: after each number of hops, a node's loads sum to one.
pub fn loads(criterion: &mut Criterion, demo: &Demo) -> anyhow::Result<()> {
    let ModelConfig { k, n_hops, .. } = ModelConfig::default();
    let mut group = criterion.benchmark_group("walks_and_loads");
    for n in SIZES {
        let (mut graph, mut loads) = (KnnGraph::default(), Loads::default());
        graph.rebuild(&demo.particles(n)?.positions, k)?;
        loads.rebuild(&graph, n_hops)?;
        for (i, hop) in (0..n).flat_map(|i| (0..=n_hops).map(move |hop| (i, hop))) {
            let row = loads.row(i);
            let sum: f32 = row.loads.chunks_exact(n_hops + 1).map(|loads| loads[hop]).sum();
            ensure!((sum - 1.0).abs() < 1e-5, "node {i}: loads of {hop} hops sum to {sum}");
        }
        set_size(&mut group, n);
        group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
            bencher.iter(|| loads.rebuild(&graph, n_hops));
        });
    }
    group.finish();
    Ok(())
}
