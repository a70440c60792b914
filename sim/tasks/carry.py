"""Picking up anything, carrying it about, holding it still in the air, and letting go."""

import numpy as np

from sim import things
from sim.scene import Thing
from sim.tasks.base import Seen, Task, within_reach


class Carry(Task):
    """Things stand or lie about, some on each other; one after another is held up for a while."""

    name, number, lively_frames = "carry", 6, 10

    def things(self) -> list[Thing]:
        """Compact and upright things; at times one stands on another."""
        rng = self.rng
        uses = rng.choice(("compact", "upright"), self.variety.count(self.name, rng))
        chosen = things.arrange([self.variety.thing(str(use), rng) for use in uses], rng, in_air=0.0)
        if len(chosen) > 1 and chosen[0].kind == "box" and rng.uniform() < 0.6:
            base, upper = chosen[0], chosen[1]
            yaw = float(rng.uniform(-np.pi, np.pi))
            things.lie(upper, base.position[:2], yaw)
            upper.position[2] += 2 * base.position[2]
        return chosen

    def act(self, arm, now: float, seen: Seen) -> None:
        """Takes something on the arm's side, or waits."""
        margin = 0.05 if len(self.working) == 2 else -0.15
        mine = [i for i in self.mine(arm, seen, margin) if seen.still(i)]
        if not mine or not self.show(arm, seen, int(self.rng.choice(mine))):
            arm.hold(self.rng.uniform(0.2, 0.5))

    def show(self, arm, seen: Seen, thing: int) -> bool:
        """Lifts a thing, carries it by one to three places, holds it still, puts it down or drops it."""
        rng = self.rng
        start = self.grasp(arm, thing, seen.top(thing), float(rng.uniform(-1.5, 1.5)))
        first = arm.pose.copy()
        arm.move(arm.pose + (0, 0, rng.uniform(0.08, 0.24), 0), rng.uniform(0.3, 0.8), exact=True)
        to = first[:2]
        for _ in range(int(rng.integers(1, 4))):
            goal = self.keep(arm, rng.uniform((-0.24, -0.3), (0.2, 0.3)))
            if not within_reach(arm, goal):
                continue
            to, turned = goal, arm.pose[3] + rng.uniform(-0.7, 0.7)
            high = np.clip(arm.pose[2] + rng.uniform(-0.05, 0.08), first[2] + 0.06, 0.42)
            arm.move([*to, high, turned], rng.uniform(0.25, 0.9), bool(rng.uniform() < 0.3), exact=True)
            if rng.uniform() < 0.6:
                arm.hold(rng.uniform(0.3, 1.6))
        if rng.uniform() < 0.5:
            pose = [*to, first[2] + 0.003, arm.pose[3]]
            arm.move(pose, rng.uniform(0.2, 0.5), exact=True)
            arm.hold(rng.uniform(0.05, 0.3))
        end = arm.end()
        self.held(arm, thing, start, end)
        arm.hold(0.1)
        self.leave(arm, end)
        return True
