"""One episode: objects, arms and physics; tried again until it is one worth keeping."""

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from sim import scene, stage, tasks
from sim.arm import PERIOD, Arm
from sim.imaging import Imaging
from sim.movers import Mover
from sim.rig import Rig
from sim.robot import TWO_ARMS
from sim.scene import TIMESTEP, Camera, Thing
from sim.soft import Knot, Soft
from sim.stage import Stage
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
HORIZONS = {"real": 1.25, "split": HORIZON, "plain": HORIZON}
ENTROPY = {"real": [2], "split": [1], "plain": []}
FRAME_STEPS = round(FRAME_SECS / TIMESTEP)
WIDE = ((-0.9, -0.9, -0.03), (0.9, 0.9, 1.3))  # the same where there is a stage, units
MISS = 0.01  # m by which an arm may miss its first pose
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
    rig: Rig = TWO_ARMS
    stage: Stage | None = None
    trail: np.ndarray | None = None  # qpos after each physics step, of real-like episodes
    first: int = 0  # frame of the whole episode that row 0 is

    def part(self, start: int, frames: int) -> "Episode":
        """The frames from `start` on as an episode of its own, whose time starts anew."""
        joints = slice(start * FRAME_JOINTS, (start + frames - 1) * FRAME_JOINTS + 1)
        steps = slice(start * FRAME_STEPS, (start + frames - 1) * FRAME_STEPS + 1)
        return replace(
            self, trail=None if self.trail is None else self.trail[steps], qpos=self.qpos[start : start + frames],
            places=self.places[start : start + frames],
            joint_positions=self.joint_positions[joints],
            joint_velocities=self.joint_velocities[joints], first=self.first + start,
        )

    def state(self, secs: float) -> np.ndarray:
        """qpos at a time from the first frame on, between physics steps; held before and after."""
        at = np.clip(secs / TIMESTEP, 0, len(self.trail) - 1)
        step = min(int(at + 1e-6), len(self.trail) - 1)
        share = at - step
        if abs(share) < 1e-6 or step + 1 == len(self.trail):
            return self.trail[step]
        way, out = np.empty(self.model.nv), self.trail[step].copy()
        mujoco.mj_differentiatePos(self.model, way, 1.0, self.trail[step], self.trail[step + 1])
        mujoco.mj_integratePos(self.model, out, way, share)
        return out

    def things_numbered(self) -> list[tuple[int, Thing]]:
        """Rigid objects with the numbers in their names."""
        return scene.numbered(self.things, self.soft, self.stage.extras if self.stage else [])

    def steps(self) -> np.ndarray:
        """How far each object's bodies go from frame to frame (frames - 1 × bodies, m)."""
        return np.linalg.norm(np.diff(self.places, axis=0), axis=2)

    def plan(self, frame: int) -> np.ndarray:
        """Commanded joints 0, 0.1, … 1 s after a frame: 11 × joints; of real-like ones to 1.1 s."""
        times = (self.first + frame + np.arange(12 if self.stage else 11)) * FRAME_SECS
        return np.concatenate([arm.at(times) for arm in self.arms], axis=1)


class NoEpisode(Exception):
    """No attempt at a task and seed was worth keeping."""


class Rejected(Exception):
    """The attempt is not worth keeping; the message says why."""


def simulate(
    task: str, seed: int, frames: int = FRAMES, variety: str = "split",
    imaging: Imaging | None = None,
) -> Episode:
    """The episode of a task and seed: the first attempt that is lively and sound.

    `variety`: `real` draws a real-like scene, `split` one of two arms at a table, both as the
    seed's split says; `plain` the first scene. `imaging`: in place of what is drawn (real only).
    Raises NoEpisode if there is none.
    """
    reasons = []
    for attempt in range(ATTEMPTS):
        entropy = [seed, tasks.number(task), attempt] + ENTROPY[variety]
        try:
            made = Attempt(task, seed, variety, np.random.default_rng(entropy)).run(frames)
            if imaging and made.stage:
                made.stage.imaging = imaging
            return made
        except Rejected as reason:
            reasons.append(str(reason))
    raise NoEpisode(f"{task} {seed}: no attempt of {ATTEMPTS} was sound: {sorted(set(reasons))}")


class Attempt:
    """The physics of one attempt."""

    def __init__(self, task: str, seed: int, variety: str, rng: np.random.Generator):
        self.task, self.variety = tasks.make(task, seed, variety, rng)
        self.rig, self.stage = self.task.rig, self.task.stage
        self.horizon = HORIZONS[variety]
        self.seed = seed
        self.things = self.task.things()
        self.soft: Soft | None = self.task.soft
        if self.stage:
            stage.furnish(self.stage, self.things, self.variety, rng, self.soft is not None)
            self.cameras = self.stage.cameras = stage.cameras(self.stage, self.things, rng)
        else:
            self.cameras = self.variety.cameras(rng)
        self.trail: list[np.ndarray] = []
        look = self.variety.look(rng)
        self.belt = self.task.belt
        self.model = scene.build(
            self.things, self.cameras, look, self.soft, self.rig, self.stage, self.belt is not None
        )
        self.data = mujoco.MjData(self.model)
        self.arms = [
            (Mover if spec.mover else Arm)(self.model, spec, self.task.start(spec))
            for spec in self.rig.arms
        ]
        self.task.arms = self.arms
        joints = self.rig.joint_names()
        self.joint_qpos = [self.model.joint(name).qposadr[0] for name in joints]
        self.joint_dofs = [self.model.joint(name).dofadr[0] for name in joints]
        names = scene.grip_bodies(self.things, self.soft)
        self.shapes = self.things + [Knot(self.soft.radius) for _ in names[len(self.things) :]]
        self.bodies = [self.model.body(name).id for name in names]
        self.hands = {spec.side: self.model.body(spec.hand).id for spec in self.rig.arms}
        self.held: set[tuple[str, int]] = set()
        names = [self.model.body(b).name for b in range(self.model.nbody)]
        self.free = [b for b, name in enumerate(names) if name.startswith("object")]
        owners = [names[b] for b in self.model.geom_bodyid] + ["object"]  # geom -1: a flex
        links = {link.name for link in self.rig.links}
        self.is_arm = np.array([n in links for n in owners])
        self.is_thing = np.array([n.startswith("object") for n in owners])

    def run(self, frames: int) -> Episode:
        """Simulates, checks, and returns the episode; raises Rejected."""
        self.begin()
        rows, places, positions, velocities = [], [], [], []
        last = (frames - 1) * FRAME_JOINTS
        for sample in range(last + 1):
            positions.append(self.data.qpos[self.joint_qpos])
            velocities.append(self.data.qvel[self.joint_dofs])
            if sample % FRAME_JOINTS == 0:
                rows.append(self.data.qpos.copy())
                places.append(self.data.xpos[self.free].copy())
                self.check_frame(places)
            if sample < last or not self.stage:
                self.advance(sample * PERIOD)
        episode = Episode(
            self.task.name, self.seed, self.model, self.things, self.cameras, np.array(rows),
            np.array(places), np.array(positions), np.array(velocities), self.arms,
            self.variety.name, self.soft, self.rig, self.stage,
            np.array([*self.trail, self.data.qpos]) if self.stage else None,
        )
        self.check_lively(episode)
        return episode

    def begin(self) -> None:
        """Sets the first state and the commands of the first second."""
        if self.stage and max(arm.miss(arm.joints[0]) for arm in self.arms) > MISS:
            raise Rejected("an arm can't reach its first pose")
        for arm in self.arms:
            if arm.spec.mover:
                joint = self.model.body_jntadr[self.hands[arm.side]]
                at = self.model.jnt_qposadr[joint]
                self.data.qpos[at : at + 7] = np.concatenate(arm.lead(0.0))
        self.lead(0.0)
        first = [arm.at(np.zeros(1))[0] for arm in self.arms]
        self.data.qpos[self.joint_qpos] = np.concatenate(first)
        mujoco.mj_forward(self.model, self.data)
        for i, thing in enumerate(self.things):
            if thing.fixed or thing.string:
                continue
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
            while arm.end() < now + self.horizon:
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
        for time, row in zip(times, command):
            if self.stage:
                self.trail.append(self.data.qpos.copy())
                self.lead(time)
            self.data.ctrl[:] = row
            self.drive(time)
            mujoco.mj_step(self.model, self.data)
        mujoco.mj_forward(self.model, self.data)
        self.check_contacts()

    def drive(self, time: float) -> None:
        """Gives the belt its speed, and takes it back to where it was: its surface runs, it stays. Leads a hand."""
        if self.task.drive:
            self.task.drive(self.model, self.data, time)
        for axis, speed in zip("xy", () if self.belt is None else self.belt):
            joint = self.model.joint(f"belt_{axis}")
            self.data.qpos[joint.qposadr[0]] = 0.0
            self.data.qvel[joint.dofadr[0]] = speed

    def lead(self, time: float) -> None:
        """Puts what leads the movers where it is at a time."""
        for arm in self.arms:
            if arm.spec.mover:
                which = self.model.body(arm.spec.mover).mocapid[0]
                self.data.mocap_pos[which], self.data.mocap_quat[which] = arm.lead(time)

    def hold(self, now: float) -> None:
        """Closes and opens the grips that are due."""
        if self.variety.flickers:
            return self.hold_as_before(now)
        due = {
            (grip.side, grip.thing): grip
            for grip in self.task.grips
            if grip.start <= now + 1e-9 < grip.end
        }
        for side, thing in sorted(self.held - set(due)):
            self.held.remove((side, thing))
            self.set_weld(Grip(side, thing, 0.0, 0.0), False)
        for key, grip in due.items():
            if key not in self.held and self.near(grip):
                self.held.add(key)
                self.set_weld(grip, True)

    def hold_as_before(self, now: float) -> None:
        """The same with a fault that older recordings keep: of two grips of a hand on a thing, the
        first, long over, opens the second again and again."""
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
        gaps = [
            mujoco.mj_geomDistance(self.model, self.data, finger, geom, 0.1, None)
            for finger in self.fingers(grip.side)
            for geom in self.geoms(self.bodies[grip.thing])
        ]
        return min(gaps, default=gap) < FINGER_RANGE

    def fingers(self, side: str) -> list[int]:
        """Geoms of a hand's fingers: the last two of a hand whose fingers stay still."""
        spec = next(arm.spec for arm in self.arms if arm.side == side)
        links = [self.model.body(name).id for name in spec.finger_links]
        return [g for b in links for g in self.geoms(b)] or self.geoms(self.hands[side])[-2:]

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
        free = self.stage is not None and not self.rig.told  # movers yield
        if not free and np.any(both | (one & fixed[pairs[:, 1]]) | (two & fixed[pairs[:, 0]])):
            raise Rejected("an arm touches the table or the other arm")
        depth = -self.data.contact.dist
        if len(depth) and depth.max() > (0.002 if first else 0.012):
            raise Rejected("bodies overlap")

    def check_frame(self, places: list[np.ndarray]) -> None:
        """Rejects objects that leave the tray, or move too far in one frame."""
        now = places[-1]
        if any(warning.number for warning in self.data.warning):
            raise Rejected("the physics broke")
        low, high = WIDE if self.stage else BOUNDS
        if np.any(now < low) or np.any(now > high):
            raise Rejected("an object left the tray")
        if len(places) > 1 and np.linalg.norm(now - places[-2], axis=1).max() > (
            MAX_STEP / max(self.stage.scale, 1.0) if self.stage else MAX_STEP
        ):
            raise Rejected("an object is too fast")

    def check_lively(self, episode: Episode) -> None:
        """Rejects episodes where too little moves."""
        steps = episode.steps().max(axis=1)
        if np.sum(steps > 0.004) < self.task.lively_frames * min(len(steps) / (FRAMES - 1), 1.0):
            raise Rejected("too little moves")
