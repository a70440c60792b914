"""Attention on arrays, as the model's layers have it: under any mask, and to the keys of largest inner product."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arrays, _native
from .errors import InputError
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
