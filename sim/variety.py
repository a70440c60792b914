"""Distributions of scenes: what objects, looks and cameras are drawn from.

`PLAIN` is the first scene, kept for the committed samples. `SEEN` is what train, val and test
share; of `UNSEEN`, no range of shapes, masses, friction, counts or camera poses meets SEEN's.
"""

from dataclasses import dataclass, replace

import numpy as np

from sim import scene, shapes, textures
from sim.scene import Camera, Thing

CAMERAS = (*scene.CAMERAS, "camera_front")
SIDE = {"camera_left": 1, "camera_right": -1}
Range = tuple[float, float]


@dataclass(frozen=True)
class Variety:
    """Ranges to draw from, ends included. `compact`, `long`, `upright`: shapes by use."""

    name: str
    compact: tuple[str, ...]
    long: tuple[str, ...]
    upright: tuple[str, ...]
    mass_kg: Range
    friction: Range
    counts: dict[str, tuple[int, int]]  # objects, by task
    azimuth_deg: Range  # of the side cameras, off the x axis
    elevation_deg: Range
    front_elevation_deg: Range
    distance_m: Range
    fovy_deg: Range
    compact_m: Range = (0.06, 0.11)  # half lengths
    long_m: Range = (0.14, 0.19)
    upright_m: Range = (0.06, 0.1)
    smaller: dict[str, Range] | None = None  # factor on all lengths, by use
    flickers: bool = True  # a second grip lets go and takes again every 20 ms, as at first

    def thing(self, use: str, rng: np.random.Generator, small: float = 1.0) -> Thing:
        """An object at the origin, at rest; `use`: compact, long or upright."""
        kind = str(rng.choice(getattr(self, use)))
        parts = shapes.build(kind, rng.uniform(*getattr(self, f"{use}_m")), rng)
        if self.smaller:
            parts = shapes.scaled(parts, small * rng.uniform(*self.smaller[use]))
        volume = sum(part.volume() for part in parts)
        light, dark = textures.colours(rng)
        low, high = np.log(self.mass_kg)
        return Thing(
            kind=kind,
            size=(),
            density=float(np.exp(rng.uniform(low, high)) / volume),
            friction=float(rng.uniform(*self.friction)),
            bounce=float(rng.uniform(0, 0.9)),
            colours=(light, dark),
            position=np.zeros(3),
            quaternion=np.array([1.0, 0, 0, 0]),
            velocity=np.zeros(6),
            parts=parts,
            texture=textures.texture(rng, light, dark),
            grips=shapes.ends(kind, parts) if use == "long" else ((0, parts[0].position),),
        )

    def count(self, task: str, rng: np.random.Generator) -> int:
        """How many objects."""
        low, high = self.counts[task]
        return int(rng.integers(low, high + 1))

    def look(self, rng: np.random.Generator) -> textures.Look:
        """Light, and the colours of table and floor."""
        return textures.varied(rng)

    def cameras(self, rng: np.random.Generator) -> list[Camera]:
        """One to three cameras about the table; one pictures all, whichever it is."""
        number = int(rng.choice((1, 2, 3), p=(0.2, 0.5, 0.3)))
        names = {1: [str(rng.choice(CAMERAS))], 2: list(CAMERAS[:2]), 3: list(CAMERAS)}[number]
        return [self.camera(name, rng) for name in names]

    def camera(self, name: str, rng: np.random.Generator) -> Camera:
        """A camera that looks near the middle of the table; `camera_front` more from above."""
        azimuth = np.radians(rng.uniform(*self.azimuth_deg) * SIDE.get(name, 0))
        elevation = np.radians(rng.uniform(*self.elevation_deg))
        if name not in SIDE:
            azimuth = np.radians(rng.uniform(-12, 12))
            elevation = np.radians(rng.uniform(*self.front_elevation_deg))
        target = np.array(scene.LOOK_AT) + rng.uniform(-0.04, 0.04, 3)
        flat = np.array((np.cos(azimuth), np.sin(azimuth), 0)) * np.cos(elevation)
        place = target + rng.uniform(*self.distance_m) * (flat + (0, 0, np.sin(elevation)))
        rotation = scene.looking(place, target)
        roll = np.radians(rng.uniform(-4, 4))
        spin = np.array(((np.cos(roll), -np.sin(roll), 0), (np.sin(roll), np.cos(roll), 0), (0, 0, 1)))
        return Camera(name, place, rotation @ spin, float(rng.uniform(*self.fovy_deg)))


class Plain:
    """The first scene: two cameras of nearly fixed pose, checked primitives, one light."""

    name, flickers = "plain", True
    look = staticmethod(textures.plain)
    cameras = staticmethod(scene.cameras)


PLAIN = Plain()
SEEN = Variety(
    name="seen",
    compact=("box", "box", "can", "cylinder", "sphere", "capsule", "ellipsoid", "angle", "tee", "mug"),
    long=("box", "box", "cylinder", "capsule", "angle", "tee"),
    upright=("can", "can", "can", "mug", "box"),
    mass_kg=(0.12, 0.9),
    friction=(0.25, 0.8),
    counts={"push": (1, 3), "tumble": (3, 6), "lift": (1, 3), "can": (1, 4)},
    azimuth_deg=(18, 60),
    elevation_deg=(22, 42),
    front_elevation_deg=(44, 62),
    distance_m=(0.92, 1.25),
    fovy_deg=(42, 52),
)
UNSEEN = Variety(
    name="unseen",
    compact=("cross", "bracket", "dumbbell", "ring", "bottle", "prism"),
    long=("cross", "bracket", "dumbbell", "ring"),
    upright=("bottle", "prism"),
    mass_kg=(1.1, 2.2),
    friction=(0.9, 1.3),
    counts={"push": (4, 5), "tumble": (7, 8), "lift": (4, 5), "can": (5, 6)},
    azimuth_deg=(68, 95),
    elevation_deg=(45, 55),
    front_elevation_deg=(65, 75),
    distance_m=(1.3, 1.5),
    fovy_deg=(36, 41),
    compact_m=(0.055, 0.09),
)


def real(seen: Variety, name: str) -> Variety:
    """The same objects in real-like scenes: more sizes, one to more of them in more tasks."""
    counts = seen.counts | {"carry": seen.counts["can"], "bump": (1, 3)}
    smaller = {"compact": (0.5, 0.95), "long": (0.7, 1.0), "upright": (0.6, 0.95)}
    return replace(seen, name=name, counts=counts, smaller=smaller, flickers=False)


REAL_SEEN, REAL_UNSEEN = real(SEEN, "real"), real(UNSEEN, "real_unseen")


def of_split(split: str, variety: str = "split") -> Variety:
    """The distribution of a split; `materials` has SEEN's scenes but for what they are of."""
    if variety == "real":
        return REAL_UNSEEN if split == "unseen" else REAL_SEEN
    return UNSEEN if split == "unseen" else SEEN
