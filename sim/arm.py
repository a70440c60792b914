"""The command of one arm: tool paths turned into joints ahead of time, at 50 Hz."""

import mujoco
import numpy as np

from sim import robot

PERIOD = 0.02  # s between command samples
REST = np.array([0.0, 0.5, 0.0, -1.7, 0.0, 0.95, 0.0])


class Arm:
    """A growing, never changing command. `joints[k]` is the command at k * PERIOD.

    A pose of the tool is (x, y, z, yaw): the finger tips in the world, and the direction of the
    line between the fingers. How far the hand leans outwards follows from the reach.
    """

    def __init__(self, model: mujoco.MjModel, side: str, start: np.ndarray):
        self.side = side
        self.model = model
        self.data = mujoco.MjData(model)
        self.base = np.array(robot.BASES[side][0])
        self.site = model.site(f"{side}_tool").id
        names = [f"{side}_joint_{i}" for i in range(1, 8)]
        self.dofs = np.array([model.joint(n).dofadr[0] for n in names])
        self.qpos = np.array([model.joint(n).qposadr[0] for n in names])
        self.limit = np.array([j.limit for j in robot.JOINTS]) - 0.05
        q = REST.copy()
        toward = start[:2] - self.base[:2]
        q[0] = np.arctan2(toward[1], toward[0]) - robot.BASES[side][1]
        self.pose = np.array(start, dtype=float)
        self.pose[3] = self.near_yaw(self.pose, start[3])
        self.joints = [self.solve(self.pose, q, rounds=150)]

    def end(self) -> float:
        """Time in s up to which the command is fixed."""
        return (len(self.joints) - 1) * PERIOD

    def at(self, times: np.ndarray) -> np.ndarray:
        """Commanded joints at the times: linear between samples, held after the last."""
        grid = np.arange(len(self.joints)) * PERIOD
        table = np.array(self.joints)
        return np.stack([np.interp(times, grid, column) for column in table.T], axis=-1)

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
        return max(length * peak / speed, 0.16)

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
        outward = np.arctan2(pose[1] - self.base[1], pose[0] - self.base[0]) + np.pi / 2
        return outward + (yaw - outward + np.pi / 2) % np.pi - np.pi / 2

    def orientation(self, pose: np.ndarray) -> np.ndarray:
        """Rotation of the hand at a pose: z to the tips, y along the finger line."""
        outward = pose[:2] - self.base[:2]
        reach = np.linalg.norm(outward)
        lean = 1.1 * np.clip(reach - 0.5, 0, 0.4) ** 1.2 * 2
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
            rest = np.array([0, 0, -q[2], 0, -q[4], 0, 0]) * 0.1
            step = inverse @ error + rest - inverse @ (arm @ rest)
            q = np.clip(q + np.clip(step, -0.2, 0.2), -self.limit, self.limit)
        if rounds < 10:
            most = robot.MAX_SPEED * PERIOD
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
