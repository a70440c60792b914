"""Things that bend: a rope of capsules on ball joints, and a cloth of a MuJoCo flex."""

from dataclasses import dataclass, field

import mujoco
import numpy as np

from sim.shapes import Part

HANDLES = 5  # bodies along a rope that hands can hold


@dataclass
class Soft:
    """A rope (`cells`: links, 1) or a cloth (`cells`: vertices each way), flat at first.

    `pitch`: length of a link, or spacing of vertices, m. `bends`: angle at each joint of a rope.
    """

    kind: str
    cells: tuple[int, int]
    pitch: float
    radius: float
    mass_kg: float
    friction: float
    colours: tuple[np.ndarray, np.ndarray]
    position: np.ndarray  # of its middle
    yaw: float
    bends: np.ndarray = field(default_factory=lambda: np.zeros(0))
    checks: int = 2  # cells of a colour

    def handles(self) -> list[int]:
        """Links or vertices that hands can hold: along a rope, about the hem of a cloth."""
        rows, columns = self.cells
        if self.kind == "rope":
            return [round(k * (rows - 1) / (HANDLES - 1)) for k in range(HANDLES)]
        at = [(r, c) for r in (0, rows // 2, rows - 1) for c in (0, columns // 2, columns - 1)]
        return [r * columns + c for r, c in at]

    def handle_bodies(self, index: int) -> list[str]:
        """Names of those bodies, where the thing is object `index`."""
        return [f"object_{index}_{k}" for k in self.handles()]

    def mjcf(self, index: int, bits: str) -> str:
        """Its bodies; `bits`: contype and conaffinity."""
        return self.rope(index, bits) if self.kind == "rope" else self.cloth(index, bits)

    def chain(self) -> np.ndarray:
        """Rest places of a rope's links relative to the first (links × 2, m), the first along x."""
        turns = np.concatenate([[0.0], np.cumsum(self.bends)])
        heads = np.stack([np.cos(turns), np.sin(turns)], axis=1) * self.pitch / 2
        return np.concatenate([[[0, 0]], np.cumsum(heads[:-1] + heads[1:], axis=0)])

    def rope(self, index: int, bits: str) -> str:
        """Links, each in the one before it."""
        links, half = self.cells[0], self.pitch / 2
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        first = self.position[:2] - np.array(((c, -s), (s, c))) @ self.chain().mean(axis=0)
        quaternion = f"{np.cos(self.yaw / 2)} 0 0 {np.sin(self.yaw / 2)}"
        out = []
        for k in range(links):
            tone = self.colours[k // self.checks % 2]
            place = f"{first[0]} {first[1]} {self.position[2]}" if k == 0 else f"{self.pitch} 0 0"
            turn = f' quat="{quaternion}"' if k == 0 else ""
            joint = (
                "<freejoint/>" if k == 0 else
                f'<joint name="bend_{k}" type="ball" pos="{-half} 0 0" damping="0.0015" '
                'armature="0.00002"/>'
            )
            out.append(
                f'<body name="object_{index}_{k}" pos="{place}"{turn}>{joint}'
                f'<geom type="capsule" fromto="{-half} 0 0 {half} 0 0" size="{self.radius}" '
                f'mass="{self.mass_kg / links}" friction="{self.friction} 0.005 0.001" condim="4" '
                f'priority="1" solref="0.01 1" rgba="{tone[0]} {tone[1]} {tone[2]} 1" {bits}/>'
            )
        return "".join(out) + "</body>" * links

    def cloth(self, index: int, bits: str) -> str:
        """A grid of vertices whose edges keep their lengths."""
        x, y, z = self.position
        return (
            f'<flexcomp name="object_{index}" type="grid" dim="2" '
            f'count="{self.cells[0]} {self.cells[1]} 1" '
            f'spacing="{self.pitch} {self.pitch} {self.pitch}" pos="{x} {y} {z}" '
            f'quat="{np.cos(self.yaw / 2)} 0 0 {np.sin(self.yaw / 2)}" '
            f'mass="{self.mass_kg}" radius="{self.radius}">'
            '<edge equality="true" damping="0.002" solref="0.006 1"/>'
            f'<contact condim="3" selfcollide="none" internal="false" {bits} solref="0.01 1" '
            f'friction="{self.friction} 0.005 0.0001" priority="1"/></flexcomp>'
        )

    def bend(self, model: mujoco.MjModel, qpos: np.ndarray) -> None:
        """Sets the joints of a rope to its bends."""
        for k, angle in enumerate(self.bends, 1):
            at = model.joint(f"bend_{k}").qposadr[0]
            qpos[at : at + 4] = (np.cos(angle / 2), 0, 0, np.sin(angle / 2))


def random_rope(rng: np.random.Generator, colours) -> Soft:
    """A rope of 0.4 to 0.65 m that lies or falls in a curve."""
    radius = rng.uniform(0.009, 0.013)
    pitch = 2.7 * radius  # so that a link clears the next but one
    links = round(rng.uniform(0.42, 0.65) / pitch)
    trend = rng.normal(0, 0.06)
    return Soft(
        "rope", (links, 1), float(pitch), float(radius), float(rng.uniform(0.1, 0.3)),
        float(rng.uniform(0.3, 0.8)), colours,
        np.array([*rng.uniform((-0.12, -0.08), (0.06, 0.08)), rng.uniform(0.02, 0.2)]),
        float(np.pi / 2 + rng.uniform(-0.7, 0.7)), trend + rng.normal(0, 0.1, links - 1),
        int(rng.integers(1, 5)),
    )


def random_cloth(rng: np.random.Generator, colours) -> Soft:
    """A cloth of 25 to 40 cm a side that falls flat."""
    cells = tuple(int(v) for v in rng.integers(10, 13, 2))
    return Soft(
        "cloth", cells, float(rng.uniform(0.028, 0.036)), 0.006,
        float(rng.uniform(0.06, 0.2)), float(rng.uniform(0.3, 0.8)), colours,
        np.array([*rng.uniform((-0.12, -0.06), (0.04, 0.06)), rng.uniform(0.02, 0.25)]),
        float(rng.uniform(-np.pi, np.pi)), checks=int(rng.integers(1, 5)),
    )


class Faces:
    """The triangles of a model's cloth, each with the rigid motion nearest to its own.

    A triangle keeps its shape but for the stretch of the cloth; its pose is that of the rest
    triangle fitted to it (the polar part of its deformation), the origin at its centroid.
    """

    def __init__(self, model: mujoco.MjModel, soft: Soft):
        self.corners = model.flex_elem.reshape(-1, 3).copy()
        self.count = len(self.corners)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        a, b, c = self.points(data)
        self.rest_edges = np.linalg.inv(self.flat(b - a, c - a))
        cell = self.corners.min(axis=1)
        row, column = cell // soft.cells[1], cell % soft.cells[1]
        self.tone = (row // soft.checks + column // soft.checks) % 2

    def points(self, data: mujoco.MjData) -> np.ndarray:
        """Corners of the triangles in the world: 3 × faces × 3, m."""
        return data.flexvert_xpos[self.corners].transpose(1, 0, 2)

    @staticmethod
    def flat(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        """Edges in each triangle's plane, `one` along x: faces × 2 × 2, an edge a column."""
        length = np.linalg.norm(one, axis=1)
        along = np.einsum("ni,ni->n", one, two) / length
        across = np.sqrt(np.einsum("ni,ni->n", two, two) - along**2)
        return np.stack([np.stack([length, along], 1), np.stack([0 * length, across], 1)], 1)

    def poses(self, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Centroids (faces × 3, m) and quaternions (faces × 4, w x y z)."""
        a, b, c = self.points(data)
        stretch = np.stack([b - a, c - a], axis=2) @ self.rest_edges
        u, _, v = np.linalg.svd(stretch, full_matrices=False)
        axes = u @ v
        normal = np.cross(axes[:, :, 0], axes[:, :, 1])
        turns = np.empty((self.count, 4))
        for turn, frame in zip(turns, np.concatenate([axes, normal[:, :, None]], axis=2)):
            mujoco.mju_mat2Quat(turn, np.ascontiguousarray(frame).reshape(9))
        return (a + b + c) / 3, turns


@dataclass(frozen=True)
class Knot:
    """A handle of a soft thing, as hands see it: a small ball."""

    radius: float
    held_by: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The ball."""
        return (Part("sphere", (self.radius,)),)

    @property
    def grips(self) -> tuple:
        """Its middle."""
        return ((0, (0.0, 0.0, 0.0)),)

    def bounding_radius(self) -> float:
        """Its radius."""
        return self.radius
