"""A thing rides by on a belt, and a hand is to meet it: the world of examples/intercept.py."""

import mujoco
import numpy as np

from sim import scene, things
from sim.arm import PERIOD, Arm
from sim.episode import FRAME_JOINTS, FRAME_SECS, JOINT_STEPS
from sim.render import Painter
from sim.robot import TWO_ARMS
from sim.scene import Thing
from sim.tasks.belt import SPEED
from sim.truth import Truth
from sim.variety import SEEN

WATCHED = 10  # frames before the hand may move
LATENCY = 0.1  # s from a frame to the hand's start: the time to predict from it
ABOVE = 0.012  # m from the finger tips to the thing that they hold from above, as in recordings
HOVER = 0.22  # m, height of the tips while the hand waits
START_NS = 1_700_000_000 * 10**9


class Belt:
    """A seed gives the same, always. Frames at 10 Hz; time stands still while the caller thinks."""

    def __init__(self, seed: int):
        rng = np.random.default_rng([9, seed])
        speed = float(rng.uniform(*SPEED)) * float(rng.choice((-1, 1)))
        sizes = tuple(float(v) for v in rng.uniform((0.02, 0.02, 0.02), (0.035, 0.035, 0.04)))
        self.thing = Thing(
            "box", sizes, float(rng.uniform(200, 500)), 0.7, 0.0, things.colours(rng), np.zeros(3),
            np.array([1.0, 0, 0, 0]), np.zeros(6),
        )
        side = str(rng.choice(("left", "right")))
        self.spec = next(spec for spec in TWO_ARMS.arms if spec.side == side)
        # Where it will be when the hand can be there first, in the arm's own part of the table.
        meets = np.array([rng.uniform(-0.08, 0.08), self.spec.sign * rng.uniform(0.14, 0.22)])
        things.stand(self.thing, meets - (0, 1.8 * speed), float(rng.uniform(-np.pi, np.pi)))
        self.cameras = [SEEN.camera(name, rng) for name in ("camera_left", "camera_right")]
        self.speed = speed
        self.model = scene.build([self.thing], self.cameras, SEEN.look(rng), belt=True)
        self.data = mujoco.MjData(self.model)
        self.names = TWO_ARMS.joint_names()
        self.qpos = [self.model.joint(name).qposadr[0] for name in self.names]
        self.body = self.model.body(scene.thing_name(0)).id
        self.arm = Arm(self.model, self.spec, np.array([*meets, HOVER, 0.0]))
        homes = {spec.side: Arm(self.model, spec, np.array(spec.home)) for spec in TWO_ARMS.arms if spec.side != side}
        waits = {**homes, side: self.arm}
        self.command = np.concatenate([waits[spec.side].joints[0] for spec in TWO_ARMS.arms])
        self.data.qpos[self.qpos] = self.command
        self.frame = 0
        self.painter = Painter(self.model, Truth(self.model, None))
        self.step(round(0.3 / PERIOD), self.command[None])

    def step(self, samples: int, commands: np.ndarray) -> None:
        """Physics: one row of commands a sample of 20 ms, the last one held."""
        for k in range(samples):
            self.data.ctrl[:] = commands[min(k, len(commands) - 1)]
            for _ in range(JOINT_STEPS):
                for axis, speed in (("x", 0.0), ("y", self.speed)):
                    joint = self.model.joint(f"belt_{axis}")
                    self.data.qpos[joint.qposadr[0]], self.data.qvel[joint.dofadr[0]] = 0.0, speed
                mujoco.mj_step(self.model, self.data)
        mujoco.mj_forward(self.model, self.data)

    def look(self) -> dict:
        """What cameras and joints tell now, as `forecloud.Predictor.step` takes it."""
        views = [self.painter.view(self.data, camera) for camera in self.cameras]
        poses = []
        for camera in self.cameras:
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position
            poses.append(pose)
        intrinsics = [scene.intrinsics(c.fovy, c.width, c.height) for c in self.cameras]
        told = {
            "stamp": START_NS + round(self.frame * FRAME_SECS * 1e9), "depth": [v.depth for v in views],
            "color": [v.colour for v in views], "poses": poses,
            "intrinsics": [(focal, focal, cx, cy) for focal, cx, cy in intrinsics],
            "joints": dict(zip(self.names, self.data.qpos[self.qpos].tolist())),
        }
        return told

    def wait(self) -> None:
        """A frame passes, the hand stands."""
        self.step(FRAME_JOINTS, self.command[None])
        self.frame += 1

    def meet(self, place: np.ndarray, secs: float) -> float:
        """Sends the hand over a place (x, y, m), to be there in `secs`; returns how far beside the thing's middle
        its tips then are, seen from above (m)."""
        top = self.thing.position[2] + self.thing.size[2] + ABOVE
        self.arm.hold(LATENCY)
        self.arm.move([*place, top, self.arm.pose[3]], 1.0, seconds=secs - LATENCY, exact=True)
        rows = np.array(self.arm.joints)[1:]
        columns = [self.names.index(name) for name in self.spec.joints]
        commands = np.tile(self.command, (len(rows), 1))
        commands[:, columns] = rows
        self.step(round(secs / PERIOD), commands)
        tip = self.data.site(self.spec.tool).xpos
        return float(np.linalg.norm((tip - self.data.xpos[self.body])[:2]))

    def end(self) -> None:
        """Gives the pictures' memory back."""
        self.painter.__exit__()

    def urdf(self) -> str:
        """Of both arms."""
        return TWO_ARMS.urdf()
