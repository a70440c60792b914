"""Nothing below: things hang or stay in the air, and a hand or tool pushes them, or carries one."""

import numpy as np

from sim.scene import Thing
from sim.stage import hang, unit
from sim.tasks.base import Seen, Task


class Bump(Task):
    """Movers go through what hangs, hold, and wait."""

    name, number, lively_frames = "bump", 7, 8

    def things(self) -> list[Thing]:
        """Hanging things, at times one that stays in the air, and one in a hand."""
        rng = self.rng
        done: list[Thing] = []
        self.loads = {}
        for spec in self.rig.arms:
            if rng.uniform() < 0.45:
                thing = self.variety.thing("compact", rng, 0.8)
                thing.held_by, thing.grips = spec.side, ((0, thing.parts[0].position),)
                self.loads[spec.side] = len(done)
                done.append(thing)
        for k in range(self.variety.count(self.name, rng)):
            thing = self.variety.thing("compact", rng)
            place = rng.uniform((-0.15, -0.25), (0.2, 0.25))
            if k and rng.uniform() < 0.3:
                thing.position = np.array([*place, rng.uniform(0.1, 0.45)])
                thing.quaternion, thing.fixed, thing.grips = unit(rng), True, ()
            else:
                hang(thing, place, float(rng.uniform(0.1, 0.35)), float(rng.uniform(0.3, 0.7)), rng)
            near = [
                np.linalg.norm(thing.position[:2] - o.position[:2])
                for o in done if o.held_by is None
            ]
            if min(near, default=1.0) > 0.26:
                done.append(thing)
        for side, thing in self.loads.items():
            from sim.tasks.base import Grip

            self.grips.append(Grip(side, thing, 0.0, 100.0))
        return done

    def start(self, spec) -> np.ndarray:
        """First pose of a mover: to the side."""
        return super().start(spec) + (-0.1, 0.0, 0.0, 0.0)

    def act(self, arm, now: float, seen: Seen) -> None:
        """Swings by something, or holds still."""
        rng = self.rng
        if arm.end() == 0 and arm.side in self.loads and arm.fingers.size:
            arm.events = [(0.0, 0.25)]
        loaded = set(self.loads.values())
        others = [i for i in range(len(seen.positions)) if i not in loaded]
        if not others or rng.uniform() < 0.25:
            arm.hold(rng.uniform(0.3, 1.2))
            return
        target = seen.positions[int(rng.choice(others))]
        angle = rng.uniform(-np.pi, np.pi)
        along = np.array([np.cos(angle), np.sin(angle), 0])
        drop = 0.1 if arm.side in self.loads else 0.0
        start = target - along * rng.uniform(0.15, 0.25) + (0, 0, drop)
        stop = target + along * rng.uniform(0.0, 0.2) + (0, 0, drop + rng.uniform(-0.05, 0.05))
        yaw = float(rng.uniform(-1.5, 1.5))
        arm.move([*start[:2], start[2] + 0.15, yaw], rng.uniform(0.5, 0.9))
        arm.move([*start, yaw], rng.uniform(0.4, 0.8))
        arm.move([*stop, yaw], rng.uniform(0.2, 0.8), bool(rng.uniform() < 0.5))
        if rng.uniform() < 0.4:
            arm.hold(rng.uniform(0.2, 1.0))
