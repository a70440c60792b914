"""The robot of a scene as a tree of links: `mjcf` and `urdf` write the same tree from the same table.

Lengths in m, angles in rad, masses in kg, quaternions w x y z. A rig without joints that anyone
tells of (`told` false) is a mover: a hand or a tool that no URDF describes.
"""

from dataclasses import dataclass, field
from math import atan2, cos, hypot, sin

import mujoco
import numpy as np

LAG = 0.05  # s, by which a joint trails its command: damping over stiffness
UNIT = (1.0, 0.0, 0.0, 0.0)
ORIGIN = (0.0, 0.0, 0.0)
REACH = (0.32, 0.80)  # m from an arm's base, in the plane


def text(values) -> str:
    """Numbers for an XML attribute, exact."""
    return " ".join(repr(float(v)) for v in values)


def matrix(quaternion) -> np.ndarray:
    """Rotation of a quaternion."""
    frame = np.empty(9)
    mujoco.mju_quat2Mat(frame, np.asarray(quaternion, float))
    return frame.reshape(3, 3)


def quaternion_of(rotation: np.ndarray) -> tuple[float, ...]:
    """w x y z of a rotation matrix."""
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation, dtype=float).reshape(9))
    return tuple(quaternion.tolist())


def about(axis, angle: float) -> tuple[float, ...]:
    """Quaternion of a turn about an axis."""
    quaternion = np.empty(4)
    mujoco.mju_axisAngle2Quat(quaternion, np.asarray(axis, float), float(angle))
    return tuple(quaternion.tolist())


def rpy(quaternion) -> tuple[float, float, float]:
    """The same turn about fixed x, then y, then z, as URDF has it."""
    r = matrix(quaternion)
    pitch, yaw = atan2(-r[2, 0], hypot(r[0, 0], r[1, 0])), atan2(r[1, 0], r[0, 0])
    # Near a right angle only roll and yaw together are sure: roll takes up what yaw is off.
    c, s = cos(yaw), sin(yaw)
    return atan2(s * r[0, 2] - c * r[1, 2], c * r[1, 1] - s * r[0, 1]), pitch, yaw


@dataclass(frozen=True)
class Solid:
    """A shape in its link's frame: sizes as in MuJoCo (radius, half lengths); a mesh names its file.

    `touches`: whether it collides, a mesh by its convex hull; `shows`: whether cameras see it.
    """

    kind: str  # box, sphere, cylinder (about z), capsule (movers only), mesh
    size: tuple[float, ...] = ()
    position: tuple[float, ...] = ORIGIN
    quaternion: tuple[float, ...] = UNIT
    rgb: tuple[float, ...] = (0.7, 0.7, 0.7)
    mesh: str = ""
    touches: bool = True
    shows: bool = True

    def mjcf(self, bits: str, prefix: str) -> str:
        """A geom; group 3 is not drawn."""
        shape = f'mesh="{prefix}{self.mesh}"' if self.mesh else f'size="{text(self.size)}"'
        rgba = f' rgba="{text(self.rgb)} 1"'
        return (
            f'<geom type="{self.kind}" {shape} pos="{text(self.position)}" '
            f'quat="{text(self.quaternion)}"{rgba} {bits if self.touches else OFF} '
            f'group="{0 if self.shows else 3}"/>'
        )

    def urdf(self, package: str) -> str:
        """Its geometry element."""
        if self.mesh:
            return f'<mesh filename="package://{package}/meshes/{self.mesh}.stl"/>'
        if self.kind == "box":
            return f'<box size="{text(2 * s for s in self.size)}"/>'
        if self.kind == "sphere":
            return f'<sphere radius="{self.size[0]!r}"/>'
        return f'<cylinder radius="{self.size[0]!r}" length="{2 * self.size[1]!r}"/>'


OFF = 'contype="0" conaffinity="0"'


@dataclass(frozen=True)
class Joint:
    """A joint between a link and its parent, about or along `axis` of the link's frame."""

    name: str
    kind: str  # revolute or prismatic
    low: float
    high: float
    axis: tuple[float, ...] = (0.0, 0.0, 1.0)
    effort: float = 100.0  # N m or N
    velocity: float = 3.0
    stiffness: float = 1000.0  # of the position servo
    armature: float = 0.1
    damping: float = 0.5


@dataclass(frozen=True)
class Link:
    """A link: where it sits in its parent (a name; empty: the rig's root) and what it is made of."""

    name: str
    parent: str
    position: tuple[float, ...] = ORIGIN
    quaternion: tuple[float, ...] = UNIT
    joint: Joint | None = None
    solids: tuple[Solid, ...] = ()
    mass: float = 0.5
    centre: tuple[float, ...] = ORIGIN
    half: tuple[float, ...] = (0.04, 0.04, 0.04)  # of the box that stands for its inertia

    def inertia(self) -> tuple[float, float, float]:
        """Principal moments of a solid box of the link's mass, along the link's axes."""
        x, y, z = (h * h for h in self.half)
        return tuple(self.mass / 3 * s for s in (y + z, x + z, x + y))


@dataclass(frozen=True)
class Finger:
    """A joint of a hand, and where it is when the hand is open and when it is closed."""

    joint: str
    open: float
    closed: float


@dataclass(frozen=True)
class ArmSpec:
    """What tasks and commands need to know of one arm, or of a mover.

    `joints`: of the arm without the hand, none for a mover; `gap`: between open fingers, m, 0 where
    the hand only holds from above; `tool`: the site between the finger tips.
    """

    side: str
    base: tuple[float, float, float]
    yaw: float
    joints: tuple[str, ...]
    limits: tuple[tuple[float, float], ...]
    rest: tuple[float, ...]
    home: tuple[float, float, float, float]
    hand: str
    tool: str
    sign: float = 0.0  # of y on the side that is this arm's own; 0: all of the table
    reach: tuple[float, float] = REACH
    speed: float = 3.0  # rad/s
    bias: tuple[float, ...] = ()  # which joints are drawn to `rest` where the pose leaves them free
    upright: bool = True  # stands: the first joint turns about the vertical
    lean: float = 1.0  # how much the hand leans outward far from the base
    fingers: tuple[Finger, ...] = ()
    finger_links: tuple[str, ...] = ()
    gap: float = 0.0
    depth: float = 0.03  # how far the tips go down beside what they hold, m
    hangs: bool = False  # the first joint is overhead
    pace: float = 1.0  # factor on the speed of all motions
    mover: str = ""  # the mocap body that leads it


@dataclass
class Rig:
    """All arms of a scene. `root` is the URDF's root link, at `root_pose` in the world."""

    name: str
    arms: tuple[ArmSpec, ...]
    links: tuple[Link, ...]
    root: str = "world"
    root_pose: tuple[tuple[float, ...], tuple[float, ...]] = (ORIGIN, UNIT)
    tools: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]] = field(default_factory=dict)
    meshes: dict[str, bytes] = field(default_factory=dict)  # name → binary STL
    told: bool = True
    about: dict = field(default_factory=dict)

    def joint_names(self) -> list[str]:
        """All joints, in the order of every message and of the servos."""
        return [j for arm in self.arms for j in (*arm.joints, *(f.joint for f in arm.fingers))]

    def moving_names(self) -> list[str]:
        """Links that a joint moves."""
        return [link.name for link in self.links if link.joint]

    def files(self) -> dict[str, bytes]:
        """What the model names beside itself."""
        return {f"rig_{name}.stl": data for name, data in self.meshes.items()}

    def assets(self) -> str:
        """Meshes as MuJoCo assets."""
        return "".join(
            f'<mesh name="rig_{name}" file="rig_{name}.stl" inertia="shell"/>' for name in self.meshes
        )

    def mjcf(self, bits: dict[str, tuple[int, int]]) -> str:
        """The links as nested bodies under the root; `bits`: contype and conaffinity by side."""
        place, turn = self.root_pose
        inside = "".join(self.body(link, bits) for link in self.links if link.parent == self.root)
        if not self.told:
            leads = "".join(
                f'<body name="{a.mover}" mocap="true" pos="{text(a.home[:3])}"/>' for a in self.arms
            )
            return inside + leads
        if self.root == "world":
            return inside
        return f'<body name="{self.root}" pos="{text(place)}" quat="{text(turn)}">{inside}</body>'

    def body(self, link: Link, bits: dict[str, tuple[int, int]]) -> str:
        """A link and all that hang on it."""
        side = next(a.side for a in self.arms if link.name.startswith(a.side))
        con = 'contype="{}" conaffinity="{}"'.format(*bits[side])
        out = [
            f'<body name="{link.name}" pos="{text(link.position)}" quat="{text(link.quaternion)}" '
            f'gravcomp="1"><inertial pos="{text(link.centre)}" mass="{link.mass}" '
            f'diaginertia="{text(link.inertia())}"/>'
        ]
        if link.joint:
            j = link.joint
            kind = {"revolute": "hinge", "prismatic": "slide"}[j.kind]
            out.append(
                f'<joint name="{j.name}" type="{kind}" axis="{text(j.axis)}" '
                f'range="{j.low} {j.high}" armature="{j.armature}" damping="{j.damping}"/>'
            )
        elif not self.told and link.parent == self.root:
            out.append("<freejoint/>")
        out += [s.mjcf(con, "rig_") for s in link.solids]
        out += [
            f'<site name="{site}" pos="{text(place)}" quat="{text(turn)}" group="4"/>'
            for site, (owner, place, turn) in self.tools.items()
            if owner == link.name
        ]
        out += [self.body(c, bits) for c in self.links if c.parent == link.name]
        return "".join(out) + "</body>"

    def servos(self) -> str:
        """Position servos in the order of the joints."""
        joints = {link.joint.name: link.joint for link in self.links if link.joint}
        return "".join(
            f'<position name="servo_{name}" joint="{name}" kp="{joints[name].stiffness}" '
            f'kv="{joints[name].stiffness * LAG}" '
            f'forcerange="{-joints[name].effort} {joints[name].effort}"/>'
            for name in self.joint_names()
        )

    def leads(self) -> str:
        """What ties movers to the bodies that lead them."""
        return "".join(
            f'<weld name="lead_{a.side}" body1="{a.mover}" body2="{a.hand}" solref="0.03 1" '
            'relpose="0 0 0 1 0 0 0"/>'
            for a in self.arms
            if a.mover
        )

    def urdf(self, package: str = "robot") -> str:
        """The URDF; meshes lie in the folder `meshes` of ROS package `package`."""
        out = ['<?xml version="1.0"?>', f'<robot name="{self.name}">', f'  <link name="{self.root}"/>']
        for link in self.links:
            out += [self.urdf_link(link, package), self.urdf_joint(link)]
        return "\n".join(out) + "\n</robot>\n"

    @staticmethod
    def urdf_joint(link: Link) -> str:
        """The joint to the parent."""
        joint, kind, more = link.joint, "fixed", ""
        name = joint.name if joint else f"{link.name}_mount"
        if joint:
            kind = joint.kind
            more = (
                f'\n    <axis xyz="{text(joint.axis)}"/>\n    <limit lower="{joint.low!r}" '
                f'upper="{joint.high!r}" effort="{joint.effort}" velocity="{joint.velocity}"/>'
            )
        return (
            f'  <joint name="{name}" type="{kind}">\n    <parent link="{link.parent}"/>\n'
            f'    <child link="{link.name}"/>\n    <origin xyz="{text(link.position)}" '
            f'rpy="{text(rpy(link.quaternion))}"/>{more}\n  </joint>'
        )

    @staticmethod
    def urdf_link(link: Link, package: str) -> str:
        """A link with its inertia and shapes."""
        ixx, iyy, izz = link.inertia()
        out = [
            f'  <link name="{link.name}">\n    <inertial>\n      <origin xyz="{text(link.centre)}"/>\n'
            f'      <mass value="{link.mass}"/>\n      <inertia ixx="{ixx!r}" ixy="0" ixz="0" '
            f'iyy="{iyy!r}" iyz="0" izz="{izz!r}"/>\n    </inertial>'
        ]
        for s in link.solids:
            place = f'<origin xyz="{text(s.position)}" rpy="{text(rpy(s.quaternion))}"/>'
            body = f"      {place}\n      <geometry>{s.urdf(package)}</geometry>\n"
            if s.shows:
                colour = f'<material name=""><color rgba="{text(s.rgb)} 1"/></material>'
                out.append(f"    <visual>\n{body}      {colour}\n    </visual>")
            if s.touches:
                out.append(f"    <collision>\n{body}    </collision>")
        return "\n".join(out + ["  </link>"])
