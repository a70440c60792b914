"""A hand that no URDF tells of reaches into the arms' way, of the split `materials`."""

import mujoco
import numpy as np

from sim import movers, shapes, things
from sim.arm import progress
from sim.robot import TWO_ARMS
from sim.scene import Thing
from sim.shapes import Part
from sim.tasks.base import Seen
from sim.tasks.push import Push

# Where the hand goes: x, y, z of its middle (m), and its turn about the vertical (rad).
ROOM = np.array(((-0.05, -0.36, 0.07, -0.6), (0.36, 0.36, 0.4, 0.6)))
AWAY = np.array(((0.3, -0.36, 0.25, -0.6), (0.4, 0.36, 0.4, 0.6)))
SPEED = (0.3, 1.2)  # m/s, at its fastest
TRAIL, DAMPING = 25.0, 0.8  # 1/s of its spring to where it is led, and that of its damper
FORCE, TORQUE = 40.0, 5.0  # N and Nm that an arm puts behind it at most


class Reach(Push):
    """The arms push blocks; a hand on a forearm goes where an arm will be, or anywhere, and waits."""

    name, number, lively_frames = "reach", 10, 12

    def __init__(self, rng: np.random.Generator, variety, rig=TWO_ARMS):
        super().__init__(rng, variety, rig)
        # From when to when it goes, from where, where to.
        first = rng.uniform(*AWAY)
        self.way = (0.0, float(rng.uniform(0.2, 0.8)), first, first)

    def things(self) -> list[Thing]:
        """Blocks, and the hand."""
        chosen = [self.variety.thing("compact", self.rng) for _ in range(int(self.rng.integers(1, 3)))]
        lying = things.arrange(chosen, self.rng, in_air=0.0)
        made = self.hand()
        made.position, made.quaternion = self.way[2][:3].copy(), turned(self.way[2][3])
        self.driven = len(lying)
        return [*lying, made]

    def hand(self) -> Thing:
        """A palm with four fingers that points away from the cameras' side, and its forearm."""
        rng = self.rng
        long, lean = float(rng.uniform(0.16, 0.22)), float(rng.uniform(0.2, 0.7))
        elbow = (0.05 + long * np.cos(lean), 0.0, long * np.sin(lean))
        parts = [Part("ellipsoid", (0.052, 0.043, 0.02)), shapes.rod((0.05, 0, 0), elbow, 0.033)]
        for k in range(4):
            y = 0.021 * (k - 1.5)
            parts.append(shapes.rod((-0.045, y, 0.0), (-0.105, 1.2 * y, -0.02), 0.009))
        skin = movers.SKIN[int(rng.integers(len(movers.SKIN)))]
        return Thing(
            kind="hand", size=(), density=1000.0, friction=0.6, bounce=0.0, colours=(skin, skin), position=np.zeros(3),
            quaternion=np.array([1.0, 0, 0, 0]), velocity=np.zeros(6), parts=shapes.centred(parts),
        )

    def mine(self, arm, seen: Seen, margin: float = -0.02) -> list[int]:
        """What the arm may push: not the hand."""
        return [i for i in super().mine(arm, seen, margin) if i != self.driven]

    def lead(self, now: float) -> np.ndarray:
        """Where the hand is led: x, y, z, turn."""
        begins, ends, start, stop = self.way
        if now >= ends:
            self.way = self.next(ends, stop)
            return self.lead(now) if self.way[1] > ends else stop
        return start + progress((now - begins) / (ends - begins), False) * (stop - start)

    def next(self, now: float, here: np.ndarray) -> tuple:
        """The hand's next way: to where an arm's command leads, anywhere, away, or nowhere."""
        rng, draw = self.rng, self.rng.uniform()
        if draw < 0.2:
            return now, now + float(rng.uniform(0.2, 0.8)), here, here
        if draw < 0.6:
            arm = self.arms[int(rng.integers(len(self.arms)))]
            to = np.array([*(arm.pose[:3] + rng.normal(0, 0.05, 3) + (0.05, 0, 0)), rng.uniform(-0.6, 0.6)])
        else:
            to = rng.uniform(*(AWAY if draw < 0.8 else ROOM))
        to = np.clip(to, *ROOM) if draw < 0.6 else to
        seconds = 1.875 * float(np.linalg.norm(to - here)) / float(rng.uniform(*SPEED))
        return now, now + max(seconds, 0.3), here, to

    def drive(self, model: mujoco.MjModel, data: mujoco.MjData, now: float) -> None:
        """Puts a spring and a damper to the hand, no stronger than an arm: it yields to what it meets."""
        body = model.body(f"object_{self.driven}").id
        goal, velocity, turn = self.lead(now), np.empty(6), np.empty(3)
        ahead = (self.lead(now + 0.002) - goal) / 0.002 if now + 0.002 < self.way[1] else np.zeros(4)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, body, velocity, 0)
        mujoco.mju_subQuat(turn, turned(goal[3]), data.xquat[body])
        turn = data.xmat[body].reshape(3, 3) @ turn
        spin = np.array((0.0, 0.0, ahead[3]))
        pull = TRAIL**2 * (goal[:3] - data.xipos[body]) + 2 * DAMPING * TRAIL * (ahead[:3] - velocity[3:])
        twist = TRAIL**2 * turn + 2 * DAMPING * TRAIL * (spin - velocity[:3])
        mass, inertia = model.body_mass[body], model.body_inertia[body].mean()
        data.xfrc_applied[body, :3] = limited(mass * pull, FORCE) - mass * model.opt.gravity
        data.xfrc_applied[body, 3:] = limited(inertia * twist, TORQUE)


def turned(angle: float) -> np.ndarray:
    """The quaternion of a turn about the vertical."""
    return np.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


def limited(vector: np.ndarray, most: float) -> np.ndarray:
    """The vector, no longer than that."""
    return vector * min(1.0, most / max(float(np.linalg.norm(vector)), 1e-9))
