"""Things that go on steadily, led by nothing that a robot is told of, of the split `materials`."""

import mujoco
import numpy as np

from sim import movers, shapes, things
from sim.robot import TWO_ARMS
from sim.scene import TIMESTEP, TRAY, Thing
from sim.shapes import Part
from sim.tasks.base import Seen, Task

KINDS = ("slide", "push", "carry", "turn", "stop")
SPEED = (0.06, 0.35)  # m/s
SPIN = (0.3, 1.2)  # rad/s
WAIT = (0.3, 1.0)  # s until it begins
INSIDE = 0.05  # m that the middle of what is led keeps from the rim
TOP = 0.0005  # m between the table and what lies on it


class Steady(Task):
    """Something goes straight on or turns at one speed, for as long as there is room, then rests; arms stand by.

    `slide`: a thing on the table, `push`: a hand behind a thing, `carry`: a hand with a thing in the air, `turn`: a
    turntable with things on it, `stop`: as `slide` or `push`, with a rest of half a second on its way. What is led
    goes its way whatever it meets. Another thing lies there, and one stands in the air.
    """

    name, number, lively_frames = "steady", 11, 10

    def __init__(self, rng: np.random.Generator, variety, rig=TWO_ARMS):
        super().__init__(rng, variety, rig)
        self.working = ()
        self.kind = str(rng.choice(KINDS))
        self.speed = float(np.exp(rng.uniform(*np.log(SPEED))))
        self.begin = float(rng.uniform(*WAIT))
        self.led: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # first place and quaternion, by number

    def things(self) -> list[Thing]:
        """What is led first, then what it moves, then what rests."""
        made = self.turntable() if self.kind == "turn" else self.goers()
        lying, floats = self.variety.thing("compact", self.rng), self.variety.thing("compact", self.rng, 0.6)
        self.aside(lying)
        self.aside(floats)
        floats.fixed, floats.grips = True, ()
        floats.position[2] += float(self.rng.uniform(0.1, 0.25))
        return [*made, lying, floats]

    def aside(self, thing: Thing) -> None:
        """Puts a thing where nothing comes that goes or turns, nor the forearm behind it."""
        rng, low, high = self.rng, np.array((-0.24, -0.3)), np.array((0.3, 0.3))
        for _ in range(300):
            place = rng.uniform(low, high)
            along = float(np.clip((place - self.first) @ self.way, -0.55, self.room))
            if np.linalg.norm(place - self.first - along * self.way) > thing.bounding_radius() + self.wide + 0.02:
                break
        things.lie(thing, place, float(rng.uniform(-np.pi, np.pi)))

    def goers(self) -> list[Thing]:
        """A thing that goes along a line, and the hand behind it where one pushes or carries."""
        rng = self.rng
        self.line()
        thing = self.variety.thing("compact", rng)
        self.wide = thing.bounding_radius()
        things.lie(thing, self.first, float(rng.uniform(-np.pi, np.pi)))
        pushed = self.kind == "push" or (self.kind == "stop" and rng.uniform() < 0.5)
        if not pushed and self.kind != "carry":
            self.lead([thing], [thing])
            return [thing]
        hand = self.hand()
        heading = float(np.arctan2(self.way[1], self.way[0]))
        if self.kind == "carry":
            thing.position[2] += float(rng.uniform(0.06, 0.16))
            # The fingers point down beside it, the forearm comes from outside.
            back = thing.bounding_radius() + 0.06
        else:
            back = thing.bounding_radius() + 0.125
        hand.position = np.array([*(self.first - back * self.way), max(0.05, float(thing.position[2]))])
        hand.quaternion = turned(heading)
        made = [hand, thing]
        self.lead([hand, thing] if self.kind == "carry" else [hand], made)
        return made

    def line(self) -> None:
        """Draws where it begins, the direction, and how far there is room."""
        rng = self.rng
        low, high = np.array(TRAY[::2]) + 0.16 + INSIDE, np.array(TRAY[1::2]) - INSIDE - 0.1
        low[0], high[0] = max(low[0], -0.2), min(high[0], 0.3)
        for _ in range(100):
            self.first = rng.uniform(low, high)
            angle = float(rng.uniform(-np.pi, np.pi))
            self.way = np.array((np.cos(angle), np.sin(angle)))
            with np.errstate(divide="ignore"):
                room = np.where(self.way > 0, high - self.first, low - self.first) / self.way
            self.room = float(room.min())
            if self.room > 0.25:
                return

    def turntable(self) -> list[Thing]:
        """A disc that turns, with things on it."""
        rng = self.rng
        radius, thick = float(rng.uniform(0.13, 0.2)), 0.01
        self.spin = float(rng.uniform(*SPIN) * rng.choice((-1, 1)))
        disc = self.variety.thing("compact", rng)
        disc.kind, disc.parts, disc.grips = "disc", (Part("cylinder", (radius, thick)),), ()
        disc.density, disc.friction, disc.bounce = 1000.0, 0.8, 0.0
        middle = np.array((float(rng.uniform(-0.05, 0.1)), float(rng.uniform(-0.15, 0.15))))
        self.first, self.way, self.room, self.wide = middle, np.zeros(2), 0.0, radius + 0.05
        disc.position, disc.quaternion = np.array([*middle, thick + TOP]), turned(0.0)
        made, start = [disc], float(rng.uniform(-np.pi, np.pi))
        for k in range(int(rng.integers(1, 3))):
            thing = self.variety.thing("compact", rng, 0.5)
            thing.bounce, thing.friction = 0.0, 0.8
            off = 0.55 * radius * np.array((np.cos(start + np.pi * k), np.sin(start + np.pi * k)))
            things.lie(thing, middle + off, float(rng.uniform(-np.pi, np.pi)))
            thing.position[2] += 2 * thick + TOP
            made.append(thing)
        self.lead([disc], made)
        return made

    def hand(self) -> Thing:
        """A fist that points along x, and its forearm, which reaches out of the tray behind it."""
        rng = self.rng
        long, lean = float(rng.uniform(0.3, 0.5)), float(rng.uniform(0.15, 0.6))
        elbow = (-0.04 - long * np.cos(lean), 0.0, 0.02 + long * np.sin(lean))
        skin = movers.SKIN[int(rng.integers(len(movers.SKIN)))]
        fist = Part("ellipsoid", (0.055, 0.045, 0.04))
        parts = shapes.centred([fist, shapes.rod((-0.04, 0, 0.02), elbow, 0.035)])
        hand = Thing(
            kind="hand", size=(), density=1000.0, friction=0.6, bounce=0.0, colours=(skin, skin), position=np.zeros(3),
            quaternion=turned(0.0), velocity=np.zeros(6), parts=parts,
        )
        self.fist = np.array(parts[0].position)
        return hand

    def lead(self, led: list[Thing], made: list[Thing]) -> None:
        """Says which things are led."""
        for i, thing in enumerate(made):
            if any(thing is one for one in led):
                if thing.kind == "hand":  # its place so far is that of its fist
                    rotation = np.empty(9)
                    mujoco.mju_quat2Mat(rotation, thing.quaternion)
                    thing.position = thing.position - rotation.reshape(3, 3) @ self.fist
                self.led[i] = (thing.position.copy(), thing.quaternion.copy())

    def gone(self, now: float) -> float:
        """How far it has gone along its way (m), or turned (rad)."""
        secs = max(now - self.begin, 0.0)
        if self.kind == "turn":
            return self.spin * secs
        if self.kind == "stop":  # half way, half a second, and on
            half = 0.5 * self.room / self.speed
            secs = min(secs, half) + max(secs - half - 0.5, 0.0)
        return min(self.speed * secs, self.room)

    def drive(self, model: mujoco.MjModel, data: mujoco.MjData, now: float) -> None:
        """Puts what is led where it is before the step that ends at `now`, with the velocity that it has in it."""
        gone = self.gone(now - TIMESTEP)
        rate = (self.gone(now) - gone) / TIMESTEP
        for i, (place, quaternion) in self.led.items():
            body = model.body(f"object_{i}").id
            joint = model.body_jntadr[body]
            at, dof = model.jnt_qposadr[joint], model.jnt_dofadr[joint]
            data.qvel[dof : dof + 6] = 0.0
            if self.kind == "turn":
                data.qpos[at : at + 3], data.qpos[at + 3 : at + 7] = place, turned(gone)
                data.qvel[dof + 5] = rate
            else:
                data.qpos[at : at + 2], data.qpos[at + 2] = place[:2] + gone * self.way, place[2]
                data.qpos[at + 3 : at + 7] = quaternion
                data.qvel[dof : dof + 2] = rate * self.way

    def act(self, arm, now: float, seen: Seen) -> None:
        """Nothing: they stand by."""
        self.wait(arm)


def turned(angle: float) -> np.ndarray:
    """The quaternion of a turn about the vertical."""
    return np.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])
