"""Pushing by contact, by one arm, by turns, or by both at once."""

import numpy as np

from sim import things
from sim.robot import TWO_ARMS
from sim.scene import Thing
from sim.tasks.base import Seen, Task
from sim.tasks.plain import Pushing


class Push(Pushing, Task):
    """The arms push blocks in random directions, each at its own or by turns at any."""

    name, number, lively_frames = "push", 0, 12

    def __init__(self, rng: np.random.Generator, variety, rig=TWO_ARMS):
        super().__init__(rng, variety, rig)
        self.at_once = len(self.working) == 2 and rng.uniform() < 0.4
        self.free_at = 0.0  # end of the motion of the arm whose turn was last

    def things(self) -> list[Thing]:
        """Blocks that stand or lie about."""
        rng = self.rng
        count = self.variety.count(self.name, rng)
        chosen = [self.variety.thing("compact", rng) for _ in range(count)]
        return things.arrange(chosen, rng, in_air=0.0)

    def act(self, arm, now: float, seen: Seen) -> None:
        """The next push of this arm, or a wait for the other."""
        if not self.at_once and arm.end() < self.free_at:
            arm.hold(self.rng.uniform(0.1, 0.3))
            return
        margin = 0.05 if self.at_once else -1.0
        mine = self.mine(arm, seen, margin)
        for _ in range(60 if mine else 0):
            target = int(self.rng.choice(mine))
            if self.push(arm, seen.positions[target], seen.shapes[target]):
                self.free_at = arm.end() - 0.4
                return
        arm.hold(0.2)

    def allowed(self, arm, start: np.ndarray, stop: np.ndarray) -> bool:
        """Whether a push keeps to the arm's side, where both work at once."""
        return not self.at_once or min(arm.sign * start[1], arm.sign * stop[1]) > 0.07

    @staticmethod
    def width(shape: Thing) -> float:
        """Radius of the block seen from above."""
        return shape.bounding_radius()
