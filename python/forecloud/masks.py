"""Masks of attention: what a token may hear of another, on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Sequence

import numpy as np

from . import _arrays, _native
from .errors import InputError


@dataclass(frozen=True)
class Open:
    """A part of packed scenes whose nodes all hear each other."""

    n: int
    """Number of nodes."""


@dataclass(frozen=True)
class Padding:
    """A part of packed scenes that is only there to fill up: hears nobody, is heard by nobody."""

    n: int
    """Number of nodes."""


class Mask:
    """A matrix M `[n, n]` over nodes, known by its products: never written out.

    `params` `[n_params]` are what a layer learns: any real numbers, which start at 0.

    ::

        mask = graph.mask("series")                     # those of forecloud.masks(), over a graph
        mask = fc.Mask.toeplitz((30, 40), (3, 3))       # over the pixels of an image
        mask = fc.Mask.packed([mask, fc.Padding(48)])   # scenes of a batch
    """

    def __init__(self, name: str, native: _native.Mask) -> None:
        self.name = name
        """Its name."""
        self._native = native

    @classmethod
    def toeplitz(cls, shape: Sequence[int], reach: Sequence[int]) -> Mask:
        """Over a full grid of `shape`, nodes row by row: M_ij = softplus of a number for each offset between
        places, up to `reach` along each axis, 0 beyond. Parameters: offsets from -reach on, row by row."""
        return cls("toeplitz", _native.Mask.toeplitz(_sizes("shape", shape), _sizes("reach", reach)))

    @classmethod
    def grid_heat(cls, shape: Sequence[int]) -> Mask:
        """Over a full grid of `shape`: M_ij = tanh(softplus(θ))^(steps from i to j along the grid)."""
        return cls("grid_heat", _native.Mask.grid_heat(_sizes("shape", shape)))

    @classmethod
    def causal(cls, times: Any) -> Mask:
        """Over nodes at `times` `[n]`: M_ij = 1 where j is not later than i. No parameters."""
        return cls("causal", _native.Mask.causal(_arrays.array("times", times, np.float32, 1)))

    @classmethod
    def tree(cls, n: int, sources: Any, targets: Any, n_distances: int = 32) -> Mask:
        """Over the forest of `n` nodes whose edges go from `sources` to `targets` `[edges]`: M_ij = softplus of
        a number for each distance in edges, from 0 to `n_distances` - 1, and 0 beyond and between trees."""
        sources, targets = _arrays.ends(sources, targets)
        n, n_distances = _arrays.whole("n", n), _arrays.whole("n_distances", n_distances)
        return cls("tree", _native.Mask.tree(n, sources, targets, n_distances))

    @classmethod
    def low_rank(cls, left: Any, right: Any) -> Mask:
        """M = `left` · `right`ᵀ of factors `[n, rank]`, no number of which may be below 0. No parameters."""
        left, right = _arrays.array("left", left, np.float32, 2), _arrays.array("right", right, np.float32, 2)
        return cls("low_rank", _native.Mask.low_rank(left, right))

    @classmethod
    def stochastic_positions(cls, positions: Any, frequencies: Any, n_draws: int = 64, seed: int = 0) -> Mask:
        """Over nodes at `positions` `[n, axes]`: in the mean over draws M_ij = exp(Σ_c λ_c cos(ω_c·(p_i - p_j) + β_c)),
        of waves with angular `frequencies` `[waves, axes]` (radians for the positions' unit), as `n_draws` random
        features have it. Parameters `[waves, 2 + axes]`: λ as softplus(θ) / (waves · ln 2), β, what is added to ω."""
        positions = _arrays.array("positions", positions, np.float32, 2)
        frequencies = _arrays.array("frequencies", frequencies, np.float32, 2)
        n_draws, seed = _arrays.whole("n_draws", n_draws, 1, 2**32), _arrays.whole("seed", seed, 0, 2**64 - 1)
        return cls("stochastic_positions", _native.Mask.stochastic_positions(positions, frequencies, n_draws, seed))

    @classmethod
    def packed(cls, parts: Iterable[Mask | Open | Padding]) -> Mask:
        """Scenes one after the other, none of which hears another. All masks among `parts` share parameters."""
        pieces: list[tuple[_native.Mask | None, int, bool]] = []
        for at, part in enumerate(parts):
            if isinstance(part, Mask):
                pieces.append((part._native, 0, False))
            elif isinstance(part, (Open, Padding)):
                pieces.append((None, _arrays.whole(f"parts[{at}].n", part.n, 0, 2**31), isinstance(part, Open)))
            else:
                raise InputError(f"parts[{at}]: expected a Mask, Open or Padding, got {type(part).__name__}")
        return cls("packed", _native.Mask.packed(pieces))

    @classmethod
    def product(cls, outer: Mask, inner: Mask) -> Mask:
        """Kronecker product: of nodes (s, p), outer index s first, M = outer_st · inner_pq. Parameters of `outer`
        first."""
        for name, given in (("outer", outer), ("inner", inner)):
            if not isinstance(given, Mask):
                raise InputError(f"{name}: expected a Mask, got {type(given).__name__}")
        return cls("product", _native.Mask.product(outer._native, inner._native))

    @property
    def n_params(self) -> int:
        """How many parameters it has."""
        return self._native.n_params

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._native)

    def apply(self, x: Any, params: Any = None, transposed: bool = False) -> np.ndarray:
        """M x, or Mᵀ x, of columns `x` `[n, width]` (or `[n]`), float32."""
        given = _arrays.array("x", x, np.float32)
        if given.ndim not in (1, 2) or len(given) != len(self):
            raise InputError(f"x: expected [{len(self)}, width], got shape {list(given.shape)}")
        y = self._native.apply(
            np.ascontiguousarray(given.reshape(len(given), given.size // max(len(given), 1))),
            self._params(params), bool(transposed),
        )
        return y.reshape(given.shape)

    def _params(self, params: Any) -> np.ndarray:
        if params is None:
            return np.zeros(self.n_params, np.float32)
        return _arrays.array("params", params, np.float32, 1)

    def dense(self, params: Any = None) -> np.ndarray:
        """M as a matrix `[n, n]`, float32: of small graphs."""
        if len(self) > 8192:
            raise InputError(f"dense: a matrix of {len(self)} x {len(self)} does not fit; take apply")
        return self.apply(np.eye(len(self), dtype=np.float32), params)

    def __repr__(self) -> str:
        return f"<forecloud.Mask {self.name} of {len(self)} nodes>"


def masks() -> dict[str, str]:
    """Names of the masks, and what each is."""
    return dict(_native.masks())


def _sizes(name: str, sizes: Sequence[int]) -> list[int]:
    if isinstance(sizes, (str, bytes)) or not hasattr(sizes, "__iter__"):
        raise InputError(f"{name}: expected a number for each axis, got {sizes!r}")
    return [_arrays.whole(f"{name}[{at}]", size, 0, 2**32) for at, size in enumerate(sizes)]
