"""The scenes of the closed loop and what is to be done in them. A seed gives the same, always."""

from dataclasses import replace

import mujoco
import numpy as np

from sim import arms, real_arms, scene, shapes, things
from sim.closed_loop.goals import Goal, surface
from sim.robot import TWO_ARMS
from sim.scene import Thing
from sim.shapes import Part
from sim.variety import SEEN, UNSEEN, Variety

TASKS = ("push", "gather", "can")
# As the model was trained with; two arms drawn at random; two real ones (split `robots`), which need their meshes.
ROBOTS = {
    "two_arms": lambda rng: TWO_ARMS, "drawn": lambda rng: arms.robot(rng, 2), "real": lambda rng: real_arms.robot(rng, 2),
}
DECISIONS = {"push": 5, "gather": 6, "can": 5}
# What doesn't roll away: a pose is asked for.
FLAT = {"seen": ("box", "angle", "tee", "mug"), "unseen": ("cross", "bracket", "ring", "prism")}
UPRIGHT = {"seen": "can", "unseen": "prism"}
SMALL = {"push": (0.65, 0.95), "gather": (0.5, 0.75)}
BOX = 0.3  # m, side of the region in which objects are gathered


class Scene:
    """Objects, cameras, the compiled model, and the goal once physics has settled."""

    def __init__(self, task: str, seed: int, variety: str = "seen", kappa: float = 0.0, robot: str = "two_arms"):
        self.task, self.seed, self.kappa, self.robot = task, seed, kappa, robot
        self.variety: Variety = {"seen": SEEN, "unseen": UNSEEN}[variety]
        # Of its own: seeds of recordings say their split, these say none.
        self.rng = rng = np.random.default_rng([7, TASKS.index(task), seed, variety == "unseen"])
        # The robot's draws are its own: the scene is that of the same seed with another robot.
        self.rig = ROBOTS[robot](np.random.default_rng([8, TASKS.index(task), seed]))
        self.things: list[Thing] = getattr(self, task)()
        self.cameras = [self.variety.camera(name, rng) for name in ("camera_left", "camera_right")]
        self.model = scene.build(self.things, self.cameras, self.variety.look(rng), rig=self.rig)

    def flat(self, small: tuple[float, float]) -> Thing:
        """An object that lies where it is put."""
        thing = replace(self.variety, compact=FLAT[self.variety.name]).thing("compact", self.rng)
        factor = self.rng.uniform(*small)
        thing.parts = shapes.scaled(thing.parts, factor)
        thing.density /= factor**3
        return thing

    def clear(self, thing: Thing, done: list[Thing], low, high, gap: float = 0.02) -> bool:
        """Lays a thing in a range of places, clear of others; False where there is no room."""
        for _ in range(200):
            things.lie(thing, self.rng.uniform(low, high), self.rng.uniform(-np.pi, np.pi))
            gaps = [
                np.linalg.norm((thing.position - o.position)[:2]) - radius(thing) - radius(o) for o in done
            ]
            if min(gaps, default=1.0) > gap:
                return True
        return False

    def push(self) -> list[Thing]:
        """One object to push to a pose, and one that stands by."""
        rng = self.rng
        while True:
            target, other = self.flat(SMALL["push"]), self.flat(SMALL["push"])
            self.clear(target, [], (-0.1, -0.1), (0.06, 0.1))
            angle, way = rng.uniform(-np.pi, np.pi), rng.uniform(0.08, 0.15)
            place = target.position[:2] + way * np.array([np.cos(angle), np.sin(angle)])
            self.aim = np.array([*place, rng.uniform(-0.2, 0.2)])
            ghost = replace(target, position=np.array([*place, 0.0]))
            if np.all(np.abs(place - (-0.02, 0)) < (0.13, 0.17)) and self.clear(
                other, [target, ghost], (-0.2, -0.24), (0.14, 0.24)
            ):
                return [target, other]

    def gather(self) -> list[Thing]:
        """Three objects about a region."""
        rng = self.rng
        while True:
            done: list[Thing] = []
            first = rng.uniform(-np.pi, np.pi)
            for k in range(3):
                thing = self.flat(SMALL["gather"])
                turn = first + 2 * np.pi / 3 * k + rng.uniform(-0.5, 0.5)
                place = np.array([-0.02, 0.0]) + rng.uniform(0.19, 0.24) * np.array([np.cos(turn), np.sin(turn)])
                if not self.clear(thing, done, place - 0.02, place + 0.02):
                    break
                done.append(thing)
            if len(done) == 3 and all(-0.23 < t.position[0] < 0.17 for t in done):
                return done

    def can(self) -> list[Thing]:
        """A can, and two or three others about the place where it is to stand."""
        rng = self.rng
        while True:
            cans = [self.upright() for _ in range(int(rng.integers(3, 5)))]
            place, toward = rng.uniform((-0.1, -0.1), (0.06, 0.1)), rng.uniform(-np.pi, np.pi)
            way = rng.uniform(0.14, 0.19)
            things.lie(cans[0], place - way * np.array([np.cos(toward), np.sin(toward)]), 0.0)
            turns = {2: (-0.9, 0.9), 3: (-1.4, 0.0, 1.4)}[len(cans) - 1]
            for can, turn in zip(cans[1:], turns):
                turn += toward + rng.uniform(-0.2, 0.2)
                away = radius(cans[0]) + radius(can) + rng.uniform(0.015, 0.03)
                things.lie(can, place + away * np.array([np.cos(turn), np.sin(turn)]), 0.0)
            self.aim = np.array([*place, 0.0])
            gaps = [
                np.linalg.norm((a.position - b.position)[:2]) - radius(a) - radius(b)
                for i, a in enumerate(cans) for b in cans[:i]
            ]
            if min(gaps) > 0.005 and all(np.all(np.abs(c.position[:2] - (-0.02, 0)) < (0.2, 0.24)) for c in cans):
                return cans

    def upright(self) -> Thing:
        """A slim can, or of unseen objects a slim column of six sides."""
        rng = self.rng
        kind = UPRIGHT[self.variety.name]
        thing = replace(self.variety, upright=(kind,)).thing("upright", rng)
        old = sum(part.volume() for part in thing.parts)
        slim, tall = rng.uniform(0.028, 0.038), rng.uniform(0.06, 0.085)
        if kind == "can":
            thing.parts = (Part("cylinder", (float(slim), float(tall))),)
        else:
            factor = slim / thing.parts[0].size[1]
            thing.parts = shapes.scaled(thing.parts, factor)
        thing.density *= old / sum(part.volume() for part in thing.parts)
        thing.grips = ((0, thing.parts[0].position),)
        return thing

    def goal(self, state) -> Goal:
        """What is to be done, where objects have come to rest in `state`."""
        points = [surface(thing.parts, self.rng) for thing in self.things]
        common = dict(task=self.task, points=points, first=state, kappa=self.kappa)
        if self.task == "gather":
            low = np.array([-0.02 - BOX / 2, -BOX / 2, -0.05])
            return Goal(**common, targets=(0, 1, 2), tolerance=0.004, box=(low, low + (BOX, BOX, 0.3)))
        place = np.array([*self.aim[:2], state[0][0][2]])
        if self.task == "push":
            c, s = np.cos(self.aim[2]), np.sin(self.aim[2])
            turn = np.array(((c, -s, 0), (s, c, 0), (0, 0, 1)))
            return Goal(
                **common, targets=(0,), tolerance=0.03, place=place, rotation=turn @ state[1][0],
                leave_weight=0.2,
            )
        there = points[0] @ state[1][0].T
        box = (place + there.min(axis=0) - 0.01, place + there.max(axis=0) + 0.01)
        return Goal(
            **common, targets=(0,), tolerance=0.01, box=box, leave_weight=1.0, spares_neighbours=True,
            middle=self.aim[:2],
        )


def radius(thing: Thing) -> float:
    """Of a circle about the object, seen from above, as it lies unturned; m."""
    return max(
        float(np.hypot(*part.position[:2])) + max(part.half_extent(np.array((1.0, 0, 0))), part.half_extent(np.array((0, 1.0, 0))))
        for part in thing.parts
    )


def state_of(data: mujoco.MjData, bodies: list[int]):
    """Places and rotations of these bodies."""
    return data.xpos[bodies].copy(), data.xmat[bodies].reshape(-1, 3, 3).copy()
