//! k-NN and merged loads: the same as the CPU's, number for number.

use super::super::kernels::{Grid, LoadsBuffers, TileBuffers, number};
use super::super::memory::{Buffer, Places};
use super::super::model::row_cap;
use super::*;
use crate::base::random::{draw, uniform};
use crate::engine::graph::{KnnGraph, Loads};

fn points(n: usize, seed: u64, scale: f32) -> Vec<[f32; 3]> {
    let point = |i| std::array::from_fn(|axis| scale * uniform(draw(seed, 0, i, axis as u64)));
    (0..n as u64).map(point).collect()
}

/// Neighbours of `positions` by the device.
fn neighbors(memory: &mut Memory, positions: &[[f32; 3]], k: usize) -> Buffer<u32> {
    let on_device = memory.put(positions.as_flattened());
    let neighbors = memory.empty(positions.len() * k);
    memory.gpu.knn(on_device, 1, k, neighbors).unwrap();
    neighbors
}

/// Neighbours by tiles, in Morton order over a box around the origin.
fn neighbors_by_tiles(memory: &mut Memory, positions: &[[f32; 3]], k: usize) -> Vec<u32> {
    let on_device = memory.put(positions.as_flattened());
    let neighbors = memory.empty(positions.len() * k);
    // Of the same lengths, each in an allocation of its own.
    let lens = TileBuffers::take(positions.len(), &mut Places::default());
    let work = TileBuffers {
        keys: memory.empty(lens.keys.len()),
        points: memory.empty(lens.points.len()),
        boxes: memory.empty(lens.boxes.len()),
    };
    let grid = Grid { low: [-0.1; 3], cells_per_m: 1024.0 };
    memory.gpu.knn_tiled(on_device, k, &grid, &work, neighbors).unwrap();
    memory.get(neighbors)
}

fn check_knn(positions: &[[f32; 3]], k: usize) {
    let mut memory = Memory::new();
    let found = neighbors(&mut memory, positions, k);
    let by_tiles = neighbors_by_tiles(&mut memory, positions, k);
    assert_eq!(memory.get(found), by_tiles, "{} points, k = {k}", positions.len());
    let mut graph = KnnGraph::default();
    graph.rebuild(positions, k).unwrap();
    let expected: Vec<u32> = (0..graph.len()).flat_map(|i| graph.neighbors(i)).copied().collect();
    assert_eq!(memory.get(found), expected, "{} points, k = {k}", positions.len());
}

#[test]
fn neighbors_are_the_cpus() {
    for (n, k) in [(4, 3), (2, 1), (33, 3), (129, 4), (257, 8), (300, 5), (200, 9), (131, 32)] {
        check_knn(&points(n, 1, 1.0), k);
        check_knn(&points(n, 2, 1e-3), k);
    }
    check_knn(&points(150, 3, 1e18), 3);
    check_knn(&points(150, 3, 1e-18), 3);
}

#[test]
fn ties_go_to_the_lower_index() {
    let grid: Vec<[f32; 3]> =
        (0..343).map(|i| [(i % 7) as f32, (i / 7 % 7) as f32, (i / 49) as f32]).collect();
    check_knn(&grid, 3);
    check_knn(&grid, 8);
    let mut copies = points(60, 3, 1.0);
    copies.extend_from_within(..);
    copies.extend(std::iter::repeat_n([0.5; 3], 100));
    check_knn(&copies, 3);
    check_knn(&[[1.0, 2.0, 3.0]; 50], 3);
    // Distances that overflow are ties, too.
    check_knn(&points(40, 4, 3e38), 3);
}

#[test]
fn neighbors_of_what_is_no_number_stay_within_the_nodes() {
    let mut positions = points(140, 5, 1.0);
    positions[3][1] = f32::NAN;
    positions[130] = [f32::NAN; 3];
    let mut memory = Memory::new();
    let found = neighbors(&mut memory, &positions, 3);
    assert!(memory.get(found).iter().all(|&j| j < 140));
    assert!(neighbors_by_tiles(&mut memory, &positions, 3).iter().all(|&j| j < 140));
}

#[test]
fn many_points_are_sorted_and_searched_by_tiles() {
    // Beyond what a block sorts, of no whole number of tiles; on surfaces, and in a corner of the box.
    let surface: Vec<[f32; 3]> =
        points(2300, 8, 1.0).iter().map(|p| [p[0], p[1], (9.0 * p[0]).sin() * 0.1]).collect();
    let mut heap = points(2000, 9, 1e-3);
    heap.extend(points(77, 10, 1.0));
    for positions in [surface, heap] {
        let mut graph = KnnGraph::default();
        graph.rebuild(&positions, 3).unwrap();
        let expected = (0..graph.len()).flat_map(|i| graph.neighbors(i)).copied();
        let found = neighbors_by_tiles(&mut Memory::new(), &positions, 3);
        assert!(expected.eq(found));
    }
}

/// Loads of the device, as the CPU has them: of each row nodes and loads.
fn loads(memory: &mut Memory, neighbors: Buffer<u32>, k: usize, n_hops: usize) -> Vec<Row> {
    let n = neighbors.len() / k;
    let (cap, stride) = (row_cap(n, k, n_hops), n_hops + 1);
    let (lens, nodes) = (memory.empty::<u32>(n), memory.empty::<u32>(n * cap));
    let values = memory.empty::<f32>(n * cap * stride);
    let out = LoadsBuffers {
        lens: lens.address(),
        nodes: nodes.address(),
        loads: values.address(),
        n: number(n),
        cap: number(cap),
        n_hops: number(n_hops),
    };
    memory.gpu.enumerate_walks(neighbors, k, &out).unwrap();
    let (lens, nodes, values) = (memory.get(lens), memory.get(nodes), memory.get(values));
    let row = |i: usize| {
        let (start, len) = (i * cap, lens[i] as usize);
        let loads = &values[start * stride..(start + len) * stride];
        (nodes[start..start + len].to_vec(), loads.to_vec())
    };
    (0..n).map(row).collect()
}

type Row = (Vec<u32>, Vec<f32>);

#[test]
fn loads_are_the_cpus_to_the_last_bit() {
    for (n, k, n_hops) in [(5, 3, 3), (4, 3, 1), (211, 3, 3), (100, 8, 2), (77, 5, 4), (60, 2, 8)] {
        let positions = points(n, 7, 1.0);
        let mut memory = Memory::new();
        let on_device = neighbors(&mut memory, &positions, k);
        let found = loads(&mut memory, on_device, k, n_hops);
        let (mut graph, mut expected) = (KnnGraph::default(), Loads::default());
        graph.rebuild(&positions, k).unwrap();
        expected.rebuild(&graph, n_hops).unwrap();
        for (i, (nodes, loads)) in found.iter().enumerate() {
            let row = expected.row(i);
            assert_eq!(nodes, row.nodes, "row {i} of {n}, k = {k}, {n_hops} hops");
            assert_eq!(loads, row.loads, "row {i} of {n}, k = {k}, {n_hops} hops");
        }
    }
}
