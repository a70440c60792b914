"""Objects that fall, collide and roll; each arm sweeps, or lifts and throws, on its side."""

import numpy as np

from sim import grasps, things
from sim.rig import ArmSpec
from sim.scene import Thing
from sim.tasks.base import Grip, Seen, Task


class Tumble(Task):
    """Several objects in the air, on the table or held, and arms that stir them."""

    name, number, lively_frames = "tumble", 1, 18

    def things(self) -> list[Thing]:
        """Most fall; an arm may hold one at first."""
        rng = self.rng
        count = self.variety.count(self.name, rng)
        chosen = [self.variety.thing("compact", rng) for _ in range(count)]
        held = 0
        for side in self.working:
            if rng.uniform() < 0.3 and count > held + 1:
                chosen[held].held_by = side
                self.grips.append(Grip(side, held, 0.0, float(rng.uniform(0.3, 1.8))))
                held += 1
        things.arrange(chosen[held:], rng, rng.uniform(0.3, 0.95), (-0.26, 0.2), (-0.28, 0.28))
        return chosen

    def start(self, spec: ArmSpec) -> np.ndarray:
        """First pose of an arm: high and far back."""
        pose = super().start(spec)
        pose[2] += 0.14
        return pose

    def act(self, arm, now: float, seen: Seen) -> None:
        """Swings what it holds, sweeps, or throws."""
        rng = self.rng
        if arm.end() == 0 and arm.fingers.size:  # what it holds at first it lets go by its fingers
            for grip in self.grips:
                if grip.side == arm.side:
                    arm.events = [(0.0, grasps.PINCH), (grip.end - grasps.OPENS, grasps.PINCH), (grip.end + 0.15, 1.0)]
        if any(g.side == arm.side and g.end > arm.end() for g in self.grips):
            to = self.keep(arm, rng.uniform((-0.25, -0.3), (0.2, 0.3)))
            pose = [*to, rng.uniform(0.32, 0.42), arm.pose[3] + rng.uniform(-0.5, 0.5)]
            arm.move(pose, rng.uniform(0.5, 1.1), exact=True)
            return
        mine = self.mine(arm, seen)
        quiet = [i for i in mine if seen.still(i)]
        if quiet and rng.uniform() < 0.55:
            self.throw(arm, seen, int(rng.choice(quiet)))
        elif mine:
            self.sweep(arm, seen.positions[int(rng.choice(mine))])
        else:
            arm.hold(rng.uniform(0.1, 0.4))

    def throw(self, arm, seen: Seen, thing: int) -> None:
        """Grips an object from above, lifts it, and lets go while the hand moves."""
        rng = self.rng
        top = seen.top(thing)
        start = self.grasp(arm, thing, top, rng.uniform(-1.5, 1.5))
        up = arm.pose + (0, 0, rng.uniform(0.12, 0.24), 0)
        arm.move(up, rng.uniform(0.6, 1.0), exact=True)
        lifted = arm.end()
        to = self.keep(arm, rng.uniform((-0.25, -0.3), (0.2, 0.3)))
        turned = up[3] + rng.uniform(-0.6, 0.6)
        arm.move([*to, up[2] + rng.uniform(0, 0.05), turned], rng.uniform(0.6, 1.4), True, exact=True)
        end = float(rng.uniform(lifted, arm.end() + 0.1))
        self.held(arm, thing, start, end)
        arm.hold(rng.uniform(0.1, 0.4))
        self.blind[arm.side] = end + 0.4
