"""Random objects of the first scene, and where objects start."""

import colorsys

import numpy as np

from sim.scene import Thing

KINDS = ("box", "cylinder", "sphere", "capsule")


def colours(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A bright colour and a darker one, for a checked surface."""
    hue, saturation = rng.uniform(), rng.uniform(0.5, 0.95)
    light = np.array(colorsys.hsv_to_rgb(hue, saturation, rng.uniform(0.7, 1.0)))
    dark = np.array(colorsys.hsv_to_rgb((hue + rng.uniform(0, 0.15)) % 1, saturation, 0.45))
    return light, dark


def random_thing(rng: np.random.Generator, kinds=KINDS) -> Thing:
    """An object at the origin, about 7 to 18 cm large."""
    kind = str(rng.choice(kinds))
    if kind == "box":
        size = tuple(float(v) for v in rng.uniform(0.035, 0.08, 3))
    elif kind == "sphere":
        size = (float(rng.uniform(0.045, 0.072)),)
    elif kind == "cylinder":
        size = (float(rng.uniform(0.04, 0.065)), float(rng.uniform(0.035, 0.09)))
    else:
        size = (float(rng.uniform(0.038, 0.055)), float(rng.uniform(0.03, 0.07)))
    return Thing(
        kind=kind,
        size=size,
        density=float(rng.uniform(150, 500)),
        friction=float(rng.uniform(0.25, 0.8)),
        bounce=float(rng.uniform(0, 1)),
        colours=colours(rng),
        position=np.zeros(3),
        quaternion=np.array([1.0, 0, 0, 0]),
        velocity=np.zeros(6),
    )


def stand(thing: Thing, xy: np.ndarray, yaw: float) -> None:
    """Stands the object upright on the table; lays a capsule down."""
    height, lean = thing.half_height(), 0.0
    if thing.kind == "capsule":
        height, lean = thing.size[0], np.pi / 4
    thing.position = np.array([xy[0], xy[1], height + 0.0005])
    c, s = np.cos(yaw / 2), np.sin(yaw / 2)
    thing.quaternion = np.array([c * np.cos(lean), -s * np.sin(lean), c * np.sin(lean), s * np.cos(lean)])


def drop(thing: Thing, xy: np.ndarray, rng: np.random.Generator) -> None:
    """Puts the object into the air, turned at random, thrown a little."""
    height = thing.bounding_radius() + rng.uniform(0.05, 0.24)
    thing.position = np.array([xy[0], xy[1], height])
    quaternion = rng.normal(size=4)
    thing.quaternion = quaternion / np.linalg.norm(quaternion)
    toward = -np.array(xy) + rng.uniform(-0.2, 0.2, 2)
    speed = rng.uniform(0.2, 1.6)
    toward *= speed / max(np.linalg.norm(toward), 1e-3)
    thing.velocity = np.array([*toward, rng.uniform(-0.3, 1.7), *rng.uniform(-8, 8, 3)])


def scatter(things: list[Thing], x, y, rng: np.random.Generator) -> list[np.ndarray]:
    """Places in the ranges `x` and `y` for objects that keep clear of each other."""
    places: list[np.ndarray] = []
    for i, thing in enumerate(things):
        for _ in range(200):
            place = np.array([rng.uniform(*x), rng.uniform(*y)])
            gaps = [
                np.linalg.norm(place - p) - thing.bounding_radius() - other.bounding_radius()
                for p, other in zip(places, things)
            ]
            if min(gaps, default=1.0) > 0.01:
                break
        places.append(place)
    return places


def lie(thing: Thing, xy: np.ndarray, yaw: float) -> None:
    """Puts an object of parts on the table, as its shape rests."""
    down = np.array((0.0, 0, -1))
    low = max(part.half_extent(down) - part.position[2] for part in thing.parts)
    thing.position = np.array([xy[0], xy[1], low + 0.0005])
    thing.quaternion = np.array([np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])


def arrange(
    things: list[Thing], rng: np.random.Generator, in_air: float,
    x=(-0.24, 0.16), y=(-0.26, 0.26), placed: tuple[Thing, ...] = (),
) -> list[Thing]:
    """Places objects clear of each other and of those `placed`; each falls with share `in_air`."""
    done = list(placed)
    for thing in things:
        for _ in range(300):
            xy = np.array([rng.uniform(*x), rng.uniform(*y)])
            if rng.uniform() < in_air:
                drop(thing, xy, rng)
                thing.position[2] += rng.uniform(0, 0.03 * len(things))
            else:
                thing.velocity = np.zeros(6)
                lie(thing, xy, rng.uniform(-np.pi, np.pi))
            gaps = [
                np.linalg.norm(thing.position - other.position)
                - thing.bounding_radius() - other.bounding_radius()
                for other in done
            ]
            if min(gaps, default=1.0) > 0.005:
                break
        done.append(thing)
    return things
