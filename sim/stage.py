"""What a real-like scene stands on and among, and how large it is: drawn before the task.

Physics runs in the scene's own units, in which the things that are moved fill about a metre; `scale`
makes metres of them, and gravity is divided by it, so all moves as it would at that size.
"""

from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from sim import arms, movers, shapes, textures, things
from sim.imaging import Imaging
from sim.rig import Rig, text
from sim.scene import Camera, Thing, looking

GRAVITY = 9.81  # m/s2
ROOM = 0.8  # m from the table top to the floor, in units
BITS = 'contype="4" conaffinity="7"'


@dataclass
class Fixture:
    """A box or cylinder that never moves."""

    kind: str
    size: tuple[float, ...]
    position: tuple[float, ...]
    yaw: float
    rgb: tuple[float, ...]

    def mjcf(self) -> str:
        """Its geom, in the body `furniture`."""
        return (
            f'<geom type="{self.kind}" size="{text(self.size)}" pos="{text(self.position)}" '
            f'euler="0 0 {self.yaw}" rgba="{text(self.rgb)} 1" friction="0.5" {BITS}/>'
        )


@dataclass
class Stage:
    """The robot or the movers, the place in the world, what stands about, and the cameras.

    `support`: table, floor, or none (nothing below within reach). `heading`: where the cameras look
    from (rad about z). A place in units becomes `offset` + turned by `yaw` and scaled, in the world.
    """

    rig: Rig
    support: str
    heading: float
    scale: float = 1.0
    yaw: float = 0.0
    offset: np.ndarray = field(default_factory=lambda: np.zeros(3))
    rim: bool = False
    table: tuple[float, float, float, float] = (-0.1, 0.0, 0.66, 0.6)  # middle, half sizes
    fixtures: list[Fixture] = field(default_factory=list)
    extras: list[Thing] = field(default_factory=list)
    imaging: Imaging = Imaging()
    cameras: list[Camera] = field(default_factory=list)

    def gravity(self) -> float:
        """In units/s2."""
        return GRAVITY / self.scale

    def turn(self) -> np.ndarray:
        """Quaternion of the scene in the world."""
        return np.array([np.cos(self.yaw / 2), 0, 0, np.sin(self.yaw / 2)])

    def placed(self, places: np.ndarray, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Poses (n × 3 in units, n × 4) in the world, m."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        rotation = np.array(((c, -s, 0), (s, c, 0), (0, 0, 1)))
        out, own = np.empty_like(turns), self.turn()
        for k, each in enumerate(turns):
            mujoco.mju_mulQuat(out[k], own, each)
        return self.scale * places @ rotation.T + self.offset, out

    def ground(self, look) -> str:
        """Floor, table or neither, and the furniture."""
        below = {"table": -ROOM, "floor": -0.05, "none": -1.6}[self.support]
        out = (
            f'<geom name="floor" type="box" pos="0 0 {below}" size="6 6 0.05" '
            f'rgba="{text(look.floor)} 1" {"material=" + chr(34) + "table" + chr(34) if self.support == "floor" else ""} '
            f'friction="0.5" {BITS}/>'
        )
        if self.support == "table":
            x, y, a, b = self.table
            rim = rim_xml(x, y, a, b, look.rim) if self.rim else ""
            out += (
                f'<body name="table"><geom name="top" type="box" pos="{x} {y} -0.02" '
                f'size="{a} {b} 0.02" material="table" friction="0.5" {BITS}/>{rim}</body>'
            )
        if self.fixtures:
            out += f'<body name="furniture">{"".join(f.mjcf() for f in self.fixtures)}</body>'
        return out

    def about(self) -> dict:
        """What the truth says of it."""
        rig = {"robot" if self.rig.told else "mover": self.rig.about}
        return rig | {
            "support": self.support, "scale": self.scale, "imaging": self.imaging.about(),
        }


def rim_xml(x, y, a, b, rgb) -> str:
    """A low border about a table's edge."""
    w, h = 0.01, 0.02
    bars = [(x + s * (a - w), y, w, b) for s in (-1, 1)] + [(x, y + s * (b - w), a, w) for s in (-1, 1)]
    return "".join(
        f'<geom type="box" pos="{px} {py} {h}" size="{sx} {sy} {h}" rgba="{text(rgb)} 1" '
        f'friction="0.5" {BITS}/>'
        for px, py, sx, sy in bars
    )


def draw(task: str, split: str, arms_needed: int, rng: np.random.Generator) -> Stage:
    """The stage of an episode: a robot or movers, a place, the imaging."""
    robot = split == "robots" or (task != "bump" and rng.uniform() < 0.55)
    count = arms_needed or int(rng.choice((1, 2), p=(0.6, 0.4)))
    if split == "robots":
        from sim import real_arms

        rig = real_arms.robot(rng, count)
    else:
        rig = arms.robot(rng, count) if robot else movers.movers(rng, count)
    support = "table" if rng.uniform() < (0.8 if robot else 0.6) else "floor"
    heading = float(rng.uniform(-1.3, 1.3) if robot else rng.uniform(-np.pi, np.pi))
    if task == "bump":
        support = "none"
    stage = Stage(rig, support, heading, rim=bool(rng.uniform() < 0.4))
    if not rig.told:
        stage.scale = float(np.exp(rng.uniform(np.log(0.5), np.log(3.0))))
        rig.arms = tuple(replace(spec, pace=stage.scale**-0.5) for spec in rig.arms)
    if rig.root != "world" or not rig.told:
        stage.yaw = float(rng.uniform(-np.pi, np.pi))
        stage.offset = np.array([*rng.uniform(-2, 2, 2), rng.uniform(-0.8, 1.2)])
    half = rng.uniform((0.62, 0.55), (0.8, 0.75))
    stage.table = (float(rng.uniform(-0.12, 0.0)), 0.0, *(float(v) for v in half))
    stage.imaging = Imaging.drawn(rng)
    if rig.told:
        stage.fixtures += [mount(stage, spec, rng) for spec in rig.arms]
    return stage


def mount(stage: Stage, spec, rng: np.random.Generator) -> Fixture:
    """What an arm's base stands on or hangs from."""
    x, y, z = spec.base
    half, tone = float(rng.uniform(0.08, 0.11)), (float(rng.uniform(0.2, 0.8)),) * 3
    if spec.hangs:
        return Fixture("box", (half, half, 0.2), (x, y, z + 0.2), spec.yaw, tone)
    tx, ty, a, b = stage.table
    on_table = stage.support == "floor" or abs(x - tx) < a - 0.05 and abs(y - ty) < b - 0.05
    low = -0.005 if on_table else -ROOM
    return Fixture("box", (half, half, (z - low) / 2), (x, y, (z + low) / 2), spec.yaw, tone)


def furnish(stage: Stage, own: list[Thing], variety, rng: np.random.Generator, soft: bool) -> None:
    """Adds walls, clutter, shelves, towers, hanging and held things about the task's own."""
    spots = [(t.position[:2], t.bounding_radius()) for t in own]
    if rng.uniform() < 0.5:
        stage.fixtures += walls(stage, rng)
    if stage.support == "none":
        return
    make = Furnisher(stage, spots, variety, rng)
    if rng.uniform() < 0.5:
        make.clutter(int(rng.integers(1, 4)))
    if rng.uniform() < 0.3:
        make.shelf()
    if soft:
        return
    if rng.uniform() < 0.4:
        make.tower(int(rng.integers(2, 4)))
    if rng.uniform() < 0.3:
        make.held()
    if rng.uniform() < 0.25:
        make.hanging()


def walls(stage: Stage, rng: np.random.Generator) -> list[Fixture]:
    """One or two walls behind the scene, seen from the cameras."""
    out = []
    for _ in range(int(rng.integers(1, 3))):
        turn = stage.heading + np.pi + rng.uniform(-0.9, 0.9)
        away = rng.uniform(1.0, 1.8)
        place = (float(away * np.cos(turn)), float(away * np.sin(turn)), 0.2)
        tone = tuple(rng.uniform(0.3, 0.95) * rng.uniform(0.85, 1, 3))
        out.append(Fixture("box", (0.03, 2.5, 1.8), place, float(turn), tone))
        if stage.rig.told and abs(np.cos(turn)) * away < 1.15:  # not through the robot's base
            out.pop()
    return out


class Furnisher:
    """Puts things about, clear of each other and of what the task has put."""

    def __init__(self, stage: Stage, spots: list, variety, rng: np.random.Generator):
        self.stage, self.spots, self.variety, self.rng = stage, spots, variety, rng
        self.bases = [np.array(spec.base[:2]) for spec in stage.rig.arms]

    def spot(self, radius: float, inner: float = 0.3) -> np.ndarray | None:
        """A place at the rim of the scene with room for a radius; none where it is full."""
        x, y, a, b = self.stage.table
        for _ in range(60):
            place = self.rng.uniform((x - a, y - b), (x + a, y + b)) * 0.9
            far = np.hypot(place[0] + 0.05, place[1]) > inner + radius
            clear = all(np.linalg.norm(place - p) > radius + r + 0.01 for p, r in self.spots)
            open_ = all(np.linalg.norm(place - p) > 0.3 + radius for p in self.bases)
            between = place[0] > -0.2 or not self.stage.rig.told
            inside = abs(place[0] - x) < a - radius - 0.03 and abs(place[1] - y) < b - radius - 0.03
            if far and clear and open_ and between and inside:
                self.spots.append((place, radius))
                return place
        return None

    def thing(self, use: str = "compact", small: float = 0.75) -> Thing:
        """A random object, rather small."""
        return self.variety.thing(use, self.rng, small)

    def tone(self) -> tuple[float, ...]:
        """Some colour."""
        return tuple(textures.colours(self.rng)[0].tolist())

    def clutter(self, count: int) -> None:
        """Boxes and columns that never move."""
        for _ in range(count):
            half = self.rng.uniform((0.03, 0.03, 0.03), (0.1, 0.1, 0.2))
            place = self.spot(float(np.hypot(*half[:2])))
            if place is None:
                return
            kind = str(self.rng.choice(("box", "cylinder")))
            size = tuple(half) if kind == "box" else (float(half[0]), float(half[2]))
            off = np.arctan2(place[1], place[0]) - self.stage.heading
            if np.cos(off) > 0.6:  # not before the cameras' eyes
                half[2] = min(half[2], 0.05)
                size = (*size[:-1], float(half[2]))
            at = (float(place[0]), float(place[1]), float(half[2]))
            self.stage.fixtures.append(
                Fixture(kind, tuple(float(v) for v in size), at, float(self.rng.uniform(-3, 3)), self.tone())
            )

    def shelf(self) -> None:
        """Boards on two sides, with things on them."""
        rng = self.rng
        half = (float(rng.uniform(0.08, 0.11)), float(rng.uniform(0.14, 0.2)))
        place = self.spot(float(np.hypot(*half)), 0.24)
        if place is None:
            return
        levels = np.cumsum(rng.uniform(0.13, 0.2, int(rng.integers(1, 3))))
        tone, high = self.tone(), float(levels[-1])
        turn = float(np.round(np.arctan2(-place[1], -place[0]) / (np.pi / 2)) * np.pi / 2)
        c, s = np.cos(turn), np.sin(turn)
        for level in levels:
            at = (float(place[0]), float(place[1]), float(level))
            self.stage.fixtures.append(Fixture("box", (*half, 0.008), at, turn, tone))
            thing = self.thing(small=0.55)
            if thing.bounding_radius() < half[0] + 0.01:
                shift = rng.uniform(-0.3, 0.3) * half[1]
                things.lie(thing, place + (-s * shift, c * shift), float(rng.uniform(-3, 3)))
                thing.position[2] += level + 0.008
                self.stage.extras.append(thing)
        for side in (-1, 1):
            over = side * (half[1] + 0.008)
            at = (float(place[0] - s * over), float(place[1] + c * over), high / 2 + 0.008)
            self.stage.fixtures.append(Fixture("box", (half[0], 0.008, high / 2 + 0.008), at, turn, tone))

    def tower(self, count: int) -> None:
        """Flat things on each other."""
        place, top = self.spot(0.1, 0.22), 0.0
        if place is None:
            return
        for k in range(count):
            half = np.array([*self.rng.uniform(0.035, 0.065, 2), self.rng.uniform(0.015, 0.04)]) * 0.9**k
            thing = self.variety.thing("compact", self.rng, 0.75)
            thing.parts, thing.kind = shapes.centred([shapes.bar((0, 0, 0), half)]), "box"
            thing.density = float(self.rng.uniform(200, 700))
            shift = self.rng.uniform(-0.008, 0.008, 2)
            things.lie(thing, place + shift, float(self.rng.uniform(-3, 3)))
            thing.position[2] += top
            top += 2 * float(half[2]) + 0.0002
            self.stage.extras.append(thing)

    def held(self) -> None:
        """A thing that stays where it is in the air, as if held by what is out of sight."""
        thing = self.thing()
        place = self.spot(thing.bounding_radius(), 0.25)
        if place is not None:
            thing.position = np.array([*place, self.rng.uniform(0.25, 0.5)])
            thing.quaternion = unit(self.rng)
            thing.fixed = True
            self.stage.extras.append(thing)

    def hanging(self) -> None:
        """A thing on a string from a beam."""
        thing = self.thing()
        place = self.spot(thing.bounding_radius() + 0.05, 0.25)
        if place is not None:
            hang(thing, place, float(self.rng.uniform(0.25, 0.4)), float(self.rng.uniform(0.25, 0.5)), self.rng)
            self.stage.extras.append(thing)


def unit(rng: np.random.Generator) -> np.ndarray:
    """A random quaternion."""
    quaternion = rng.normal(size=4)
    return quaternion / np.linalg.norm(quaternion)


def hang(thing: Thing, xy, height: float, string: float, rng: np.random.Generator) -> None:
    """Hangs a thing by a string, m, from its middle."""
    thing.position = np.array([*xy, height])
    yaw = rng.uniform(-np.pi, np.pi)
    thing.quaternion = np.array([np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])
    thing.string = string
    thing.grips = ()


def cameras(stage: Stage, own: list[Thing], rng: np.random.Generator) -> list[Camera]:
    """One camera in a third of the episodes, else two or three, about what the task moves."""
    number = int(rng.choice((1, 2, 3), p=(1 / 3, 0.45, 1 - 1 / 3 - 0.45)))
    names = ("camera_left", "camera_right", "camera_front")
    names = {1: (str(rng.choice(names)),), 2: names[:2], 3: names}[number]
    high = number == 1 and rng.uniform() < 0.3
    turns = {"camera_left": 0.7, "camera_right": -0.7, "camera_front": 0.0}
    middle = np.array((-0.02, 0.0, 0.1))
    if stage.support == "none":
        middle = np.mean([t.position for t in own], axis=0)
    out = []
    for name in names:
        turn = stage.heading + turns[name] * rng.uniform(0.5, 1.4) + rng.uniform(-0.2, 0.2)
        if stage.rig.told:  # not from where the robot stands
            turn = float(np.clip(turn, -1.9, 1.9))
        slope = np.radians(rng.uniform(8, 60) if name != "camera_front" else rng.uniform(20, 75))
        target = middle + rng.uniform(-0.05, 0.05, 3)
        flat = np.array((np.cos(turn), np.sin(turn), 0)) * np.cos(slope)
        fovy = float(rng.uniform(38, 58))
        near = 0.52 / np.tan(np.radians(fovy / 2))
        place = target + near * rng.uniform(0.6, 1.3) * (flat + (0, 0, np.sin(slope)))
        rotation = looking(place, target)
        roll = np.radians(rng.uniform(-8, 8))
        spin = np.array(((np.cos(roll), -np.sin(roll), 0), (np.sin(roll), np.cos(roll), 0), (0, 0, 1)))
        view = Camera(name, place, rotation @ spin, fovy)
        if high:
            view = replace(view, width=640, height=480)
        out.append(view)
    return out
