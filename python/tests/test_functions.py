"""Graphs, walks, masks, particles and hindsight, held to plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import forecloud as fc


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(97, 3)).astype(np.float32)


def dense(graph: fc.Graph) -> np.ndarray:
    starts, nodes, weights = graph.rows()
    matrix = np.zeros((len(graph), len(graph)))
    for i in range(len(graph)):
        np.add.at(matrix[i], nodes[starts[i] : starts[i + 1]], weights[starts[i] : starts[i + 1]])
    return matrix


def test_neighbours_are_the_nearest(points):
    graph = fc.knn(points, k=4)
    apart = np.linalg.norm(points[:, None].astype(np.float64) - points[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    starts, neighbours, weights = graph.rows()
    assert (np.diff(starts) == 4).all() and np.allclose(weights, 0.25)
    assert (neighbours.reshape(-1, 4) == np.argsort(apart, axis=1)[:, :4]).all()
    near = fc.knn(points, k=4, bandwidth_m=0.5)
    ratio = dense(near)[0, neighbours[0]] / dense(near)[0, neighbours[1]]
    assert ratio == pytest.approx(np.exp((apart[0, neighbours[1]] ** 2 - apart[0, neighbours[0]] ** 2) / 0.25), rel=1e-4)


def test_features_are_powers_of_the_graph(points):
    graph = fc.knn(points, k=3)
    w = dense(graph)
    found = graph.features(n_hops=3).dense()
    for t in range(4):
        assert np.allclose(found[t], np.linalg.matrix_power(w, t), atol=1e-6)
    modulated = graph.features(n_hops=3).dense([1.0, 0.5, 0.25, 0.125])
    assert np.allclose(modulated, sum(0.5**t * np.linalg.matrix_power(w, t) for t in range(4)), atol=1e-6)


@pytest.mark.parametrize("sampler", ["iid", "antithetic", "repelling", "antithetic_repelling"])
def test_sampled_walks_estimate_them(points, sampler):
    graph = fc.knn(points[:20], k=3)
    n_walks = 4096
    walks = graph.walks(n_walks, p_halt=0.3, max_hops=3, sampler=sampler)
    assert walks.hops.max() == 3 and (walks.nodes[walks.hops == 0] == walks.roots[walks.hops == 0]).all()
    estimate = np.zeros((4, 20, 20))
    np.add.at(estimate, (walks.hops, walks.roots, walks.nodes), walks.loads / n_walks)
    assert np.abs(estimate - graph.features(3).dense()).max() < 0.06
    again = graph.walks(n_walks, p_halt=0.3, max_hops=3, sampler=sampler)
    assert (again.nodes == walks.nodes).all()
    # Features are made of the same walks.
    few = graph.walks(300, p_halt=0.3, max_hops=3, sampler=sampler)
    estimate = np.zeros((4, 20, 20))
    np.add.at(estimate, (few.hops, few.roots, few.nodes), few.loads / 300)
    assert np.allclose(graph.features(3, n_walks=300, p_halt=0.3, sampler=sampler).dense(), estimate, atol=1e-5)


def test_edges_and_depths_make_graphs():
    graph = fc.Graph.of_edges(3, [0, 0, 1], [1, 1, 2], [1.0, 2.0, 4.0], directed=False)
    assert np.array_equal(dense(graph), [[0, 3, 0], [3, 0, 4], [0, 4, 0]])
    scaled = dense(graph.normalized())
    assert scaled[0, 1] == pytest.approx(3 / np.sqrt(3 * 7)) and scaled[1, 2] == pytest.approx(4 / np.sqrt(7 * 4))
    depth = np.array([[1.0, 1.01, 2.0], [1.0, np.nan, 2.0]], np.float32)
    around = dense(fc.Graph.of_depth(depth))
    assert around[0, 1] == 0.5 and around[0, 3] == 0.5 and around[1, 2] == 0 and not around[4].any()


@pytest.mark.parametrize("name", sorted(fc.masks()))
def test_masks_are_linear_and_transpose(points, name):
    points = points[:40] * 0.1
    graph = fc.knn(points, k=3)
    mask = graph.mask(name, points)
    rng = np.random.default_rng(5)
    params = rng.normal(scale=0.1, size=mask.n_params).astype(np.float32)
    matrix = mask.dense(params)
    assert matrix.shape == (40, 40) and np.isfinite(matrix).all() and np.abs(matrix).max() > 0
    x, y = rng.normal(size=(2, 40)).astype(np.float32)
    assert np.allclose(mask.apply(x, params), matrix @ x, atol=1e-3 * np.abs(matrix).sum(1).max())
    assert np.dot(y, mask.apply(x, params)) == pytest.approx(
        np.dot(mask.apply(y, params, transposed=True), x), rel=1e-3, abs=1e-3)


def test_particles_are_a_sample(frames):
    positions, colors, sources = frames[1].cloud([[-0.45, -0.5, -0.015], [0.55, 0.5, 0.65]])
    drawn = fc.particles(positions, colors, sources, 500, seed=4)
    assert len(drawn) == 500 and len(set(drawn.sources.tolist())) == 500
    order = {source: i for i, source in enumerate(sources.tolist())}
    at = [order[source] for source in drawn.sources.tolist()]
    assert np.array_equal(drawn.positions, positions[at])
    assert np.allclose(drawn.colors, colors[at] / 255.0)
    shuffled = np.random.default_rng(0).permutation(len(positions))
    again = fc.particles(positions[shuffled], colors[shuffled], sources[shuffled], 500, seed=4)
    assert np.array_equal(again.positions, drawn.positions)
    assert not np.array_equal(fc.particles(positions, colors, sources, 500, seed=5).sources, drawn.sources)
    assert len(fc.particles(positions, colors, n=10**9)) == len(positions)


def scene(shift: float, seed: int) -> fc.Particles:
    """A speckled box of 8 cm on a table, `shift` m along x; other points of it each time."""
    rng = np.random.default_rng(seed)
    table = rng.uniform([-0.3, -0.3, 0], [0.3, 0.3, 0], (2000, 3))
    box = rng.uniform(-0.04, 0.04, (1500, 3))
    box[np.arange(1500), rng.integers(0, 3, 1500)] = rng.choice([-0.04, 0.04], 1500)
    speckles = np.where(np.sin(90 * box).prod(axis=1, keepdims=True) > 0, [0.9, 0.2, 0.1], [0.1, 0.3, 0.9])
    positions = np.concatenate([table, box + [shift, 0, 0.04]]).astype(np.float32)
    colors = np.concatenate([np.full((2000, 3), 0.5), speckles]).astype(np.float32)
    return fc.Particles(positions, colors, np.arange(3500, dtype=np.uint32))


def test_hindsight_follows_what_moves():
    frames = [scene(0.02 * t, t) for t in range(3)]
    seen = fc.hindsight(frames)
    assert seen.positions.shape == (2, 3500, 3) and seen.confidences.shape == (2, 3500) and len(seen.flows) == 2
    went = seen.positions - frames[0].positions
    for step in range(2):
        assert np.abs(np.median(went[step, :2000], axis=0)).max() < 1e-3
        assert np.median(went[step, 2000:], axis=0) == pytest.approx([0.02 * (step + 1), 0, 0], abs=2e-3)
    assert np.median(seen.flows[0].motions[2000:], axis=0) == pytest.approx([0.02, 0, 0], abs=2e-3)
    # The box is one body.
    assert np.unique(seen.flows[0].bodies[2000:], return_counts=True)[1].max() > 1400
