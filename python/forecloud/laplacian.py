"""Solvers of a graph's Laplacian, layer by layer as in "Graph Transformers Dream of Electric Flow", on arrays."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from . import _arrays, _native
from .errors import InputError
from .graph import Graph


class Laplacian:
    """L = D - W of a graph, taken both ways; weights are conductances, none negative.

    ::

        laplacian = fc.Laplacian(fc.knn(points, k=4))
        demands = laplacian.center(np.random.normal(size=(len(points), 3)))
        potentials = laplacian.electric_flow(demands, n_layers=500)     # near pinv(L) @ demands

    A layer is one product with the graph, but in `fast_electric_flow`, `fast_heat_kernel` and
    `effective_resistance`, which multiply matrices, in float64, and take at most 512 nodes. `delta` is the step
    of descent; without it `step`, which is always short enough.
    """

    def __init__(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise InputError(f"graph: expected a Graph, got {type(graph).__name__}")
        self._native = _native.Laplacian(graph._native)

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._native)

    @property
    def n_components(self) -> int:
        """Connected components: the dimension of what L maps to 0."""
        return self._native.n_components

    @property
    def lambda_bound(self) -> float:
        """2 · the largest degree: at least the largest eigenvalue."""
        return self._native.lambda_bound

    @property
    def step(self) -> float:
        """1 / `lambda_bound`."""
        return self._native.step

    def apply(self, x: Any) -> np.ndarray:
        """L x of columns `[n, width]` (or `[n]`), float32."""
        return self._of_columns("x", x, self._native.apply)

    def center(self, x: Any) -> np.ndarray:
        """Columns less their mean on each component: what can be a demand."""
        return self._of_columns("x", x, self._native.center)

    def electric_flow(self, demands: Any, n_layers: int, delta: float | None = None) -> np.ndarray:
        """Near L⁺ ψ of demands ψ `[n, width]` (or `[n]`) that sum to 0 on each component (Lemma 1)."""
        settings = _arrays.whole("n_layers", n_layers), self._delta(delta)
        return self._of_columns("demands", demands, lambda x: self._native.electric_flow(x, *settings))

    def resistive_embedding(self, demands: Any, n_layers: int, delta: float | None = None) -> np.ndarray:
        """Near √(L⁺) ψ of such demands (Lemma 2)."""
        settings = _arrays.whole("n_layers", n_layers), self._delta(delta)
        return self._of_columns("demands", demands, lambda x: self._native.resistive_embedding(x, *settings))

    def heat_kernel(self, demands: Any, s: float, n_layers: int) -> np.ndarray:
        """Near exp(-sL) ψ of any columns ψ by the power series (Lemma 3): in float32, so right to about 1e-7 ·
        exp(s · λ_max), and refused where nothing is right. Takes 8 · s · λ_max layers to begin with."""
        settings = _arrays.real("s", s), _arrays.whole("n_layers", n_layers)
        return self._of_columns("demands", demands, lambda x: self._native.heat_kernel(x, *settings))

    def fast_electric_flow(self, n_layers: int, delta: float | None = None) -> np.ndarray:
        """Near L⁺ `[n, n]`, as by 2^`n_layers` layers of `electric_flow` (Lemma 4)."""
        return self._native.fast_electric_flow(_arrays.whole("n_layers", n_layers), self._delta(delta))

    def fast_heat_kernel(self, s: float, n_layers: int) -> np.ndarray:
        """Near exp(-sL) `[n, n]` by (I - sL / 3^n_layers)^(3^n_layers) (Lemma 5); refused where s · λ_max is
        above 3^n_layers."""
        return self._native.fast_heat_kernel(_arrays.real("s", s), _arrays.whole("n_layers", n_layers))

    def effective_resistance(self, n_layers: int = 20, delta: float | None = None) -> np.ndarray:
        """Near the effective resistance between all nodes `[n, n]`, infinite between components."""
        return self._native.effective_resistance(_arrays.whole("n_layers", n_layers), self._delta(delta))

    def effective_resistance_between(
        self, sources: Any, targets: Any, n_layers: int, delta: float | None = None
    ) -> np.ndarray:
        """The same of pairs `[pairs]` of nodes, on graphs of any size, by `electric_flow`; float32."""
        sources, targets = _arrays.ends(sources, targets)
        return self._native.effective_resistance_between(
            sources, targets, _arrays.whole("n_layers", n_layers), self._delta(delta))

    def top_eigenvectors(self, start: Any, n_iterations: int) -> np.ndarray:
        """Near the eigenvectors of the largest eigenvalues, as many as `start` `[n, k]` has columns, largest first
        (Lemma 6)."""
        n_iterations = _arrays.whole("n_iterations", n_iterations)
        return self._of_columns("start", start, lambda x: self._native.eigenvectors(x, n_iterations, True))

    def bottom_eigenvectors(self, start: Any, n_iterations: int) -> np.ndarray:
        """Near those of the smallest eigenvalues, without the constants, smallest first (Corollary 7)."""
        n_iterations = _arrays.whole("n_iterations", n_iterations)
        return self._of_columns("start", start, lambda x: self._native.eigenvectors(x, n_iterations, False))

    def positional_encoding(
        self, n_demands: int = 4, scales: Sequence[float] = (1.0, 4.0), n_layers: int = 24,
        n_eigenvectors: int = 8, n_iterations: int = 32, seed: int = 0,
    ) -> np.ndarray:
        """Features `[n, n_demands · scales + n_eigenvectors]` that tell where in its graph a node lies, as tokens of
        a model get them with `--encodings both`: columns of the heat kernel, then bottom eigenvectors."""
        scales_ = [_arrays.real(f"scales[{at}]", scale) for at, scale in enumerate(scales)]
        whole = _arrays.whole
        return self._native.positional_encoding(
            whole("n_demands", n_demands), scales_, whole("n_layers", n_layers),
            whole("n_eigenvectors", n_eigenvectors), whole("n_iterations", n_iterations), whole("seed", seed))

    def _delta(self, delta: float | None) -> float:
        return self.step if delta is None else _arrays.real("delta", delta)

    def _of_columns(self, name: str, x: Any, call: Any) -> np.ndarray:
        given = _arrays.array(name, x, np.float32)
        if given.ndim not in (1, 2) or len(given) != len(self):
            raise InputError(f"{name}: expected [{len(self)}, width], got shape {list(given.shape)}")
        width = given.size // max(len(given), 1)
        return call(np.ascontiguousarray(given.reshape(len(given), width))).reshape(given.shape)

    def __repr__(self) -> str:
        return f"<forecloud.Laplacian of {len(self)} nodes>"
