"""The simulated robot: it executes trajectories, and tells what cameras and joints would."""

from dataclasses import dataclass

import mujoco
import numpy as np

from sim import scene
from sim.closed_loop.goals import Goal, State
from sim.closed_loop.moves import Mover, Trajectory
from sim.closed_loop.tasks import Scene, state_of
from sim.episode import FRAME_JOINTS, FRAME_SECS, JOINT_STEPS, Episode
from sim.arm import PERIOD
from sim.scene import TIMESTEP

SETTLE = 0.4  # s from the end of a motion until a frame is decided on
PLAN_FRAMES = 11  # of 0.1 s that `planned_joints` tells


class Live(Episode):
    """An episode that goes on: rows are added as they happen, plans are what is known by then."""

    def plan(self, frame: int) -> np.ndarray:
        """Commanded joints of the second from a frame on."""
        return self.told[frame]


@dataclass
class Observation:
    """What a planner may look at: perfect knowledge of objects is for those that need no camera.

    `joints`: all of the robot, rad; `state`: of all objects; `world`: for the simulator as model.
    """

    stamp: int
    joints: np.ndarray
    state: State
    shapes: list
    world: "World"


class World:
    """Physics in steps of a joint sample (20 ms); every fifth is a frame. `stream` gets them all."""

    def __init__(self, made: Scene, stream=None):
        self.scene, self.model, self.rig = made, made.model, made.rig
        self.data = mujoco.MjData(self.model)
        self.names = self.rig.joint_names()
        self.qpos = np.array([self.model.joint(name).qposadr[0] for name in self.names])
        self.dofs = np.array([self.model.joint(name).dofadr[0] for name in self.names])
        self.movers = {spec.side: Mover(self.model, spec) for spec in self.rig.arms}
        self.bodies = [self.model.body(scene.thing_name(i)).id for i in range(len(made.things))]
        # Hands are closed: nothing is gripped.
        self.command = np.concatenate(
            [[*m.home, *(finger.closed for finger in m.spec.fingers)] for m in self.movers.values()]
        )
        self.data.qpos[self.qpos] = self.command
        mujoco.mj_forward(self.model, self.data)
        self.last = self.command[None]  # rows of the last motion, PERIOD apart
        self.touches = 0  # joint samples in which an arm touched table or other arm
        self.sample = 0
        self.tell = self.stands
        links = {link.name for link in self.rig.links}
        owners = [self.model.body(b).name for b in self.model.geom_bodyid]
        self.is_arm = np.array([name in links for name in owners])
        self.is_thing = np.array([name.startswith("object") for name in owners])
        # Settled before anyone looks.
        self.spare = mujoco.MjData(self.model)
        self.run(self.data, self.stands, 0.5)
        self.goal: Goal = made.goal(self.state())
        self.live = Live(
            made.task, made.seed, self.model, made.things, made.cameras, [], [], [], [], [], made.variety.name,
            rig=self.rig,
        )
        self.live.told = []
        self.stream = stream
        if stream:
            stream.begin(self)
        self.note()

    def state(self) -> State:
        """Places and frames of the objects, now."""
        return state_of(self.data, self.bodies)

    def stands(self, times: np.ndarray) -> np.ndarray:
        """The command of a robot that is told nothing."""
        return np.tile(self.command, (len(times), 1))

    def run(self, data: mujoco.MjData, tell, seconds: float) -> None:
        """Physics alone: `tell` gives the command at times from now on."""
        steps = round(seconds / TIMESTEP)
        for row in tell((1 + np.arange(steps)) * TIMESTEP):
            data.ctrl[:] = row
            mujoco.mj_step(self.model, data)
        mujoco.mj_forward(self.model, data)

    def whole(self, plan: Trajectory):
        """Commands of all joints at times from the start of a trajectory of some."""
        held, columns = self.command.copy(), [self.names.index(name) for name in plan.names]

        def tell(times: np.ndarray) -> np.ndarray:
            out = np.tile(held, (len(times), 1))
            out[:, columns] = plan.at(times)
            return out

        return tell

    def imagine(self, plan: Trajectory, settle: float = 0.3) -> State:
        """The state after a plan, in a copy of the world."""
        data, kind = self.spare, mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(self.model, kind))
        mujoco.mj_getState(self.model, self.data, state, kind)
        mujoco.mj_setState(self.model, data, state, kind)
        self.run(data, self.whole(plan), plan.seconds() + settle)
        return state_of(data, self.bodies)

    def execute(self, plan: Trajectory, settle: float = 0.0) -> None:
        """Does it, and stands for `settle` s, in whole frames."""
        tell = self.whole(plan)
        frames = max(int(np.ceil((plan.seconds() + settle) / FRAME_SECS - 1e-9)), 1)
        self.go(tell, frames)
        self.command = tell(np.array([plan.seconds()]))[0]
        self.last = tell(np.arange(0, plan.seconds(), PERIOD))

    def idle(self, seconds: float) -> None:
        """Stands."""
        self.go(self.stands, round(seconds / FRAME_SECS))

    def go(self, tell, frames: int) -> None:
        """Goes on by frames, the robot told what `tell` says from now on."""
        self.tell, start = tell, self.sample
        if start % FRAME_JOINTS == 0 and self.live.told:
            self.live.told[-1] = self.told(0.0)
            if self.stream:
                self.stream.plan(len(self.live.told) - 1)
        for _ in range(frames * FRAME_JOINTS):
            now = (self.sample - start) * PERIOD
            for row in tell(now + (1 + np.arange(JOINT_STEPS)) * TIMESTEP):
                self.data.ctrl[:] = row
                mujoco.mj_step(self.model, self.data)
            mujoco.mj_forward(self.model, self.data)
            self.sample += 1
            self.check()
            self.note(now + PERIOD)
        self.tell = self.stands

    def told(self, now: float) -> np.ndarray:
        """What `planned_joints` tells from a time of the present command on."""
        return self.tell(now + np.arange(PLAN_FRAMES) * FRAME_SECS)

    def note(self, now: float = 0.0) -> None:
        """Adds the sample, and the frame if it is one, to the episode, and tells the stream."""
        live, sample = self.live, self.sample
        live.joint_positions.append(self.data.qpos[self.qpos])
        live.joint_velocities.append(self.data.qvel[self.dofs])
        frame = sample % FRAME_JOINTS == 0
        if frame:
            live.qpos.append(self.data.qpos.copy())
            live.told.append(self.told(now))
        if self.stream:
            self.stream.sample(sample, frame, self.data)

    def check(self) -> None:
        """Counts samples in which an arm touches what is neither an object nor itself."""
        pairs = self.data.contact.geom
        one, two = self.is_arm[pairs[:, 0]], self.is_arm[pairs[:, 1]]
        fixed = ~self.is_arm & ~self.is_thing
        self.touches += bool(np.any((one & two) | (one & fixed[pairs[:, 1]]) | (two & fixed[pairs[:, 0]])))

    def back(self) -> None:
        """All joints go the way back that they came in the last motion: it was free, and a hand that goes
        straight up may take along what it has pushed. Then every arm that is away goes home."""
        rows = np.concatenate([self.command[None], self.last[::-1]])
        if np.abs(rows - self.command).max() > 1e-3:
            self.execute(Trajectory(list(self.names), np.arange(len(rows)) * PERIOD, rows))
        for mover in self.movers.values():
            joints = self.command[[self.names.index(name) for name in mover.spec.joints]]
            if np.abs(joints - mover.home).max() > 1e-3:
                self.execute(mover.home_from(joints))

    def observe(self) -> Observation:
        """What is there now."""
        return Observation(
            len(self.live.qpos) - 1, self.data.qpos[self.qpos].copy(), self.state(), self.scene.things, self,
        )

    def lost(self) -> bool:
        """Whether an object has left the tray: nothing to be done."""
        places = self.data.xpos[self.bodies]
        return bool(np.any(places[:, 2] < -0.05) or np.any(np.abs(places[:, :2]) > 0.6))



    def speeds(self) -> np.ndarray:
        """Of the objects, m/s in the world; n × 3."""
        out, six = np.empty((len(self.bodies), 3)), np.empty(6)
        for row, body in zip(out, self.bodies):
            mujoco.mj_objectVelocity(self.model, self.data, mujoco.mjtObj.mjOBJ_BODY, body, six, 0)
            row[:] = six[3:]
        return out
