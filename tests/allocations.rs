//! What a step of the roll-out allocates once sizes have settled: nothing but what the matrix
//! products of the `gemm` crate do, which allocates at each call. Its buffers are bytes, or
//! aligned to lines of the cache; nothing else here is.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

use forecloud::base::random::{draw, uniform};
use forecloud::engine::graph::walks::WalkSeed;
use forecloud::engine::model::weights::initial_weights;
use forecloud::engine::model::{Engine, Gradients, InterlacerConfig, Mode, ModelConfig, StepGraph};
use forecloud::engine::rollout_input::RolloutInput;
use forecloud::predict::known_motion::{KnownMotion, KnownMotionSettings};
use forecloud::predict::moving_world::common_motion;
use forecloud::predict::prediction::Prediction;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static PRODUCTS: AtomicUsize = AtomicUsize::new(0);

/// Alignments of numbers and pointers; those of `gemm`'s buffers are others.
const NUMBERS: RangeInclusive<usize> = 2..=16;

struct Counting;

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let count = if NUMBERS.contains(&layout.align()) { &COUNT } else { &PRODUCTS };
        count.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations within `f`, on any thread: those of matrix products, and others.
fn allocations(f: impl FnOnce()) -> (usize, usize) {
    let counts = || (PRODUCTS.load(Ordering::Relaxed), COUNT.load(Ordering::Relaxed));
    let before = counts();
    f();
    let after = counts();
    (after.0 - before.0, after.1 - before.1)
}

const N: usize = 2500;

/// Sizes of a model, and tokens with their graph.
struct Step {
    config: InterlacerConfig,
    positions: Vec<[f32; 3]>,
    features: Vec<f32>,
    graph: StepGraph,
}

impl Step {
    fn new() -> Self {
        let config = ModelConfig::default().interlacer();
        let number = |i: usize, of: i64| uniform(draw(1, of, i as u64, 0));
        let positions = (0..N).map(|i| [number(i, 1), number(i, 2), 0.1 * number(i, 3)]).collect();
        let features = (0..N * config.n_features).map(|i| number(i, 4)).collect();
        Self { config, positions, features, graph: StepGraph::default() }
    }

    fn build(&mut self) {
        let (config, seed) = (&self.config, WalkSeed { seed: 1, stamp_ns: 2 });
        let mask = ModelConfig::default().mask;
        self.graph.rebuild(&self.positions, config.k, config.n_hops, &mask, seed).unwrap();
        self.graph.transposed.rebuild(&self.graph.loads);
    }
}

// One test: the counts are of the whole process.
#[test]
fn a_settled_step_allocates_only_in_matrix_products() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| {
        let mut step = Step::new();
        // Each thread's scratch is made the first time that it takes part.
        (0..20).for_each(|_| step.build());
        assert_eq!(allocations(|| step.build()), (0, 0), "the graph stage allocates");
        inference(&step);
        still_scene();
        training(&step, Mode::Training);
        training(&step, Mode::TrainingRecompute);
    });
}

fn inference(step: &Step) {
    let Step { config, features, graph, .. } = step;
    let mut engine = Engine::new(*config, Mode::Inference);
    let weights = initial_weights(engine.layout(), 1);
    for _ in 0..20 {
        engine.forward(&weights, features, graph, N).unwrap();
    }
    let (products, others) = allocations(|| engine.forward(&weights, features, graph, N).unwrap());
    assert_eq!(others, 0, "the forward pass allocates");
    // A chunk's products: q, k, v and output of both attentions, the MLP's two, the state's of
    // each head; embedding and head (of odd width: two buffers); and each block's folded state.
    let per_block = 6 + config.n_heads;
    let at_most =
        N.div_ceil(256) * (config.n_blocks * per_block + 3) + config.n_blocks * config.n_heads;
    assert!(products <= at_most, "{products} allocations for {at_most} matrix products");
    assert!(products > 0, "no product is told from the rest any more");
}

/// Whether the world moves is asked of each prediction: where all rests, that takes no memory.
fn still_scene() {
    let mut scene = RolloutInput::default();
    let number = |i: usize, axis: i64| uniform(draw(7, axis, i as u64, 0));
    scene.start.positions = (0..N).map(|i| [0, 1, 2].map(|axis| number(i, axis))).collect();
    scene.start.velocities = vec![[0.0005, 0.0, 0.0]; N];
    scene.start.velocity_known = vec![1.0; N];
    scene.start.support_m = Some(0.0);
    let knows = KnownMotionSettings { rest: false, robot: false };
    let (mut known, mut prediction) = (KnownMotion::default(), Prediction::default());
    let mut ask = |scene: &RolloutInput| {
        assert_eq!(common_motion(scene, |_| false), None);
        known.apply(knows, scene, &mut prediction);
    };
    ask(&scene);
    assert_eq!(allocations(|| ask(&scene)), (0, 0), "a still scene allocates");
    // Things that move apart are told from a moving world without memory, too.
    scene.start.velocities[..N / 2].fill([0.05, 0.0, 0.0]);
    ask(&scene);
    assert_eq!(allocations(|| ask(&scene)), (0, 0), "a scene of which half moves allocates");
}

/// Two passes, differentiated one after the other, as in a roll-out.
fn training(step: &Step, mode: Mode) {
    let Step { config, features, graph, .. } = step;
    let mut engine = Engine::new(*config, mode);
    let weights = initial_weights(engine.layout(), 1);
    let mut gradients = Gradients::new(engine.layout());
    let d_output = vec![0.1; N * config.n_outputs];
    let mut d_features = vec![0.0; features.len()];
    let mut both = || {
        for pass in 0..2 {
            engine.select(pass);
            engine.forward(&weights, features, graph, N).unwrap();
        }
        for pass in [1, 0] {
            engine.select(pass);
            let (gradients, d_features) = (&mut gradients, &mut d_features);
            engine.backward(&weights, features, graph, &d_output, gradients, d_features).unwrap();
        }
    };
    (0..10).for_each(|_| both());
    let (_, others) = allocations(both);
    assert_eq!(others, 0, "{mode:?} allocates");
}
