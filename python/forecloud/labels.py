"""Particles of clouds, and hindsight: where points went, as later frames show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np

from . import _arrays, _native
from .errors import InputError

NO_BODY = 2**32 - 1
"""The number of no body."""


@dataclass(frozen=True)
class Particles:
    """A sample of a cloud in Morton order."""

    positions: np.ndarray
    """`[n, 3]`, float32, m."""
    colors: np.ndarray
    """`[n, 3]`, float32, 0 to 1."""
    sources: np.ndarray
    """`[n]`, uint32: as those of the cloud."""
    support_m: float | None = None
    """Height (z, m) of the plane that most points lie on; None without one."""
    robot: np.ndarray | None = field(default=None, repr=False)
    """Points on the robot, `[m, 3]` (m), the same ones in all frames; for hindsight."""

    def __len__(self) -> int:
        """Number of particles."""
        return len(self.positions)


def particles(
    positions: Any,
    colors: Any,
    sources: Any = None,
    n: int = 2048,
    *,
    workspace: Any = None,
    seed: int = 0,
    stamp_ns: int = 0,
    support_stride: int = 1,
) -> Particles:
    """Draws `n` points of a cloud (`Frame.cloud`) uniformly without replacement, or takes all if there are
    not more, in Morton order over the `workspace` (`[2, 3]`, m; the library's without one), outside of which
    points are dropped.

    `positions` `[n, 3]` (m), `colors` `[n, 3]` (uint8), `sources` `[n]`. Of the points on the support plane
    one in `support_stride` takes part. The draw hashes seed, stamp and source: it does not depend on the
    order of the points.
    """
    corners = _arrays.box("workspace", workspace)
    draw = (_arrays.whole("seed", seed, 0, 2**64 - 1), _arrays.stamp_ns("stamp_ns", stamp_ns),
            _arrays.whole("support_stride", support_stride))
    told = _native.particles(
        _arrays.array("positions", positions, np.float32, 2),
        _arrays.array("colors", colors, np.uint8, 2),
        None if sources is None else _arrays.array("sources", sources, np.uint32, 1),
        _arrays.whole("n", n),
        corners,
        draw,
    )
    return Particles(**told)


@dataclass(frozen=True)
class Flow:
    """How far each point of a frame moves to the next frame."""

    motions: np.ndarray
    """`[n, 3]`, float32, m."""
    confidences: np.ndarray
    """How sure that is, `[n]`, float32, 0 to 1; from 0.5 on it counts as sure."""
    bodies: np.ndarray
    """Number of the body that each seems to be of, `[n]`, uint32; `NO_BODY` for none."""


@dataclass(frozen=True)
class Hindsight:
    """Where the points of the first frame went, as the frames after it show."""

    positions: np.ndarray
    """After each step, `[steps, n, 3]`, float32, m."""
    confidences: np.ndarray
    """How sure that is, `[steps, n]`, float32, 0 to 1."""
    flows: list[Flow] = field(repr=False)
    """From each frame to the next."""


def hindsight(frames: Sequence[Particles], links: Any = None) -> Hindsight:
    """Labels without truth: the motion of points between `frames`, which are one step (0.1 s) apart and of
    the same cameras, forward and backward, body by body, and the tracks of the first frame's points.

    `frames`: particles, the denser the better; their `robot` points help where there is a robot, `links`
    `[m]` then tell the number of the link of each (ascending from 0).

    Raises `InputError` for fewer than two frames, and points that are not finite.
    """
    given = []
    for number, frame in enumerate(frames):
        if not isinstance(frame, Particles):
            raise InputError(f"frame {number}: expected forecloud.Particles, got {type(frame).__name__}")
        robot = None if frame.robot is None else _arrays.array("robot", frame.robot, np.float32, 2)
        given.append((
            _arrays.array(f"positions of frame {number}", frame.positions, np.float32, 2),
            _arrays.array(f"colors of frame {number}", frame.colors, np.float32, 2),
            robot,
        ))
    told = _native.hindsight(given, None if links is None else _arrays.array("links", links, np.uint32, 1))
    flows = [Flow(**flow) for flow in told.pop("flows")]
    return Hindsight(flows=flows, **told)
