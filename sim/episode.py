"""One episode: objects, arms and physics; tried again until it is one worth keeping."""

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from sim import robot, scene, tasks
from sim.arm import PERIOD, Arm
from sim.scene import TIMESTEP, Camera, Thing
from sim.soft import Knot, Soft
from sim.tasks.base import Grip, Seen, grip_top

FRAMES = 50
FRAME_SECS = 0.1
HORIZON = 1.1  # s; a command is fixed this long ahead, more than a recorded plan's 1 s and its lead
JOINT_STEPS = round(0.02 / TIMESTEP)  # physics steps between joint samples
FRAME_JOINTS = round(FRAME_SECS / 0.02)  # joint samples between frames
ATTEMPTS = 60
BOUNDS = ((-0.44, -0.49, -0.01), (0.54, 0.49, 0.6))  # where objects stay, m
MAX_STEP = 0.22  # m between frames, of an object's centre
GRIP_RANGE = 0.05  # m between the tool and an object's bounding ball, at most (plain scenes)
FINGER_RANGE = 0.03  # m between a finger and an object's surface, at most
SHARED_TURN = 0.1  # weight of rotation in the welds of a shared grip
# Instability rejects an attempt (check_frame): without this MuJoCo would write it to a log file.
mujoco.set_mju_user_warning(lambda _: None)


@dataclass
class Episode:
    """What happened. Rows: `qpos` and `places` (of objects' bodies, m) one a frame; joints 50 times
    a second, from the first frame on."""

    task: str
    seed: int
    model: mujoco.MjModel
    things: list[Thing]
    cameras: list[Camera]
    qpos: np.ndarray
    places: np.ndarray
    joint_positions: np.ndarray
    joint_velocities: np.ndarray
    arms: list[Arm]
    variety: str = "plain"
    soft: Soft | None = None
    first: int = 0  # frame of the whole episode that row 0 is

    def part(self, start: int, frames: int) -> "Episode":
        """The frames from `start` on as an episode of its own, whose time starts anew."""
        joints = slice(start * FRAME_JOINTS, (start + frames - 1) * FRAME_JOINTS + 1)
        return replace(
            self, qpos=self.qpos[start : start + frames],
            places=self.places[start : start + frames],
            joint_positions=self.joint_positions[joints],
            joint_velocities=self.joint_velocities[joints], first=self.first + start,
        )

    def steps(self) -> np.ndarray:
        """How far each object's bodies go from frame to frame (frames - 1 × bodies, m)."""
        return np.linalg.norm(np.diff(self.places, axis=0), axis=2)

    def plan(self, frame: int) -> np.ndarray:
        """Commanded joints 0, 0.1, … 1 s after a frame: 11 × 14."""
        times = (self.first + frame + np.arange(11)) * FRAME_SECS
        return np.concatenate([arm.at(times) for arm in self.arms], axis=1)


class NoEpisode(Exception):
    """No attempt at a task and seed was worth keeping."""


class Rejected(Exception):
    """The attempt is not worth keeping; the message says why."""


def simulate(task: str, seed: int, frames: int = FRAMES, variety: str = "split") -> Episode:
    """The episode of a task and seed: the first attempt that is lively and sound.

    `variety`: `split` draws the scene as the seed's split says, `plain` as the committed samples.
    Raises NoEpisode if there is none.
    """
    reasons = []
    for attempt in range(ATTEMPTS):
        entropy = [seed, tasks.number(task), attempt] + ([1] if variety == "split" else [])
        try:
            return Attempt(task, seed, variety, np.random.default_rng(entropy)).run(frames)
        except Rejected as reason:
            reasons.append(str(reason))
    raise NoEpisode(f"{task} {seed}: no attempt of {ATTEMPTS} was sound: {sorted(set(reasons))}")


class Attempt:
    """The physics of one attempt."""

    def __init__(self, task: str, seed: int, variety: str, rng: np.random.Generator):
        self.task, self.variety = tasks.make(task, seed, variety, rng)
        self.seed = seed
        self.things = self.task.things()
        self.soft: Soft | None = self.task.soft
        self.cameras = self.variety.cameras(rng)
        look = self.variety.look(rng)
        self.model = scene.build(self.things, self.cameras, look, self.soft)
        self.data = mujoco.MjData(self.model)
        self.arms = [Arm(self.model, side, self.task.start(side)) for side in robot.SIDES]
        self.task.arms = self.arms
        names = scene.grip_bodies(self.things, self.soft)
        self.shapes = self.things + [Knot(self.soft.radius) for _ in names[len(self.things) :]]
        self.bodies = [self.model.body(name).id for name in names]
        self.hands = {side: self.model.body(f"{side}_hand").id for side in robot.SIDES}
        self.held: set[tuple[str, int]] = set()
        names = [self.model.body(b).name for b in range(self.model.nbody)]
        self.free = [b for b, name in enumerate(names) if name.startswith("object")]
        owners = [names[b] for b in self.model.geom_bodyid] + ["object"]  # geom -1: a flex
        self.is_arm = np.array([n.startswith(robot.SIDES) for n in owners])
        self.is_thing = np.array([n.startswith("object") for n in owners])

    def run(self, frames: int) -> Episode:
        """Simulates, checks, and returns the episode; raises Rejected."""
        self.begin()
        rows, places, positions, velocities = [], [], [], []
        count = 14
        for sample in range((frames - 1) * FRAME_JOINTS + 1):
            positions.append(self.data.qpos[:count].copy())
            velocities.append(self.data.qvel[:count].copy())
            if sample % FRAME_JOINTS == 0:
                rows.append(self.data.qpos.copy())
                places.append(self.data.xpos[self.free].copy())
                self.check_frame(places)
            self.advance(sample * PERIOD)
        episode = Episode(
            self.task.name, self.seed, self.model, self.things, self.cameras, np.array(rows),
            np.array(places), np.array(positions), np.array(velocities), self.arms,
            self.variety.name, self.soft,
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
                under = np.array((0, 0, thing.bounding_radius()))
                if thing.parts:
                    under = grip_top(thing, np.eye(3), 0)
                self.data.qpos[at : at + 3] = tip - under - (0, 0, 0.004)
            else:
                self.data.qvel[dof : dof + 6] = thing.velocity
        if self.soft:
            self.soft.bend(self.model, self.data.qpos)
        mujoco.mj_forward(self.model, self.data)
        self.commit(0.0)
        self.check_contacts(first=True)

    def commit(self, now: float) -> None:
        """Fixes the commands up to HORIZON from now."""
        seen = None
        for arm in self.arms:
            while arm.end() < now + HORIZON:
                seen = seen or self.look()
                self.task.extend(arm, now, seen)

    def look(self) -> Seen:
        """Places, frames and speeds of what hands can hold."""
        velocity, speeds = np.empty(6), []
        for body in self.bodies:
            kind = mujoco.mjtObj.mjOBJ_BODY
            mujoco.mj_objectVelocity(self.model, self.data, kind, body, velocity, 0)
            speeds.append(np.linalg.norm(velocity[3:]))
        return Seen(
            self.data.xpos[self.bodies].copy(),
            self.data.xmat[self.bodies].reshape(-1, 3, 3).copy(), np.array(speeds), self.shapes,
        )

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
        """Whether the hand is close enough to grip; always so at the start."""
        tip = self.data.site(f"{grip.side}_tool").xpos
        gap = np.linalg.norm(tip - self.data.xpos[self.bodies[grip.thing]])
        if self.variety.name == "plain":
            return gap < self.shapes[grip.thing].bounding_radius() + GRIP_RANGE
        fingers, body = self.geoms(self.hands[grip.side])[-2:], self.bodies[grip.thing]
        gaps = [
            mujoco.mj_geomDistance(self.model, self.data, finger, geom, 0.1, None)
            for finger in fingers
            for geom in self.geoms(body)
        ]
        return min(gaps, default=gap) < FINGER_RANGE

    def geoms(self, body: int) -> range:
        """The geoms of a body; a cloth's vertex has none."""
        first = self.model.body_geomadr[body]
        return range(first, first + self.model.body_geomnum[body])

    def set_weld(self, grip: Grip, active: bool) -> None:
        """Ties hand and object together as they are now, or lets go."""
        weld = self.model.equality(f"hold_{grip.side}_{grip.thing}").id
        hand, body = self.hands[grip.side], self.bodies[grip.thing]
        inverse, turn, place = np.empty(4), np.empty(4), np.empty(3)
        mujoco.mju_negQuat(inverse, self.data.xquat[hand])
        mujoco.mju_rotVecQuat(place, self.data.xpos[body] - self.data.xpos[hand], inverse)
        mujoco.mju_mulQuat(turn, inverse, self.data.xquat[body])
        values = self.model.eq_data[weld]
        if self.model.eq_type[weld] == mujoco.mjtEq.mjEQ_CONNECT:
            values[:6] = np.concatenate([place, np.zeros(3)])
        elif grip.shared:
            values[:11] = self.shared(grip, turn)
        else:
            values[:10] = np.concatenate([np.zeros(3), place, turn])
        self.data.eq_active[weld] = active

    def shared(self, grip: Grip, turn: np.ndarray) -> np.ndarray:
        """A weld about the finger tips that lets the object turn a little in the hand."""
        hand, body = self.hands[grip.side], self.bodies[grip.thing]
        tip = self.data.site(f"{grip.side}_tool").xpos
        points = [
            self.data.xmat[b].reshape(3, 3).T @ (tip - self.data.xpos[b]) for b in (body, hand)
        ]
        return np.concatenate([*points, turn, [SHARED_TURN]])

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

    def check_frame(self, places: list[np.ndarray]) -> None:
        """Rejects objects that leave the tray, or move too far in one frame."""
        now = places[-1]
        if any(warning.number for warning in self.data.warning):
            raise Rejected("the physics broke")
        if np.any(now < BOUNDS[0]) or np.any(now > BOUNDS[1]):
            raise Rejected("an object left the tray")
        if len(places) > 1 and np.linalg.norm(now - places[-2], axis=1).max() > MAX_STEP:
            raise Rejected("an object is too fast")

    def check_lively(self, episode: Episode) -> None:
        """Rejects episodes where too little moves."""
        steps = episode.steps().max(axis=1)
        if np.sum(steps > 0.004) < self.task.lively_frames * len(steps) / (FRAMES - 1):
            raise Rejected("too little moves")
