"""The command of one arm: tool paths turned into joints ahead of time, at 50 Hz."""

import mujoco
import numpy as np

from sim.rig import ArmSpec, matrix

PERIOD = 0.02  # s between command samples
STARTS = (0.0, 0.7, -0.7, 1.5, -1.5, 3.0)  # rad by which the first joint is tried at first


class Arm:
    """A growing, never changing command. `joints[k]` is the command at k * PERIOD.

    Fingers follow `events`: times and openings (1 open, 0 closed) between which they go evenly.

    A pose of the tool is (x, y, z, yaw): the finger tips in the world, and the direction of the
    line between the fingers. How far the hand leans outwards follows from the reach.
    """

    def __init__(self, model: mujoco.MjModel, spec: ArmSpec, start: np.ndarray):
        self.spec, self.side = spec, spec.side
        self.model = model
        self.data = mujoco.MjData(model)
        self.base, self.sign = np.array(spec.base), spec.sign
        self.site = model.site(spec.tool).id
        self.dofs = np.array([model.joint(n).dofadr[0] for n in spec.joints], int)
        self.qpos = np.array([model.joint(n).qposadr[0] for n in spec.joints], int)
        self.limits = np.array(spec.limits).reshape(-1, 2).T + np.array([[0.05], [-0.05]])
        self.rest, self.bias = np.array(spec.rest), np.array(spec.bias)
        self.events: list[tuple[float, float]] = [(0.0, 1.0)]
        self.fingers = np.array([(f.open, f.closed) for f in spec.fingers]).reshape(-1, 2)
        self.pose = np.array(start, dtype=float)
        self.pose[3] = self.near_yaw(self.pose, start[3])
        self.joints = [self.begin(start)]

    def begin(self, start: np.ndarray) -> np.ndarray:
        """Joints of the first pose: the first joint toward it, or what comes nearest of several."""
        q = self.rest.copy()
        if self.spec.upright:
            toward = start[:2] - self.base[:2]
            q[0] = np.arctan2(toward[1], toward[0]) - self.spec.yaw
            return self.solve(self.pose, q, rounds=150)
        tries = []
        for turn in STARTS:
            first = q.copy()
            first[0] += turn
            tries.append(self.solve(self.pose, np.clip(first, *self.limits), rounds=100))
        bent = [np.abs(q[1:] - self.rest[1:]).sum() for q in tries]
        return min(zip(tries, bent), key=lambda t: (round(self.miss(t[0]), 3), t[1]))[0]

    def miss(self, q: np.ndarray) -> float:
        """Distance from the tool to where it should be, m."""
        self.data.qpos[self.qpos] = q
        mujoco.mj_kinematics(self.model, self.data)
        return float(np.linalg.norm(self.data.site_xpos[self.site] - self.pose[:3]))

    def end(self) -> float:
        """Time in s up to which the command is fixed."""
        return (len(self.joints) - 1) * PERIOD

    def at(self, times: np.ndarray) -> np.ndarray:
        """Commanded joints at the times, the arm's, then the hand's: linear, held after the last."""
        grid = np.arange(len(self.joints)) * PERIOD
        columns = [np.interp(times, grid, column) for column in np.array(self.joints).T]
        share = self.opening(times)
        columns += [closed + share * (open_ - closed) for open_, closed in self.fingers]
        return np.stack(columns, axis=-1)

    def opening(self, times: np.ndarray) -> np.ndarray:
        """How far the hand is commanded to be open: 1 open, 0 closed."""
        at, share = zip(*self.events)
        return np.interp(times, at, share)

    def grip(self, start: float, stop: float, opening: float) -> None:
        """The hand goes to an opening from `start` to `stop` (s), after all it was told before."""
        start = max(start, self.events[-1][0])
        self.events += [(start, self.events[-1][1]), (max(stop, start), opening)]

    def hold(self, seconds: float) -> None:
        """Stands still."""
        self.joints += [self.joints[-1]] * round(seconds / PERIOD)

    def aim(self, pose, exact: bool = False) -> np.ndarray:
        """The pose, its yaw turned by half a turn where the last joint reaches that better.

        `exact`: the pose as it is.
        """
        target = np.array(pose, dtype=float)
        if not exact:
            target[3] = self.near_yaw(target, target[3])
        return target

    def seconds(self, target: np.ndarray, speed: float, steady: bool = False) -> float:
        """How long `move` takes to what `aim` gave, at a peak speed in m/s."""
        way = target - self.pose
        length = max(np.linalg.norm(way[:3]), 0.15 * abs(way[3]))
        peak = 1.2 if steady else 1.875  # peak over mean speed
        return max(length * peak / (speed * self.spec.pace), 0.16)

    def move(
        self, pose, speed: float, steady: bool = False,
        seconds: float | None = None, exact: bool = False,
    ) -> None:
        """Goes straight to a pose at about `speed` (m/s, peak), or in a time.

        `steady`: constant speed but for short ramps; else a smooth rise and fall.
        `exact`: to this very yaw, not to its best equivalent half a turn off.
        """
        target = self.aim(pose, exact)
        start = self.pose.copy()
        if seconds is None:
            seconds = self.seconds(target, speed, steady)
        steps = max(round(seconds / PERIOD), 1)
        for k in range(1, steps + 1):
            share = progress(k / steps, steady)
            self.joints.append(self.solve(start + share * (target - start), self.joints[-1], 2))
        self.pose = target

    def near_yaw(self, pose: np.ndarray, yaw: float) -> float:
        """The same finger line (yaw modulo pi) as the last joint reaches it best."""
        outward = np.pi / 2
        if not self.spec.hangs:
            outward += np.arctan2(pose[1] - self.base[1], pose[0] - self.base[0])
        return outward + (yaw - outward + np.pi / 2) % np.pi - np.pi / 2

    def orientation(self, pose: np.ndarray) -> np.ndarray:
        """Rotation of the hand at a pose: z to the tips, y along the finger line."""
        outward = pose[:2] - self.base[:2]
        reach = max(np.linalg.norm(outward), 1e-6)
        lean = self.spec.lean * 1.1 * np.clip(reach - 0.5, 0, 0.4) ** 1.2 * 2
        z = np.array([*(outward / reach * lean), -1.0])
        z /= np.linalg.norm(z)
        y = np.array([np.cos(pose[3]), np.sin(pose[3]), 0])
        y -= z * (y @ z)
        y /= np.linalg.norm(y)
        return np.column_stack([np.cross(y, z), y, z])

    def solve(self, pose: np.ndarray, q: np.ndarray, rounds: int) -> np.ndarray:
        """Joints for a pose, by damped least squares from `q`, at most MAX_SPEED away a sample."""
        rotation = self.orientation(pose)
        origin, q = q, q.copy()
        jacobian = np.zeros((6, self.model.nv))
        for _ in range(rounds):
            self.data.qpos[self.qpos] = q
            mujoco.mj_kinematics(self.model, self.data)
            mujoco.mj_comPos(self.model, self.data)
            mujoco.mj_jacSite(self.model, self.data, jacobian[:3], jacobian[3:], self.site)
            now = self.data.site_xmat[self.site].reshape(3, 3)
            turn = 0.5 * np.cross(now, rotation, axis=0).sum(axis=1)
            error = np.concatenate([pose[:3] - self.data.site_xpos[self.site], 0.3 * turn])
            arm = jacobian[:, self.dofs] * np.array([1, 1, 1, 0.3, 0.3, 0.3])[:, None]
            inverse = arm.T @ np.linalg.inv(arm @ arm.T + 1e-4 * np.eye(6))
            rest = (self.rest - q) * self.bias * 0.1
            step = inverse @ error + rest - inverse @ (arm @ rest)
            q = np.clip(q + np.clip(step, -0.2, 0.2), *self.limits)
        if rounds < 10:
            most = self.spec.speed * PERIOD
            q = origin + np.clip(q - origin, -most, most)
        return q


def progress(t: float, steady: bool) -> float:
    """Share of the way after share `t` of the time."""
    if not steady:
        return t**3 * (10 - 15 * t + 6 * t * t)
    ramp = 1 / 6  # of the time, at either end
    if t < ramp:
        way = t * t / (2 * ramp)
    elif t > 1 - ramp:
        way = 1 - ramp - (1 - t) ** 2 / (2 * ramp)
    else:
        way = t - ramp / 2
    return way / (1 - ramp)
