"""Rope and cloth, of the split `materials`: swept, dragged, picked up and dropped."""

import numpy as np

from sim import soft, textures, things
from sim.rig import ArmSpec
from sim.scene import Thing
from sim.tasks.base import Seen
from sim.tasks.lift import Lift


class Softly(Lift):
    """What the arms do with a thing that bends; `handles` of it come last in what is seen."""

    lively_frames, arms_needed = 8, 2

    def things(self) -> list[Thing]:
        """At times an object that the soft thing falls or is dragged over."""
        rng = self.rng
        self.soft = self.draw()
        self.blind = dict.fromkeys(self.blind, 0.3)  # s; it falls first
        self.rigid = int(rng.choice((0, 1, 2), p=(0.5, 0.3, 0.2)))
        chosen = [self.variety.thing("compact", rng) for _ in range(self.rigid)]
        things.arrange(chosen, rng, 0.0)
        if chosen:  # fall from above them
            tops = [2 * thing.position[2] for thing in chosen]
            self.soft.position[2] = max(tops) + rng.uniform(0.03, 0.08)
        return chosen

    def draw(self) -> soft.Soft:
        """The rope or the cloth."""
        raise NotImplementedError

    def start(self, spec: ArmSpec) -> np.ndarray:
        """First pose of an arm: clear of what falls."""
        pose = super().start(spec)
        return pose + (-0.05, 0.05 * np.sign(pose[1]), 0.12, 0)

    def act(self, arm, now: float, seen: Seen) -> None:
        """Both arms lift, or this one picks or sweeps."""
        rng = self.rng
        if max(a.end() for a in self.arms) - arm.end() < 0.3 and rng.uniform() < 0.35:
            self.align()
            if now >= max(self.blind.values()) and self.lift_handles(seen):
                return
        mine = [i for i in self.mine(arm, seen, 0.04) if i >= self.rigid]
        quiet = [i for i in mine if seen.still(i)]
        if quiet and rng.uniform() < 0.7:
            self.drag(arm, seen, int(rng.choice(quiet)))
        elif mine:
            self.sweep(arm, seen.positions[int(rng.choice(mine))])
            self.blind[arm.side] = arm.end()
        else:
            arm.hold(rng.uniform(0.2, 0.5))

    def lift_handles(self, seen: Seen) -> bool:
        """Both arms lift a handle each; False where they can't."""
        handles = [i for i in range(self.rigid, len(seen.shapes)) if seen.still(i)]
        for _ in range(10 if len(handles) > 1 else 0):
            pair = [int(i) for i in self.rng.choice(handles, 2, replace=False)]
            pair.sort(key=lambda i: -seen.positions[i][1])
            if self.lift(pair, [seen.top(i) for i in pair]):
                return True
        return False

    def drag(self, arm, seen: Seen, handle: int) -> None:
        """Picks up at a handle, carries it over the arm's side, high or low, and lets go."""
        rng = self.rng
        top = seen.top(handle)
        start = self.grasp(arm, handle, top, rng.uniform(-1.5, 1.5))
        height = rng.uniform(0.04, 0.26)
        arm.move(arm.pose + (0, 0, height, 0), rng.uniform(0.3, 0.8), exact=True)
        for _ in range(int(rng.integers(1, 3))):
            to = self.keep(arm, rng.uniform((-0.26, -0.3), (0.16, 0.3)))
            turned = arm.pose[3] + rng.uniform(-0.6, 0.6)
            arm.move([*to, arm.pose[2], turned], rng.uniform(0.3, 0.9), exact=True)
        arm.hold(rng.uniform(0, 0.3))
        self.held(arm, handle, start, arm.end())
        arm.hold(0.1)
        self.leave(arm, arm.end() - 0.1)


class Rope(Softly):
    """A rope."""

    name, number = "rope", 4

    def draw(self) -> soft.Soft:
        """A rope at random."""
        return soft.random_rope(self.rng, textures.colours(self.rng))


class Cloth(Softly):
    """A cloth."""

    name, number = "cloth", 5

    def draw(self) -> soft.Soft:
        """A cloth at random."""
        return soft.random_cloth(self.rng, textures.colours(self.rng))
