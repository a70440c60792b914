"""Real arms with their meshes, from the Python package `robosuite` (not a requirement: where it is
missing, the split `robots` can't be made, and its tests are skipped).

Nothing of it is committed. robosuite 1.5.2 is under the MIT licence and names none apart for the
meshes, which show their makers' products: so recordings of this split, which carry them as STL, are
for testing here, not for giving away.
"""

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

from sim import hands
from sim.arms import Design, home, places, rooted
from sim.meshes import stl
from sim.rig import UNIT, ArmSpec, Finger, Joint, Link, Rig, Solid, about, matrix

REMEDY = (
    "the split robots needs the package robosuite, whose wheel carries the arms' meshes: "
    "pip download --no-deps robosuite, and unzip the wheel, or pip install --no-deps robosuite"
)
SIDES = ("left", "right")
MAX_FACES = 3_000  # of a mesh; larger ones are thinned


@dataclass(frozen=True)
class Known:
    """An arm of the package: its file, its joints at rest, and its hand (a file, or drawn)."""

    name: str
    rest: tuple[float, ...]
    hand: str = ""  # of hands.KINDS: drawn
    gripper: str = ""  # its own: open and closed joints below
    fingers: tuple[tuple[str, float, float], ...] = ()
    tool_z: float = 0.0
    gap: float = 0.0


ARMS = (
    Known("panda", (0, 0.2, 0, -2.3, 0, 2.5, 0.785), "", "panda_gripper",
          (("finger_joint1", 0.04, 0.0), ("finger_joint2", -0.04, 0.0)), 0.105, 0.08),
    Known("ur5e", (0, -1.6, 1.9, -1.87, -1.57, 0), "parallel"),
    Known("iiwa", (0, 0.5, 0, -1.7, 0, 0.95, 0), "three_finger"),
    Known("sawyer", (0, -0.8, 0, 1.6, 0, 0.8, 0), "", "rethink_gripper",
          (("l_finger_joint", 0.0208, -0.0115), ("r_finger_joint", -0.0208, 0.0115)), 0.125, 0.065),
    Known("kinova3", (0, 0.5, 0, 1.7, 0, 0.95, 0), "parallel"),
    Known("xarm7", (0, -0.3, 0, 1.2, 0, 1.5, 0), "suction"),
)


def problem() -> str | None:
    """Why there are no real arms here, with the remedy; None where there are."""
    return None if folder() else REMEDY


def folder() -> Path | None:
    """Where the package's models lie; the package is not imported."""
    try:
        found = importlib.util.find_spec("robosuite")
    except (ImportError, ValueError):
        return None
    assets = Path(found.origin).parent / "models" / "assets" if found and found.origin else None
    return assets if assets and (assets / "robots").is_dir() else None


def robot(rng: np.random.Generator, arms: int) -> Rig:
    """One or two real arms of a kind, with their meshes; raises RuntimeError where there are none."""
    if reason := problem():
        raise RuntimeError(reason)
    known = ARMS[int(rng.integers(len(ARMS)))]
    mount = str(rng.choice(("behind", "beside"), p=(0.75, 0.25)))
    spots = places(mount, arms, Design(rng), rng)
    root = f"{known.name}_base" if arms == 1 else "world"
    rig = Rig(known.name, (), (), root)
    seed = int(rng.integers(2**31))
    for side, (place, yaw, sign) in zip(SIDES, spots):
        add(rig, known, side, place, yaw, sign, np.random.default_rng(seed))
    if root != "world":
        rooted(rig, np.array(spots[0][0]))
    rig.about = {"arms": arms, "name": known.name, "mount": mount, "hand": known.gripper or known.hand,
                 "joints": len(known.rest), "meshes": True, "root": root}
    return rig


def add(rig: Rig, known: Known, side: str, place, yaw: float, sign: float, rng) -> None:
    """Adds an arm and its hand to a rig."""
    assets = folder()
    model = mujoco.MjModel.from_xml_path(str(assets / "robots" / known.name / "robot.xml"))
    links = links_of(model, side, rig.meshes)
    links[0] = replace(links[0], parent=rig.root, position=place, quaternion=about((0, 0, 1), yaw))
    names = [link.joint.name for link in links if link.joint]
    wrist = f"{side}_right_hand"
    if known.hand:
        hand = hands.draw(side, wrist, rng, known.hand)
        more, fingers, tool_z, gap, depth = hand.links, hand.fingers, hand.tool_z, hand.gap, hand.depth
    else:
        own = mujoco.MjModel.from_xml_path(str(assets / "grippers" / f"{known.gripper}.xml"))
        more = links_of(own, f"{side}_hand", rig.meshes)
        more[0] = replace(more[0], parent=wrist)
        fingers = tuple(Finger(f"{side}_hand_{n}", o, c) for n, o, c in known.fingers)
        more = [stiff(link) for link in more]
        tool_z, gap, depth = known.tool_z, known.gap, 0.03
    palm = next(link.name for link in more)
    by_name = {link.joint.name: link.joint for link in links if link.joint}
    moving = [link.name for link in more if link.joint]
    tips = [link.name for link in more if link.name in moving or link.parent in moving]
    spec = ArmSpec(
        side=side, base=place, yaw=yaw, joints=tuple(names),
        limits=tuple((by_name[n].low, by_name[n].high) for n in names), rest=known.rest,
        home=home(place, sign, False), hand=palm, tool=f"{side}_tool", sign=sign,
        reach=(0.32, 0.72), bias=(0.0,) * len(names), upright=False, fingers=fingers,
        finger_links=tuple(tips), gap=gap, depth=depth,
    )
    rig.links += (*links, *more)
    rig.arms += (spec,)
    rig.tools[spec.tool] = tool_of(known, palm, tool_z)


def tool_of(known: Known, palm: str, tool_z: float):
    """The tool site: z to the tips, y along the finger line, of the hand's first link."""
    turn = UNIT
    if known.gripper == "panda_gripper":  # its fingers go along the hand's y, turned with it
        turn = about((0, 0, 1), np.pi / 2)
    return palm, (0.0, 0.0, tool_z), turn


def stiff(link: Link) -> Link:
    """A gripper's link with servos as strong as those of drawn hands."""
    if not link.joint:
        return link
    return replace(link, joint=replace(
        link.joint, effort=25.0, velocity=0.5, stiffness=800.0, armature=0.2, damping=5.0
    ))


def links_of(model: mujoco.MjModel, side: str, meshes: dict[str, bytes]) -> list[Link]:
    """The bodies of a compiled model as links; what shows is what its visual geoms are."""
    out, names = [], {0: ""}
    servos = (4000, 4000, 3000, 3000, 1000, 1000, 500)
    for body in range(1, model.nbody):
        name = f"{side}_{model.body(body).name or body}"
        names[body] = name
        joint = None
        j = int(model.body_jntadr[body])
        if model.body_jntnum[body] and "head" not in model.joint(j).name:  # stays where it is
            hinge = model.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE
            low, high = model.jnt_range[j] if model.jnt_limited[j] else (-3.1, 3.1)
            low, high = max(low, -3.1), min(high, 3.1)
            k = min(sum(link.joint is not None for link in out), 6)
            joint = Joint(
                f"{side}_{model.joint(j).name}", "revolute" if hinge else "prismatic", float(low),
                float(high), tuple(model.jnt_axis[j].tolist()), (320, 320, 176, 176, 110, 60, 60)[k],
                3.0, servos[k],
            )
            if np.abs(model.jnt_pos[j]).max() > 1e-9:
                raise RuntimeError(f"{name}: a joint beside its body's origin")
        moments = model.body_inertia[body]
        mass = float(max(model.body_mass[body], 0.01))
        size = float(np.sqrt(max(moments.max(), 1e-5) / mass * 1.5))
        out.append(
            Link(
                name, names[int(model.body_parentid[body])],
                tuple(model.body_pos[body].tolist()), tuple(model.body_quat[body].tolist()), joint,
                tuple(solids_of(model, body, name, meshes)), mass,
                tuple(model.body_ipos[body].tolist()), (min(size, 0.15),) * 3,
            )
        )
    return out


def thinned(corners: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A mesh of at most MAX_FACES: corners of a cell (0.5 mm and up) become one."""
    cell = 0.0005
    while len(faces) > MAX_FACES:
        _, owner = np.unique(np.rint(corners / cell).astype(int), axis=0, return_inverse=True)
        owner, count = owner.reshape(-1), owner.max() + 1
        sums = np.zeros((count, 3))
        np.add.at(sums, owner, corners)
        corners, faces = sums / np.bincount(owner)[:, None], owner[faces]
        a, b, c = faces.T
        faces = np.unique(faces[(a != b) & (b != c) & (a != c)], axis=0)
        cell *= 1.5
    return corners, faces


def solids_of(model: mujoco.MjModel, body: int, link: str, meshes: dict[str, bytes]) -> list[Solid]:
    """Its visual geoms (group 1), which collide by their hulls; other geoms where there are none."""
    first = int(model.body_geomadr[body])
    geoms = range(first, first + int(model.body_geomnum[body]))
    shown = [g for g in geoms if model.geom_group[g] == 1] or [g for g in geoms if model.geom_group[g] == 0]
    kinds = {
        mujoco.mjtGeom.mjGEOM_BOX: "box", mujoco.mjtGeom.mjGEOM_SPHERE: "sphere",
        mujoco.mjtGeom.mjGEOM_CYLINDER: "cylinder",
    }
    found = []
    for g in shown:
        place, turn = tuple(model.geom_pos[g].tolist()), tuple(model.geom_quat[g].tolist())
        rgba = model.geom_rgba[g]
        if model.geom_matid[g] >= 0:
            rgba = model.mat_rgba[model.geom_matid[g]]
        rgb = tuple(rgba[:3].tolist())
        if model.geom_type[g] != mujoco.mjtGeom.mjGEOM_MESH:
            if model.geom_type[g] in kinds and rgba[3] > 0.9:
                size = model.geom_size[g]
                kind = kinds[model.geom_type[g]]
                count = {"box": 3, "sphere": 1, "cylinder": 2}[kind]
                found.append(Solid(kind, tuple(size[:count].tolist()), place, turn, rgb))
            continue
        m = int(model.geom_dataid[g])
        corners = model.mesh_vert[model.mesh_vertadr[m] :][: model.mesh_vertnum[m]]
        faces = model.mesh_face[model.mesh_faceadr[m] :][: model.mesh_facenum[m]]
        corners, faces = thinned(corners.astype(float), faces)
        if len(faces) < 4 or np.ptp(corners, axis=0).min() < 0.001:  # flat: has no hull
            continue
        name = f"{link}_{len(found)}"
        # In the link's frame: the model's mesh lies about its own middle.
        placed = corners @ matrix(turn).T + np.array(place)
        meshes[name] = stl(placed, faces)
        found.append(Solid("mesh", (), rgb=rgb, mesh=name))
    return found
