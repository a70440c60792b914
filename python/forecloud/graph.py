"""Graphs of points, walks on them, graph random features, and masks of attention, on arrays.

What the model's layers are made of (GRF masking, ICLR 2025), to try in a notebook.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

import numpy as np

from . import _arrays, _native
from .errors import ConfigError, InputError
from .masks import Mask


@dataclass(frozen=True)
class Walks:
    """Every visit of sampled walks; a walk's root counts as its visit at hop 0."""

    roots: np.ndarray
    """Node that the walk started from, `[visits]`, uint32."""
    nodes: np.ndarray
    """Node that is visited, `[visits]`, uint32."""
    hops: np.ndarray
    """Hops from the root, `[visits]`, uint32."""
    loads: np.ndarray
    """Product of weight · out-degree / (1 - p_halt) over the hops so far, `[visits]`, float64; without
    `importance` 1."""


@dataclass(frozen=True)
class Features:
    """Loads of graph random features: a sparse row a node."""

    starts: np.ndarray
    """Row `i` is `starts[i]:starts[i + 1]`, `[n + 1]`, uint64."""
    nodes: np.ndarray
    """Distinct end nodes of the walks, `[entries]`, uint32."""
    loads: np.ndarray
    """c(i, j, t): (W^t)_ij, or its estimate, `[entries, hops + 1]`, float32, unitless."""

    def dense(self, modulation: Any = None) -> np.ndarray:
        """As a matrix `[n, n]` float64: Σ_t f_t W^t with `modulation` f `[hops + 1]`; without it `[hops + 1,
        n, n]`, a matrix a hop."""
        n = len(self.starts) - 1
        if n * n * self.loads.shape[1] > 1 << 27:
            raise InputError(f"dense: a matrix of {n} x {n} does not fit; take rows of starts, nodes and loads")
        starts = self.starts.astype(np.int64)
        rows = np.repeat(np.arange(n), starts[1:] - starts[:-1])
        dense = np.zeros((self.loads.shape[1], n, n))
        dense[:, rows, self.nodes] = self.loads.T
        if modulation is None:
            return dense
        f = _arrays.array("modulation", modulation, np.float64, 1)
        if len(f) != len(dense):
            raise InputError(f"modulation: expected {len(dense)} numbers, one a hop and one, got {len(f)}")
        return np.einsum("t,tij->ij", f, dense)


class Graph:
    """A directed graph with weighted edges; nodes count from 0.

    ::

        graph = fc.knn(points, k=3)                  # the model's: k nearest neighbours, weights 1 / k
        graph = fc.Graph.of_edges(n, sources, targets, weights)
        graph = fc.Graph.of_depth(depth_m)           # pixels, joined where they lie on one surface
    """

    def __init__(self, native: _native.Graph) -> None:
        self._native = native

    @classmethod
    def of_edges(cls, n: int, sources: Any, targets: Any, weights: Any = None, directed: bool = True) -> Graph:
        """Of edges between `n` nodes: `sources` and `targets` `[edges]`, `weights` `[edges]` (1 without).
        Parallel edges add up; undirected ones count both ways."""
        sources = _arrays.array("sources", sources, np.uint32, 1)
        targets = _arrays.array("targets", targets, np.uint32, 1)
        if weights is None:
            weights = np.ones(len(sources), np.float32)
        weights = _arrays.array("weights", weights, np.float32, 1)
        return cls(_native.Graph.of_edges(_arrays.whole("n", n), sources, targets, weights, bool(directed)))

    @classmethod
    def of_depth(cls, depth_m: Any, max_step_m: float = 0.02) -> Graph:
        """Of the pixels of a depth image `[height, width]` (m), row by row: each joined to those beside,
        above and below it, except over steps of more than `max_step_m`. Weights of a row sum to 1."""
        return cls(_native.Graph.of_depth(_arrays.array("depth", depth_m, np.float32, 2), float(max_step_m)))

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._native)

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compressed rows, as scipy.sparse.csr_matrix takes them in another order: starts `[n + 1]`
        (uint64), neighbours `[edges]` (uint32), weights `[edges]` (float32)."""
        return self._native.rows()

    def normalized(self, scale: float = 1.0) -> Graph:
        """`scale` · D^-½ W D^-½, D the weighted out-degrees."""
        return Graph(self._native.normalized(float(scale)))

    def walks(
        self,
        n_walks: int = 16,
        *,
        n_hops: int | None = None,
        p_halt: float | None = None,
        max_hops: int = 32,
        sampler: str = "iid",
        importance: bool = True,
        seed: int = 0,
        stamp_ns: int = 0,
    ) -> Walks:
        """Samples `n_walks` walks from each node.

        Walks end after `n_hops` hops exactly, or before each hop with probability `p_halt` (0.5 if neither
        is given) and after `max_hops`. `sampler`: `iid`, `antithetic`, `repelling`,
        `antithetic_repelling`. `importance`: loads weigh walks by edge weights over probabilities; without,
        each visit counts 1. Draws are counted by `seed` and `stamp_ns`: the same ones always.
        """
        config = _walks(n_walks, n_hops, p_halt, max_hops, sampler, importance)
        return Walks(*self._native.walks(config, _seed(seed, stamp_ns)))

    def features(
        self,
        n_hops: int = 3,
        n_walks: int | None = None,
        *,
        p_halt: float | None = None,
        sampler: str = "iid",
        importance: bool = True,
        seed: int = 0,
        stamp_ns: int = 0,
    ) -> Features:
        """Graph random features: without `n_walks` of all walks of up to `n_hops`, so that they are exact;
        with it of sampled walks, of which they are the mean. With `p_halt`, `n_hops` are the most."""
        n_hops = _arrays.whole("n_hops", n_hops, 0, 64)
        config = None
        if n_walks is not None:
            exact = None if p_halt is not None else n_hops
            config = _walks(n_walks, exact, p_halt, n_hops, sampler, importance)
        return Features(*self._native.loads(n_hops, config, _seed(seed, stamp_ns)))

    def mask(
        self,
        name: str,
        positions: Any = None,
        *,
        n_hops: int = 3,
        walks: Mapping[str, Any] | None = None,
        cell_m: float = 0.05,
        seed: int = 0,
        stamp_ns: int = 0,
    ) -> Mask:
        """The mask of this name (`forecloud.masks()` tells all) over the graph's nodes.

        `positions` `[n, 3]` (m): of masks that read them. `n_hops`: how far masks reach that count hops.
        `walks`: keywords of `Graph.walks`, of masks that sample walks. `cell_m`: side of the cells (m) of
        masks that count cells.
        """
        if positions is None:
            positions = np.zeros((len(self), 3), np.float32)
        config = _given_walks(walks)
        return Mask(name, _native.Mask(
            name, self._native, _arrays.array("positions", positions, np.float32, 2),
            _arrays.whole("n_hops", n_hops, 0, 64), config, float(cell_m), _seed(seed, stamp_ns),
        ))

    def __repr__(self) -> str:
        return f"<forecloud.Graph of {len(self)} nodes>"


def knn(positions: Any, k: int = 3, bandwidth_m: float | None = None) -> Graph:
    """The directed graph of the `k` nearest neighbours of points `[n, 3]` (m); ties go to the lower index.

    Weights are 1 / k, or with `bandwidth_m` ∝ exp(-d² / bandwidth²); each row's sum to 1.

    Raises `InputError` unless there are more than `k` points, all of them finite.
    """
    points = _arrays.array("positions", positions, np.float32, 2)
    bandwidth = None if bandwidth_m is None else float(bandwidth_m)
    return Graph(_native.Graph.of_points(points, _arrays.whole("k", k), bandwidth))


def _walks(
    n_walks: int, n_hops: int | None, p_halt: float | None, max_hops: int, sampler: str, importance: bool
) -> str:
    if n_hops is not None and p_halt is not None:
        raise ConfigError("walks: either n_hops or p_halt")
    if n_hops is not None:
        halting: Any = {"hops": _arrays.whole("n_hops", n_hops)}
    else:
        p_halt = 0.5 if p_halt is None else float(p_halt)
        halting = {"probability": {"p_halt": p_halt, "max_hops": _arrays.whole("max_hops", max_hops)}}
    return _arrays.settings("walks", {
        "sampler": sampler, "n_walks": _arrays.whole("n_walks", n_walks), "halting": halting,
        "importance": bool(importance),
    })


def _given_walks(walks: Mapping[str, Any] | None) -> str | None:
    """Keywords of `Graph.walks`."""
    if walks is None:
        return None
    try:
        return _walks(**{"n_walks": 16, "n_hops": None, "p_halt": None, "max_hops": 32, "sampler": "iid",
                         "importance": True, **walks})
    except TypeError as error:
        raise ConfigError(f"walks: {error}") from None


def _seed(seed: int, stamp_ns: int) -> tuple[int, int]:
    return _arrays.whole("seed", seed, 0, 2**64 - 1), _arrays.whole("stamp_ns", stamp_ns, -(2**63), 2**63 - 1)
