//! What `benches/gpu` measures by.

use super::super::model::Precision;
use super::super::rollout::Rollout;
use super::super::rollout::measure::{Search, neighbors, write_bytes_per_sec};
use super::super::stage::Stage;
use super::rollout::{scene, threes, weights, with_bodies};
use super::*;
use crate::engine::backend::Rollouts;
use crate::engine::graph::KnnGraph;
use crate::engine::model::tokens::tests::FRAME;

#[test]
fn measuring_covers_the_pass_and_leaves_the_results_as_they_were() {
    let (config, scene) = (threes(16), with_bodies([30, 11, 9], 6));
    let mut rollout = Rollout::new(gpu(), config, &weights(&config), Precision::Half).unwrap();
    let predicted = |rollout: &mut Rollout| -> Vec<_> {
        rollout.run_while(&scene, 6, &mut |_| true).unwrap();
        (0..6).flat_map(|t| rollout.displacements(t).to_vec()).collect()
    };
    let before = predicted(&mut rollout);
    let times = rollout.measure_stages(&scene, 1, 1).unwrap();
    assert!(times.iter().map(|time| time.stage).eq(Stage::ALL));
    assert!(times.iter().all(|time| time.ms > 0.0 && time.bytes > 0.0));
    // The same count as the CPU's, but for what attention divides by and maps.
    let layout_flops =
        config.interlacer.flops(30 + 11 + 15, rollout.n_entries(&scene).unwrap(), 30);
    let counted: f64 = times.iter().map(|time| time.flops).sum();
    assert!((counted / layout_flops - 1.0).abs() < 0.05, "{counted} against {layout_flops}");
    let passes = rollout.measure_passes(&scene, 6, 2).unwrap();
    assert!(passes.len() == 2 && passes.iter().all(|&ms| ms > 0.0));
    assert!(rollout.device_bytes() > 4 * weights(&config).len().min(1000));
    assert_eq!(predicted(&mut rollout), before);
}

#[test]
fn both_searches_find_the_cpus_neighbors() {
    let positions = scene([1100, 0, 0], 1).start.positions;
    let mut graph = KnnGraph::default();
    graph.rebuild(&positions, 5).unwrap();
    let expected: Vec<u32> = (0..1100).flat_map(|i| graph.neighbors(i)).copied().collect();
    for search in [Search::BruteForce, Search::Tiles] {
        let (found, ms) = neighbors(&gpu(), &positions, 5, &FRAME, search, 1).unwrap();
        assert!(found == expected && ms > 0.0, "{search:?}");
    }
    assert!(neighbors(&gpu(), &positions[..5], 5, &FRAME, Search::Tiles, 1).is_err());
    assert!(neighbors(&gpu(), &positions, 33, &FRAME, Search::Tiles, 1).is_err());
    assert!(write_bytes_per_sec(&gpu(), 1 << 20).unwrap() > 0.0);
}
