"""Hands at the end of an arm, drawn at random: parallel, three-finger, suction.

A hand's frame is the flange's: z to the tips, y along the line between the fingers.
"""

from dataclasses import dataclass
from math import asin, cos, pi, sin

import numpy as np

from sim.rig import Finger, Joint, Link, Solid, about

KINDS = ("parallel", "three_finger", "suction")


@dataclass(frozen=True)
class Hand:
    """Links (the first is the palm), its fingers, and where the tips are when it holds."""

    kind: str
    links: tuple[Link, ...]
    fingers: tuple[Finger, ...]
    tool_z: float
    gap: float  # between open fingers, m; 0: it only holds from above
    depth: float  # how far tips go down beside what they hold, m


def draw(side: str, parent: str, rng: np.random.Generator, kind: str | None = None) -> Hand:
    """A hand on link `parent`, whose z is the flange's axis; its colours are dark or pale."""
    kind = kind or str(rng.choice(KINDS, p=(0.6, 0.25, 0.15)))
    tones = rng.uniform(0.1, 0.35), rng.uniform(0.6, 0.95)
    dark, pale = ((float(t),) * 3 for t in (tones if rng.uniform() < 0.6 else tones[::-1]))
    make = {"parallel": parallel, "three_finger": three_finger, "suction": suction}[kind]
    return make(side, parent, rng, dark, pale)


def parallel(side, parent, rng, dark, pale) -> Hand:
    """Two fingers on slides."""
    gap, length, high = rng.uniform(0.1, 0.16), rng.uniform(0.06, 0.09), rng.uniform(0.05, 0.08)
    thick, wide = float(rng.uniform(0.007, 0.012)), float(rng.uniform(0.009, 0.016))
    half = (float(rng.uniform(0.025, 0.04)), float(gap / 2 + 2 * thick), float(high / 2))
    name = f"{side}_hand"
    palm = Solid("box", half, (0.0, 0.0, float(high / 2)), rgb=pale)
    links = [Link(name, parent, solids=(palm,), mass=0.7, centre=(0, 0, high / 2), half=half)]
    fingers = []
    for k, sign in enumerate((1, -1), 1):
        joint = Joint(
            f"{side}_finger_joint_{k}", "prismatic", 0.0, float(gap / 2), (0.0, float(sign), 0.0),
            25.0, 0.6, 800.0, 0.2, 5.0,
        )
        box = Solid(
            "box", (wide, thick, float(length / 2)), (0.0, sign * thick, float(length / 2)), rgb=dark
        )
        links.append(
            Link(f"{side}_finger_{k}", name, (0.0, 0.0, float(high)), joint=joint, solids=(box,),
                 mass=0.1, centre=box.position, half=box.size)
        )
        fingers.append(Finger(joint.name, float(gap / 2), 0.0))
    depth = float(min(length - 0.015, 0.05))
    return Hand("parallel", tuple(links), tuple(fingers), float(high + length), float(gap), depth)


def three_finger(side, parent, rng, dark, pale) -> Hand:
    """Three fingers on hinges about the palm, one of them opposite to two."""
    radius, length, high = rng.uniform(0.045, 0.06), rng.uniform(0.08, 0.11), rng.uniform(0.05, 0.08)
    thick = float(rng.uniform(0.008, 0.012))
    name = f"{side}_hand"
    palm = Solid("cylinder", (float(radius + 0.012), float(high / 2)), (0, 0, float(high / 2)), rgb=pale)
    half = (float(radius), float(radius), float(high / 2))
    links = [Link(name, parent, solids=(palm,), mass=0.8, centre=(0, 0, high / 2), half=half)]
    fingers = []
    opened, closed = -0.3, float(asin(min(0.95 * radius / length, 0.9)))
    for k, turn in enumerate((pi / 2, pi / 2 + 2 * pi / 3, pi / 2 - 2 * pi / 3), 1):
        joint = Joint(
            f"{side}_finger_joint_{k}", "revolute", -0.5, 1.2, (0.0, -1.0, 0.0),
            4.0, 2.5, 60.0, 0.01, 0.2,
        )
        box = Solid(
            "box", (thick, 0.011, float(length / 2)), (thick, 0.0, float(length / 2)), rgb=dark
        )
        links.append(
            Link(
                f"{side}_finger_{k}", name,
                (float(radius * cos(turn)), float(radius * sin(turn)), float(high)),
                about((0, 0, 1), turn), joint, (box,), 0.1, box.position, box.size,
            )
        )
        fingers.append(Finger(joint.name, opened, closed))
    gap = 2 * float(radius + 0.9 * length * sin(0.3))
    return Hand("three_finger", tuple(links), tuple(fingers), float(high + 0.95 * length), gap, 0.04)


def suction(side, parent, rng, dark, pale) -> Hand:
    """A cup on a plunger, which vacuum draws in."""
    long, radius, stroke = rng.uniform(0.08, 0.14), float(rng.uniform(0.014, 0.026)), 0.012
    name = f"{side}_hand"
    tube = Solid("cylinder", (float(rng.uniform(0.015, 0.03)), float(long / 2)), (0, 0, float(long / 2)), rgb=pale)
    half = (0.03, 0.03, float(long / 2))
    cup = Solid("cylinder", (radius, 0.012), (0.0, 0.0, 0.012), rgb=dark)
    joint = Joint(
        f"{side}_cup_joint", "prismatic", 0.0, stroke, (0.0, 0.0, -1.0), 30.0, 0.2, 1500.0, 0.1, 5.0
    )
    links = (
        Link(name, parent, solids=(tube,), mass=0.5, centre=(0, 0, long / 2), half=half),
        Link(f"{side}_finger_1", name, (0.0, 0.0, float(long)), joint=joint, solids=(cup,), mass=0.08,
             centre=cup.position, half=(radius, radius, 0.012)),
    )
    return Hand("suction", links, (Finger(joint.name, 0.0, stroke),), float(long + 0.024), 0.0, 0.0)
