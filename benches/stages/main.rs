//! Criterion's times of each stage at three sizes of the demo recording's cloud, after checks.
//!
//! `cargo bench --bench stages [-- FILTER]`, for example `-- forward`; about three minutes on two
//! cores. Every stage first shows that its results are right; one that fails ends the run.

#[path = "../support/mod.rs"]
mod support;

mod clouds;
mod graph;
mod model;
mod rig;

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use support::Demo;

/// Points, particles or tokens.
const SIZES: [usize; 3] = [2048, 8192, 32768];

fn main() -> anyhow::Result<()> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    let demo = Demo::open()?;
    clouds::decode(&mut criterion, &demo)?;
    clouds::particles(&mut criterion, &demo)?;
    graph::neighbors(&mut criterion, &demo)?;
    graph::loads(&mut criterion, &demo)?;
    model::forward(&mut criterion, &demo)?;
    model::train_step(&mut criterion, &demo)?;
    rig::minute(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

/// Results are of `n` elements a second from here on; fewer samples where each takes long, and all
/// of equally many runs.
fn set_size(group: &mut BenchmarkGroup<'_, WallTime>, n: usize) {
    group.throughput(Throughput::Elements(n as u64));
    group.sampling_mode(SamplingMode::Flat);
    group.sample_size(if n > 8192 { 10 } else { 20 });
}
