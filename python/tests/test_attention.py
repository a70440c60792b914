"""Attention, masks of grids, times, trees and scenes, and solvers, held to dense NumPy in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import forecloud as fc


def softplus(x) -> np.ndarray:
    return np.log1p(np.exp(np.asarray(x, np.float64)))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def places(shape) -> np.ndarray:
    return np.array(list(itertools.product(*map(range, shape))))


def dense_toeplitz(shape, reach, params) -> np.ndarray:
    apart = places(shape)[:, None] - places(shape)[None]
    f = softplus(params).reshape([2 * r + 1 for r in reach])
    near = (np.abs(apart) <= reach).all(axis=2)
    at = tuple(np.clip(apart + reach, 0, 2 * np.array(reach)).transpose(2, 0, 1))
    return np.where(near, f[at], 0)


def dense_grid_heat(shape, params) -> np.ndarray:
    steps = np.abs(places(shape)[:, None] - places(shape)[None]).sum(axis=2)
    return np.tanh(softplus(params[0])) ** steps


def dense_attention(q, k, v, mask, n_heads=1) -> np.ndarray:
    out = []
    for q, k, v in zip(*(np.split(x.astype(np.float64), n_heads, axis=1) for x in (q, k, v))):
        weights = mask * (q @ k.T)
        out.append(weights @ v / (weights.sum(axis=1, keepdims=True) + 1e-6))
    return np.concatenate(out, axis=1)


def cases() -> list[tuple[str, fc.Mask, np.ndarray, np.ndarray]]:
    """Name, mask, parameters, the dense matrix."""
    of = lambda mask, seed: 0.5 * numbers(mask.n_params, seed=seed)  # noqa: E731
    found = []
    for shape, reach in [((5, 6), (1, 2)), ((13,), (12,)), ((2, 3, 4), (1, 1, 1))]:
        mask = fc.Mask.toeplitz(shape, reach)
        found.append((f"toeplitz {shape}", mask, params := of(mask, 1), dense_toeplitz(shape, reach, params)))
        mask = fc.Mask.grid_heat(shape)
        found.append((f"heat {shape}", mask, params := of(mask, 2), dense_grid_heat(shape, params)))
    left, right = np.abs(numbers(9, 4, seed=12)), np.abs(numbers(9, 4, seed=13))
    found.append(("low rank", fc.Mask.low_rank(left, right), np.zeros(0), left.astype(np.float64) @ right.T))
    times = np.array([3.0, 1.0, 2.0, 1.0, 3.0, -1.0])
    causal = fc.Mask.causal(times)
    found.append(("causal", causal, np.zeros(0), (times[:, None] >= times).astype(float)))
    n = 700
    tree = fc.Mask.tree(n, np.arange(1, n), np.arange(1, n) - 1, n)
    apart = np.abs(np.arange(n)[:, None] - np.arange(n))
    found.append(("a long path", tree, params := of(tree, 3), softplus(params)[apart]))
    short = fc.Mask.tree(n, np.arange(1, n), np.arange(1, n) - 1)
    params = of(short, 4)
    found.append(("a path, 32 distances", short, params, np.append(softplus(params), 0)[np.minimum(apart, 32)]))
    heat = fc.Mask.grid_heat((3,))
    packed = fc.Mask.packed([heat, fc.Padding(2), fc.Open(4), fc.Mask.grid_heat((2, 2))])
    params, dense = of(packed, 5), np.zeros((13, 13))
    dense[:3, :3], dense[5:9, 5:9], dense[9:, 9:] = dense_grid_heat((3,), params), 1, dense_grid_heat((2, 2), params)
    found.append(("packed", packed, params, dense))
    both = fc.Mask.product(causal, fc.Mask.toeplitz((4,), (2,)))
    params = of(both, 6)
    found.append(("product", both, params, np.kron(dict((name, dense) for name, _, _, dense in found)["causal"], dense_toeplitz((4,), (2,), params))))
    graph = fc.knn(numbers(40, 3), k=3)
    series = graph.mask("series")
    w = np.zeros((40, 40))
    starts, nodes, weights = graph.rows()
    w[np.repeat(np.arange(40), 3), nodes] = weights
    params = of(series, 7)
    powers = [np.linalg.matrix_power(w, t) for t in range(4)]
    found.append(("series", series, params, sum(f * p for f, p in zip(softplus(params), powers))))
    return found


@pytest.mark.parametrize("name, mask, params, dense", cases(), ids=lambda value: value if isinstance(value, str) else "")
def test_masks_and_attention_under_them_are_the_dense_ones(name, mask, params, dense):
    n = len(mask)
    assert dense.shape == (n, n) and mask.n_params == len(params)
    x = numbers(n, 3, seed=8)
    size = np.abs(dense).sum(axis=1).max()
    assert np.allclose(mask.apply(x, params), dense @ x, atol=1e-5 * size)
    assert np.allclose(mask.apply(x, params, transposed=True), dense.T @ x, atol=1e-5 * size)
    q, k = np.maximum(numbers(n, 6, seed=9), 0), np.maximum(numbers(n, 6, seed=10), 0)
    v = numbers(n, 4, seed=11)
    for n_heads in (1, 2):
        out = fc.attention(q, k, v, mask, params, n_heads)
        wanted = dense_attention(q, k, v, dense, n_heads)
        assert out.shape == (n, 4) and out.dtype == np.float32
        assert np.abs(out - wanted).max() < 2e-4, name


def test_without_a_mask_all_hear_all():
    q, k, v = np.maximum(numbers(50, 4), 0), np.maximum(numbers(50, 4, seed=1), 0), numbers(50, 6, seed=2)
    assert np.allclose(fc.attention(q, k, v, n_heads=2), dense_attention(q, k, v, np.ones((50, 50)), 2), atol=1e-5)
    assert fc.attention(q[:0], k[:0], v[:0]).shape == (0, 6)


def test_stochastic_positions_are_in_the_mean_the_exponential_of_a_dot_product_mask():
    points, frequencies = numbers(6, 2), numbers(3, 2, seed=1)
    mask = fc.Mask.stochastic_positions(points, frequencies, n_draws=200_000)
    params = 0.5 * numbers(mask.n_params, seed=2).reshape(3, 4)
    size = softplus(params[:, 0]) / (3 * np.log(2))
    apart = points[:, None].astype(np.float64) - points[None]
    angles = apart @ (frequencies + params[:, 2:]).T + params[:, 1]
    wanted = np.exp((size * np.cos(angles)).sum(axis=2))
    assert np.abs(mask.dense(params.ravel()) / wanted - 1).max() < 0.05
    assert np.abs(wanted / wanted.T - 1).max() > 0.2


@pytest.mark.parametrize("kernel", ["softmax", "linear"])
@pytest.mark.parametrize("walks", [None, {"n_walks": 5, "p_halt": 0.3}])
def test_attention_under_graph_random_features_is_the_dense_one(kernel, walks):
    graph, n_heads = fc.knn(numbers(60, 3), k=3), 2
    q, k, v = (numbers(60, 6, seed=seed) for seed in (1, 2, 3))
    if kernel == "linear":
        q, k = np.abs(q), np.abs(k)
    f = numbers(n_heads, 4, seed=5)
    assert (f < 0).any() and (f > 0).any()
    features = graph.features(3, **(walks or {}), seed=4)
    out = fc.grf_attention(q, k, v, graph, f, kernel=kernel, walks=walks, n_heads=n_heads, seed=4)
    wanted = []
    for head, (q, k, v) in enumerate(zip(*(np.split(x.astype(np.float64), n_heads, axis=1) for x in (q, k, v)))):
        a = np.exp(q @ k.T / np.sqrt(3)) if kernel == "softmax" else q @ k.T
        total = (a * features.dense(np.abs(f[head]))).sum(axis=1, keepdims=True)
        wanted.append((a * features.dense(f[head])) @ v / total)
    assert out.dtype == np.float32 and np.abs(out - np.concatenate(wanted, axis=1)).max() < 1e-5


@pytest.mark.parametrize("n, top_k", [(300, 7), (300, 300), (5, 1), (1000, 33)])
def test_k_mip_is_softmax_over_the_largest(n, top_k):
    q, k, v = (numbers(n, 8, seed=seed) for seed in range(3))
    out, keys = fc.k_mip_attention(q, k, v, top_k, n_heads=2)
    assert keys.shape == (n, 2, top_k)
    for head in range(2):
        at = slice(4 * head, 4 * head + 4)
        scores = q[:, at].astype(np.float64) @ k[:, at].T.astype(np.float64)
        best = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :top_k], axis=1)
        assert (keys[:, head] == best).mean() > 0.999
        chosen = np.take_along_axis(scores, keys[:, head].astype(np.int64), axis=1) / 2
        weights = np.exp(chosen - chosen.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        wanted = np.einsum("ij,ijc->ic", weights, v[:, at][keys[:, head]].astype(np.float64))
        assert np.abs(out[:, at] - wanted).max() < 1e-5
    assert fc.k_mip_attention(q[:1], k[:1], v[:1], 1)[0] == pytest.approx(v[:1])


def laplacians() -> list[tuple[fc.Laplacian, np.ndarray]]:
    grid = [(i, i + 1) for i in range(11)] + [(0, 5), (3, 9)]
    parts = [(0, 1), (1, 2), (2, 0), (4, 5)]
    found = []
    for n, edges, weights in [(12, grid, np.linspace(0.5, 2, len(grid))), (6, parts, [0.5, 2.0, 1.0, 0.3])]:
        sources, targets = np.array(edges).T
        dense = np.zeros((n, n))
        for i, j, weight in zip(sources, targets, np.float32(weights).astype(float)):
            dense[[i, j], [i, j]] += weight
            dense[[i, j], [j, i]] -= weight
        found.append((fc.Laplacian(fc.Graph.of_edges(n, sources, targets, weights, directed=False)), dense))
    return found


def function(dense: np.ndarray, f) -> np.ndarray:
    values, vectors = np.linalg.eigh(dense)
    return (vectors * np.array([f(value) if value > 1e-9 else 0.0 for value in values])) @ vectors.T


@pytest.mark.parametrize("laplacian, dense", laplacians(), ids=["connected", "in parts"])
def test_solvers_are_functions_of_the_laplacian(laplacian, dense):
    n, null = len(dense), np.linalg.eigvalsh(dense) < 1e-9
    assert len(laplacian) == n and laplacian.n_components == null.sum()
    assert laplacian.lambda_bound >= np.linalg.eigvalsh(dense)[-1] and laplacian.step == pytest.approx(1 / laplacian.lambda_bound)
    x = numbers(n, 3)
    assert np.allclose(laplacian.apply(x), dense @ x, atol=1e-5)
    demands = laplacian.center(x)
    inverse, root = function(dense, lambda l: 1 / l), function(dense, lambda l: l**-0.5)
    assert np.allclose(demands, dense @ inverse @ x, atol=1e-5)
    assert np.allclose(laplacian.electric_flow(demands, 3000), inverse @ x, atol=1e-4)
    assert np.allclose(laplacian.electric_flow(demands[:, 0], 3000), inverse @ x[:, 0], atol=1e-4)
    assert np.allclose(laplacian.resistive_embedding(demands, 3000), root @ x, atol=1e-4)
    heat = function(dense, lambda l: np.exp(-0.3 * l)) + np.eye(n) - dense @ inverse
    assert np.allclose(laplacian.heat_kernel(x, 0.3, 40), heat @ x, atol=1e-5)
    assert np.allclose(laplacian.fast_heat_kernel(0.3, 24), heat, atol=1e-9)
    assert np.allclose(laplacian.fast_heat_kernel(1e6, 40), np.eye(n) - dense @ inverse, atol=1e-9)
    assert np.allclose(laplacian.fast_electric_flow(16), inverse, atol=1e-9)
    joined = (np.eye(n) - dense @ inverse) > 1e-9
    own = np.diag(inverse)
    wanted = np.where(joined, own[:, None] + own - 2 * inverse, np.inf)
    assert np.allclose(laplacian.effective_resistance(), wanted, atol=1e-8)
    sources, targets = np.nonzero(np.ones((n, n)))
    some = laplacian.effective_resistance_between(sources, targets, 3000)
    assert np.allclose(some.reshape(n, n), wanted, atol=1e-4)
    values = np.linalg.eigvalsh(dense)
    for found, of in [(laplacian.top_eigenvectors(x[:, :1], 4000), values[-1]),
                      (laplacian.bottom_eigenvectors(x[:, :1], 4000), values[~null][0])]:
        assert found[:, 0] @ dense @ found[:, 0] == pytest.approx(of, abs=1e-3)
    features = laplacian.positional_encoding(2, [1.0], n_eigenvectors=2)
    assert features.shape == (n, 4) and np.array_equal(features, laplacian.positional_encoding(2, [1.0], n_eigenvectors=2))


def calls() -> list[tuple[object, str]]:
    q, v = np.ones((4, 2), np.float32), np.ones((4, 6), np.float32)
    bad = q.copy()
    bad[1, 1] = np.nan
    heat, mask = fc.Mask.grid_heat((2, 2)), fc.Mask.toeplitz((3,), (1,))
    path = fc.Laplacian(fc.Graph.of_edges(3, [0, 1], [1, 2], directed=False))
    ones = np.ones((3, 1))
    return [
        (lambda: fc.attention(q, q, v, mask), "q: expected shape [3, n], got [4, 2]"),
        (lambda: fc.attention(q, q[:, :1], v), "k: expected shape [4, 2]"),
        (lambda: fc.attention(q, q, v[:3]), "v: expected shape [4, n]"),
        (lambda: fc.attention(q, bad, v), "k: number 3 is NaN"),
        (lambda: fc.attention(q, q, v, n_heads=4), "n_heads: 4 does not divide"),
        (lambda: fc.attention(q, q, v, n_heads=0), "n_heads: 0"),
        (lambda: fc.attention(q, q, v, heat, [1.0, 2.0]), "params: expected shape [1]"),
        (lambda: fc.attention(q, q, v, heat, [np.inf]), "params: not finite"),
        (lambda: fc.attention(q, q, v, "heat"), "mask: expected a Mask, got str"),
        (lambda: fc.attention(q[:, :0], q[:, :0], v), "n_heads: 1 does not divide"),
        (lambda: fc.grf_attention(q, q, v, "graph", [1.0]), "graph: expected a Graph"),
        (lambda: fc.grf_attention(q, q, v, fc.knn(numbers(4, 3)), []), "modulation: "),
        (lambda: fc.grf_attention(q, q, v, fc.knn(numbers(4, 3)), [[1.0]], n_heads=2), "modulation: expected shape [2, n]"),
        (lambda: fc.grf_attention(q, q, v, fc.knn(numbers(4, 3)), [1.0], walks={"n_hops": 2}), "modulation: 1 numbers"),
        (lambda: fc.grf_attention(-1 - q, q, v, fc.knn(numbers(4, 3)), [1.0], kernel="linear"), "q, k: below 0"),
        (lambda: fc.grf_attention(q, q, v, fc.knn(numbers(4, 3)), [1.0], kernel="cosine"), "kernel: expected softmax"),
        (lambda: fc.Mask.low_rank([[1.0], [2.0]], [[1.0]]), "right: expected shape [2, 1]"),
        (lambda: fc.Mask.low_rank([[1.0], [2.0]], [[1.0], [-1.0]]), "holds -1"),
        (lambda: fc.Mask.stochastic_positions(q, np.ones((2, 3))), "frequencies: expected shape [n, 2]"),
        (lambda: fc.Mask.stochastic_positions(q, np.ones((0, 2))), "waves and draws"),
        (lambda: fc.k_mip_attention(q, q, q, 5), "top_k: 5 keys of 4"),
        (lambda: fc.k_mip_attention(q, q, v, 1), "v: expected as many columns as q and k, 2, got 6"),
        (lambda: fc.k_mip_attention(q, q, q, 0), "top_k: 0"),
        (lambda: fc.Mask.toeplitz((3,), (1, 1)), "shape, reach: "), (lambda: fc.Mask.toeplitz((3,), (3,)), "shape, reach: "),
        (lambda: fc.Mask.toeplitz((2**20, 2**20), (1, 1)), "shape, reach: places of a grid, with room for its reach (at most)"), (lambda: fc.Mask.toeplitz((-1,), (0,)), "shape[0]: -1"),
        (lambda: fc.Mask.toeplitz(3, (0,)), "shape: expected a number for each axis"),
        (lambda: fc.Mask.grid_heat((2**31, 2**31)), "shape: nodes of a grid (at most)"),
        (lambda: fc.Mask.causal([0.0, np.nan]), "times: number 1 is NaN"),
        (lambda: fc.Mask.tree(2, [0], [2]), "sources, targets: a node of an edge"), (lambda: fc.Mask.tree(3, [0, 1, 2], [1, 2, 0], 3), "closes a ring"),
        (lambda: fc.Mask.tree(2**40, [], []), "at most"), (lambda: fc.Mask.tree(4, [], [], 2**25), "n_distances: 4 nodes and 33554432"),
        (lambda: fc.Mask.tree(4, [0, 1], [1]), "targets: expected shape [2]"),
        (lambda: fc.Mask.packed([heat, mask]), "part 1 has 3 parameters"), (lambda: fc.Mask.packed([3]), "parts[0]: expected a Mask"),
        (lambda: fc.Mask.packed([fc.Open(2**31)] * 2), "more than 2147483648 nodes up to part 1"),
        (lambda: fc.Mask.packed([fc.Open(-1)]), "parts[0].n: -1"), (lambda: fc.Mask.product(heat, 3), "inner: expected a Mask"),
        (lambda: fc.Mask.product(fc.Mask.grid_heat((2**20,)), fc.Mask.grid_heat((2**20,))), "at most"),
        (lambda: fc.Laplacian([[1]]), "graph: expected a Graph"),
        (lambda: fc.Laplacian(fc.Graph.of_edges(2, [0], [1], [-1.0])), "negative"),
        (lambda: path.electric_flow(ones, 3, delta=9.0), "delta"), (lambda: path.electric_flow(ones[:2], 3), "expected [3, width]"),
        (lambda: path.electric_flow(ones, 2**40), "n_layers"), (lambda: path.electric_flow(np.nan * ones, 3), "demands: number 0"),
        (lambda: path.heat_kernel(ones, 1e3, 20), "s: 1000 is not in 0..=8"), (lambda: path.heat_kernel(ones, -1.0, 20), "s: -1"),
        (lambda: path.fast_heat_kernel(100.0, 3), "n_layers: 3 are too few"), (lambda: path.fast_heat_kernel(1.0, 65), "n_layers: 65"),
        (lambda: path.fast_electric_flow(3, delta=1.0), "delta"),
        (lambda: fc.Laplacian(fc.Graph.of_edges(513, [], [])).fast_heat_kernel(1.0, 3), "nodes (at most)"),
        (lambda: path.effective_resistance_between([0], [3], 9), "a node of a pair"),
        (lambda: path.positional_encoding(n_demands=2**40), "n_demands"), (lambda: path.positional_encoding(scales=[9.0]), "scales: 9"),
        (lambda: path.top_eigenvectors(ones, 2**40), "n_layers"),
    ]


@pytest.mark.parametrize("call, told", calls(), ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_wrong_is_told_with_its_argument(call, told):
    with pytest.raises(fc.ForecloudError) as caught:
        call()
    assert not isinstance(caught.value, fc.errors.InternalError) and told in str(caught.value)
