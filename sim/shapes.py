"""Solid shapes from primitives, drawn at random; each rests as it is drawn, long along x.

The origin is the centre of mass; lengths in m. `half_length` is the half extent along x.
"""

from dataclasses import dataclass, replace
from math import pi, sqrt

import mujoco
import numpy as np

ALONG_X = (sqrt(0.5), 0.0, sqrt(0.5), 0.0)  # turns z into x
ROLLING = ("cylinder", "sphere", "capsule", "ellipsoid")


@dataclass(frozen=True)
class Part:
    """A primitive in its body's frame.

    `size`: half sizes of a box or ellipsoid; radius of a sphere; radius and half length (along z;
    a capsule's without its caps) of a cylinder or capsule. `quaternion`: w x y z.
    """

    kind: str
    size: tuple[float, ...]
    position: tuple[float, ...] = (0.0, 0.0, 0.0)
    quaternion: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)

    def volume(self) -> float:
        """Volume, m3."""
        s = self.size
        return {
            "box": lambda: 8 * s[0] * s[1] * s[2],
            "ellipsoid": lambda: 4 / 3 * pi * s[0] * s[1] * s[2],
            "sphere": lambda: 4 / 3 * pi * s[0] ** 3,
            "cylinder": lambda: 2 * pi * s[0] ** 2 * s[1],
            "capsule": lambda: pi * s[0] ** 2 * (2 * s[1] + 4 / 3 * s[0]),
        }[self.kind]()

    def half_extent(self, direction: np.ndarray) -> float:
        """How far the part goes from its own centre along a unit direction of the body's frame."""
        frame = np.empty(9)
        mujoco.mju_quat2Mat(frame, np.array(self.quaternion))
        x, y, z = frame.reshape(3, 3).T @ np.asarray(direction, float)
        s = self.size
        if self.kind == "box":
            return abs(x) * s[0] + abs(y) * s[1] + abs(z) * s[2]
        if self.kind == "ellipsoid":
            return sqrt((x * s[0]) ** 2 + (y * s[1]) ** 2 + (z * s[2]) ** 2)
        if self.kind == "sphere":
            return s[0]
        side = s[0] if self.kind == "capsule" else s[0] * sqrt(max(1 - z * z, 0.0))
        return abs(z) * s[1] + side

    def bounding_radius(self) -> float:
        """Radius of a ball about the body's origin that holds the part."""
        own = {"sphere": self.size[0], "ellipsoid": max(self.size), "capsule": sum(self.size)}
        largest = own.get(self.kind, float(np.linalg.norm(self.size)))
        return float(np.linalg.norm(self.position)) + largest


def centred(parts: list[Part]) -> tuple[Part, ...]:
    """The parts moved so that their common centre of mass is the origin."""
    volumes = np.array([p.volume() for p in parts])
    centre = volumes @ np.array([p.position for p in parts]) / volumes.sum()
    return tuple(
        replace(p, position=tuple(float(v) for v in np.array(p.position) - centre)) for p in parts
    )


def bar(centre, half) -> Part:
    """A box from its centre and half sizes."""
    return Part("box", tuple(float(v) for v in half), tuple(float(v) for v in centre))


def rod(start, stop, radius: float) -> Part:
    """A capsule between two points, without its caps."""
    start, stop = np.array(start, float), np.array(stop, float)
    way = stop - start
    quaternion = np.empty(4)
    mujoco.mju_quatZ2Vec(quaternion, way)
    middle = tuple(float(v) for v in (start + stop) / 2)
    half = float(np.linalg.norm(way)) / 2
    return Part("capsule", (float(radius), half), middle, tuple(quaternion.tolist()))


def box(rng, a):
    """A cuboid, from a plank to nearly a cube."""
    return [bar((0, 0, 0), (a, min(a, rng.uniform(0.04, 0.1)), rng.uniform(0.025, 0.085)))]


def cylinder(rng, a):
    """A round bar, lying."""
    radius = rng.uniform(0.035, 0.07)
    return [Part("cylinder", (float(radius), float(a)), quaternion=ALONG_X)]


def can(rng, a):
    """A cylinder on its end."""
    return [Part("cylinder", (float(rng.uniform(0.042, 0.068)), float(a)))]


def sphere(rng, a):
    """A ball."""
    return [Part("sphere", (float(a),))]


def capsule(rng, a):
    """A round bar with round ends, lying."""
    radius = min(rng.uniform(0.032, 0.065), 0.6 * a)
    return [Part("capsule", (float(radius), float(a - radius)), quaternion=ALONG_X)]


def ellipsoid(rng, a):
    """An egg or a lens, lying."""
    y, z = (float(a * v) for v in rng.uniform((0.55, 0.4), (1, 0.8)))
    return [Part("ellipsoid", (float(a), max(y, 0.03), max(z, 0.03)))]


def angle(rng, a):
    """An L of two bars, lying flat."""
    w, h, b = rng.uniform(0.022, 0.038), rng.uniform(0.022, 0.04), rng.uniform(0.35, 0.7) * a
    return [bar((0, 0, 0), (a, w, h)), bar((a - w, w + b, 0), (w, b, h))]


def tee(rng, a):
    """A T of two bars, lying flat."""
    w, h, b = rng.uniform(0.022, 0.038), rng.uniform(0.022, 0.04), rng.uniform(0.35, 0.7) * a
    return [bar((0, 0, 0), (a, w, h)), bar((0, w + b, 0), (w, b, h))]


def mug(rng, a):
    """A cylinder on its end with a handle of three rods; `a` is half its height."""
    r, rod_r, out = rng.uniform(0.042, 0.064), rng.uniform(0.008, 0.012), rng.uniform(0.03, 0.042)
    low, high = (r, 0.0, -0.5 * a), (r, 0.0, 0.5 * a)
    far_low, far_high = (r + out, 0.0, -0.5 * a), (r + out, 0.0, 0.5 * a)
    handle = [rod(low, far_low, rod_r), rod(far_low, far_high, rod_r), rod(far_high, high, rod_r)]
    return [Part("cylinder", (float(r), float(a))), *handle]


def cross(rng, a):
    """Two bars that cross, lying flat."""
    w, h = rng.uniform(0.022, 0.038), rng.uniform(0.022, 0.04)
    b = max(rng.uniform(0.6, 0.9) * a, w + 0.015)
    sides = [bar((0, s * (w + (b - w) / 2), 0), (w, (b - w) / 2, h)) for s in (-1, 1)]
    return [bar((0, 0, 0), (a, w, h)), *sides]


def bracket(rng, a):
    """A U of three bars, lying flat."""
    w, h, b = rng.uniform(0.02, 0.033), rng.uniform(0.022, 0.04), rng.uniform(0.3, 0.6) * a
    legs = [bar((s * (a - w), w + b, 0), (w, b, h)) for s in (-1, 1)]
    return [bar((0, 0, 0), (a, w, h)), *legs]


def dumbbell(rng, a):
    """Two balls on a rod, lying."""
    radius = min(rng.uniform(0.032, 0.05), 0.48 * a)
    reach = a - radius
    balls = [Part("sphere", (float(radius),), (float(s * reach), 0.0, 0.0)) for s in (-1, 1)]
    return [rod((-reach, 0, 0), (reach, 0, 0), rng.uniform(0.012, 0.018)), *balls]


def ring(rng, a):
    """A torus of ten rods, lying flat."""
    radius = rng.uniform(0.018, 0.025)
    angles = 2 * pi * np.arange(11) / 10
    at = (a - radius) * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    return [rod(at[i], at[i + 1], radius) for i in range(10)]


def bottle(rng, a):
    """A cylinder with a neck, on its end; `a` is half its height."""
    r, neck = rng.uniform(0.04, 0.06), rng.uniform(0.3, 0.45) * a
    body = Part("cylinder", (float(r), float(a - neck)))
    top = Part("cylinder", (float(0.45 * r), float(neck)), (0.0, 0.0, float(a)))
    return [top, body]


def prism(rng, a):
    """A six-sided column of three boxes, on its end; `a` is half its height."""
    r = rng.uniform(0.042, 0.062)
    turns = [(float(np.cos(k * pi / 6)), 0.0, 0.0, float(np.sin(k * pi / 6))) for k in range(3)]
    tall = (a, a - 0.0005, a - 0.001)  # faces in one plane would flicker
    return [
        Part("box", (float(r / sqrt(3)), float(r), float(h)), quaternion=q)
        for q, h in zip(turns, tall)
    ]


BUILDERS = {
    f.__name__: f
    for f in (
        box, cylinder, can, sphere, capsule, ellipsoid, angle, tee, mug,
        cross, bracket, dumbbell, ring, bottle, prism,
    )
}


def build(kind: str, half_length: float, rng: np.random.Generator) -> tuple[Part, ...]:
    """The parts of a random shape; the first is the one to grip."""
    return centred(BUILDERS[kind](rng, half_length))


def scaled(parts: tuple[Part, ...], factor: float) -> tuple[Part, ...]:
    """The parts, larger or smaller."""
    return tuple(
        replace(
            part, size=tuple(v * factor for v in part.size),
            position=tuple(v * factor for v in part.position),
        )
        for part in parts
    )


def ends(kind: str, parts: tuple[Part, ...]) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Where two hands grip a long shape: pairs of part and point in the body's frame."""
    if kind == "ring":
        return ((0, parts[0].position), (5, parts[5].position))
    if kind == "dumbbell":
        return ((1, parts[1].position), (2, parts[2].position))
    reach = 0.82 * parts[0].half_extent(np.array((1.0, 0, 0)))
    x, y, z = parts[0].position
    return ((0, (x - reach, y, z)), (0, (x + reach, y, z)))
