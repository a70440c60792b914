use super::*;
use crate::base::geometry::squared_distance;
use crate::base::geometry::tree::collect;
use crate::base::random::{draw, uniform};

fn brute_force(positions: &[Vec3], node: usize, k: usize) -> Vec<u32> {
    let mut all = Vec::new();
    collect(positions, node, 0..positions.len() as u32, &mut all);
    all.iter().take(k).map(|&(_, index)| index).collect()
}

fn check_k(positions: &[Vec3], k: usize) {
    let (mut found, mut by_tree) = (Vec::new(), Vec::new());
    Neighbors::default().k_nearest(positions, k, &mut found).unwrap();
    Neighbors::k_nearest_by_tree(positions, k, &mut by_tree).unwrap();
    for node in 0..positions.len() {
        let (expected, row) = (brute_force(positions, node, k), node * k..(node + 1) * k);
        assert_eq!(found[row.clone()], expected, "node {node}");
        assert_eq!(by_tree[row], expected, "node {node}, by the tree");
    }
}

fn random_points(n: usize, seed: u64, scale: f32) -> Vec<Vec3> {
    (0..n as u64)
        .map(|i| std::array::from_fn(|axis| scale * uniform(draw(seed, 0, i, axis as u64))))
        .collect()
}

#[test]
fn equals_brute_force_on_random_points() {
    for (n, k) in [(4, 3), (5, 3), (37, 3), (1000, 3), (700, 8)] {
        check_k(&random_points(n, 1, 1.0), k);
        check_k(&random_points(n, 2, 1e-3), k);
    }
}

#[test]
fn equals_brute_force_with_ties_and_duplicates() {
    // A grid: nearly every k-th place is shared.
    let grid: Vec<Vec3> =
        (0..343).map(|i| [(i % 7) as f32, (i / 7 % 7) as f32, (i / 49) as f32]).collect();
    check_k(&grid, 3);
    // Three copies of each point, and one position held by a hundred.
    let mut copies = random_points(60, 3, 1.0);
    copies.extend_from_within(..);
    copies.extend_from_within(..60);
    copies.extend(std::iter::repeat_n([0.5, 0.5, 0.5], 100));
    check_k(&copies, 3);
    check_k(&[[1.0, 2.0, 3.0]; 50], 3);
}

#[test]
fn equals_brute_force_however_points_are_spread() {
    let plane = |p: Vec3| [p[0], 0.3 * p[0], p[1]];
    let line = |p: Vec3| [p[0], 2.0, -1.0];
    for shape in [plane, line, |p: Vec3| [p[0] * p[0] * p[0], p[1].powi(8), p[2]]] {
        check_k(&random_points(777, 4, 1.0).into_iter().map(shape).collect::<Vec<_>>(), 3);
    }
    // Far from the origin, where positions are coarse; and a few far from all others.
    check_k(
        &random_points(500, 5, 1.0).into_iter().map(|p| p.map(|c| c + 3e3)).collect::<Vec<_>>(),
        4,
    );
    let mut spread = random_points(900, 6, 1.0);
    spread.extend(random_points(9, 7, 50.0));
    check_k(&spread, 5);
    // All in one cell but one: left to the tree.
    let mut heap = random_points(900, 8, 1e-3);
    heap.push([1e4; 3]);
    assert!(!Grid::default().rebuild(&heap));
    check_k(&heap, 3);
    check_k(&random_points(300, 9, 1.0), 20);
    check_k(&random_points(300, 9, 1e18), 3);
    check_k(&random_points(300, 9, 1e-18), 3);
}

fn points(n: usize, seed: u64, scale: f32, shift: f32) -> Vec<Vec3> {
    let draw = |i: u64, axis: usize| scale * uniform(draw(seed, 0, i, axis as u64)) + shift;
    (0..n as u64).map(|i| std::array::from_fn(|axis| draw(i, axis))).collect()
}

fn check_nearest(points: &[Vec3], queries: &[Vec3]) {
    let mut found = Vec::new();
    Neighbors::default().nearest(points, queries, &mut found).unwrap();
    for (query, &found) in queries.iter().zip(&found) {
        let distance = |i: &usize| squared_distance(query, &points[*i]);
        let order = |a: &usize, b: &usize| distance(a).total_cmp(&distance(b)).then(a.cmp(b));
        assert_eq!(found as usize, (0..points.len()).min_by(order).unwrap(), "{query:?}");
    }
}

#[test]
fn equals_brute_force_in_and_around_the_box() {
    let cloud = points(700, 1, 1.0, 0.0);
    check_nearest(&cloud, &points(900, 2, 1.0, 0.0));
    check_nearest(&cloud, &points(300, 3, 9.0, -4.0));
    check_nearest(&cloud, &points(60, 4, 1e5, -5e4));
    check_nearest(&cloud, &cloud);
    check_nearest(&[[0.5; 3]; 40], &points(50, 5, 1.0, 0.0));
    check_nearest(&points(1, 6, 1.0, 0.0), &points(50, 7, 1.0, 0.0));
    let grid: Vec<Vec3> =
        (0..343).map(|i| [(i % 7) as f32, (i / 7 % 7) as f32, (i / 49) as f32]).collect();
    let halves: Vec<Vec3> = grid.iter().map(|p| p.map(|c| c + 0.5)).collect();
    check_nearest(&grid, &halves);
    // Left to the tree.
    let mut heap = points(900, 8, 1e-3, 0.0);
    heap.push([1e4; 3]);
    assert!(!Grid::default().rebuild(&heap));
    check_nearest(&heap, &points(300, 9, 2e-3, 0.0));
    check_nearest(&heap, &points(100, 9, 1e4, 0.0));
}

#[test]
fn refuses_too_few_points_and_positions_that_are_not_finite() {
    let (mut search, mut found) = (Neighbors::default(), Vec::new());
    let few = search.k_nearest(&random_points(3, 1, 1.0), 3, &mut found);
    assert!(matches!(few, Err(Error::TooFewPoints { needed: 4, got: 3 })));
    let mut broken = random_points(10, 1, 1.0);
    broken[4][1] = f32::NAN;
    assert!(matches!(search.k_nearest(&broken, 3, &mut found), Err(Error::NonFinite { .. })));
    assert!(search.nearest(&[], &[[0.0; 3]], &mut found).is_err());
    assert!(search.nearest(&[[0.0; 3]], &[[f32::NAN; 3]], &mut found).is_err());
    assert!(search.nearest(&[], &[], &mut found).is_ok());
}
