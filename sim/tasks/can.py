"""Picking up a can, carrying it, and placing or dropping it."""

import numpy as np

from sim import things
from sim.scene import Thing
from sim.tasks.base import TOUCH, Seen, Task, within_reach


class Can(Task):
    """Cans stand about; an arm, or each on its side, carries one after another."""

    name, number, lively_frames = "can", 3, 12

    def things(self) -> list[Thing]:
        """Cans first, then bystanders."""
        rng = self.rng
        count = self.variety.count(self.name, rng)
        self.cans = int(rng.integers(1, min(count, 3) + 1))
        uses = ["upright"] * self.cans + ["compact"] * (count - self.cans)
        return things.arrange([self.variety.thing(use, rng) for use in uses], rng, in_air=0.0)

    def wanted(self, thing: int) -> bool:
        """Whether it is one to carry."""
        return thing < self.cans

    def act(self, arm, now: float, seen: Seen) -> None:
        """Carries a can that stands on the arm's side; only one arm may go beyond the middle."""
        margin = 0.05 if len(self.working) == 2 else -0.15
        mine = [i for i in self.mine(arm, seen, margin) if self.wanted(i) and seen.still(i)]
        if not mine or not self.carry(arm, seen, int(self.rng.choice(mine))):
            arm.hold(self.rng.uniform(0.2, 0.5))

    def goal(self, arm, start: np.ndarray) -> np.ndarray | None:
        """A place at least 8 cm from the start, in reach."""
        for _ in range(30):
            to = self.keep(arm, self.rng.uniform((-0.24, -0.3), (0.2, 0.3)))
            if np.linalg.norm(to - start[:2]) > 0.08 and within_reach(arm, to):
                return to
        return None

    def carry(self, arm, seen: Seen, thing: int) -> bool:
        """Picks a can up and places it, drops it, or lets it fall while the hand moves."""
        rng = self.rng
        top = seen.top(thing)
        goal = self.goal(arm, top)
        if goal is None:
            return False
        start = self.grasp(arm, thing, top, rng.uniform(-1.5, 1.5))
        down = arm.pose[2] if arm.fingers.size else top[2] + TOUCH
        lift = rng.uniform(0.06, 0.22)
        turned = arm.pose[3]
        arm.move(arm.pose + (0, 0, lift, 0), rng.uniform(0.3, 0.9), exact=True)
        turned += rng.uniform(-0.7, 0.7)
        steady = bool(rng.uniform() < 0.4)
        lifted = arm.end()
        arm.move([*goal, arm.pose[2], turned], rng.uniform(0.3, 1.0), steady, exact=True)
        draw, end = rng.uniform(), arm.end()
        if draw < 0.4:  # place it
            arm.move([*goal, down + 0.003, turned], rng.uniform(0.25, 0.6), exact=True)
            arm.hold(rng.uniform(0.05, 0.3))
            end = arm.end()
        elif draw < 0.85:  # drop it
            arm.hold(rng.uniform(0.05, 0.4))
            end = arm.end()
        else:
            end = float(rng.uniform(0.5 * (lifted + end), end))
        self.held(arm, thing, start, end)
        arm.hold(0.1)
        self.leave(arm, end)
        return True
