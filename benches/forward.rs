//! Times the graph and the forward pass on a real cloud, after checking them.
//!
//! `cargo bench --bench forward [-- --tokens 2048,8192 --widths 64,128]`: N is the number of all
//! tokens (scene, history and robot alike), taken from the demo recording. Prints medians. Other
//! layers: `--local grf,message_passing`, `--global linear,softmax`, `--feature-map relu,elu`
//! (names as in model files; every combination is timed). Walks are anchors for message passing.

mod support;

use forecloud::base::random::{draw, uniform};
use forecloud::engine::graph::walks::WalkSeed;
use forecloud::engine::model::weights::initial_weights;
use forecloud::engine::model::{
    Engine, LayersConfig, Layout, LocalLayer, MaskConfig, Mode, ModelConfig, StepGraph,
};
use forecloud::vision::particles::Particles;
use rayon::prelude::*;
use support::{Demo, time_ms};

/// Timed runs of each figure.
const RUNS: usize = 15;

fn main() -> anyhow::Result<()> {
    forecloud_lab::register();
    let args: Vec<String> = std::env::args().collect();
    let list = |name: &str, default: &[usize]| -> Vec<usize> {
        let at = args.iter().position(|arg| arg == name).and_then(|i| args.get(i + 1));
        at.map_or(default.to_vec(), |text| text.split(',').filter_map(|n| n.parse().ok()).collect())
    };
    let (tokens, widths) = (list("--tokens", &[2048, 8192, 32768]), list("--widths", &[64, 128]));
    let variants = layers(&args)?;
    let demo = Demo::open()?;
    println!(
        "threads: {}, cloud: {} points of the demo recording",
        rayon::current_num_threads(),
        demo.cloud.len()
    );
    println!(
        "matrix products alone (256 x 512 x 128, one a thread): {:.0} GFLOP/s",
        matmul_gflops()
    );
    println!(
        "{:>7} {:>5} {:>9} {:>9} {:>10} {:>8}  global, local, feature map",
        "N", "d", "k-NN ms", "walks ms", "forward ms", "GFLOP/s"
    );
    for &n in &tokens {
        for &width in &widths {
            for &layers in &variants {
                bench(&demo, n, width, layers)?;
            }
        }
    }
    Ok(())
}

/// All combinations of the layers that the arguments name.
fn layers(args: &[String]) -> anyhow::Result<Vec<LayersConfig>> {
    let names = |option: &str, default: &str| -> Vec<serde_json::Value> {
        let given = args.iter().position(|arg| arg == option).and_then(|i| args.get(i + 1));
        let names = given.map_or(default, |names| names);
        // A name, or JSON such as {"favor":{"n_features":64,"seed":0}} (alone, for its commas).
        serde_json::from_str(names).map_or_else(
            |_| names.split(',').map(serde_json::Value::from).collect(),
            |json| vec![json],
        )
    };
    let mut all = Vec::new();
    for global in names("--global", "linear") {
        for local in names("--local", "grf") {
            for map in names("--feature-map", "relu") {
                let json =
                    serde_json::json!({"global": global, "local": local, "feature_map": map});
                let layers: LayersConfig = serde_json::from_value(json)?;
                layers.validate()?;
                all.push(layers);
            }
        }
    }
    Ok(all)
}

fn bench(demo: &Demo, n: usize, width: usize, layers: LayersConfig) -> anyhow::Result<()> {
    let config = ModelConfig { width, layers, ..ModelConfig::default() }.interlacer();
    let particles = demo.particles(n)?;
    let weights = initial_weights(&Layout::new(config), 1);
    let features: Vec<f32> =
        (0..n * config.n_features).map(|i| uniform(draw(1, 0, i as u64, 0)) - 0.5).collect();
    let mut graph = StepGraph::default();
    let mut engine = Engine::new(config, Mode::Inference);
    check(&mut engine, &mut graph, &particles, &weights, &features)?;

    let knn = median(|| graph.knn.rebuild(&particles.positions, config.k))?;
    let knn_graph = graph.knn.clone();
    let walks = match layers.local {
        LocalLayer::Registered(kind) => {
            let (mask, seed) = (MaskConfig::default(), WalkSeed::default());
            let positions = &particles.positions;
            let rebuild = || graph.rebuild_registered(kind, positions, &config, &mask, seed, false);
            median(rebuild)? - knn
        }
        _ => median(|| graph.loads.rebuild(&knn_graph, config.n_hops))?,
    };
    let forward = median(|| engine.forward(&weights, &features, &graph, n))?;
    let gflops = config.flops(n, graph.loads.n_entries(), n) / forward / 1e6;
    let names = (layers.global, layers.local, layers.feature_map);
    println!("{n:>7} {width:>5} {knn:>9.2} {walks:>9.2} {forward:>10.2} {gflops:>8.0}  {names:?}");
    Ok(())
}

/// Every figure is of a pass that gave finite numbers, the same on one thread and on all.
fn check(
    engine: &mut Engine,
    graph: &mut StepGraph,
    particles: &Particles,
    weights: &[f32],
    features: &[f32],
) -> anyhow::Result<()> {
    let config = engine.layout().config;
    graph.knn.rebuild(&particles.positions, config.k)?;
    graph.loads.rebuild(&graph.knn, config.n_hops)?;
    if let LocalLayer::Registered(kind) = config.layers.local {
        let (mask, seed) = (MaskConfig::default(), WalkSeed::default());
        graph.rebuild_registered(kind, &particles.positions, &config, &mask, seed, false)?;
    }
    engine.forward(weights, features, graph, particles.len())?;
    let output = engine.output().to_vec();
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    one.install(|| engine.forward(weights, features, graph, particles.len()))?;
    anyhow::ensure!(engine.output() == output, "one thread gives another result");
    anyhow::ensure!(output.iter().all(|y| y.is_finite()), "not finite");
    Ok(())
}

/// Median milliseconds of `f`, after a run that warms up.
fn median<E>(mut f: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    f()?;
    let times: Result<Vec<f64>, E> = (0..RUNS).map(|_| time_ms(&mut f)).collect();
    times.map(support::median)
}

/// What the machine's matrix products reach at the shapes of a chunk: the engine's upper bound.
fn matmul_gflops() -> f64 {
    use forecloud::engine::ops::linear::{Mat, matmul};
    let (m, k, n, repeats) = (256, 128, 512, 50);
    let n_tasks = rayon::current_num_threads();
    let (a, b) = (vec![0.5f32; m * k], vec![0.25f32; k * n]);
    let run = || -> Result<(), ()> {
        (0..n_tasks).into_par_iter().for_each(|_| {
            let mut out = vec![0.0; m * n];
            for _ in 0..repeats {
                matmul(&mut out, n, Mat::new(&a, k), Mat::new(&b, n), false);
            }
            std::hint::black_box(&out);
        });
        Ok(())
    };
    let ms = median(run).unwrap_or(f64::NAN);
    (2 * m * k * n * repeats * n_tasks) as f64 / ms / 1e6
}
