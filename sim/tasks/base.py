"""What tasks share: what they see, grips, and the moves of one arm or both.

A motion is chosen from what can be seen then, at least `episode.HORIZON` before it starts, so a
recorded plan never knows more than a real one would.
"""

from dataclasses import dataclass

import numpy as np

from sim import grasps
from sim.arm import Arm
from sim.rig import ArmSpec
from sim.robot import TWO_ARMS

TOUCH = 0.012  # m from the finger tips to what they grip
STILL = 0.05  # m/s; what is slower can be gripped
SETTLE = 0.45  # s from letting go until an arm looks for the next thing


@dataclass
class Grip:
    """An object is held from `start` to `end` (s), if the tool is then near it.

    `shared`: by both hands, so that each lets it turn a little.
    """

    side: str
    thing: int
    start: float
    end: float
    shared: bool = False


@dataclass
class Seen:
    """The things that hands can hold, now: places (n × 3, m), frames, speeds (m/s), shapes."""

    positions: np.ndarray
    rotations: np.ndarray
    speeds: np.ndarray
    shapes: list

    def top(self, index: int, grip: int = 0) -> np.ndarray:
        """Where finger tips go to hold a thing from above."""
        return self.positions[index] + grip_top(self.shapes[index], self.rotations[index], grip)

    def still(self, index: int) -> bool:
        """Whether it rests."""
        return self.speeds[index] < STILL


def grip_top(shape, rotation: np.ndarray, grip: int) -> np.ndarray:
    """From a thing's origin to the top of the part that is gripped, in the world."""
    part, point = shape.grips[grip]
    height = shape.parts[part].half_extent(rotation[2])
    return rotation @ np.array(point) + (0, 0, height)


def random_home(spec: ArmSpec, rng: np.random.Generator) -> np.ndarray:
    """A pose to wait in."""
    return np.array(spec.home) + rng.uniform((-0.08, -0.06, -0.05, -1), (0.08, 0.06, 0.08, 1))


def within_reach(arm: Arm, *points: np.ndarray) -> bool:
    """Whether the tool gets to all of the points, seen from above."""
    gaps = [np.linalg.norm(p[:2] - arm.base[:2]) for p in points]
    return arm.spec.reach[0] < min(gaps) and max(gaps) < arm.spec.reach[1]


class Task:
    """A varied task: its objects, and the next motion of an arm."""

    name, number, lively_frames = "", -1, 10
    arms_needed = 0  # 0: one or two
    stage = None  # of a real-like scene
    belt = None  # velocity of the table's top, m/s (x, y)
    drive = None  # called before each physics step, where something is led (model, data, s)
    seen: "Seen"

    def __init__(self, rng: np.random.Generator, variety, rig=TWO_ARMS):
        self.rng, self.variety, self.rig = rng, variety, rig
        self.grips: list[Grip] = []
        self.soft = None
        self.arms: list[Arm] = []
        sides = tuple(spec.side for spec in rig.arms)
        self.blind = dict.fromkeys(sides, 0.0)  # s until which an arm does not look
        self.idle = float(rng.uniform(0.3, 1.5)) if rng.uniform() < 0.3 else 0.0  # s at first
        both = len(sides) < 2 or rng.uniform() < 0.7
        self.working = sides if both else (str(rng.choice(sides)),)

    def start(self, spec: ArmSpec) -> np.ndarray:
        """First pose of an arm."""
        return random_home(spec, self.rng)

    def extend(self, arm: Arm, now: float, seen: Seen) -> None:
        """Adds to the command of `arm`: an idle stretch, a wait, or what the task chooses."""
        self.seen = seen
        if self.idle and arm.end() == 0:
            arm.hold(self.idle)
        if arm.side not in self.working:
            self.wait(arm)
        elif now < self.blind[arm.side]:
            arm.hold(0.1)
        elif self.rng.uniform() < 0.06:
            arm.hold(self.rng.uniform(0.4, 1.2))
        else:
            self.act(arm, now, seen)

    def act(self, arm: Arm, now: float, seen: Seen) -> None:
        """Adds the next motion."""
        raise NotImplementedError

    def wait(self, arm: Arm) -> None:
        """What an arm does that has no work: stands, at times shifts."""
        if self.rng.uniform() < 0.3:
            arm.move(random_home(arm.spec, self.rng), self.rng.uniform(0.2, 0.6))
        arm.hold(self.rng.uniform(0.5, 1.5))

    def keep(self, arm: Arm, point: np.ndarray) -> np.ndarray:
        """The point, moved into the arm's own part of the tray."""
        y = np.clip(point[1], -0.34, 0.34)
        if arm.sign:
            y = arm.sign * np.clip(arm.sign * point[1], 0.075, 0.34)
        clipped = np.array([np.clip(point[0], -0.3, 0.24), y])
        outward = clipped - arm.base[:2]
        reach = np.linalg.norm(outward)
        return arm.base[:2] + outward * np.clip(reach, *arm.spec.reach) / reach

    def mine(self, arm: Arm, seen: Seen, margin: float = -0.02) -> list[int]:
        """Things in reach on the arm's side that nobody holds; `margin` m beyond the middle."""
        held = {g.thing for g in self.grips if g.end > arm.end()}
        return [
            i
            for i, p in enumerate(seen.positions)
            if i not in held and within_reach(arm, p) and (not arm.sign or p[1] * arm.sign > margin)
        ]

    def grasp(self, arm: Arm, thing: int, top: np.ndarray, turned: float) -> float:
        """Goes down on a thing; the time at which the grip closes."""
        if arm.fingers.size:
            return self.close_on(arm, thing, turned)
        over = top + (0, 0, TOUCH)
        arm.move([*over[:2], max(over[2] + 0.1, 0.2), turned], self.rng.uniform(0.7, 1.1))
        arm.move([*over, turned], self.rng.uniform(0.4, 0.7))
        arm.hold(0.1)
        return arm.end()

    def close_on(self, arm: Arm, thing: int, turned: float) -> float:
        """Goes down on a thing with open fingers and closes them; the time at which they hold."""
        grasp = grasps.plan(arm.spec, self.seen, thing, 0, turned, free=True)
        over, rng = np.array(grasp.tip), self.rng
        arm.move([*over[:2], max(grasp.top + 0.09, 0.2), grasp.yaw], rng.uniform(0.7, 1.1))
        yaw = arm.pose[3]
        arm.move([*over, yaw], rng.uniform(0.4, 0.7), exact=True)
        return self.close(arm, grasp.share)

    def close(self, arm: Arm, share: float) -> float:
        """Closes the hand where it is; the time at which it holds."""
        seconds = float(self.rng.uniform(0.2, 0.4))
        start = arm.end() + 0.04
        arm.grip(start, start + seconds, share)
        arm.hold(seconds + 0.1)
        return arm.end()

    def held(self, arm: Arm, thing: int, start: float, end: float, shared: bool = False) -> None:
        """A thing is held from `start` to `end`; fingers begin to open just before."""
        if arm.fingers.size:
            arm.grip(end - grasps.OPENS, end - grasps.OPENS + float(self.rng.uniform(0.15, 0.3)), 1.0)
        self.grips.append(Grip(arm.side, thing, start, end, shared))

    def leave(self, arm: Arm, released: float) -> None:
        """Goes up and home after letting go, and looks again once things rest."""
        if arm.fingers.size:  # fingers open first
            arm.hold(max(released + 0.22 - arm.end(), 0.0))
        x, y, z, turned = arm.pose
        arm.move([x, y, min(z + 0.1, 0.42), turned], 0.6)
        if self.rng.uniform() < 0.6:
            arm.move(random_home(arm.spec, self.rng), self.rng.uniform(0.4, 0.9))
        self.blind[arm.side] = released + SETTLE

    def sweep(self, arm: Arm, target: np.ndarray) -> None:
        """Wipes over the table through a thing."""
        rng = self.rng
        angle = rng.uniform(-np.pi, np.pi)
        along = np.array([np.cos(angle), np.sin(angle)])
        start = self.keep(arm, target[:2] - along * rng.uniform(0.1, 0.18))
        stop = self.keep(arm, target[:2] + along * rng.uniform(0.1, 0.22))
        turned = np.arctan2(*(stop - start)[::-1]) + np.pi / 2 + rng.uniform(-0.4, 0.4)
        low = rng.uniform(0.02, 0.045)
        arm.move([*start, 0.24, turned], rng.uniform(0.7, 1.1))
        arm.move([*start, low, turned], 0.7)
        arm.move([*stop, low, turned], rng.uniform(0.3, 1.0), bool(rng.uniform() < 0.7))
        arm.move([*stop, 0.26, turned], 0.8)
        arm.hold(rng.uniform(0, 0.3))

    def align(self) -> None:
        """Lets the arm that is done first wait for the other."""
        late = max(arm.end() for arm in self.arms)
        for arm in self.arms:
            arm.hold(late - arm.end())

    def together(self, poses: list, speed: float, steady: bool = False, exact: bool = False) -> None:
        """Both arms go to their poses in the same time, that of the longer way."""
        seconds = max(
            arm.seconds(arm.aim(pose, exact), speed, steady)
            for arm, pose in zip(self.arms, poses)
        )
        for arm, pose in zip(self.arms, poses):
            arm.move(pose, speed, steady, seconds=seconds, exact=exact)
