"""Robots drawn at random: one or two arms of 6 or 7 joints, their base behind the table, beside it
or overhead, with any hand; half of them from generated meshes. The two arms of a robot are alike."""

from dataclasses import replace
from math import pi

import numpy as np

from sim import hands, meshes, textures
from sim.rig import ArmSpec, Joint, Link, Rig, Solid, about

SIDES = ("left", "right")
# Joint kinds from base to flange: a yaw, then pitches and rolls; r turns about the link, p bends it.
PATTERNS = {7: "rprprpr", 6: "rpprpr"}
MOUNTS = ("behind", "beside", "overhead")
ROOTS = ("world", "base", "base_link", "stand")


def robot(rng: np.random.Generator, arms: int, meshes_too: bool | None = None) -> Rig:
    """A robot with one or two arms. `meshes_too`: None draws it."""
    mount = str(rng.choice(MOUNTS, p=(0.6, 0.2, 0.2)))
    design = Design(rng)
    kind = str(rng.choice(hands.KINDS, p=(0.6, 0.25, 0.15)))
    spots = places(mount, arms, design, rng)
    root = str(rng.choice(ROOTS)) if arms == 1 else str(rng.choice(ROOTS[:2]))
    rig = Rig("drawn_arm" if arms == 1 else "drawn_arms", (), (), root)
    seed = int(rng.integers(2**31))
    for side, (place, yaw, sign) in zip(SIDES, spots):
        alike = np.random.default_rng(seed)
        spec, links, tool = design.arm(side, root, place, yaw, sign, mount, kind, alike)
        if meshes_too is None:
            meshes_too = bool(rng.uniform() < 0.5)
        if meshes_too:
            links = meshes.meshed(links, rig.meshes, alike)
        rig.links += links
        rig.arms += (spec,)
        rig.tools[spec.tool] = tool
    if root != "world":
        rooted(rig, np.array(spots[0][0]) + (rng.uniform(-0.1, 0.1), 0.0, 0.0))
    rig.about = {
        "arms": arms, "joints": len(design.pattern), "mount": mount, "hand": kind,
        "meshes": bool(meshes_too), "root": root,
    }
    return rig


def rooted(rig: Rig, place: np.ndarray) -> None:
    """Puts the root link at a place in the world; the arms stay where they are."""
    rig.root_pose = (tuple(float(v) for v in place), (1.0, 0.0, 0.0, 0.0))
    rig.links = tuple(
        replace(link, position=tuple(float(v) for v in np.array(link.position) - place))
        if link.parent == rig.root else link
        for link in rig.links
    )


def places(mount: str, arms: int, design: "Design", rng: np.random.Generator) -> list[tuple]:
    """Base, yaw, and side (sign of y) of each arm."""
    signs = (1.0, -1.0) if arms == 2 else (0.0,)
    result, x, y, z = [], rng.uniform(-0.6, -0.48), rng.uniform(0.28, 0.4), rng.uniform(0, 0.12)
    along, off = rng.uniform(-0.25, 0.05), float(rng.choice((-1, 1)))
    lone = rng.uniform(-0.2, 0.2)
    high = design.shoulder + design.wrist + 0.2 + 0.87 * (design.upper + design.fore)
    for sign in signs:
        if mount == "behind":
            place, yaw = (x, sign * y if sign else lone, z), -0.8 * sign * y
        elif mount == "beside":
            side = sign or off
            place, yaw = (along, side * rng.uniform(0.66, 0.7), z), -side * pi / 2
        else:
            place, yaw = (along - 0.05, 0.8 * sign * y if sign else lone, high), 0.0
        result.append((tuple(float(v) for v in place), float(yaw), sign))
    return result


class Design:
    """Lengths, thickness and colours that both arms share."""

    def __init__(self, rng: np.random.Generator):
        self.pattern = PATTERNS[int(rng.choice((6, 7)))]
        self.shoulder = float(rng.uniform(0.26, 0.38))  # m, height
        self.upper, self.fore = (float(v) for v in rng.uniform(0.36, 0.46, 2))
        self.wrist = float(rng.uniform(0.07, 0.13))
        self.offset = float(rng.uniform(0, 0.1)) if rng.uniform() < 0.5 else 0.0  # of the upper arm
        self.thick = float(rng.uniform(0.04, 0.07))
        tone, other = textures.colours(rng)
        grey = float(rng.uniform(0.2, 0.95))
        self.tones = [(grey,) * 3, tuple(tone.tolist()), (float(rng.uniform(0.1, 0.4)),) * 3]
        if rng.uniform() < 0.4:
            self.tones[1] = self.tones[0]
        if rng.uniform() < 0.3:
            self.tones[0] = tuple(other.tolist())

    def lengths(self) -> list[tuple[float, float]]:
        """Of each joint: how far it lies behind the one before, along the arm and beside it."""
        h, a, b = self.shoulder, self.upper, self.fore
        if len(self.pattern) == 7:
            return [(0.45 * h, 0), (0.55 * h, 0), (0.45 * a, self.offset), (0.55 * a, -self.offset),
                    (0.5 * b, 0), (0.5 * b, 0), (self.wrist, 0)]
        return [(0.45 * h, 0), (0.55 * h, 0), (a, self.offset), (0.5 * b, -self.offset),
                (0.5 * b, 0), (self.wrist, 0)]

    def rest(self, overhead: bool) -> tuple[float, ...]:
        """Joints of an arm that waits: bent, the hand down."""
        bends = iter((-0.6, 1.3, -0.7) if overhead else (0.35, 1.65, pi - 2.0))
        return tuple(next(bends) if kind == "p" else 0.0 for kind in self.pattern)

    def arm(self, side, root, place, yaw, sign, mount, kind, rng):
        """Spec, links and tool site of one arm."""
        overhead = mount == "overhead"
        turn = about((0, 0, 1), yaw)
        if overhead:  # upside down: half a turn about x
            turn = about((1, 0, 0), pi)
        steps, count = self.lengths(), len(self.pattern)
        efforts, servos = (320, 320, 176, 176, 110, 60, 60), (4000, 4000, 3000, 3000, 1000, 1000, 500)
        links, limits, names = [], [], []
        for i in range(count + 1):
            radius = self.thick * (1.15 - 0.55 * i / count)
            length, beside = steps[i] if i < count else (0.035, 0.0)
            solids = self.shapes(i, radius, length, beside)
            joint = None
            if i:
                low, high = (-2.5, 2.5) if self.pattern[i - 1] == "p" else (-2.95, 2.95)
                axis = (0.0, 1.0, 0.0) if self.pattern[i - 1] == "p" else (0.0, 0.0, 1.0)
                k = i - 1 if count == 7 or i < 3 else i
                names.append(f"{side}_joint_{i}")
                limits.append((low, high))
                joint = Joint(names[-1], "revolute", low, high, axis, efforts[k], 3.0, servos[k])
            half = (radius, radius + abs(beside) / 2, radius + length / 2)
            before = steps[i - 1] if i else None
            links.append(
                Link(
                    f"{side}_link_{i}", f"{side}_link_{i - 1}" if i else root,
                    (0.0, float(before[1]), float(before[0])) if i else place,
                    (1.0, 0.0, 0.0, 0.0) if i else turn, joint, solids,
                    float(60 * radius * radius / 0.01 * (0.1 + length)),
                    (0.0, beside / 2, length / 2), half,
                )
            )
        hand = hands.draw(side, links[-1].name, rng, kind)
        palm = replace(hand.links[0], position=(0.0, 0.0, 0.035))
        chain = (*links, palm, *hand.links[1:])
        tool = (palm.name, (0.0, 0.0, hand.tool_z), (1.0, 0.0, 0.0, 0.0))
        most = (0.05, 0.5) if overhead else (0.32, 0.96 * (self.upper + self.fore))
        bias = tuple(0.0 if kind_ == "p" or i in (0, count - 1) or count == 6 else 1.0
                     for i, kind_ in enumerate(self.pattern))
        spec = ArmSpec(
            side=side, base=place, yaw=yaw, joints=tuple(names), limits=tuple(limits),
            rest=self.rest(overhead), home=home(place, sign, overhead), hand=palm.name,
            tool=f"{side}_tool", sign=sign, reach=most, bias=bias, upright=not overhead,
            lean=0.0 if overhead else 1.0, fingers=hand.fingers,
            finger_links=tuple(link.name for link in hand.links[1:]), gap=hand.gap,
            depth=hand.depth, hangs=overhead,
        )
        return spec, chain, tool

    def shapes(self, i: int, radius: float, length: float, beside: float) -> tuple[Solid, ...]:
        """A tube from this joint to the next, and the housing of a joint that bends."""
        tone = self.tones[1] if i in (2, 4) else self.tones[0]
        bends = 0 < i <= len(self.pattern) and self.pattern[i - 1] == "p"
        start, high = (0.0, float(beside), 0.0), length
        out = [Solid("cylinder", (radius, float(high / 2)), (start[0], start[1], float(high / 2)), rgb=tone)]
        if beside:  # a bridge to the tube that runs beside
            turn = about((1, 0, 0), pi / 2)
            out.append(Solid("cylinder", (radius, abs(beside) / 2 + 0.6 * radius), (0.0, beside / 2, 0.0), turn, self.tones[2]))
        elif bends:
            turn = about((1, 0, 0), pi / 2)
            out.append(Solid("cylinder", (1.05 * radius, radius + 0.012), (0.0, 0.0, 0.0), turn, self.tones[2]))
        if i == 0:
            out.append(Solid("cylinder", (1.35 * radius, 0.012), (0.0, 0.0, 0.012), rgb=self.tones[2]))
        return tuple(out)


def home(place, sign: float, overhead: bool) -> tuple[float, float, float, float]:
    """Where the tool waits: 40 cm from the base, toward the table's middle."""
    base, middle = np.array(place[:2]), np.array((-0.02, 0.12 * sign))
    if overhead:
        return (float(base[0] - 0.12), float(base[1] + 0.08 * sign), 0.28, 0.0)
    way = middle - base
    x, y = base + 0.4 * way / np.linalg.norm(way)
    return (float(x), float(y), 0.26, 0.0)
