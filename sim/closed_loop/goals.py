"""What is to be reached, as both the score and every planner of this package measure it.

A state is (places n × 3 in m, rotations n × 3 × 3) of all objects, in the world.
"""

from dataclasses import dataclass, field

import numpy as np

State = tuple[np.ndarray, np.ndarray]
TOPPLED = np.radians(35)  # from how an object stood at first
SURFACE = 240  # points on an object


def surface(parts, rng: np.random.Generator) -> np.ndarray:
    """Points on a body of primitives, in its frame, spread by the parts' surfaces; SURFACE × 3, m."""
    areas = np.array([part_area(part.kind, part.size) for part in parts])
    owners = rng.choice(len(parts), SURFACE, p=areas / areas.sum())
    return np.array([on_part(parts[k], rng) for k in owners])


def half_sizes(kind: str, size) -> np.ndarray:
    """Half extents of a primitive along its own axes."""
    if kind in ("box", "ellipsoid"):
        return np.array(size, float)
    if kind == "sphere":
        return np.full(3, float(size[0]))
    return np.array([size[0], size[0], size[1] + (size[0] if kind == "capsule" else 0.0)])


def part_area(kind: str, size) -> float:
    """About how large a primitive's surface is: that of its box."""
    x, y, z = half_sizes(kind, size)
    return x * y + y * z + z * x


def on_part(part, rng: np.random.Generator) -> np.ndarray:
    """A point on a primitive; a round one's ends are drawn as a ball's."""
    from sim.rig import matrix

    half = half_sizes(part.kind, part.size)
    if part.kind == "box":
        point = rng.uniform(-1, 1, 3)
        face = rng.choice(3, p=(areas := np.prod(half) / half) / areas.sum())
        point[face] = np.sign(point[face])
    elif part.kind == "cylinder":
        turn = rng.uniform(-np.pi, np.pi)
        point = np.array([np.cos(turn), np.sin(turn), rng.uniform(-1, 1)])
    else:
        point = rng.normal(size=3)
        point /= np.linalg.norm(point)
    return matrix(part.quaternion) @ (half * point) + np.array(part.position)


@dataclass
class Goal:
    """Targets are to be at a pose (`place`, `yaw`: of the only one) or in a box; others stay.

    `points`: of every object, in its frame. `first`: the state in which the episode begins.
    """

    task: str
    targets: tuple[int, ...]
    points: list[np.ndarray]
    first: State
    tolerance: float
    place: np.ndarray | None = None
    rotation: np.ndarray | None = None
    box: tuple[np.ndarray, np.ndarray] | None = None
    leave_weight: float = 0.0
    kappa: float = 0.0
    spares_neighbours: bool = False  # a success only if nothing else toppled
    middle: np.ndarray = field(default_factory=lambda: np.zeros(2))  # where pushes aim, m

    def at(self, state: State, k: int) -> np.ndarray:
        """Points of object `k` in the world."""
        return self.points[k] @ state[1][k].T + state[0][k]

    def off(self, state: State, k: int) -> float:
        """Mean distance of a target's points to where they are to be, m."""
        now = self.at(state, k)
        if self.box is not None:
            low, high = self.box
            gaps = np.maximum(np.maximum(low - now, now - high), 0)
            return float(np.linalg.norm(gaps, axis=1).mean())
        there = self.points[k] @ self.rotation.T + self.place
        return float(np.linalg.norm(now - there, axis=1).mean())

    def reach(self, state: State) -> float:
        """The same over all targets."""
        return float(np.mean([self.off(state, k) for k in self.targets]))

    def leave(self, before: State, after: State) -> float:
        """Mean displacement of the tenth of the other objects' points that went farthest, m."""
        others = [k for k in range(len(self.points)) if k not in self.targets]
        if not others:
            return 0.0
        ways = np.concatenate([np.linalg.norm(self.at(after, k) - self.at(before, k), axis=1) for k in others])
        return float(np.sort(ways)[-max(len(ways) // 10, 1):].mean())

    def cost(self, before: State, after: State) -> float:
        """What a planner that knows the state after a plan makes as small as it can."""
        return self.reach(after) + self.leave_weight * self.leave(before, after)

    def toppled(self, state: State) -> int:
        """How many objects that are no targets lean by more than TOPPLED from how they stood."""
        ups = [float(self.first[1][k][2] @ state[1][k][2]) for k in range(len(self.points)) if k not in self.targets]
        # Row 2 of a rotation is the world's z in the body's frame.
        return int(np.sum(np.array(ups) < np.cos(TOPPLED)))

    def reached(self, state: State) -> bool:
        """Whether this is a success."""
        return self.reach(state) <= self.tolerance and not (self.spares_neighbours and self.toppled(state))

    def aim(self, state: State, k: int) -> np.ndarray:
        """Where a push straight at the goal brings the middle of target `k`, x and y."""
        if self.place is not None:
            return self.place[:2]
        if len(self.targets) == 1:
            return self.middle
        # Into the box by a little, not to its middle: others are to have room.
        low, high = self.box[0][:2] + 0.06, self.box[1][:2] - 0.06
        return np.clip(state[0][k][:2], np.minimum(low, high), np.maximum(low, high))
