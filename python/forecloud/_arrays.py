"""What comes in, as the compiled part takes it: C-contiguous arrays of one type, settings as JSON."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping

import numpy as np

from .errors import ConfigError, InputError


def array(name: str, value: Any, dtype: Any, ndim: int | None = None) -> np.ndarray:
    """`value` as a C-contiguous array of `dtype`; a copy only where it is none.

    Floats of another width are converted, as are integers that fit; other types are refused.
    """
    wanted = np.dtype(dtype)
    if value is None:
        raise InputError(f"{name}: nothing was given; expected an array of {wanted}")
    try:
        given = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: not an array ({error}); expected one of {wanted}") from None
    if ndim is not None and given.ndim != ndim:
        raise InputError(f"{name}: expected {ndim} dimensions, got shape {list(given.shape)}")
    if given.dtype != wanted:
        given = _convert(name, given, wanted)
    return np.ascontiguousarray(given) if given.ndim else given


def ends(sources: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    """Nodes that edges or pairs go from and to, `[edges]` each."""
    return array("sources", sources, np.uint32, 1), array("targets", targets, np.uint32, 1)


def _convert(name: str, given: np.ndarray, wanted: np.dtype) -> np.ndarray:
    kind = given.dtype.kind
    if kind not in "iufb" or (wanted.kind in "iu" and kind == "f" and given.size):
        raise InputError(
            f"{name}: expected an array of {wanted}, got {given.dtype}; convert it with .astype"
        )
    if wanted.kind in "iu" and given.size:
        limits = np.iinfo(wanted)
        if given.min() < limits.min or given.max() > limits.max:
            raise InputError(f"{name}: holds numbers that {wanted} does not; allowed are {limits.min} to {limits.max}")
    with np.errstate(over="ignore", invalid="ignore"):
        return given.astype(wanted)


def pose(name: str, value: Any) -> tuple[float, ...]:
    """A pose as position and quaternion (x, y, z, w): of seven numbers, or of a 4 x 4 matrix."""
    given = array(name, value, np.float64)
    if given.shape == (7,):
        return tuple(given.tolist())
    if given.shape != (4, 4):
        raise InputError(
            f"{name}: expected a 4 x 4 matrix, or x, y, z and a quaternion x, y, z, w; got shape {list(given.shape)}"
        )
    if not np.isfinite(given).all():
        raise InputError(f"{name}: holds a number that is not finite")
    rotation = given[:3, :3]
    is_rigid = np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-4) and np.linalg.det(rotation) > 0
    if not is_rigid or not np.allclose(given[3], [0, 0, 0, 1], atol=1e-9):
        raise InputError(f"{name}: not a rigid transform (a rotation without scale, last row 0, 0, 0, 1)")
    return (*given[:3, 3].tolist(), *_quaternion(rotation))


def _quaternion(m: np.ndarray) -> tuple[float, float, float, float]:
    """Of a rotation matrix, by its largest component (Shepperd)."""
    diagonal = [1 + m[0, 0] - m[1, 1] - m[2, 2], 1 - m[0, 0] + m[1, 1] - m[2, 2],
                1 - m[0, 0] - m[1, 1] + m[2, 2], 1 + m[0, 0] + m[1, 1] + m[2, 2]]
    i = int(np.argmax(diagonal))
    if i == 3:
        q = [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], diagonal[3]]
    else:
        j, k = (i + 1) % 3, (i + 2) % 3
        q = [0.0] * 4
        q[i], q[j], q[k] = diagonal[i], m[j, i] + m[i, j], m[k, i] + m[i, k]
        q[3] = m[k, j] - m[j, k]
    norm = math.sqrt(sum(x * x for x in q))
    return tuple(float(x) / norm for x in q)  # type: ignore[return-value]


def matrix(pose7: Any) -> np.ndarray:
    """The 4 x 4 matrix of a pose x, y, z and quaternion x, y, z, w."""
    x, y, z, qx, qy, qz, qw = (float(v) for v in pose7)
    return np.array([
        [1 - 2 * (qy * qy + qz * qz), 2 * (qx * qy - qz * qw), 2 * (qx * qz + qy * qw), x],
        [2 * (qx * qy + qz * qw), 1 - 2 * (qx * qx + qz * qz), 2 * (qy * qz - qx * qw), y],
        [2 * (qx * qz - qy * qw), 2 * (qy * qz + qx * qw), 1 - 2 * (qx * qx + qy * qy), z],
        [0.0, 0.0, 0.0, 1.0],
    ])


def intrinsics(name: str, value: Any) -> tuple[float, ...]:
    """A camera's matrix row by row: of 3 x 3 numbers, or of fx, fy, cx, cy (pixels)."""
    given = array(name, value, np.float64)
    if given.shape == (4,):
        fx, fy, cx, cy = given.tolist()
        return (fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0)
    if given.shape != (3, 3):
        raise InputError(
            f"{name}: expected a 3 x 3 camera matrix, or fx, fy, cx, cy; got shape {list(given.shape)}"
        )
    return tuple(given.ravel().tolist())


MAX_SECS = 9.2e9  # as nanoseconds in 64 bits


def stamp_ns(name: str, value: Any) -> int:
    """Nanoseconds: of an integer as they are, of a float as seconds."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{name}: expected seconds (float) or nanoseconds (int), got {type(value).__name__}")
    if isinstance(value, (float, np.floating)):
        seconds = float(value)
        if not math.isfinite(seconds):
            raise InputError(f"{name}: {value} is not finite")
        if abs(seconds) > MAX_SECS:
            raise InputError(f"{name}: {value} s is not in {-MAX_SECS}..={MAX_SECS}")
        value = round(seconds * 1e9)
    return whole(name, value, -(2**63), 2**63 - 1)


def whole(name: str, value: Any, low: int = 0, high: int = 2**63 - 1) -> int:
    """A whole number in a range."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{name}: expected a whole number, got {value!r}")
    if not low <= value <= high:
        raise ConfigError(f"{name}: {value} is not in {low}..={high}")
    return int(value)


def real(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not np.isfinite(value):
        raise ConfigError(f"{name}: expected a number, got {value!r}")
    return float(value)


def box(name: str, value: Any) -> list[list[float]] | None:
    """Lowest and highest corner (m), `[2, 3]`; none stays none."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = [value.get("min"), value.get("max")]
    given = array(name, value, np.float32)
    if given.shape != (2, 3):
        raise InputError(f"{name}: expected lowest and highest corner, [2, 3], got shape {list(given.shape)}")
    return [[float(x) for x in corner] for corner in given]


def settings(what: str, values: Mapping[str, Any]) -> str:
    """As JSON; arrays as lists, paths as text."""

    def plain(value: Any) -> Any:
        if isinstance(value, (np.generic, np.ndarray)):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise TypeError(f"{type(value).__name__} is no setting")

    try:
        return json.dumps(dict(values), default=plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: {error}") from None
