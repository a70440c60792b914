"""Attention on arrays, as layers have it: under any mask, under graph random features, to the keys of largest inner
product."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from . import _arrays, _native
from .errors import InputError
from .graph import Graph, _given_walks, _seed
from .masks import Mask, Open


def attention(q: Any, k: Any, v: Any, mask: Mask | None = None, params: Any = None, n_heads: int = 1) -> np.ndarray:
    """Linear attention under a mask M, normalised: of each head a_i = Σ_j M_ij (q_i·k_j) v_j / Σ_j M_ij (q_i·k_j).

    `q`, `k` `[n, features]`: the feature map applied before, so that no product is negative
    (`numpy.maximum(x, 0)`); `v` `[n, width]`. `n_heads` divides both; a head's columns lie side by side. `mask`:
    over n nodes; without it all hear all. `params`: the mask's, 0 without. Returns `[n, width]`, float32. 1e-6 is
    added to the denominator, as in the model.

    Never n · n numbers: a product of the mask with each pair of a feature and a value.
    """
    q, k, v = _rows(q, k, v)
    if mask is None:
        mask = Mask.packed([Open(len(q))])
    if not isinstance(mask, Mask):
        raise InputError(f"mask: expected a Mask, got {type(mask).__name__}")
    return _native.masked_attention(q, k, v, mask._native, mask._params(params), _arrays.whole("n_heads", n_heads, 1))


def grf_attention(
    q: Any,
    k: Any,
    v: Any,
    graph: Graph,
    modulation: Any,
    *,
    kernel: str = "softmax",
    walks: Mapping[str, Any] | None = None,
    n_heads: int = 1,
    seed: int = 0,
    stamp_ns: int = 0,
) -> np.ndarray:
    """Attention under graph random features (GRF masking, Eq. 28): of each head
    a_i = Σ_j A_ij M_ij v_j / Σ_j A_ij |M|_ij, M = Σ_t f_t W^t and |M| = Σ_t |f_t| W^t of the graph's weights W.

    `kernel`: `softmax`, A = exp(q·k / √(features of a head)), or `linear`, A = q·k, the feature map applied before.
    `modulation`: f, `[hops + 1]`, or `[n_heads, hops + 1]` where each head has its own; of any sign. `walks`:
    keywords of `Graph.walks`, to sample walks in place of all of them, as long as f at most. `q`, `k`
    `[n, features]`, `v` `[n, width]`; `n_heads` divides both. Returns `[n, width]`, float32.
    """
    if not isinstance(graph, Graph):
        raise InputError(f"graph: expected a Graph, got {type(graph).__name__}")
    if kernel not in ("softmax", "linear"):
        raise InputError(f"kernel: expected softmax or linear, got {kernel!r}")
    n_heads = _arrays.whole("n_heads", n_heads, 1)
    f = _arrays.array("modulation", modulation, np.float32)
    if f.ndim == 1:  # as many rows as heads; more than features have are refused below
        f = np.tile(f, (min(n_heads, 1 << 16), 1))
    if walks is not None and "n_hops" not in walks:
        walks = {"max_hops": max(f.shape[-1] - 1, 0) if f.ndim else 0, **walks}
    return _native.grf_attention(
        *_rows(q, k, v), graph._native, np.ascontiguousarray(f), kernel == "softmax", _given_walks(walks),
        _seed(seed, stamp_ns), n_heads,
    )


def k_mip_attention(q: Any, k: Any, v: Any, top_k: int, n_heads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Softmax attention of each row to the `top_k` keys of largest inner product (k-MIP attention), exact.

    `q`, `k`, `v` `[n, width]`, `n_heads` heads side by side, scores over √(width / n_heads). Returns the outputs
    `[n, width]`, float32, and the keys that were chosen `[n, n_heads, top_k]`, uint32, ascending; ties go to the
    lower one. With `top_k` = n it is softmax attention. Compares all pairs, keeps none.
    """
    top_k, n_heads = _arrays.whole("top_k", top_k, 1), _arrays.whole("n_heads", n_heads, 1)
    out, keys = _native.k_mip_attention(*_rows(q, k, v), top_k, n_heads)
    return out, keys


def _rows(q: Any, k: Any, v: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each `[n, columns]`."""
    return _arrays.array("q", q, np.float32, 2), _arrays.array("k", k, np.float32, 2), _arrays.array("v", v, np.float32, 2)
