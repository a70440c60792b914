"""Cameras that move: on the wrist of an arm, or on a base that drives past the table; and tf of them that errs.

The scene, its physics and its truth are those of the episode; one camera takes the place of its cameras.
"""

import copy
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from sim import scene
from sim.recording import FRAME_NS, PLAN_LEAD, START, WORLD, Messages, topics, transform
from sim.scene import Camera, looking

KINDS = ("wrist", "base")
# In the frame of the hand, whose fingers reach 0.145 m along z: beside the palm, looking past the tips.
WRIST_PLACE, WRIST_TARGET = np.array((0.09, 0.0, -0.02)), np.array((0.0, 0.0, 0.3))
WRIST_FOVY, BASE_FOVY = 58.0, 46.0  # degrees
BASE = "base_link"
DISTANCE, MAST = 1.05, 0.65  # m, of the base from the table's middle, and of its camera above the table
SPEED, SPAN = 0.16, 0.4  # m/s to and fro, m to either side
TARGET = np.array((-0.02, 0.0, 0.05))
ERROR_SECS = 0.3  # in which an error becomes another
KEY = 78  # of the draws


@dataclass(frozen=True)
class PoseErrors:
    """How tf of a camera errs: m and rad (root mean square), and by how much it is late (s)."""

    shift: float = 0.0
    turn: float = 0.0
    lag: float = 0.0

    @staticmethod
    def parse(text: str) -> "PoseErrors":
        """From `MM,DEGREES,LAG_MS`; raises ValueError."""
        parts = [float(part) for part in text.split(",")]
        if len(parts) != 3 or not all(0 <= part <= most for part, most in zip(parts, (100, 10, 500))):
            raise ValueError(f"{text}: expected MM,DEGREES,LAG_MS, such as 5,0.5,20")
        return PoseErrors(parts[0] / 1e3, float(np.radians(parts[1])), parts[2] / 1e3)

    def drawn(self, frames: int, secs: float, rng: np.random.Generator) -> np.ndarray:
        """Shift (m) and rotation vector of each frame: a calibration that is off, and what comes and goes."""
        keep = np.exp(-secs / ERROR_SECS)
        rows, now = [], rng.normal(size=6)
        constant = rng.normal(size=6)
        for _ in range(frames):
            rows.append((now + constant) / np.sqrt(2))
            now = keep * now + np.sqrt(1 - keep**2) * rng.normal(size=6)
        return np.array(rows) * np.repeat((self.shift, self.turn), 3) / np.sqrt(3)


@dataclass(frozen=True)
class MovingCamera:
    """What carries the camera; `still`: it stays where it is in the middle of the episode."""

    kind: str
    still: bool = False
    errors: PoseErrors = PoseErrors()

    def about(self) -> dict:
        """For the note beside the recordings."""
        errors = [self.errors.shift, self.errors.turn, self.errors.lag]
        return {"kind": self.kind, "still": self.still, "errors": errors}


def inverse(pose: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Of a place and a rotation matrix."""
    place, turn = pose
    return -turn.T @ place, turn.T


def joined(a, b) -> tuple[np.ndarray, np.ndarray]:
    """First `b`, then `a`."""
    return a[0] + a[1] @ b[0], a[1] @ b[1]


def rotation(vector: np.ndarray) -> np.ndarray:
    """Of a rotation vector."""
    angle, turn = float(np.linalg.norm(vector)), np.array((1.0, 0, 0, 0))
    if angle > 0:
        mujoco.mju_axisAngle2Quat(turn, vector / angle, angle)
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, turn)
    return matrix.reshape(3, 3)


def between(a, b, share: float) -> tuple[np.ndarray, np.ndarray]:
    """A pose on the way from one to another."""
    turn = np.empty(3)
    mujoco.mju_quat2Vel(turn, scene.quaternion_of(a[1].T @ b[1]), 1.0)
    return a[0] + share * (b[0] - a[0]), a[1] @ rotation(share * turn)


class MovingMessages(Messages):
    """As Messages (two arms at a table, 10 Hz), seen by one camera that moves."""

    def __init__(self, episode, moving: MovingCamera):
        name, fovy = episode.cameras[0].name, WRIST_FOVY if moving.kind == "wrist" else BASE_FOVY
        self.view = Camera(name, np.zeros(3), np.eye(3), fovy)
        # The episode keeps its own cameras.
        super().__init__(replace(episode, model=copy.copy(episode.model), cameras=[self.view]))
        self.moving = moving
        self.model.cam_fovy[self.model.camera(name).id] = fovy
        self.model.cam_resolution[:] = (self.view.width, self.view.height)
        base = [self.base_at(frame) for frame in range(self.frames)]
        poses = [self.pose_at(frame, base[frame]) for frame in range(self.frames)]
        if moving.still:
            middle = self.frames // 2
            base, poses = [base[middle]] * self.frames, [poses[middle]] * self.frames
        self.base, self.camera_poses = base, poses
        rng = np.random.default_rng([episode.seed, KEY, KINDS.index(moving.kind)])
        self.errors = moving.errors.drawn(self.frames, FRAME_NS / 1e9, rng)
        self.topics = topics([name])

    def state(self, frame: int) -> None:
        """Brings `data` to a frame."""
        self.data.qpos[:] = self.episode.qpos[frame]
        mujoco.mj_forward(self.model, self.data)

    def base_at(self, frame: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the base is: it goes to and fro, and looks at the table's middle, a little late."""
        phase = (frame * FRAME_NS / 1e9 * SPEED + (self.episode.seed % 7) * 0.1) % (4 * SPAN)
        y = phase - SPAN if phase < 2 * SPAN else 3 * SPAN - phase
        place = np.array((DISTANCE, y, 0.0))
        yaw = np.arctan2(TARGET[1] - 0.8 * y, TARGET[0] - DISTANCE)
        c, s = np.cos(yaw), np.sin(yaw)
        return place, np.array(((c, -s, 0), (s, c, 0), (0, 0, 1)))

    def pose_at(self, frame: int, base) -> tuple[np.ndarray, np.ndarray]:
        """Where the camera is."""
        if self.moving.kind == "base":
            eye = np.array((0.0, 0.0, MAST))
            return joined(base, (eye, looking(eye, np.array((DISTANCE, 0.0, TARGET[2])))))
        self.state(frame)
        hand = self.model.body(self.rig.arms[0].hand).id
        forward = WRIST_TARGET - WRIST_PLACE
        forward /= np.linalg.norm(forward)
        right = np.array((0.0, 1.0, 0.0))
        turn = np.column_stack([right, np.cross(forward, right), forward])
        pose = (self.data.xpos[hand].copy(), self.data.xmat[hand].reshape(3, 3).copy())
        return joined(pose, (WRIST_PLACE, turn))

    def told(self, poses: list, frame: int) -> tuple[np.ndarray, np.ndarray]:
        """What tf says at a frame of what went so: late, and off."""
        late = max(frame - self.moving.errors.lag * 1e9 / FRAME_NS, 0.0)
        before = min(int(late), self.frames - 2)
        pose = between(poses[before], poses[before + 1], late - before)
        error = self.errors[frame]
        return joined(pose, (error[:3], rotation(error[3:])))

    def latched(self) -> list[tuple[int, str, object]]:
        """As Messages; of the camera only what is fixed."""
        self.state(0)
        messages = super().latched()
        at = START - PLAN_LEAD - 10_000_000
        optical, fixed = f"{self.view.name}_optical_frame", messages[1][2].transforms
        fixed[:] = [each for each in fixed if each.child_frame_id != optical]
        if self.moving.kind == "base":
            eye = joined(inverse(self.base[0]), self.camera_poses[0])
            fixed.append(transform(at, BASE, optical, eye[0], scene.quaternion_of(eye[1])))
        return messages

    def frame(self, frame: int, painter) -> list[tuple[int, str, object]]:
        """As Messages, seen from where the camera is; with what tf says of it."""
        place, turn = self.camera_poses[frame]
        number = self.model.camera(self.view.name).id
        self.data.cam_xpos[number] = place
        self.data.cam_xmat[number] = (turn @ np.diag((1.0, -1.0, -1.0))).reshape(9)
        found = super().frame(frame, painter)
        stamp, optical = START + frame * FRAME_NS, f"{self.view.name}_optical_frame"
        if self.moving.kind == "base":
            parent, child, pose = WORLD, BASE, self.told(self.base, frame)
        elif self.moving.still:
            parent, child, pose = WORLD, optical, self.told(self.camera_poses, frame)
        else:
            hand = self.model.body(self.rig.arms[0].hand)
            at = (self.data.xpos[hand.id].copy(), self.data.xmat[hand.id].reshape(3, 3).copy())
            parent, child = hand.name, optical
            pose = joined(inverse(at), self.told(self.camera_poses, frame))
        moved = transform(stamp, parent, child, pose[0], scene.quaternion_of(pose[1]))
        tf = next(message for _, topic, message in found if topic == "/tf")
        tf.transforms.append(moved)
        return found
