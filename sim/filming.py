"""The messages of a real-like episode: 30 Hz, with what cameras do to pictures in time.

What a depth image shows of an earlier moment belongs to copies of the bodies ("late" ones): at the
stamp of that image their poses are those of the earlier moment, at all other stamps those of their
bodies. So the truth of a torn or repeated frame is right for each pixel, and no reader needs to know.
"""

import mujoco
import numpy as np

from sim import tasks
from sim.imaging import SUBFRAMES, Exposure, shots
from sim.recording import (
    IMAGE_DELAY, MSG, PLAN_LEAD, START, WORLD, Messages, camera_info, header, image, quaternion,
    topics, transform,
)
from sim.render import Painter

MOVED = 1e-7  # m, or of a quaternion: what moves less has no late copy


class Filmed(Messages):
    """As Messages, by a stage's imaging; `name` of the recording, for its meshes."""

    def __init__(self, episode, name: str):
        super().__init__(episode)
        self.stage, self.imaging, self.name = episode.stage, episode.stage.imaging, name
        self.now = -1.0  # s, of what `data` holds
        self.rate = self.imaging.rate_hz
        self.every = self.rate // 10  # frames between plans
        self.frames = (len(episode.qpos) - 1) * self.every + 1
        self.topics = topics([view.name for view in episode.cameras], self.rig.told)
        self.package = f"{name}_robot"
        self.draw_shots()
        self.poses_by_frame = [self.poses_at(frame) for frame in range(self.frames)]
        self.late: list[tuple[int, int]] = []  # body, frame: of each copy
        self.late_ids: dict[tuple[int, int], np.ndarray] = {}  # camera, frame → id by body
        self.copy_bodies()

    def draw_shots(self) -> None:
        """How each camera takes each frame; a cloth's many faces get no copies."""
        task = tasks.number(self.episode.task)
        self.shots, self.exposures = [], []
        for k in range(len(self.episode.cameras)):
            rng = np.random.default_rng([self.episode.seed, task, self.episode.first, 77, k])
            rows = shots(self.imaging, self.frames, rng)
            if self.truth.faces:
                rows = [type(row)(row.late, missing=row.missing) for row in rows]
            self.shots.append(rows)
            self.exposures.append(Exposure(self.imaging.exposure, rng))

    def set_state(self, secs: float) -> None:
        """Brings `data` to a time from the first frame on."""
        if secs == self.now:
            return
        self.now = secs
        self.data.qpos[:] = self.episode.state(secs)
        mujoco.mj_forward(self.model, self.data)

    def poses_at(self, frame: int) -> tuple[np.ndarray, np.ndarray]:
        """Places (m) and quaternions of all bodies in the world."""
        self.set_state(frame / self.rate)
        return self.stage.placed(*(np.array(part) for part in self.truth.poses(self.data)))

    def copy_bodies(self) -> None:
        """Gives bodies that moved between the moments of a frame late copies."""
        count = len(self.truth.names)
        for camera, rows in enumerate(self.shots):
            for frame, shot in enumerate(rows):
                if shot.age and not shot.missing:
                    now, then = self.poses_by_frame[frame], self.poses_by_frame[frame - shot.age]
                    moved = np.zeros(count, bool)
                    for a, b in zip(now, then):
                        moved |= np.abs(a - b).max(axis=1) > MOVED
                    ids = np.arange(count, dtype=np.uint16)
                    for body in np.flatnonzero(moved):
                        ids[body] = count + len(self.late)
                        self.late.append((int(body), frame))
                    self.late_ids[camera, frame] = ids

    def all(self) -> list[tuple[int, str, object]]:
        """Draws every frame: needs OpenGL."""
        found = self.latched()
        if self.rig.told:
            for sample in range(len(self.episode.joint_positions)):
                found.append(self.joint_state(sample))
        with Painter(self.model, self.truth, self.stage.scale) as painter:
            self.before = [None] * len(self.shots)
            for frame in range(self.frames):
                found += self.filmed(frame, painter)
        order = {name: i for i, (name, _, _) in enumerate(self.topics)}
        return sorted(found, key=lambda message: (message[0], order[message[1]]))

    def latched(self) -> list[tuple[int, str, object]]:
        """What is said once, just before the first plan; cameras and the root stand in the world."""
        at = START - PLAN_LEAD - 10_000_000
        self.set_state(0.0)
        string, fixed = MSG["std_msgs/msg/String"], []
        if self.rig.told:
            fixed = [self.link_transform(at, body) for body in self.robot_bodies(moving=False)]
        if self.rig.root != WORLD:
            place, turn = self.placed(*self.rig.root_pose)
            fixed.append(transform(at, WORLD, self.rig.root, place, turn))
        for view in self.episode.cameras:
            place, turn = self.placed(view.position, view.quaternion())
            fixed.append(transform(at, WORLD, f"{view.name}_optical_frame", place, turn))
        found = [(at, "/tf_static", MSG["tf2_msgs/msg/TFMessage"](fixed))]
        found.append((at, "/truth/bodies", string(self.json())))
        if self.rig.told:
            found.append((at, "/robot_description", string(self.rig.urdf(self.package))))
        return found

    def placed(self, place, turn) -> tuple[np.ndarray, np.ndarray]:
        """One pose in the world."""
        places, turns = self.stage.placed(np.array([place], float), np.array([turn], float))
        return places[0], turns[0]

    def bodies(self) -> dict:
        """As Messages, with the stage, and the late copies of bodies (`of` a body, at `frame`)."""
        about = super().bodies() | self.stage.about() | {"rate_hz": self.rate}
        about["objects"] = [o | {"mass_kg": o["mass_kg"] * self.stage.scale**3} for o in about["objects"]]
        for body, frame in self.late:
            own = about["bodies"][body]
            about["bodies"].append(
                own | {
                    "id": len(about["bodies"]), "name": f"{own['name']}_late_{frame}", "of": body,
                    "frame": frame,
                }
            )
        return about

    def filmed(self, frame: int, painter: Painter) -> list[tuple[int, str, object]]:
        """Plan and tf ten times a second; pictures and truth of the frame."""
        stamp = START + round(frame * 1e9 / self.rate)
        seen, found = stamp + IMAGE_DELAY, []
        self.set_state(frame / self.rate)
        if self.rig.told and frame % self.every == 0:
            found.append(self.plan(frame // self.every))
            links = [self.link_transform(stamp, b) for b in self.robot_bodies(moving=True)]
            found.append((stamp, "/tf", MSG["tf2_msgs/msg/TFMessage"](links)))
        pictures = [painter.depth(self.data, camera) for camera in self.episode.cameras]
        for k, camera in enumerate(self.episode.cameras):
            shot, before = self.shots[k][frame], self.before[k]
            self.before[k] = pictures[k]
            if shot.missing:
                continue
            depth, ids = (np.array(part) for part in pictures[k])
            if shot.age:
                row = round(shot.tear * camera.height)
                depth[row:] = before[0][row:]
                ids[row:] = self.late_ids[k, frame][before[1][row:]]
            colour = self.colour(painter, frame, k)
            name, frame_id = camera.name, f"{camera.name}_optical_frame"
            found += [
                (seen, f"/{name}/color/camera_info", camera_info(stamp, frame_id, camera)),
                (seen, f"/{name}/color/image_raw", image(stamp, frame_id, "rgb8", colour)),
                (seen, f"/{name}/depth/image_raw", image(stamp, frame_id, "16UC1", depth)),
                (seen, f"/truth/{name}/body_ids", image(stamp, frame_id, "16UC1", ids)),
            ]
        return found + [(seen, "/truth/body_poses", self.all_poses(frame, stamp))]

    def colour(self, painter: Painter, frame: int, k: int) -> np.ndarray:
        """The colour picture that comes with a frame's stamp."""
        shot, camera = self.shots[k][frame], self.episode.cameras[k]
        row = round(shot.tear * camera.height)
        picture = self.exposed(painter, frame - shot.late, camera)
        if shot.age:
            picture = picture.copy()
            picture[row:] = self.exposed(painter, frame - shot.late - shot.age, camera)[row:]
        return self.exposures[k](picture)

    def exposed(self, painter: Painter, frame: int, camera) -> np.ndarray:
        """What a camera sees in the exposure time that ends at a frame."""
        times = [frame / self.rate]
        if self.imaging.blur:
            times = times[0] - np.arange(SUBFRAMES) / SUBFRAMES * self.imaging.blur / self.rate
        total = 0
        for secs in times:
            self.set_state(max(float(secs), 0.0))
            total = total + painter.colour(self.data, camera).astype(np.uint16)
        return (total // len(times)).astype(np.uint8)

    def all_poses(self, frame: int, stamp: int):
        """Pose of every body in the world and of the late copies, by id."""
        point, pose = MSG["geometry_msgs/msg/Point"], MSG["geometry_msgs/msg/Pose"]
        rows = [list(zip(*self.poses_by_frame[frame]))]
        rows.append([
            tuple(part[body] for part in self.poses_by_frame[frame - (frame == at)])
            for body, at in self.late
        ])
        poses = [
            pose(point(*(float(v) for v in place)), quaternion(turn))
            for row in rows
            for place, turn in row
        ]
        return MSG["geometry_msgs/msg/PoseArray"](header(stamp, WORLD), poses)
