"""Candidate plans: goals, what plans would cost, and finding one. Nothing is ever sent to a robot."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from . import _arrays, _native
from .errors import InputError
from .recording import Plan
from .tool import Table


class Goal:
    """What is to be reached: which particles are to be moved (the target), where to, and what else counts.

    ::

        goal = fc.Goal(region=[[0.0, -0.1, 0.005], [0.2, 0.1, 0.2]], pose=(0.08, 0, 0, 0, 0, 0, 1), tolerance=0.03)

    The target, one of: `region` (all that lie in a box now: lowest and highest corner, `[2, 3]`), `pixels`
    (a mask `[height, width]` as large as the depth image of camera number `camera`; True, or not 0: the
    target's), `body` (the body nearest to a point, `[3]`, no more than 0.5 m from it). Where it is to be
    after the last step, one of: `box` (`[2, 3]`), `cloud` (`[n, 3]`, 1,024 points at most), `pose` (the rigid
    motion from where it is: x, y, z and a quaternion x, y, z, w, or 4 x 4). World frame, metres.

    `tolerance` (m): nearer than so is a success. `keep_out`: boxes `[n, 2, 3]` that nothing but the robot may
    enter. `clearance` (m): what the robot shall keep from what is not the target. `kappa`: sigmas that are
    added to means. `…_weight`: of the terms of the cost (`docs/src/guide/planning.md`; None: the usual ones).

    Raises `InputError`, which names what is wrong.
    """

    def __init__(
        self,
        *,
        region: Any = None,
        pixels: Any = None,
        camera: int = 0,
        body: Any = None,
        box: Any = None,
        cloud: Any = None,
        pose: Any = None,
        tolerance: float | None = None,
        keep_out: Sequence[Any] = (),
        clearance: float | None = None,
        kappa: float | None = None,
        reach_weight: float | None = None,
        keep_out_weight: float | None = None,
        leave_weight: float | None = None,
        clearance_weight: float | None = None,
        length_weight: float | None = None,
        smoothness_weight: float | None = None,
    ) -> None:
        select: dict[str, Any] = {}
        mask = None
        if region is not None:
            select["region"] = _corners("region", region)
        if pixels is not None:
            given = _arrays.array("pixels", np.asarray(pixels) != 0, np.bool_, 2)
            mask, select["pixels"] = given, {"camera": _arrays.whole("camera", camera), "mask": ""}
        if body is not None:
            select["body"] = _row("body", body, 3)
        reach: dict[str, Any] = {}
        if box is not None:
            reach["box"] = _corners("box", box)
        if cloud is not None:
            given = _arrays.array("cloud", cloud, np.float64)
            if given.ndim != 2 or given.shape[1] != 3:
                raise InputError(f"cloud: expected shape [n, 3], got {list(given.shape)}")
            reach["cloud"] = _finite("cloud", given).tolist()
        if pose is not None:
            x, y, z, *rotation = _arrays.pose("pose", pose)
            reach["pose"] = {"translation": _row("pose", (x, y, z), 3), "rotation": _row("pose", rotation, 4)}
        numbers = {
            "tolerance": tolerance, "clearance": clearance, "kappa": kappa, "reach_weight": reach_weight,
            "keep_out_weight": keep_out_weight, "leave_weight": leave_weight, "clearance_weight": clearance_weight,
            "length_weight": length_weight, "smoothness_weight": smoothness_weight,
        }
        told = {name: _number(name, value) for name, value in numbers.items() if value is not None}
        boxes = [_corners(f"keep_out {i}", zone) for i, zone in enumerate(keep_out)]
        text = _arrays.settings("goal", {"select": select, "reach": reach, "keep_out": boxes, **told})
        self._native = _native.Goal(text, mask)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Goal:
        """A goal from a YAML file, as `forecloud evaluate` and `forecloud plan` take it."""
        goal = cls.__new__(cls)
        goal._native = _native.Goal.read(os.fsdecode(path))
        return goal


class Costs(Table):
    """What plans cost: a dictionary of columns, one value a plan.

    `cost` (the weighted sum), `cost_90` (half the width of the interval in which 90 % of such costs lie),
    `reach`, `keep_out`, `leave`, `clearance` (m), `reach_sigma` (m), `success_probability` (NaN of models
    that don't tell how sure they are), `length` (rad or m), `smoothness` (mean square of accelerations), each
    before its weight: float64 `[n_plans]`.
    """

    stamp_ns: int
    """Stamp of the frame that plans start from."""
    n_particles: int
    """Particles that were rolled out."""
    n_target: int
    """Those of them that are to be moved."""
    reach_now: float
    """How far the target is from the goal now, m."""
    is_reached: bool
    """Whether that is within the tolerance."""

    @property
    def best(self) -> int:
        """Number of the plan that costs least; of equal ones the first."""
        return int(np.argmin(self["cost"]))


@dataclass(frozen=True)
class Found:
    """What the planner found."""

    success: bool
    """Whether the plan is worth executing: it costs less than standing still by more than `reach_sigma` of its cost."""
    message: str
    """What was found, or why nothing was."""
    plan: Plan
    """The best plan, from the frame's stamp on; standing still where there is no better one."""
    costs: Costs
    """What it costs (0), and standing still (1)."""
    n_steps: int
    """Steps over which it was judged."""
    n_plans: int
    """Plans that were rolled out."""
    planning_secs: float
    """Time that it took, s."""


def plans_in(plans: Any) -> list[tuple[int, list[str], list[int], list[list[float]]]]:
    """Plans as the compiled part takes them."""
    if isinstance(plans, Plan):
        raise InputError("plans: expected a list of forecloud.Plan, got one: put it into a list")
    try:
        given = list(plans)
    except TypeError:
        raise InputError(f"plans: expected a list of forecloud.Plan, got {type(plans).__name__}") from None
    for i, plan in enumerate(given):
        if not isinstance(plan, Plan):
            raise InputError(f"plan {i}: expected a forecloud.Plan, got {type(plan).__name__}")
    if not given:
        raise InputError("plans: there are none")
    return [plan._native() for plan in given]


def goal_in(goal: Any) -> _native.Goal:
    """A goal as the compiled part takes it: a Goal, or the path of its file."""
    if isinstance(goal, (str, os.PathLike)):
        goal = Goal.read(goal)
    if not isinstance(goal, Goal):
        raise InputError(f"goal: expected a forecloud.Goal or a path, got {type(goal).__name__}")
    return goal._native


def costs_of(columns: dict[str, np.ndarray], **known: Any) -> Costs:
    """A table of these columns."""
    costs = Costs(columns)
    vars(costs).update(known)
    return costs


def _number(name: str, value: Any) -> float:
    return _row(name, np.atleast_1d(np.asarray(value)), 1)[0]


def _row(name: str, value: Any, n: int) -> list[float]:
    given = _arrays.array(name, value, np.float64)
    if given.shape != (n,):
        raise InputError(f"{name}: expected {n} numbers, got shape {list(given.shape)}")
    return _finite(name, given).tolist()


def _corners(name: str, value: Any) -> dict[str, list[float]]:
    given = _arrays.array(name, value, np.float64)
    if given.shape != (2, 3):
        raise InputError(f"{name}: expected lowest and highest corner, [2, 3], got shape {list(given.shape)}")
    low, high = _finite(name, given).tolist()
    return {"min": low, "max": high}


def _finite(name: str, given: np.ndarray) -> np.ndarray:
    if not np.isfinite(given).all():
        raise InputError(f"{name}: holds a number that is not finite")
    return given
