"""An episode as a rosbag2 folder: MCAP, standard messages, the truth on topics of its own."""

import json
import os
import shutil
from pathlib import Path

import mujoco
import numpy as np
from rosbags.interfaces import (
    Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime,
)
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.rosbag2.storage_mcap import McapWriter
from rosbags.typesys import Stores, get_typestore

try:
    from compression import zstd
except ImportError:  # before Python 3.14
    from backports import zstd

from sim import scene
from sim.episode import FRAME_JOINTS, Episode
from sim.render import Painter
from sim.splits import split_of
from sim.truth import Truth

WORLD = "world"
TRUTH = "/truth/"
START = 1_700_000_000 * 10**9  # ns, stamp of the first frame
FRAME_NS, JOINT_NS = 100_000_000, 20_000_000
IMAGE_DELAY = 10_000_000  # ns from an image's stamp to its log time
PLAN_LEAD = 30_000_000  # ns from a plan's log time to its stamp
CHUNK_BYTES = 4 * 2**20  # uncompressed
LONG_CHUNK_BYTES = 16 * 2**20
PARAMETER = zstd.CompressionParameter
ZSTD = {
    PARAMETER.compression_level: 6, PARAMETER.window_log: 24,
    PARAMETER.enable_long_distance_matching: 1,
}
TYPES = get_typestore(Stores.ROS2_JAZZY)
MSG = TYPES.types


class BigChunks(McapWriter):
    """Chunks of several frames, not one: what stays still between frames costs next to nothing."""

    finishing, limit = False, CHUNK_BYTES

    def close_chunk(self) -> None:
        """Closes the chunk if it is full, or the last."""
        if self.finishing or self.chunk.bio.tell() > self.limit:
            super().close_chunk()

    def close(self, version: int, metadata: str) -> None:
        """Writes the last chunk and the index."""
        self.finishing = True
        super().close(version, metadata)


class McapBag(Writer):
    """A rosbag2 writer with chunks of CHUNK_BYTES."""

    STORAGE_PLUGINS = {StoragePlugin.MCAP: BigChunks}


class LongChunks(BigChunks):
    """Chunks so long that all frames of a third of a second lie in one, and packed harder."""

    limit = LONG_CHUNK_BYTES

    def __init__(self, path: Path, compression: CompressionMode):
        super().__init__(path, compression)
        self.compressor = lambda data: zstd.compress(data, options=ZSTD)


class LongBag(Writer):
    """A rosbag2 writer with chunks of LONG_CHUNK_BYTES."""

    STORAGE_PLUGINS = {StoragePlugin.MCAP: LongChunks}


def qos(latched: bool) -> Qos:
    """Reliable; `latched`: kept for late subscribers (transient local)."""
    forever = QosTime(9223372036, 854775807)
    durability = QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE
    return Qos(
        QosHistory.KEEP_LAST, 1 if latched else 10, QosReliability.RELIABLE, durability,
        forever, forever, QosLiveliness.AUTOMATIC, forever, False,
    )


def topics(cameras, robot: bool = True) -> list[tuple[str, str, bool]]:
    """Name, type, and whether latched, of every topic, where the cameras have these names."""
    result = [
        ("/robot_description", "std_msgs/msg/String", True),
        ("/tf_static", "tf2_msgs/msg/TFMessage", True),
        ("/truth/bodies", "std_msgs/msg/String", True),
        ("/planned_joints", "trajectory_msgs/msg/JointTrajectory", False),
        ("/joint_states", "sensor_msgs/msg/JointState", False),
        ("/tf", "tf2_msgs/msg/TFMessage", False),
    ]
    if not robot:
        result = result[1:3]
    for camera in cameras:
        result += [
            (f"/{camera}/color/camera_info", "sensor_msgs/msg/CameraInfo", False),
            (f"/{camera}/color/image_raw", "sensor_msgs/msg/Image", False),
            (f"/{camera}/depth/image_raw", "sensor_msgs/msg/Image", False),
            (f"/truth/{camera}/body_ids", "sensor_msgs/msg/Image", False),
        ]
    return result + [("/truth/body_poses", "geometry_msgs/msg/PoseArray", False)]


def header(stamp: int, frame: str):
    """A std_msgs/Header; `stamp` in ns."""
    time = MSG["builtin_interfaces/msg/Time"](stamp // 10**9, stamp % 10**9)
    return MSG["std_msgs/msg/Header"](time, frame)


def vector(values):
    """A geometry_msgs/Vector3."""
    return MSG["geometry_msgs/msg/Vector3"](*(float(v) for v in values))


def quaternion(wxyz):
    """A geometry_msgs/Quaternion, from MuJoCo's order."""
    w, x, y, z = (float(v) for v in wxyz)
    return MSG["geometry_msgs/msg/Quaternion"](x, y, z, w)


def transform(stamp: int, parent: str, child: str, position, wxyz):
    """A geometry_msgs/TransformStamped."""
    motion = MSG["geometry_msgs/msg/Transform"](vector(position), quaternion(wxyz))
    kind = MSG["geometry_msgs/msg/TransformStamped"]
    return kind(header(stamp, parent), child, motion)


def image(stamp: int, frame: str, encoding: str, pixels: np.ndarray):
    """A sensor_msgs/Image of rows × columns (× channels), little endian."""
    rows, columns = pixels.shape[:2]
    flat = np.ascontiguousarray(pixels).view(np.uint8).reshape(-1)
    step = len(flat) // rows
    return MSG["sensor_msgs/msg/Image"](
        header(stamp, frame), rows, columns, encoding, 0, step, flat
    )


def camera_info(stamp: int, frame: str, view: scene.Camera):
    """A sensor_msgs/CameraInfo without distortion."""
    focal, cx, cy = scene.intrinsics(view.fovy, view.width, view.height)
    k = np.array([focal, 0, cx, 0, focal, cy, 0, 0, 1])
    p = np.array([focal, 0, cx, 0, 0, focal, cy, 0, 0, 0, 1, 0])
    region = MSG["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    return MSG["sensor_msgs/msg/CameraInfo"](
        header(stamp, frame), view.height, view.width, "plumb_bob", np.zeros(5), k,
        np.eye(3).reshape(9), p, 0, 0, region,
    )


class Messages:
    """All messages of an episode as (log time in ns, topic, message), by time."""

    def __init__(self, episode: Episode):
        self.episode = episode
        self.model = episode.model
        self.data = mujoco.MjData(self.model)
        self.rig = episode.rig
        self.truth = Truth(self.model, episode.soft, self.rig)
        self.frames = len(episode.qpos)
        self.topics = topics([view.name for view in episode.cameras])

    def all(self) -> list[tuple[int, str, object]]:
        """Draws every frame: needs OpenGL."""
        found = self.latched()
        for sample in range(len(self.episode.joint_positions)):
            found.append(self.joint_state(sample))
        with Painter(self.model, self.truth) as painter:
            for frame in range(self.frames):
                self.data.qpos[:] = self.episode.qpos[frame]
                mujoco.mj_forward(self.model, self.data)
                found += self.frame(frame, painter)
        order = {name: i for i, (name, _, _) in enumerate(self.topics)}
        return sorted(found, key=lambda message: (message[0], order[message[1]]))

    def latched(self) -> list[tuple[int, str, object]]:
        """What is said once, just before the first plan."""
        at = START - PLAN_LEAD - 10_000_000
        mujoco.mj_forward(self.model, self.data)
        fixed = [self.link_transform(at, body) for body in self.robot_bodies(moving=False)]
        if self.rig.root != WORLD:
            fixed.append(transform(at, WORLD, self.rig.root, *self.rig.root_pose))
        for view in self.episode.cameras:
            frame = f"{view.name}_optical_frame"
            fixed.append(transform(at, WORLD, frame, view.position, view.quaternion()))
        string = MSG["std_msgs/msg/String"]
        return [
            (at, "/robot_description", string(self.rig.urdf())),
            (at, "/tf_static", MSG["tf2_msgs/msg/TFMessage"](fixed)),
            (at, "/truth/bodies", string(self.json())),
        ]

    def json(self) -> str:
        """What is said of the whole recording."""
        return json.dumps(self.bodies())

    def bodies(self) -> dict:
        """Task, seed, split, and every body by id; of varied scenes also what they are made of."""
        episode = self.episode
        about = {"task": episode.task, "seed": episode.seed, "split": split_of(episode.seed)}
        if episode.variety != "plain":
            about["variety"] = episode.variety
            about["cameras"] = [view.name for view in episode.cameras]
            about["objects"] = [self.about(i) for i, _ in episode.things_numbered()]
            if episode.soft:
                about["soft"] = episode.soft.kind
        return about | {"bodies": self.truth.bodies()}

    def about(self, index: int) -> dict:
        """Shape, mass and friction of an object."""
        name, thing = scene.thing_name(index), dict(self.episode.things_numbered())[index]
        mass = float(self.model.body(name).mass[0])
        return {"name": name, "shape": thing.kind, "mass_kg": mass, "friction": thing.friction}

    def robot_bodies(self, moving: bool) -> list[int]:
        """Links that a moving joint (or a fixed one) ties to their parent."""
        ids = [self.model.body(link.name).id for link in self.rig.links]
        return [b for b in ids if (self.model.body_jntnum[b] > 0) == moving]

    def link_transform(self, stamp: int, body: int):
        """Pose of a link in its parent link."""
        parent = self.model.body_parentid[body]
        inverse, turn, place = np.empty(4), np.empty(4), np.empty(3)
        mujoco.mju_negQuat(inverse, self.data.xquat[parent])
        mujoco.mju_mulQuat(turn, inverse, self.data.xquat[body])
        mujoco.mju_rotVecQuat(place, self.data.xpos[body] - self.data.xpos[parent], inverse)
        names = (self.model.body(int(parent)).name, self.model.body(body).name)
        return transform(stamp, *names, place, turn)

    def joint_state(self, sample: int) -> tuple[int, str, object]:
        """Measured joints, logged at their stamp."""
        stamp = START + sample * JOINT_NS
        message = MSG["sensor_msgs/msg/JointState"](
            header(stamp, ""), self.rig.joint_names(), self.episode.joint_positions[sample],
            self.episode.joint_velocities[sample], np.zeros(0),
        )
        return stamp, "/joint_states", message

    def plan(self, frame: int) -> tuple[int, str, object]:
        """Commanded joints of the second from this frame on, logged ahead of its stamp."""
        point = MSG["trajectory_msgs/msg/JointTrajectoryPoint"]
        duration = MSG["builtin_interfaces/msg/Duration"]
        none = np.zeros(0)
        points = [
            point(row, none, none, none, duration(i // 10, i % 10 * FRAME_NS))
            for i, row in enumerate(self.episode.plan(frame))
        ]
        stamp = START + frame * FRAME_NS
        message = MSG["trajectory_msgs/msg/JointTrajectory"](
            header(stamp, WORLD), self.rig.joint_names(), points
        )
        return stamp - PLAN_LEAD, "/planned_joints", message

    def frame(self, frame: int, painter: Painter) -> list[tuple[int, str, object]]:
        """Plan, tf, pictures and truth of a frame, whose state `self.data` holds."""
        stamp = START + frame * FRAME_NS
        seen = stamp + IMAGE_DELAY
        links = [self.link_transform(stamp, b) for b in self.robot_bodies(moving=True)]
        found = [self.plan(frame), (stamp, "/tf", MSG["tf2_msgs/msg/TFMessage"](links))]
        for camera in self.episode.cameras:
            name, frame_id = camera.name, f"{camera.name}_optical_frame"
            view, info = painter.view(self.data, camera), camera_info(stamp, frame_id, camera)
            found += [
                (seen, f"/{name}/color/camera_info", info),
                (seen, f"/{name}/color/image_raw", image(stamp, frame_id, "rgb8", view.colour)),
                (seen, f"/{name}/depth/image_raw", image(stamp, frame_id, "16UC1", view.depth)),
                (seen, f"/truth/{name}/body_ids", image(stamp, frame_id, "16UC1", view.body_ids)),
            ]
        return found + [(seen, "/truth/body_poses", self.poses(stamp))]

    def poses(self, stamp: int):
        """Pose of every body in the world, by id."""
        point, pose = MSG["geometry_msgs/msg/Point"], MSG["geometry_msgs/msg/Pose"]
        poses = [
            pose(point(*(float(v) for v in place)), quaternion(turn))
            for place, turn in zip(*self.truth.poses(self.data))
        ]
        return MSG["geometry_msgs/msg/PoseArray"](header(stamp, WORLD), poses)


def messages_of(episode: Episode, name: str, moving=None) -> Messages:
    """What makes the messages of an episode, whose recording has this name; `moving`: a MovingCamera."""
    if moving:
        from sim.moving import MovingMessages

        return MovingMessages(episode, moving)
    if not episode.stage:
        return Messages(episode)
    from sim.filming import Filmed

    return Filmed(episode, name)


def write_meshes(meshes: dict[str, bytes], folder: Path) -> None:
    """Puts the robot's meshes where its description is found to name them: into `meshes` of this folder."""
    for name, mesh in meshes.items():
        (folder / "meshes").mkdir(parents=True, exist_ok=True)
        (folder / "meshes" / f"{name}.stl").write_bytes(mesh)


def write(episode: Episode, folder: Path, truth: bool = True, moving=None) -> None:
    """Writes the recording, without what only a simulator knows where `truth` is false; `moving`:
    as messages_of; the folder appears only when it is complete."""
    spare = folder.parent / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(spare, ignore_errors=True)
    draft = spare / folder.name
    bag = McapBag if not episode.stage else LongBag
    writer = bag(draft, version=9, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    try:
        messages = messages_of(episode, folder.name, moving)
        told = [row for row in messages.topics if truth or not row[0].startswith(TRUTH)]
        with writer:
            channels = {
                name: writer.add_connection(
                    name, kind, typestore=TYPES, offered_qos_profiles=[qos(latched)]
                )
                for name, kind, latched in told
            }
            for at, topic, message in messages.all():
                if topic not in channels:
                    continue
                data = TYPES.serialize_cdr(message, channels[topic].msgtype)
                writer.write(channels[topic], at, data)
        write_meshes(episode.rig.meshes, draft)
        draft.replace(folder)
    finally:
        shutil.rmtree(spare, ignore_errors=True)
