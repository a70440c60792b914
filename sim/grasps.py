"""How a hand closes on a thing: fingers beside it where it fits between them, else above it."""

from dataclasses import dataclass

import numpy as np

from sim.rig import ArmSpec

PINCH = 0.25  # opening of a hand that holds what does not fit between its fingers
OPENS = 0.06  # s before a thing falls that fingers are told to open
ROOM = 0.008  # m on either side of a thing between open fingers
CLEAR = 0.014  # m from the tips to what the thing stands on
ABOVE = 0.008  # m from the tips to a thing they hold from above


@dataclass(frozen=True)
class Grasp:
    """Tips (m), yaw of the finger line, opening that holds, and the height of the thing's top."""

    tip: tuple[float, float, float]
    yaw: float
    share: float
    top: float


def extent(shape, rotation: np.ndarray, origin: np.ndarray, way: np.ndarray) -> float:
    """How far a thing goes from a point in a direction; both in the world, as seen from its middle."""
    local = rotation.T @ way
    far = [part.half_extent(local) + np.array(part.position) @ local for part in shape.parts]
    return float(max(far) - origin @ way)


def plan(spec: ArmSpec, seen, thing: int, grip: int, turned: float, free: bool) -> Grasp:
    """The grasp nearest to yaw `turned`; `free`: any yaw will do, the nearest that fits."""
    shape, rotation = seen.shapes[thing], seen.rotations[thing]
    point = rotation @ np.array(shape.grips[grip][1])
    return closing(spec, shape, rotation, seen.positions[thing], point, turned, free)


def at(spec: ArmSpec, seen, thing: int, top: np.ndarray, yaw: float) -> Grasp:
    """The grasp of a thing at a point on it, with this yaw, that of an end of a long thing."""
    shape, rotation, place = seen.shapes[thing], seen.rotations[thing], seen.positions[thing]
    point = top - place
    return closing(spec, shape, rotation, place, np.array([*point[:2], 0.0]), yaw, False)


def closing(spec, shape, rotation, place, point, turned: float, free: bool) -> Grasp:
    """The grasp about a point (from the thing's middle, in the world)."""
    up = np.array((0.0, 0, 1))
    top = place[2] + extent(shape, rotation, np.zeros(3), up)
    bottom = place[2] - extent(shape, rotation, np.zeros(3), -up)
    round_ = len(spec.finger_links) == 3  # fingers close from three sides
    soft = getattr(shape, "radius", None) is not None
    if spec.gap and not soft:
        for k in sorted(range(-6, 7), key=abs) if free else (0,):
            yaw = turned + k * np.pi / 12
            line = np.array((np.cos(yaw), np.sin(yaw), 0))
            near, far = (extent(shape, rotation, point, s * line) for s in (-1, 1))
            half, shift = (near + far) / 2, (far - near) / 2
            if round_:
                across = np.array((-line[1], line[0], 0))
                sides = [extent(shape, rotation, point, s * across) for s in (-1, 1)]
                half = max(near, far, *sides)
                shift = 0.0
            if half + ROOM < spec.gap / 2 and abs(shift) < 0.05:
                depth = min(spec.depth, max(0.6 * (top - bottom), 0.01))
                low = max(top - depth, bottom + CLEAR)
                tip = place + point + shift * line
                share = float(np.clip(2 * half / spec.gap - 0.08, 0, 1))
                return Grasp((float(tip[0]), float(tip[1]), float(low)), float(yaw), share, float(top))
    tip = place + point
    # Above what is gripped, which may be lower than the highest part.
    return Grasp((float(tip[0]), float(tip[1]), float(top + ABOVE)), turned, PINCH, float(top))
