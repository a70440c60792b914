//! What a step of the roll-out allocates once sizes have settled: nothing for the graph; for the
//! model no more than the matrix products of the `gemm` crate, which allocates at each call.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use forecloud::graph::random::{draw, uniform};
use forecloud::graph::walks::WalkSeed;
use forecloud::model::weights::initial_weights;
use forecloud::model::{Engine, Mode, ModelConfig, StepGraph};

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
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

/// Allocations within `f`, on any thread.
fn allocations(f: impl FnOnce()) -> usize {
    let before = COUNT.load(Ordering::Relaxed);
    f();
    COUNT.load(Ordering::Relaxed) - before
}

#[test]
fn a_settled_step_allocates_only_in_matrix_products() {
    const N: usize = 2500;
    let model = ModelConfig::default();
    let config = model.interlacer();
    let number = |i: usize, of: i64| uniform(draw(1, of, i as u64, 0));
    let positions: Vec<[f32; 3]> =
        (0..N).map(|i| [number(i, 1), number(i, 2), 0.1 * number(i, 3)]).collect();
    let features: Vec<f32> = (0..N * config.n_features).map(|i| number(i, 4)).collect();
    let mut engine = Engine::new(config, Mode::Inference);
    let weights = initial_weights(engine.layout(), 1);
    let mut graph = StepGraph::default();
    let seed = WalkSeed { seed: 1, stamp_ns: 2 };
    let build = |graph: &mut StepGraph| {
        graph.rebuild(&positions, config.k, config.n_hops, &model.mask, seed).unwrap();
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| {
        // Each thread's scratch is made the first time that it takes part.
        for _ in 0..20 {
            build(&mut graph);
            engine.forward(&weights, &features, &graph, N).unwrap();
        }
        let graph_stage = allocations(|| build(&mut graph));
        let forward = allocations(|| engine.forward(&weights, &features, &graph, N).unwrap());
        assert_eq!(graph_stage, 0, "the graph stage allocates");
        // A chunk's products: q, k, v and output of both attentions, the MLP's two, the state's of
        // each head; embedding and head (of odd width: two buffers); and each block's folded state.
        let per_block = 6 + config.n_heads;
        let products =
            N.div_ceil(256) * (config.n_blocks * per_block + 3) + config.n_blocks * config.n_heads;
        assert!(forward <= products, "{forward} allocations for {products} matrix products");
    });
}
