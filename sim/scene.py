"""The scene of an episode as one MuJoCo model: table with a rim, arms, objects, cameras."""

from dataclasses import dataclass

import mujoco
import numpy as np

from sim import robot
from sim.robot import TWO_ARMS
from sim.shapes import ROLLING, Part
from sim.soft import Soft
from sim.textures import Look, Texture

TIMESTEP = 0.002  # s
WIDTH, HEIGHT, FOVY = 320, 240, 46.0  # px, px, degrees
CAMERAS = ("camera_left", "camera_right")
CAMERA_PLACES = {"camera_left": (0.85, 0.65, 0.70), "camera_right": (0.85, -0.65, 0.70)}
LOOK_AT = (0.03, 0.0, 0.12)
TRAY = (-0.42, 0.52, -0.46, 0.46)  # x and y ranges within the rim, m
RIM_HEIGHT, RIM_WIDTH = 0.06, 0.02
ARM_BITS = ((1, 6), (2, 5))  # contype, conaffinity: no arm collides with itself
THING_BITS = 'contype="4" conaffinity="7"'


@dataclass
class Thing:
    """A free object: `parts`, or one primitive of `kind` and `size` (as Part.size).

    `grips`: where hands hold it, as part and point in the body's frame.
    """

    kind: str
    size: tuple[float, ...]
    density: float  # kg/m3
    friction: float
    bounce: float  # 0 to 1
    colours: tuple[np.ndarray, np.ndarray]
    position: np.ndarray
    quaternion: np.ndarray  # w x y z
    velocity: np.ndarray  # linear in the world, then angular in the body
    held_by: str | None = None  # the arm that carries it at first
    parts: tuple[Part, ...] = ()
    texture: Texture | None = None
    grips: tuple[tuple[int, tuple[float, ...]], ...] = ()
    fixed: bool = False  # stays where it is, in the air
    string: float = 0.0  # m from its middle up to where it hangs; 0: it does not hang

    def bounding_radius(self) -> float:
        """Radius of a ball about the centre that holds the object."""
        if self.parts:
            return max(part.bounding_radius() for part in self.parts)
        if self.kind == "capsule":
            return self.size[0] + self.size[1]
        return float(np.linalg.norm(self.size))

    def half_height(self) -> float:
        """Half the height when it stands upright."""
        return {"box": self.size[-1], "sphere": self.size[0]}.get(
            self.kind, self.size[-1] + (self.size[0] if self.kind == "capsule" else 0.0)
        )


@dataclass
class Camera:
    """A camera: `rotation` turns optical axes (x right, y down, z forward) into the world's."""

    name: str
    position: np.ndarray
    rotation: np.ndarray
    fovy: float = FOVY  # degrees
    width: int = WIDTH
    height: int = HEIGHT

    def quaternion(self) -> np.ndarray:
        """w x y z of the optical frame in the world."""
        return quaternion_of(self.rotation)


def intrinsics(
    fovy: float = FOVY, width: int = WIDTH, height: int = HEIGHT
) -> tuple[float, float, float]:
    """Focal length (both ways) and centre cx, cy in pixels."""
    focal = height / 2 / np.tan(np.radians(fovy) / 2)
    return float(focal), width / 2 - 0.5, height / 2 - 0.5


def quaternion_of(rotation: np.ndarray) -> np.ndarray:
    """w x y z of a rotation matrix."""
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation, dtype=float).reshape(9))
    return quaternion


def looking(place: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Rotation of an upright camera that looks from one point to another."""
    forward = target - place
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0, 0, 1))
    right /= np.linalg.norm(right)
    return np.column_stack([right, np.cross(forward, right), forward])


def cameras(rng: np.random.Generator) -> list[Camera]:
    """Both cameras, each moved by up to 5 cm along every axis and turned by up to 3 degrees."""
    result = []
    for name in CAMERAS:
        place = np.array(CAMERA_PLACES[name])
        rotation = looking(place, np.array(LOOK_AT))
        axis = rng.normal(size=3)
        turn = np.empty(4)
        angle = np.radians(rng.uniform(0, 3))
        mujoco.mju_axisAngle2Quat(turn, axis / np.linalg.norm(axis), angle)
        jitter = np.empty(9)
        mujoco.mju_quat2Mat(jitter, turn)
        position = place + rng.uniform(-0.05, 0.05, 3)
        result.append(Camera(name, position, jitter.reshape(3, 3) @ rotation))
    return result


def thing_name(index: int) -> str:
    """Body name of object `index`."""
    return f"object_{index}"


def build(
    things: list[Thing], views: list[Camera], look: Look, soft: Soft | None = None, rig=TWO_ARMS,
    stage=None, belt: bool = False,
) -> mujoco.MjModel:
    """Compiles the model of an episode; `stage` (sim.stage.Stage): of a real-like one; `belt`: the
    table's top can be driven."""
    files = look.table.files("table") | rig.files()
    extras = stage.extras if stage else []
    for i, thing in numbered(things, soft, extras):
        files |= thing.texture.files(f"m{i}") if thing.texture else {}
    return mujoco.MjModel.from_xml_string(xml(things, views, look, soft, rig, stage, belt), files)


def numbered(things: list[Thing], soft: Soft | None, extras: list[Thing]) -> list[tuple[int, Thing]]:
    """Objects with their numbers: the task's, then (a soft one between) those of the stage."""
    first = len(things) + (soft is not None)
    return [*enumerate(things), *enumerate(extras, first)]


def xml(
    things: list[Thing], views: list[Camera], look: Look, soft: Soft | None, rig, stage=None,
    belt: bool = False,
) -> str:
    """The model as MJCF."""
    text = robot.text
    bits = dict(zip((spec.side for spec in rig.arms), ARM_BITS))
    views_xml = "".join(
        f'<camera name="{v.name}" pos="{text(v.position)}" fovy="{v.fovy}" '
        f'quat="{text(quaternion_of(v.rotation @ np.diag([1, -1, -1])))}"/>'
        for v in views
    )
    lights = "".join(
        f'<light pos="{text(at.position)}" dir="{text([-v for v in at.position])}" '
        f'diffuse="{text(at.diffuse)}" castshadow="false"/>'
        for at in look.lights
    )
    # Newton's method factors the whole cloth at each step; conjugate gradients are five times faster.
    solver = ' solver="CG"' if soft and soft.kind == "cloth" else ""
    soft_xml = soft.mjcf(len(things), THING_BITS) if soft else ""
    everything = numbered(things, soft, stage.extras if stage else [])
    rigid = "".join(thing_xml(i, t) for i, t in everything[: len(things)])
    more = "".join(thing_xml(i, t) for i, t in everything[len(things) :])
    width, height = max((v.width, v.height) for v in views) if views else (WIDTH, HEIGHT)
    ground = (
        f'<geom name="floor" type="box" pos="0 0 -0.8" size="3 3 0.05" rgba="{text(look.floor)} 1" '
        f"{THING_BITS}/>\n{driven_table() if belt else table(look)}"
    )
    gravity = ""
    if stage:
        ground, gravity = stage.ground(look), f' gravity="0 0 {-stage.gravity()}"'
    return f"""<mujoco model="forecloud">
<compiler angle="radian" eulerseq="XYZ" autolimits="true"/>
<option timestep="{TIMESTEP}" integrator="implicitfast" cone="elliptic" impratio="3"{gravity}{solver}/>
<statistic extent="1" center="0 0 0.1"/>
<visual>
<global offwidth="{width}" offheight="{height}"/>
<quality offsamples="0"/>
<map znear="0.05" zfar="8"/>
<headlight ambient="{text(look.ambient)}" diffuse="{text(look.head)}" specular="0.1 0.1 0.1"/>
</visual>
<asset>{materials(everything, look)}{rig.assets()}</asset>
<worldbody>
{lights}
{ground}{rig.mjcf(bits)}{views_xml}{rigid}{more}{soft_xml}
</worldbody>
<actuator>{rig.servos()}</actuator>
<equality>{holds(things, soft, rig)}{rig.leads()}</equality>
</mujoco>"""


def materials(things: list[tuple[int, Thing]], look: Look) -> str:
    """Textured materials: `table`, and `mI` for object I."""
    out = [look.table.mjcf("table", flat=True, repeat=look.repeat)]
    for i, thing in things:
        texture = thing.texture or Texture("checker", *thing.colours)
        out.append(texture.mjcf(f"m{i}", flat=False))
    return "".join(out)


# The table's top, whether it stands or is driven; its upper face is z = 0.
TOP = 'name="top" type="box" pos="-0.1 0 -0.02" size="0.66 0.6 0.02" material="table" friction="0.5"'


def table(look: Look) -> str:
    """The table, its top at z = 0, with a rim about the tray."""
    x0, x1, y0, y1 = TRAY
    w, h = RIM_WIDTH / 2, RIM_HEIGHT / 2
    middle_x, middle_y = (x0 + x1) / 2, (y0 + y1) / 2
    half_x, half_y = (x1 - x0) / 2, (y1 - y0) / 2
    bars = [(x, middle_y, w, half_y + 2 * w) for x in (x0 - w, x1 + w)]
    bars += [(middle_x, y, half_x, w) for y in (y0 - w, y1 + w)]
    rim = "".join(
        f'<geom name="rim_{i}" type="box" pos="{x} {y} {h}" size="{sx} {sy} {h}" '
        f'rgba="{robot.text(look.rim)} 1" friction="0.5" {THING_BITS}/>'
        for i, (x, y, sx, sy) in enumerate(bars)
    )
    return f'<body name="table"><geom {TOP} {THING_BITS}/>{rim}</body>'


def driven_table() -> str:
    """The table as a belt: as heavy as to go its way whatever lies on it, and without a rim."""
    slides = "".join(
        f'<joint name="belt_{axis}" type="slide" axis="{way}"/>'
        for axis, way in (("x", "1 0 0"), ("y", "0 1 0"))
    )
    return (
        f'<body name="table" gravcomp="1">{slides}<geom {TOP} mass="10000" {THING_BITS}/></body>'
    )


def thing_xml(index: int, thing: Thing) -> str:
    """A free body; its contact parameters win over those of table and arms."""
    text = robot.text
    parts = thing.parts or (Part(thing.kind, thing.size),)
    rolls = any(part.kind in ROLLING for part in parts)
    friction = (thing.friction, 0.005, 0.003 if rolls else 0.0001)
    damping = 1.0 - 0.7 * thing.bounce
    joint = "" if thing.fixed else "<freejoint/>"
    string = ""
    if thing.string:
        joint = f'<joint type="ball" pos="0 0 {thing.string}" damping="0.002"/>'
        string = (
            f'<geom type="capsule" fromto="0 0 0 0 0 {thing.string}" size="0.003" mass="0.001" '
            'rgba="0.8 0.75 0.6 1" contype="0" conaffinity="0"/>'
        )
    geoms = "".join(
        f'<geom type="{part.kind}" size="{text(part.size)}" pos="{text(part.position)}" '
        f'quat="{text(part.quaternion)}" density="{thing.density}" '
        f'friction="{text(friction)}" condim="{6 if rolls else 4}" priority="1" '
        f'solref="0.01 {damping}" material="m{index}" {THING_BITS}/>'
        for part in parts
    )
    return (
        f'<body name="{thing_name(index)}" pos="{text(thing.position)}" '
        f'quat="{text(thing.quaternion)}">{joint}{geoms}{string}</body>'
    )


def grip_bodies(things: list[Thing], soft: Soft | None) -> list[str]:
    """Names of the bodies that hands can hold: each object, then the soft one's handles."""
    rigid = [thing_name(i) for i in range(len(things))]
    return rigid + (soft.handle_bodies(len(things)) if soft else [])


def holds(things: list[Thing], soft: Soft | None, rig=TWO_ARMS) -> str:
    """Grips, off at first, one for each hand and body to hold: `hold_SIDE_INDEX`.

    A weld; to a vertex of cloth, which can't turn, a ball joint.
    """
    bodies = grip_bodies(things, soft)
    point = soft is not None and soft.kind == "cloth"
    out = []
    for spec in rig.arms:
        side = spec.side
        for i, body in enumerate(bodies):
            hold = 'connect anchor="0 0 0"' if point and i >= len(things) else "weld"
            out.append(
                f'<{hold} name="hold_{side}_{i}" body1="{spec.hand}" body2="{body}" active="false"/>'
            )
    return "".join(out)
