"""The first two tasks, as the committed samples show them: their draws stay as they are."""

import numpy as np

from sim import things
from sim.arm import Arm
from sim.scene import Thing
from sim.rig import ArmSpec
from sim.robot import TWO_ARMS
from sim.tasks.base import Grip, Seen, random_home, within_reach


class Pushing:
    """The motion of a push."""

    rng: np.random.Generator

    @staticmethod
    def width(shape: Thing) -> float:
        """Radius of the block seen from above."""
        return np.hypot(*shape.size[:2]) if shape.kind == "box" else shape.size[0]

    def allowed(self, arm: Arm, start: np.ndarray, stop: np.ndarray) -> bool:
        """Whether the arm may push from one place to the other."""
        return True

    def push(self, arm: Arm, block: np.ndarray, shape: Thing) -> bool:
        """One push in a random direction; False where the arm can't."""
        rng = self.rng
        angle = rng.uniform(-np.pi, np.pi)
        along = np.array([np.cos(angle), np.sin(angle)])
        across = np.array([-along[1], along[0]])
        radius = self.width(shape)
        line = block[:2] + across * rng.uniform(-0.35, 0.35) * radius
        start = line - along * (radius + rng.uniform(0.03, 0.06))
        stop = line + along * rng.uniform(0.1, 0.26)
        if np.any(np.abs(stop - (-0.03, 0)) > (0.24, 0.27)) or not within_reach(arm, start, stop):
            return False
        if not self.allowed(arm, start, stop):
            return False
        turned = angle + np.pi / 2 + rng.uniform(-0.25, 0.25)
        low = rng.uniform(0.015, 0.03)
        arm.move([*start, 0.2, turned], rng.uniform(0.8, 1.1))
        arm.move([*start, low, turned], 0.9)
        arm.hold(rng.uniform(0, 0.15))
        turned += rng.uniform(-0.3, 0.3)
        arm.move([*stop, low, turned], rng.uniform(0.25, 0.65), bool(rng.uniform() < 0.5))
        arm.hold(rng.uniform(0, 0.2))
        arm.move([*(stop - 0.04 * along), 0.2, turned], 0.7)
        arm.move(random_home(arm.spec, rng), 0.8)
        return True


class Push(Pushing):
    """The arms push a block by turns, in random directions."""

    name, number = "push", 0
    lively_frames = 9
    soft = None
    rig, stage, belt, drive = TWO_ARMS, None, None, None

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.turn = str(rng.choice(["left", "right"]))
        self.free_at = 0.0  # end of the motion of the arm whose turn was last
        self.grips: list[Grip] = []

    def things(self) -> list[Thing]:
        """The block, and at times a bystander."""
        block = things.random_thing(self.rng, ("box", "box", "box", "cylinder"))
        both = [block]
        if self.rng.uniform() < 0.35:
            both.append(things.random_thing(self.rng, ("box", "cylinder")))
        places = things.scatter(both, (-0.16, 0.14), (-0.14, 0.14), self.rng)
        for thing, place in zip(both, places):
            things.stand(thing, place, self.rng.uniform(-np.pi, np.pi))
        return both

    def start(self, spec: ArmSpec) -> np.ndarray:
        """First pose of an arm."""
        return random_home(spec, self.rng)

    def extend(self, arm: Arm, now: float, seen: Seen) -> None:
        """Adds to the command of `arm`, from what is seen now."""
        if arm.side != self.turn or arm.end() < self.free_at:
            arm.hold(self.rng.uniform(0.1, 0.3))
            return
        for _ in range(60):
            if self.push(arm, seen.positions[0], seen.shapes[0]):
                break
        else:
            arm.hold(0.2)
        self.free_at = arm.end() - 0.4
        if self.rng.uniform() < 0.7:
            self.turn = "left" if self.turn == "right" else "right"


class Tumble:
    """Several objects fall, collide and roll; each arm sweeps, or lifts and throws, on its side."""

    name, number = "tumble", 1
    lively_frames = 16
    soft = None
    rig, stage, belt, drive = TWO_ARMS, None, None, None

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.grips: list[Grip] = []

    def things(self) -> list[Thing]:
        """Three to six objects: in the air, upright, or held."""
        rng = self.rng
        count = int(rng.integers(3, 7))
        chosen = [things.random_thing(rng) for _ in range(count)]
        for thing, place in zip(chosen, things.scatter(chosen, (-0.26, 0.2), (-0.28, 0.28), rng)):
            if rng.uniform() < 0.75:
                things.drop(thing, place, rng)
            else:
                things.stand(thing, place, rng.uniform(-np.pi, np.pi))
        for i, side in enumerate(("left", "right")):
            if rng.uniform() < 0.4:
                chosen[i].held_by = side
                self.grips.append(Grip(side, i, 0.0, float(rng.uniform(0.3, 1.6))))
        return chosen

    def start(self, spec: ArmSpec) -> np.ndarray:
        """First pose of an arm: high and far back."""
        pose = random_home(spec, self.rng)
        pose[2] += 0.12
        return pose

    def extend(self, arm: Arm, now: float, seen: Seen) -> None:
        """Adds to the command of `arm`, from what is seen now."""
        rng, positions, shapes = self.rng, seen.positions, seen.shapes
        held = [g for g in self.grips if g.side == arm.side and g.end > arm.end()]
        mine = [
            i
            for i, p in enumerate(positions)
            if within_reach(arm, p) and p[1] * arm.base[1] > -0.02 and not any(
                g.thing == i and g.end > arm.end() for g in self.grips
            )
        ]
        draw = rng.uniform()
        if held:
            self.swing(arm)
        elif not mine or draw < 0.12:
            arm.hold(rng.uniform(0.1, 0.5))
        elif draw < 0.5:
            self.sweep(arm, positions[int(rng.choice(mine))])
        else:
            thing = int(rng.choice(mine))
            self.throw(arm, thing, positions[thing], shapes[thing])

    def keep(self, arm: Arm, point: np.ndarray) -> np.ndarray:
        """The point, moved into the arm's own part of the tray."""
        sign = np.sign(arm.base[1])
        y = sign * np.clip(sign * point[1], 0.075, 0.34)
        clipped = np.array([np.clip(point[0], -0.3, 0.24), y])
        outward = clipped - arm.base[:2]
        reach = np.linalg.norm(outward)
        return arm.base[:2] + outward * np.clip(reach, *arm.spec.reach) / reach

    def swing(self, arm: Arm) -> None:
        """Carries what it holds to a random place in the air."""
        rng = self.rng
        to = self.keep(arm, rng.uniform((-0.25, -0.3), (0.2, 0.3)))
        arm.move([*to, rng.uniform(0.32, 0.45), rng.uniform(-1.5, 1.5)], rng.uniform(0.6, 1.2))

    def sweep(self, arm: Arm, target: np.ndarray) -> None:
        """Wipes over the table through an object."""
        rng = self.rng
        angle = rng.uniform(-np.pi, np.pi)
        along = np.array([np.cos(angle), np.sin(angle)])
        start = self.keep(arm, target[:2] - along * rng.uniform(0.1, 0.18))
        stop = self.keep(arm, target[:2] + along * rng.uniform(0.1, 0.22))
        turned = np.arctan2(*(stop - start)[::-1]) + np.pi / 2 + rng.uniform(-0.4, 0.4)
        low = rng.uniform(0.025, 0.05)
        arm.move([*start, 0.24, turned], 1.1)
        arm.move([*start, low, turned], 0.8)
        arm.move([*stop, low, turned], rng.uniform(0.5, 1.2), True)
        arm.move([*stop, 0.26, turned], 0.9)
        arm.hold(rng.uniform(0, 0.3))

    def throw(self, arm: Arm, thing: int, target: np.ndarray, shape: Thing) -> None:
        """Grips an object from above, lifts it, and lets go while the hand moves."""
        rng = self.rng
        over = np.array([target[0], target[1], target[2] + shape.half_height() + 0.012])
        turned = rng.uniform(-1.5, 1.5)
        arm.move([*over[:2], over[2] + 0.12, turned], 1.0)
        arm.move([*over, turned], 0.6)
        arm.hold(0.1)
        start = arm.end()
        up = over + (0, 0, rng.uniform(0.14, 0.24))
        arm.move([*up, turned], 0.9)
        lifted = arm.end()
        to = self.keep(arm, rng.uniform((-0.25, -0.3), (0.2, 0.3)))
        arm.move([*to, up[2] + rng.uniform(0, 0.05), turned + 0.5], rng.uniform(0.8, 1.5), True)
        self.grips.append(Grip(arm.side, thing, start, float(rng.uniform(lifted, arm.end() + 0.1))))
        arm.hold(rng.uniform(0.1, 0.4))
