"""A conveyor belt, of the split `materials`: it carries what lies on it and what falls on it."""

import numpy as np

from sim import things
from sim.scene import Thing
from sim.tasks.base import Seen, Task

SPEED = (0.06, 0.15)  # m/s
SIDE = (-0.4, 0.38)  # m; where things are along the belt, from the first to the last moment
SECS = 5.0


class Belt(Task):
    """The table's top runs to one side all the time; the arms stand by.

    Only the surface runs: nothing seen of an even belt tells that it does but what lies on it, and the
    truth calls it static.
    """

    name, number, lively_frames = "belt", 9, 30

    def things(self) -> list[Thing]:
        """Some lie there, some fall."""
        rng = self.rng
        speed, sign = float(rng.uniform(*SPEED)), float(rng.choice((-1, 1)))
        self.belt = (0.0, sign * speed)
        self.working = ()
        low, high = SIDE[0], SIDE[1] - speed * SECS
        along = (low, high) if sign > 0 else (-high, -low)
        chosen = [self.variety.thing("compact", rng) for _ in range(int(rng.integers(2, 5)))]
        return things.arrange(chosen, rng, rng.uniform(0.0, 0.5), (-0.22, 0.2), along)

    def act(self, arm, now: float, seen: Seen) -> None:
        """Nothing: they stand by."""
        self.wait(arm)
