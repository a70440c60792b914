"""The two arms, described once: `mjcf` and `urdf` write the same chains from the same tables.

Seven joints each with the link lengths of an iiwa 7, a fixed gripper, shapes from primitives.
URDF has no capsule: a capsule becomes a cylinder and two spheres, the same geometry.
Lengths in m, angles in rad, masses in kg. `rpy` as in URDF: about fixed x, then y, then z.
"""

from dataclasses import dataclass
from math import acos, atan2, pi

import numpy as np

from sim.rig import ArmSpec

ROOT = "world"
SIDES = ("left", "right")
BASES = {  # position and yaw in the world
    "left": ((-0.55, 0.36, 0.0), -0.3),
    "right": ((-0.55, -0.36, 0.0), 0.3),
}
TOOL_Z = 0.145  # the finger tips, in the frame of the hand
GREY, ORANGE, DARK = (0.85, 0.86, 0.88), (0.93, 0.52, 0.16), (0.25, 0.26, 0.28)


@dataclass(frozen=True)
class Joint:
    """A revolute joint about z of its frame; `xyz`, `rpy`: that frame in the parent link."""

    xyz: tuple[float, float, float]
    rpy: tuple[float, float, float]
    limit: float  # rad, both ways
    effort: float  # N m
    stiffness: float  # N m / rad of the position servo


JOINTS = (
    Joint((0, 0, 0.15), (0, 0, 0), 2.97, 320, 4000),
    Joint((0, 0, 0.19), (pi / 2, 0, pi), 2.09, 320, 4000),
    Joint((0, 0.21, 0), (pi / 2, 0, pi), 2.97, 176, 3000),
    Joint((0, 0, 0.19), (pi / 2, 0, 0), 2.09, 176, 3000),
    Joint((0, 0.21, 0), (-pi / 2, pi, 0), 2.97, 110, 1000),
    Joint((0, 0, 0.19), (pi / 2, 0, 0), 2.09, 60, 1000),
    Joint((0, 0.081, 0), (-pi / 2, pi, 0), 3.05, 60, 500),
)
HAND_XYZ = (0.0, 0.0, 0.045)  # in link 7, fixed
SERVO_LAG = 0.05  # s, by which an arm trails its command: damping over stiffness
MAX_SPEED = 3.0  # rad/s
REST = (0.0, 0.5, 0.0, -1.7, 0.0, 0.95, 0.0)
HOMES = {"left": (-0.17, 0.24, 0.26, 0.0), "right": (-0.17, -0.24, 0.26, 0.0)}


@dataclass(frozen=True)
class Shape:
    """A primitive in its link's frame.

    `capsule`, `cylinder`: from `a` to `b` with radius `size[0]`; `box`: centre `a`, half sizes.
    """

    kind: str
    a: tuple[float, float, float]
    b: tuple[float, float, float]
    size: tuple[float, ...]
    rgb: tuple[float, float, float]


@dataclass(frozen=True)
class Link:
    """A link: its name, shapes, mass, and the box that stands for its inertia."""

    name: str
    shapes: tuple[Shape, ...]
    mass: float
    centre: tuple[float, float, float]
    half: tuple[float, float, float]

    def inertia(self) -> tuple[float, float, float]:
        """Principal moments of a solid box of the link's mass, along the link's axes."""
        x, y, z = (h * h for h in self.half)
        return tuple(self.mass / 3 * s for s in (y + z, x + z, x + y))


def joint_names() -> list[str]:
    """All joints, in the order of every message and of MuJoCo's qpos."""
    return [f"{side}_joint_{i}" for side in SIDES for i in range(1, 8)]


def links(side: str) -> list[Link]:
    """Link 0 (the base) to link 7, and the hand."""
    radii = (0.075, 0.07, 0.065, 0.06, 0.055, 0.05, 0.048, 0.04)
    masses = (5.0, 3.5, 3.5, 2.5, 2.0, 1.5, 1.2, 0.4)
    ends = [joint.xyz for joint in JOINTS] + [HAND_XYZ]
    result = []
    for i, (radius, mass, end) in enumerate(zip(radii, masses, ends)):
        kind = "cylinder" if i in (0, 7) else "capsule"
        shapes = [Shape(kind, (0, 0, 0), end, (radius,), ORANGE if i in (2, 4) else GREY)]
        if i in (2, 4, 6):  # the housing of the joint that bears this link
            width = radius + 0.02
            shapes.append(Shape("cylinder", (0, 0, -width), (0, 0, width), (radius,), DARK))
        centre = tuple(e / 2 for e in end)
        half = tuple(abs(c) + 0.7 * radius for c in centre)
        result.append(Link(f"{side}_link_{i}", tuple(shapes), mass, centre, half))
    fingers = [
        Shape("box", (0, y, 0.1), (0, 0, 0), (0.013, 0.013, 0.045), DARK) for y in (-0.04, 0.04)
    ]
    palm = Shape("box", (0, 0, 0.03), (0, 0, 0), (0.035, 0.055, 0.03), GREY)
    hand = Link(f"{side}_hand", (palm, *fingers), 0.8, (0, 0, 0.06), (0.035, 0.05, 0.07))
    return result + [hand]


def text(values) -> str:
    """Numbers for an XML attribute, exact."""
    return " ".join(repr(float(v)) for v in values)


def mjcf(side: str, contype: int, conaffinity: int) -> str:
    """The arm as nested MuJoCo bodies (compiler: radian, eulerseq XYZ), with site `SIDE_tool`."""
    (base, yaw), chain = BASES[side], links(side)
    frames = [(base, (0, 0, yaw))] + [(j.xyz, j.rpy) for j in JOINTS] + [(HAND_XYZ, (0, 0, 0))]
    bits = f'contype="{contype}" conaffinity="{conaffinity}"'
    out = []
    for i, (link, (xyz, rpy)) in enumerate(zip(chain, frames)):
        out.append(
            f'<body name="{link.name}" pos="{text(xyz)}" euler="{text(rpy)}" gravcomp="1">'
            f'<inertial pos="{text(link.centre)}" mass="{link.mass}" '
            f'diaginertia="{text(link.inertia())}"/>'
        )
        if 1 <= i <= 7:
            limit = JOINTS[i - 1].limit
            out.append(
                f'<joint name="{side}_joint_{i}" axis="0 0 1" range="{-limit} {limit}" '
                'armature="0.1" damping="0.5"/>'
            )
        out += [f"<geom {geom_attributes(s)} {bits} group=\"0\"/>" for s in link.shapes]
    out.append(f'<site name="{side}_tool" pos="0 0 {TOOL_Z}" group="4"/>')
    return "".join(out) + "</body>" * len(chain)


def geom_attributes(shape: Shape) -> str:
    """Kind, place, size and colour of a shape in MJCF."""
    place = f'pos="{text(shape.a)}"'
    if shape.kind != "box":
        place = f'fromto="{text(shape.a + shape.b)}"'
    return f'type="{shape.kind}" {place} size="{text(shape.size)}" rgba="{text(shape.rgb)} 1"'


def actuators(side: str) -> str:
    """Position servos of the arm, in the order of its joints."""
    return "".join(
        f'<position name="{side}_servo_{i}" joint="{side}_joint_{i}" kp="{j.stiffness}" '
        f'kv="{j.stiffness * SERVO_LAG}" forcerange="{-j.effort} {j.effort}"/>'
        for i, j in enumerate(JOINTS, 1)
    )


def urdf() -> str:
    """Both arms in one URDF, rooted in `world`."""
    out = ['<?xml version="1.0"?>', '<robot name="two_arms">', f'  <link name="{ROOT}"/>']
    for side in SIDES:
        base, yaw = BASES[side]
        chain = links(side)
        out += [urdf_link(link) for link in chain]
        out.append(urdf_fixed(f"{side}_base", ROOT, chain[0].name, base, (0, 0, yaw)))
        for i, joint in enumerate(JOINTS, 1):
            out.append(
                f'  <joint name="{side}_joint_{i}" type="revolute">\n'
                f'    <parent link="{chain[i - 1].name}"/>\n    <child link="{chain[i].name}"/>\n'
                f'    <origin xyz="{text(joint.xyz)}" rpy="{text(joint.rpy)}"/>\n'
                f'    <axis xyz="0 0 1"/>\n    <limit lower="{-joint.limit}" '
                f'upper="{joint.limit}" effort="{joint.effort}" velocity="{MAX_SPEED}"/>\n'
                "  </joint>"
            )
        out.append(urdf_fixed(f"{side}_mount", chain[7].name, chain[8].name, HAND_XYZ, (0, 0, 0)))
    return "\n".join(out) + "\n</robot>\n"


def urdf_fixed(name, parent, child, xyz, rpy) -> str:
    """A fixed joint."""
    return (
        f'  <joint name="{name}" type="fixed">\n    <parent link="{parent}"/>\n'
        f'    <child link="{child}"/>\n    <origin xyz="{text(xyz)}" rpy="{text(rpy)}"/>\n  </joint>'
    )


def urdf_link(link: Link) -> str:
    """A link with its inertia, and each shape as visual and as collision."""
    ixx, iyy, izz = link.inertia()
    out = [
        f'  <link name="{link.name}">\n    <inertial>\n      <origin xyz="{text(link.centre)}"/>\n'
        f'      <mass value="{link.mass}"/>\n      <inertia ixx="{ixx!r}" ixy="0" ixz="0" '
        f'iyy="{iyy!r}" iyz="0" izz="{izz!r}"/>\n    </inertial>'
    ]
    for shape in link.shapes:
        for place, geometry in urdf_geometries(shape):
            body = f"      {place}\n      <geometry>{geometry}</geometry>\n"
            colour = f'<material name=""><color rgba="{text(shape.rgb)} 1"/></material>'
            out.append(f"    <visual>\n{body}      {colour}\n    </visual>")
            out.append(f"    <collision>\n{body}    </collision>")
    return "\n".join(out + ["  </link>"])


def urdf_geometries(shape: Shape) -> list[tuple[str, str]]:
    """Pairs of origin and geometry that make up the shape."""
    if shape.kind == "box":
        size = text(2 * s for s in shape.size)
        return [(f'<origin xyz="{text(shape.a)}"/>', f'<box size="{size}"/>')]
    a, b, radius = np.array(shape.a), np.array(shape.b), shape.size[0]
    length = float(np.linalg.norm(b - a))
    x, y, z = (b - a) / length
    rpy = (0, acos(z), atan2(y, x))  # turns z into the direction from a to b
    origin = f'<origin xyz="{text((a + b) / 2)}" rpy="{text(rpy)}"/>'
    result = [(origin, f'<cylinder radius="{radius}" length="{length!r}"/>')]
    if shape.kind == "capsule":
        ball = f'<sphere radius="{radius}"/>'
        result += [(f'<origin xyz="{text(p)}"/>', ball) for p in (a, b)]
    return result


class TwoArms:
    """Both arms as scenes and episodes ask for them (see sim.rig.Rig); the fingers stay still."""

    root, root_pose, told, name = ROOT, ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)), True, "two_arms"
    meshes: dict[str, bytes] = {}
    about: dict = {}
    joint_names = staticmethod(joint_names)

    def __init__(self):
        self.arms = tuple(
            ArmSpec(
                side=side, base=BASES[side][0], yaw=BASES[side][1],
                joints=tuple(f"{side}_joint_{i}" for i in range(1, 8)),
                limits=tuple((-j.limit, j.limit) for j in JOINTS), rest=REST, home=HOMES[side],
                hand=f"{side}_hand", tool=f"{side}_tool", sign=1.0 if side == "left" else -1.0,
                bias=(0, 0, 1, 0, 1, 0, 0), speed=MAX_SPEED,
            )
            for side in SIDES
        )
        self.links = tuple(link for side in SIDES for link in links(side))

    def mjcf(self, bits: dict[str, tuple[int, int]]) -> str:
        """Both arms."""
        return "".join(mjcf(side, *bits[side]) for side in SIDES)

    def servos(self) -> str:
        """Their servos."""
        return "".join(actuators(side) for side in SIDES)

    def assets(self) -> str:
        """No meshes."""
        return ""

    def files(self) -> dict[str, bytes]:
        """None."""
        return {}

    def leads(self) -> str:
        """Nothing leads them."""
        return ""

    def urdf(self, package: str = "") -> str:
        """Both arms in one URDF."""
        return urdf()


TWO_ARMS = TwoArms()
