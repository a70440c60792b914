//! Times the graph stage on a real cloud, after checking it: k-NN by grid and by k-d tree, and the
//! walks' merged loads, alternating in one run. `cargo bench --bench graph`; prints medians.

mod support;

use forecloud::engine::graph::{KnnGraph, Loads};
use support::{Demo, median, time_ms};

/// Timed runs of each figure, after one that warms up.
const RUNS: usize = 31;

fn main() -> anyhow::Result<()> {
    let demo = Demo::open()?;
    println!("threads: {}, cloud: {} points", rayon::current_num_threads(), demo.cloud.len());
    println!(
        "{:>7} {:>3} {:>4} {:>9} {:>9} {:>9}",
        "N", "k", "hops", "tree ms", "grid ms", "loads ms"
    );
    for n in [2048, 8192, 32768] {
        for k in [3, 8] {
            bench(&demo, n, k)?;
        }
    }
    Ok(())
}

fn bench(demo: &Demo, n: usize, k: usize) -> anyhow::Result<()> {
    let positions = demo.particles(n)?.positions;
    let (mut grid, mut tree) = (KnnGraph::default(), KnnGraph::default());
    let mut loads = Loads::default();
    let n_hops = if k == 3 { 3 } else { 2 };
    let mut times = [const { Vec::new() }; 3];
    for run in 0..=RUNS {
        let ms = [
            time_ms(|| tree.rebuild_by_tree(&positions, k))?,
            time_ms(|| grid.rebuild(&positions, k))?,
            time_ms(|| loads.rebuild(&grid, n_hops))?,
        ];
        let same = (0..n).all(|i| grid.neighbors(i) == tree.neighbors(i));
        anyhow::ensure!(same, "grid and tree differ");
        if run > 0 {
            times.iter_mut().zip(ms).for_each(|(times, ms)| times.push(ms));
        }
    }
    let [tree, grid, loads] = times.map(median);
    println!("{n:>7} {k:>3} {n_hops:>4} {tree:>9.2} {grid:>9.2} {loads:>9.2}");
    Ok(())
}
