//! Times the graph stage on a real cloud, after checking it: k-NN by grid and by k-d tree, and the
//! walks' merged loads, alternating in one run. `cargo bench --bench graph`; prints medians.

use std::path::Path;
use std::time::Instant;

use forecloud::cloud::{Cloud, Workspace};
use forecloud::frames::FramesConfig;
use forecloud::graph::{KnnGraph, Loads};
use forecloud::particles::Particles;
use forecloud::recording::Recording;

/// Timed runs of each figure, after one that warms up.
const RUNS: usize = 31;

fn main() -> anyhow::Result<()> {
    let cloud = demo_cloud()?;
    println!("threads: {}, cloud: {} points", rayon::current_num_threads(), cloud.len());
    println!("{:>7} {:>3} {:>9} {:>9} {:>9}", "N", "k", "tree ms", "grid ms", "loads ms");
    for n in [2048, 8192, 32768] {
        for k in [3, 8] {
            bench(&cloud, n, k)?;
        }
    }
    Ok(())
}

/// The cloud of the demo recording's first frame.
fn demo_cloud() -> anyhow::Result<Cloud> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/demo_tumble");
    let recording = Recording::open(&path, FramesConfig::default())?;
    let mut cloud = Cloud::default();
    recording.play(|frame, _| -> forecloud::Result<()> {
        if cloud.is_empty() {
            cloud.from_cameras(&frame.cameras, &Workspace::default(), None)?;
        }
        Ok(())
    })?;
    Ok(cloud)
}

fn bench(cloud: &Cloud, n: usize, k: usize) -> anyhow::Result<()> {
    let mut particles = Particles::default();
    particles.sample(cloud, n, 1, 0, &Workspace::default());
    let (mut grid, mut tree, mut loads) =
        (KnnGraph::default(), KnnGraph::default(), Loads::default());
    let n_hops = if k == 3 { 3 } else { 2 };
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..=RUNS {
        let start = Instant::now();
        tree.rebuild_by_tree(&particles.positions, k)?;
        times[0].push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        grid.rebuild(&particles.positions, k)?;
        times[1].push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        loads.rebuild(&grid, n_hops)?;
        times[2].push(start.elapsed().as_secs_f64() * 1e3);
        let same = (0..n).all(|i| grid.neighbors(i) == tree.neighbors(i));
        anyhow::ensure!(same, "grid and tree differ");
    }
    let [tree, grid, loads] = times.map(|mut times| {
        times.remove(0);
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("{n:>7} {k:>3} {tree:>9.2} {grid:>9.2} {loads:>9.2}");
    Ok(())
}
