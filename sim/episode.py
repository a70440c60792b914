"""One episode: objects, arms and physics; tried again until it is one worth keeping."""

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from sim import robot, scene
from sim.arm import PERIOD, Arm
from sim.scene import TIMESTEP, Camera, Thing
from sim.tasks import TASKS, Grip

FRAMES = 50
FRAME_SECS = 0.1
HORIZON = 1.1  # s; a command is fixed this long ahead, more than a recorded plan's 1 s and its lead
JOINT_STEPS = round(0.02 / TIMESTEP)  # physics steps between joint samples
FRAME_JOINTS = round(FRAME_SECS / 0.02)  # joint samples between frames
ATTEMPTS = 60
BOUNDS = ((-0.44, -0.49, -0.01), (0.54, 0.49, 0.6))  # where objects stay, m
MAX_STEP = 0.22  # m between frames, of an object's centre
GRIP_RANGE = 0.05  # m between the tool and an object's surface, at most


@dataclass
class Episode:
    """What happened. Rows: `qpos` one a frame; joints 50 times a second, from the first frame on."""

    task: str
    seed: int
    model: mujoco.MjModel
    things: list[Thing]
    cameras: list[Camera]
    qpos: np.ndarray
    joint_positions: np.ndarray
    joint_velocities: np.ndarray
    arms: list[Arm]
    first: int = 0  # frame of the whole episode that row 0 is

    def part(self, start: int, frames: int) -> "Episode":
        """The frames from `start` on as an episode of its own, whose time starts anew."""
        joints = slice(start * FRAME_JOINTS, (start + frames - 1) * FRAME_JOINTS + 1)
        return replace(
            self, qpos=self.qpos[start : start + frames],
            joint_positions=self.joint_positions[joints],
            joint_velocities=self.joint_velocities[joints], first=self.first + start,
        )

    def steps(self) -> np.ndarray:
        """How far the centre of each object goes from frame to frame (frames - 1 × objects, m)."""
        places = self.qpos[:, 14:].reshape(len(self.qpos), -1, 7)[:, :, :3]
        return np.linalg.norm(np.diff(places, axis=0), axis=2)

    def plan(self, frame: int) -> np.ndarray:
        """Commanded joints 0, 0.1, … 1 s after a frame: 11 × 14."""
        times = (self.first + frame + np.arange(11)) * FRAME_SECS
        return np.concatenate([arm.at(times) for arm in self.arms], axis=1)


class Rejected(Exception):
    """The attempt is not worth keeping; the message says why."""


def simulate(task: str, seed: int, frames: int = FRAMES) -> Episode:
    """The episode of a task and seed: the first attempt that is lively and sound."""
    reasons = []
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng([seed, sorted(TASKS).index(task), attempt])
        try:
            return Attempt(task, seed, rng).run(frames)
        except Rejected as reason:
            reasons.append(str(reason))
    raise RuntimeError(f"{task} {seed}: no attempt of {ATTEMPTS} was sound: {sorted(set(reasons))}")


class Attempt:
    """The physics of one attempt."""

    def __init__(self, task: str, seed: int, rng: np.random.Generator):
        self.task, self.seed = TASKS[task](rng), seed
        self.things = self.task.things()
        self.cameras = scene.cameras(rng)
        self.model = scene.build(self.things, self.cameras, rng)
        self.data = mujoco.MjData(self.model)
        self.arms = [Arm(self.model, side, self.task.start(side)) for side in robot.SIDES]
        self.bodies = [self.model.body(scene.thing_name(i)).id for i in range(len(self.things))]
        self.hands = {side: self.model.body(f"{side}_hand").id for side in robot.SIDES}
        self.held: set[tuple[str, int]] = set()
        owner = self.model.geom_bodyid
        names = [self.model.body(b).name for b in owner]
        self.is_arm = np.array([n.startswith(robot.SIDES) for n in names])
        self.is_left = np.array([n.startswith("left") for n in names])
        self.is_thing = np.array([n.startswith("object") for n in names])

    def run(self, frames: int) -> Episode:
        """Simulates, checks, and returns the episode; raises Rejected."""
        self.begin()
        rows, positions, velocities = [], [], []
        count = 14
        for sample in range((frames - 1) * FRAME_JOINTS + 1):
            positions.append(self.data.qpos[:count].copy())
            velocities.append(self.data.qvel[:count].copy())
            if sample % FRAME_JOINTS == 0:
                rows.append(self.data.qpos.copy())
                self.check_frame(rows)
            self.advance(sample * PERIOD)
        episode = Episode(
            self.task.name, self.seed, self.model, self.things, self.cameras, np.array(rows),
            np.array(positions), np.array(velocities), self.arms,
        )
        self.check_lively(episode)
        return episode

    def begin(self) -> None:
        """Sets the first state and the commands of the first second."""
        self.data.qpos[:14] = np.concatenate([arm.joints[0] for arm in self.arms])
        mujoco.mj_forward(self.model, self.data)
        for i, thing in enumerate(self.things):
            at = self.model.jnt_qposadr[self.model.body_jntadr[self.bodies[i]]]
            dof = self.model.body_dofadr[self.bodies[i]]
            if thing.held_by:
                tip = self.data.site(f"{thing.held_by}_tool").xpos
                self.data.qpos[at : at + 3] = tip - (0, 0, thing.bounding_radius() + 0.004)
            else:
                self.data.qvel[dof : dof + 6] = thing.velocity
        mujoco.mj_forward(self.model, self.data)
        self.commit(0.0)
        self.check_contacts(first=True)

    def commit(self, now: float) -> None:
        """Fixes the commands up to HORIZON from now."""
        places = self.data.xpos[self.bodies].copy()
        for arm in self.arms:
            while arm.end() < now + HORIZON:
                self.task.extend(arm, now, places, self.things)

    def advance(self, now: float) -> None:
        """Goes on by one joint sample (20 ms), the command linear within it."""
        self.commit(now)
        self.hold(now)
        times = now + (1 + np.arange(JOINT_STEPS)) * TIMESTEP
        command = np.concatenate([arm.at(times) for arm in self.arms], axis=1)
        for row in command:
            self.data.ctrl[:] = row
            mujoco.mj_step(self.model, self.data)
        mujoco.mj_forward(self.model, self.data)
        self.check_contacts()

    def hold(self, now: float) -> None:
        """Closes and opens the grips that are due."""
        for grip in self.task.grips:
            key = (grip.side, grip.thing)
            due = grip.start <= now + 1e-9 < grip.end
            if due and key not in self.held and self.near(grip):
                self.held.add(key)
                self.set_weld(grip, True)
            elif not due and key in self.held and now > grip.start:
                self.held.remove(key)
                self.set_weld(grip, False)

    def near(self, grip: Grip) -> bool:
        """Whether the tool is close enough to grip; always so at the start."""
        tip = self.data.site(f"{grip.side}_tool").xpos
        gap = np.linalg.norm(tip - self.data.xpos[self.bodies[grip.thing]])
        return gap < self.things[grip.thing].bounding_radius() + GRIP_RANGE

    def set_weld(self, grip: Grip, active: bool) -> None:
        """Welds hand and object as they are now, or lets go."""
        weld = self.model.equality(f"hold_{grip.side}_{grip.thing}").id
        hand, body = self.hands[grip.side], self.bodies[grip.thing]
        inverse, turn, place = np.empty(4), np.empty(4), np.empty(3)
        mujoco.mju_negQuat(inverse, self.data.xquat[hand])
        mujoco.mju_rotVecQuat(place, self.data.xpos[body] - self.data.xpos[hand], inverse)
        mujoco.mju_mulQuat(turn, inverse, self.data.xquat[body])
        self.model.eq_data[weld, :10] = np.concatenate([np.zeros(3), place, turn])
        self.data.eq_active[weld] = active

    def check_contacts(self, first: bool = False) -> None:
        """Rejects arms that touch the table, the rim or each other, and overlaps at the start."""
        pairs = self.data.contact.geom
        one, two = self.is_arm[pairs[:, 0]], self.is_arm[pairs[:, 1]]
        both = one & two
        fixed = ~self.is_arm & ~self.is_thing
        if np.any(both | (one & fixed[pairs[:, 1]]) | (two & fixed[pairs[:, 0]])):
            raise Rejected("an arm touches the table or the other arm")
        depth = -self.data.contact.dist
        if len(depth) and depth.max() > (0.002 if first else 0.012):
            raise Rejected("bodies overlap")

    def check_frame(self, rows: list[np.ndarray]) -> None:
        """Rejects objects that leave the tray, or move too far in one frame."""
        places = rows[-1][14:].reshape(-1, 7)[:, :3]
        if not np.all(np.isfinite(rows[-1])):
            raise Rejected("the physics broke")
        if np.any(places < BOUNDS[0]) or np.any(places > BOUNDS[1]):
            raise Rejected("an object left the tray")
        if len(rows) > 1:
            before = rows[-2][14:].reshape(-1, 7)[:, :3]
            if np.linalg.norm(places - before, axis=1).max() > MAX_STEP:
                raise Rejected("an object is too fast")

    def check_lively(self, episode: Episode) -> None:
        """Rejects episodes where too little moves."""
        steps = episode.steps().max(axis=1)
        if np.sum(steps > 0.004) < self.task.lively_frames * len(steps) / (FRAMES - 1):
            raise Rejected("too little moves")
