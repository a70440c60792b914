use super::super::check::{assert_mask, softplus64};
use super::*;
use forecloud::engine::graph::WeightedGraph;

#[test]
fn the_voxels_mask_is_the_dense_one() {
    assert_mask::<Voxels>(|nodes, params| {
        let n = nodes.positions.len();
        let side = side(nodes.n_hops) as i32;
        let entry = |at: usize| {
            let cell = |i: usize| nodes.positions[i].map(|x| (x / nodes.cell_m).floor() as i32);
            let (to, from) = (cell(at / n), cell(at % n));
            let shifted = [0, 1, 2].map(|axis| to[axis] - from[axis] + side / 2);
            let near = shifted.iter().all(|shift| (0..side).contains(shift));
            let offset = shifted.iter().fold(0, |offset, shift| offset * side + shift);
            if near { softplus64(params[offset as usize]) } else { 0.0 }
        };
        (0..n * n).map(entry).collect()
    });
}

#[test]
fn what_lies_very_far_away_is_counted_all_the_same() {
    let positions = [[1e30, 0.0, -1e30], [0.0, 0.0, 0.0], [-1e30, 1e30, 0.0]];
    let (graph, seed) = (WeightedGraph::default(), Default::default());
    let (positions, graph) = (&positions, &graph);
    let nodes = Nodes { positions, graph, n_hops: 3, walks: None, cell_m: 0.04, seed };
    let mut mask = Voxels::default();
    mask.rebuild(&nodes).unwrap();
    assert_eq!(
        (mask.n_nodes(), mask.of_groups.places.len(), mask.of_groups.pairs.len()),
        (3, 3, 3)
    );
}
