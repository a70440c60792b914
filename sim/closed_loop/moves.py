"""Motions of the robot as joint trajectories: what planners choose among, and the way back."""

from dataclasses import dataclass

import numpy as np

from sim import grasps
from sim.arm import PERIOD, Arm

HOVER = 0.2  # m, height of the finger tips on the way to where a push begins
FINGER = 0.013  # m, from the line between the fingers to their outside
RUN_UP = 0.04  # m before contact
APPROACH, DOWN = 1.0, 0.9  # m/s at most
THIN = 2  # every so many samples of 20 ms becomes a point


@dataclass
class Trajectory:
    """Joints of these names at times (s from its start, ascending): rows of `positions`, rad."""

    names: list[str]
    times: np.ndarray
    positions: np.ndarray

    def seconds(self) -> float:
        """How long it takes."""
        return float(self.times[-1])

    def at(self, times) -> np.ndarray:
        """Rows at these times: linear between points, held before and after."""
        return np.stack([np.interp(times, self.times, column) for column in self.positions.T], axis=-1)


@dataclass
class Push:
    """Target `k` is pushed along `angle` (rad in the plane) for `way` m from contact on.

    `beside`: m by which the line passes the object's middle, to its left; `height` of the tips, m;
    `turn`: of the finger line from across the way, rad; `speed` m/s.
    """

    side: str
    k: int
    angle: float
    way: float
    beside: float = 0.0
    height: float = 0.025
    turn: float = 0.0
    speed: float = 0.4


class Mover:
    """An arm that makes trajectories from where it waits."""

    def __init__(self, model, spec):
        self.arm = Arm(model, spec, np.array(spec.home))
        self.spec = spec
        self.home, self.home_pose = self.arm.joints[0].copy(), self.arm.pose.copy()

    def begin(self, joints: np.ndarray, pose: np.ndarray) -> Arm:
        """The arm, its command starting anew."""
        self.arm.joints, self.arm.pose = [np.array(joints)], np.array(pose)
        return self.arm

    def done(self) -> Trajectory:
        """The command as it stands now."""
        rows = np.array(self.arm.joints)
        keep = np.unique([*range(0, len(rows), THIN), len(rows) - 1])
        return Trajectory(list(self.spec.joints), keep * PERIOD, rows[keep])

    def reaches(self, *points: np.ndarray) -> bool:
        """Whether the tool gets to these points, seen from above."""
        gaps = [np.linalg.norm(p[:2] - self.arm.base[:2]) for p in points]
        return self.spec.reach[0] < min(gaps) and max(gaps) < self.spec.reach[1]

    def line(self, push: Push, place: np.ndarray, rotation: np.ndarray, shape) -> tuple[np.ndarray, np.ndarray]:
        """Where the finger tips begin and end a push, x and y."""
        along = np.array([np.cos(push.angle), np.sin(push.angle)])
        across = np.array([-along[1], along[0]])
        behind = grasps.extent(shape, rotation, np.zeros(3), np.array([*-along, 0.0])) + FINGER
        line = place[:2] + across * push.beside
        return line - along * (behind + RUN_UP), line + along * (push.way - behind)

    def push(self, push: Push, place: np.ndarray, rotation: np.ndarray, shape) -> Trajectory | None:
        """Over, down, and along; None where the arm doesn't reach."""
        start, stop = self.line(push, place, rotation, shape)
        if not self.reaches(start, stop):
            return None
        arm = self.begin(self.home, self.home_pose)
        turned = push.angle + np.pi / 2 + push.turn
        arm.move([*start, HOVER, turned], APPROACH)
        arm.move([*start, push.height, turned], DOWN)
        arm.move([*stop, push.height, turned], push.speed, steady=True)
        return self.done()

    def home_from(self, joints: np.ndarray) -> Trajectory:
        """From any joints home, each straight."""
        steps = max(int(np.ceil(np.abs(self.home - joints).max() / (0.5 * self.spec.speed * PERIOD))), 1)
        arm = self.begin(joints, self.home_pose)
        arm.joints += [joints + (self.home - joints) * (i + 1) / steps for i in range(steps)]
        return self.done()
