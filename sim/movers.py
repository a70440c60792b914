"""Hands and tools that move things, and that no URDF tells of: driven along a path, free to yield.

A mover's command is the pose of the body that leads it (place, then quaternion); its fingers, where
it has any, bend as a robot's do, but nobody tells.
"""

import mujoco
import numpy as np

from sim import hands, shapes, textures
from sim.arm import Arm
from sim.rig import UNIT, ArmSpec, Finger, Joint, Link, Rig, Solid, quaternion_of

KINDS = ("hand", "gripper", "tool", "blob")
BASES = ((-0.58, 0.3, 0.4), (-0.58, -0.3, 0.4))
SKIN = np.array(((0.87, 0.67, 0.55), (0.65, 0.45, 0.32), (0.36, 0.24, 0.17), (0.95, 0.8, 0.7)))
MAX_WAY = 0.05  # m in 20 ms that a leading body goes at most


def movers(rng: np.random.Generator, count: int) -> Rig:
    """One or two movers of a kind; most are hands."""
    kind = str(rng.choice(KINDS, p=(0.5, 0.15, 0.2, 0.15)))
    rig = Rig("movers", (), (), told=False)
    rig.about = {"movers": count, "kind": kind}
    seed = int(rng.integers(2**31))
    for k in range(count):
        name = ("left", "right")[k]
        links, fingers, tool_z, gap, depth = draw(kind, name, np.random.default_rng(seed), rig)
        sign = (1.0, -1.0)[k] if count == 2 else 0.0
        base = np.array(BASES[k]) if count == 2 else np.array((-0.58, rng.uniform(-0.3, 0.3), 0.4))
        turn = float(np.arctan2(-base[1], -0.1 - base[0]))
        home = (-0.2, 0.22 * sign if sign else float(rng.uniform(-0.15, 0.15)), 0.27, 0.0)
        spec = ArmSpec(
            side=name, base=tuple(float(v) for v in base), yaw=turn, joints=(), limits=(), rest=(),
            home=home, hand=f"{name}_palm", tool=f"{name}_tool", sign=sign, reach=(0.12, 0.9),
            upright=False, lean=float(rng.uniform(0, 3)), fingers=fingers,
            finger_links=tuple(link.name for link in links[1:]) or (links[0].name,), gap=gap,
            depth=depth, mover=f"{name}_lead",
        )
        rig.arms += (spec,)
        rig.links += links
        rig.tools[spec.tool] = (spec.hand, (0.0, 0.0, tool_z), UNIT)
    return rig


def draw(kind: str, side: str, rng: np.random.Generator, rig: Rig):
    """Links (the first is led), fingers, the tips' height, the gap of open fingers, their depth."""
    if kind == "hand":
        return hand(side, rng, rig)
    name = f"{side}_palm"
    if kind == "gripper":
        made = hands.draw(side, name, rng, "parallel")
        handle = Link(name, "world", solids=(rod((0, 0, -0.2), (0, 0, 0.01), 0.02, made.links[0].solids[0].rgb),))
        return (handle, *made.links), made.fingers, made.tool_z, made.gap, made.depth
    light, _ = textures.colours(rng)
    tone = tuple(light.tolist())
    long = float(rng.uniform(0.15, 0.3))
    if kind == "tool":  # a stick with something at its end
        radius = float(rng.uniform(0.008, 0.015))
        solids = [rod((0, 0, -long), (0, 0, 0.0), radius, (0.5, 0.36, 0.2))]
        low = float(rng.uniform(0.012, 0.03))
        end = rng.choice(("box", "sphere", "disc"))
        if end == "box":
            half = (*(float(v) for v in rng.uniform(0.015, 0.05, 2)), low)
            solids.append(Solid("box", half, (0, 0, low), rgb=tone))
        elif end == "sphere":
            solids.append(Solid("sphere", (1.4 * low,), (0, 0, 1.4 * low), rgb=tone))
            low *= 1.4
        else:
            solids.append(Solid("cylinder", (float(rng.uniform(0.03, 0.06)), low), (0, 0, low), rgb=tone))
        return (Link(name, "world", solids=tuple(solids)),), (), 2 * low, 0.0, 0.0
    parts = shapes.build(str(rng.choice(("box", "angle", "ellipsoid", "tee", "cross"))), 0.08, rng)
    down = np.array((0.0, 0, 1))
    tip = max(p.half_extent(down) + p.position[2] for p in parts)
    solids = tuple(
        Solid(p.kind, p.size, p.position, p.quaternion, tone) for p in parts
    )
    return (Link(name, "world", solids=solids),), (), float(tip), 0.0, 0.0


def rod(start, stop, radius: float, rgb) -> Solid:
    """A capsule between two points."""
    part = shapes.rod(start, stop, radius)
    return Solid("capsule", part.size, part.position, part.quaternion, tuple(rgb))


def hand(side: str, rng: np.random.Generator, rig: Rig):
    """A hand like a human's on a forearm: a palm, a thumb and four fingers of two parts."""
    size = float(rng.uniform(0.85, 1.2))
    tone = tuple((SKIN[int(rng.integers(4))] * rng.uniform(0.9, 1.05)).tolist())
    sleeve = tuple(textures.colours(rng)[0].tolist())
    if rng.uniform() < 0.15:  # a glove
        tone = sleeve
    palm = Solid("ellipsoid", (0.045 * size, 0.018 * size, 0.052 * size), rgb=tone)
    lean = float(rng.uniform(0.2, 0.9))  # of the forearm
    elbow = np.array((-np.sin(lean), 0.0, -np.cos(lean))) * float(rng.uniform(0.22, 0.3)) * size
    wrist = np.array((-0.01, 0.0, -0.05)) * size
    solids = (
        palm, rod(wrist * 0.7, wrist + 0.35 * elbow, 0.026 * size, tone),
        rod(wrist + 0.35 * elbow, wrist + elbow, 0.038 * size, sleeve),
    )
    name = f"{side}_palm"
    # The palm stands across the finger line (y): fingers on one side, the thumb on the other.
    links = [Link(name, "world", solids=solids, mass=0.8)]
    fingers = []
    closed = float(rng.uniform(0.75, 0.95))
    for k, x in enumerate((-0.033, -0.011, 0.011, 0.033)):
        long = (0.034, 0.04, 0.042, 0.038)[k] * size
        joint = Joint(f"{side}_bend_{k}", "revolute", -0.4, 1.5, (1.0, 0, 0), 3.0, 4.0, 30.0, 0.01, 0.1)
        lower = rod((0, 0, 0), (0, 0, long), 0.009 * size, tone)
        upper = rod((0, 0, long), (0, -0.6 * long, 1.75 * long), 0.008 * size, tone)
        links.append(
            Link(f"{side}_finger_{k}", name, (x * size, 0.012 * size, 0.045 * size), joint=joint,
                 solids=(lower, upper), mass=0.05, centre=(0, 0, long), half=(0.01, 0.01, long))
        )
        fingers.append(Finger(joint.name, -0.35, closed))
    joint = Joint(f"{side}_thumb", "revolute", -1.5, 0.6, (1.0, 0, 0), 3.0, 4.0, 30.0, 0.01, 0.1)
    long = 0.04 * size
    thumb = (
        rod((0, 0, 0), (0, -0.45 * long, 0.8 * long), 0.011 * size, tone),
        rod((0, -0.45 * long, 0.8 * long), (0, -0.4 * long, 1.7 * long), 0.0095 * size, tone),
    )
    links.append(
        Link(f"{side}_thumb", name, (-0.01 * size, -0.012 * size, 0.02 * size), joint=joint,
             solids=thumb, mass=0.06, centre=(0, 0, long), half=(0.01, 0.01, long))
    )
    fingers.append(Finger(joint.name, 0.3, -closed * 0.4))
    return tuple(links), tuple(fingers), 0.11 * size, 0.09 * size, 0.03


class Mover(Arm):
    """The command of a mover: `joints[k]` is where it is led at k * PERIOD, and how it is turned."""

    def __init__(self, model: mujoco.MjModel, spec: ArmSpec, start: np.ndarray):
        self.tool = model.site(spec.tool).pos.copy()
        super().__init__(model, spec, start)

    def begin(self, start: np.ndarray) -> np.ndarray:
        """Where it starts."""
        return self.solve(self.pose, None, rounds=150)

    def miss(self, q: np.ndarray) -> float:
        """It goes anywhere."""
        return 0.0

    def solve(self, pose: np.ndarray, q: np.ndarray | None, rounds: int) -> np.ndarray:
        """The pose of the leading body for one of the tool, near the one before."""
        rotation = self.orientation(pose)
        place, turn = pose[:3] - rotation @ self.tool, np.array(quaternion_of(rotation))
        if q is not None:
            turn *= 1 if turn @ q[3:] >= 0 else -1
            way = place - q[:3]
            place = q[:3] + way * min(1.0, MAX_WAY / max(np.linalg.norm(way), 1e-9))
        return np.concatenate([place, turn])

    def lead(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Place and quaternion of the leading body at a time."""
        row = super().at(np.array([time]))[0]
        return row[:3], row[3:7] / np.linalg.norm(row[3:7])

    def at(self, times: np.ndarray) -> np.ndarray:
        """Commanded joints of its fingers alone."""
        return super().at(times)[:, 7:]
