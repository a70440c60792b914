"""Recordings (rosbag2) as frames of NumPy arrays, and frames of arrays of your own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from . import _arrays, _native
from .errors import ConfigError, InputError

CLASSES = ("moving", "resting", "robot", "static")
"""Names of the classes of `TrueMotion.classes`: object points that move (more than 1 mm in a step) or
rest, points of the robot, and of the world."""


@dataclass(frozen=True)
class Camera:
    """What one camera saw.

    Of a recording, `depth` and `color` are read-only views of the recording's own bytes: they cost
    nothing, and live as long as you hold them.
    """

    depth: np.ndarray | None = None
    """Depth `[height, width]`: uint16 in millimetres, or float32 in metres; 0 (and NaN) where nothing was
    measured. None for cameras that send clouds."""
    intrinsics: Any = None
    """Camera matrix `[3, 3]` of the depth image (pixels); `fx, fy, cx, cy` are taken, too."""
    pose: Any = None
    """Maps points of the optical frame (z forward, x right, y down) into the world frame (m): 4 x 4, or
    x, y, z and a quaternion x, y, z, w, which of recordings it is, to the bit."""
    color: np.ndarray | None = None
    """Colour `[height, width, 3]`, uint8, red green blue; pixel by pixel that of `depth` unless
    `color_intrinsics` are given. None: points are grey."""
    distortion: tuple[str, Sequence[float]] = ("", ())
    """ROS's name of the distortion model (`plumb_bob`, `rational_polynomial`, `equidistant`, …) and its
    parameters."""
    color_intrinsics: Any = None
    """Camera matrix of the colour image, where it has its own."""
    color_distortion: tuple[str, Sequence[float]] = ("", ())
    """Distortion of the colour image, where it has its own."""
    color_from_depth: Any = None
    """Maps points of the depth camera's optical frame into the colour camera's (m), as `pose`."""
    number: int | None = None
    """Which camera it is; by default its place in the list."""
    name: str = ""
    """Its name, of recordings."""
    stamp_ns: int | None = None
    """Stamp of its depth image (ns), of recordings."""
    points: Any = None
    """Instead of images: positions `[n, 3]` (float32, m, in the frame of `pose`) and colours `[n, 3]` (uint8),
    or positions alone (grey). Rows that are not finite or all zero were not measured."""

    @property
    def world_from_camera(self) -> np.ndarray:
        """The pose as a 4 x 4 matrix (m)."""
        return _arrays.matrix(_arrays.pose("pose", self.pose))

    def depth_m(self) -> np.ndarray:
        """Depth in metres `[height, width]`, float32, NaN where nothing was measured: a copy."""
        if self.depth is None:
            raise InputError("this camera sends clouds: see points")
        metres = self.depth.astype(np.float32) * (0.001 if self.depth.dtype.kind == "u" else 1.0)
        return np.where(metres > 0, metres, np.float32(np.nan)).astype(np.float32)

    def _points(self) -> tuple[Any, Any]:
        """Positions, and colours where there are some."""
        if isinstance(self.points, (tuple, list)) and len(self.points) == 2 and np.ndim(self.points[0]) == 2:
            return self.points[0], self.points[1]
        return self.points, None

    def _native(self, number: int) -> dict[str, Any]:
        number = _arrays.whole("number", number if self.number is None else self.number, 0, 254)
        if self.points is not None:
            if self.depth is not None or self.color is not None:
                raise InputError("points: a camera has either images or points")
            positions, colors = self._points()
            return {
                "number": number,
                "points": _arrays.array("points", positions, np.float32, 2),
                "colors": None if colors is None else _arrays.array("colors of the points", colors, np.uint8, 2),
                "pose": _arrays.pose("pose", self.pose),
            }
        depth = np.asarray(self.depth) if self.depth is not None else None
        if depth is None:
            raise InputError(
                "depth: a camera needs a depth image [height, width] of uint16 (mm) or float32 (m), or points [n, 3]"
            )
        dtype = np.uint16 if depth.dtype.kind in "ui" else np.float32
        own = None
        if self.color_intrinsics is not None:
            identity = (0, 0, 0, 0, 0, 0, 1) if self.color_from_depth is None else self.color_from_depth
            own = (
                _arrays.intrinsics("color_intrinsics", self.color_intrinsics),
                _distortion("color_distortion", self.color_distortion),
                _arrays.pose("color_from_depth", identity),
            )
        return {
            "number": number,
            "depth": _arrays.array("depth", depth, dtype, 2),
            "intrinsics": _arrays.intrinsics("intrinsics", self.intrinsics),
            "distortion": _distortion("distortion", self.distortion),
            "pose": _arrays.pose("pose", self.pose),
            "color": None if self.color is None else _arrays.array("color", self.color, np.uint8, 3),
            "color_camera": own,
        }


def _distortion(name: str, value: Any) -> tuple[str, list[float]]:
    try:
        model, parameters = value
        return str(model), _arrays.array(name, parameters, np.float64, 1).tolist()
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected a model's name and its parameters ({error})") from None


@dataclass(frozen=True)
class Plan:
    """Where joints are to be: as trajectory_msgs/JointTrajectory, linear between points, held after the
    last."""

    joints: Sequence[str]
    """Names of the joints."""
    times: Any
    """Seconds from the start, ascending from 0, `[n]`."""
    positions: Any
    """Radians or metres, `[n, joints]`; none (n = 0) cancels the plan."""
    start: float | int = 0
    """Start: seconds (float) or nanoseconds (int)."""

    def _native(self) -> tuple[int, list[str], list[int], list[list[float]]]:
        times = _arrays.array("plan's times", self.times, np.float64, 1)
        positions = _arrays.array("plan's positions", self.positions, np.float64)
        if len(times) and positions.ndim != 2:
            raise InputError(f"plan's positions: expected [n, joints], got shape {list(positions.shape)}")
        times_ns = [_arrays.stamp_ns("plan's times", float(t)) for t in times]
        rows = positions.tolist() if len(times) else []
        return _arrays.stamp_ns("plan's start", self.start), [str(name) for name in self.joints], times_ns, rows


class Frame:
    """All that is known of one time: cameras, the robot's joints, plans.

    Made of arrays::

        frame = fc.Frame(
            stamp=12.3,                                   # seconds; an int is nanoseconds
            cameras=[fc.Camera(depth, intrinsics, pose, color)],
            joints={"shoulder": 0.1, "elbow": -1.2},      # rad or m; None: no robot
            plans=[fc.Plan(["shoulder"], [0.0, 0.5], [[0.1], [0.4]], start=12.3)],
        )

    The world frame has z up; metres.
    """

    __slots__ = ("_native", "_cameras", "_names")

    def __init__(
        self,
        stamp: float | int,
        cameras: Sequence[Camera],
        joints: Mapping[str, float] | None = None,
        plans: Sequence[Plan] = (),
        root: Any = None,
        workspace: Any = None,
    ) -> None:
        """`root`: pose of the robot's root link in the world frame, where its description does not hold
        that frame; `workspace`: pose of the frame that the box to predict in is given in, where it goes with
        one, such as a mobile base's."""
        if isinstance(cameras, Camera) or not all(isinstance(camera, Camera) for camera in cameras):
            raise InputError("cameras: expected a list of forecloud.Camera")
        robot: Any = None
        if joints is not None:
            if not isinstance(joints, Mapping):
                raise InputError("joints: expected names with positions (rad or m), such as {'elbow': 0.3}")
            positions = _arrays.array("joints", list(joints.values()), np.float64, 1).tolist()
            at = None if root is None else _arrays.pose("root", root)
            robot = ([str(name) for name in joints], positions, at, [])
        self._native = _native.Frame(
            _arrays.stamp_ns("stamp", stamp),
            [camera._native(i) for i, camera in enumerate(cameras)],
            robot,
            [plan._native() for plan in plans],
            None if workspace is None else _arrays.pose("workspace", workspace),
        )
        self._names: Sequence[str] = ()
        self._cameras: list[Camera] | None = None

    @classmethod
    def _of(cls, native: _native.Frame, names: Sequence[str]) -> Frame:
        frame = cls.__new__(cls)
        frame._native, frame._names, frame._cameras = native, names, None
        return frame

    @property
    def stamp_ns(self) -> int:
        """Nanoseconds of the clock that stamped the images."""
        return self._native.stamp_ns

    @property
    def stamp(self) -> float:
        """The same in seconds, exact to about 0.2 µs; `stamp_ns` is exact."""
        return self._native.stamp_ns / 1e9

    @property
    def cameras(self) -> list[Camera]:
        """Its cameras; images are views, not copies."""
        if self._cameras is None:
            self._cameras = [_camera(given, self._names) for given in self._native.cameras()]
        return self._cameras

    @property
    def joints(self) -> dict[str, float] | None:
        """Positions of the joints (rad or m) by name; None without a robot."""
        robot = self._native.robot()
        return None if robot is None else dict(zip(robot[0], robot[1]))

    @property
    def root(self) -> np.ndarray | None:
        """Pose of the robot's root link, `[7]`; None where its description holds the world frame."""
        robot = self._native.robot()
        return None if robot is None or robot[2] is None else np.array(robot[2])

    @property
    def plans(self) -> list[Plan]:
        """The last plans that start no later than 50 ms after the stamp, ascending."""
        return [
            Plan(names, np.array(times, np.float64) / 1e9, np.array(rows).reshape(len(times), len(names)), start)
            for start, names, times, rows in self._native.plans()
        ]

    def cloud(self, workspace: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The coloured cloud of all cameras in the world frame.

        `workspace`: lowest and highest corner `[2, 3]` (m); without it all that was measured.

        Returns positions `[n, 3]` (float32, m), colours `[n, 3]` (uint8) and sources `[n]` (uint32:
        camera << 24 | pixel).
        """
        return self._native.cloud(_arrays.box("workspace", workspace))

    @property
    def has_bodies(self) -> bool:
        """Whether the recording's truth tells which body each pixel shows."""
        return self._native.has_bodies

    def bodies(self, sources: Any) -> np.ndarray:
        """Number of the body (uint16, index into `Recording.bodies`) that each of `sources` shows."""
        return self._native.bodies(_arrays.array("sources", sources, np.uint32, 1))

    def __repr__(self) -> str:
        n = len(self._native.cameras())
        return f"<forecloud.Frame of {self.stamp:.3f} s: {n} cameras, robot: {self.joints is not None}>"


def _camera(given: dict[str, Any], names: Sequence[str]) -> Camera:
    number = given["number"]
    own = given.get("color_camera")
    return Camera(
        depth=_image(given.get("depth")),
        intrinsics=np.array(given["intrinsics"]).reshape(3, 3) if "intrinsics" in given else None,
        pose=np.array(given["pose"]),
        color=_image(given.get("color")),
        distortion=given.get("distortion", ("", ())),
        color_intrinsics=None if own is None else np.array(own[0]).reshape(3, 3),
        color_distortion=("", ()) if own is None else own[1],
        color_from_depth=None if own is None else np.array(own[2]),
        number=number,
        name=names[number] if number < len(names) else "",
        stamp_ns=given["stamp_ns"],
        points=given.get("points"),
    )


_LAYOUTS = {
    "16UC1": ("u2", 0), "mono16": ("u2", 0), "32FC1": ("f4", 0), "mono8": ("u1", 0), "8UC1": ("u1", 0),
    "rgb8": ("u1", 3), "bgr8": ("u1", -3), "rgba8": ("u1", 4), "bgra8": ("u1", -4), "8UC3": ("u1", -3),
}


def _image(given: dict[str, Any] | None) -> np.ndarray | None:
    """A view of an image's bytes: depth `[height, width]`, colour `[height, width, 3]` in red, green,
    blue, whatever the order of the bytes."""
    if given is None:
        return None
    height, width, step = given["height"], given["width"], given["step"]
    layout = _LAYOUTS.get(given["encoding"])
    if layout is None:
        return given["data"]
    kind, channels = layout
    dtype = np.dtype((">" if given["is_bigendian"] else "<") + kind)
    shape: tuple[int, ...] = (height, width)
    strides: tuple[int, ...] = (step, dtype.itemsize * max(abs(channels), 1))
    if channels:
        shape, strides = (*shape, abs(channels)), (*strides, dtype.itemsize)
    bytes_needed = (height - 1) * step + width * dtype.itemsize * max(abs(channels), 1)
    if len(given["data"]) < bytes_needed:
        return given["data"]
    image = np.ndarray(shape, dtype, given["data"], 0, strides)
    if channels < 0:
        return image[..., 2::-1]
    return image[..., :3] if channels else image


@dataclass(frozen=True)
class TrueMotion:
    """Where points truly go, of simulated recordings."""

    positions: np.ndarray
    """After each step, `[steps, n, 3]` (m, world frame); fewer steps where the truth ends."""
    classes: np.ndarray
    """What each point is in each step, `[steps, n]`: index into `forecloud.CLASSES`."""
    back: np.ndarray = field(repr=False)
    """One step back, `[n, 3]` (m)."""


class Recording:
    """A rosbag2 recording (a folder, an .mcap or a .db3 file) as frames.

    ::

        for frame in fc.Recording("data/demo_tumble"):
            print(frame.stamp, frame.cameras[0].depth.shape)

    Keywords are the tool's options (`forecloud replay --help`, "Topics and frames"): `cameras=["front"]`,
    `input="points"`, `unregistered_depth=True`, `remap={"/joint_states": "/arm/joint_states"}`,
    `world_frame="map"`, `workspace_frame="base_link"`, `level_camera=True`, `robot="none"`, `tolerance_secs=0.05`.

    Raises `RecordingError` for what cannot be read (with the arguments that may serve, where topics have
    other names), `ConfigError` for settings that make no sense.
    """

    def __init__(self, path: str | os.PathLike[str], **settings: Any) -> None:
        try:
            given = os.fspath(path)
        except TypeError:
            raise InputError(f"path: expected a path, got {type(path).__name__}") from None
        remap = settings.pop("remap", None)
        arguments = _arguments(settings)
        if remap is not None:
            pairs = remap.items() if isinstance(remap, Mapping) else remap
            for old, new in pairs:
                arguments += ["--remap", f"{old}:={new}"]
        self._native = _native.Recording(given, arguments)
        self.counts: dict[str, int] | None = None
        """What became of the messages, once it was iterated to its end; see `problem`."""
        self.problem: str | None = None
        """The first cause of dropped frames or messages, with its remedy."""

    def __iter__(self) -> Iterator[Frame]:
        """Frames in order, read ahead by a thread; each iteration starts anew."""
        frames, names = self._native.frames(), self.cameras
        while (frame := frames.next()) is not None:
            yield Frame._of(frame, names)
        counts = frames.counts()
        if counts is not None:
            self.counts, self.problem = json.loads(counts[0]), counts[1]

    @property
    def path(self) -> str:
        """Where it lies."""
        return str(self._native.path)

    @property
    def cameras(self) -> list[str]:
        """Names of its cameras."""
        return self._native.cameras

    @property
    def topics(self) -> dict[str, tuple[str, int]]:
        """Type and number of messages of each topic."""
        return {name: (kind, n) for name, kind, n in self._native.topics}

    @property
    def start_ns(self) -> int | None:
        """Time of the first message (ns)."""
        return self._native.start_ns

    @property
    def end_ns(self) -> int | None:
        """Time of the last message (ns)."""
        return self._native.end_ns

    @property
    def warnings(self) -> list[str]:
        """What was read otherwise than its author may expect."""
        return self._native.warnings

    @property
    def world_frame(self) -> str:
        """Name of the frame that all positions are in: z up, metres."""
        return self._native.world_frame

    @property
    def robot_description(self) -> str | None:
        """The robot's URDF; None where there is none."""
        return self._native.robot_description()

    @property
    def task(self) -> str | None:
        """The task that was simulated; None without truth."""
        truth = self._native.truth
        return None if truth is None else truth[0]

    @property
    def bodies(self) -> list[tuple[str, str]]:
        """Name and kind (`static`, `robot`, `object`) of each body of the truth."""
        truth = self._native.truth
        return [] if truth is None else truth[2]

    def body_poses(self, stamp: float | int) -> np.ndarray | None:
        """Poses `[n, 7]` of the bodies then (x, y, z in m, quaternion x, y, z, w); None where the truth
        does not tell."""
        return self._native.body_poses(_arrays.stamp_ns("stamp", stamp))

    def true_motion(
        self, frame: Frame, positions: Any, sources: Any, step_secs: float = 0.1, horizon: int = 5
    ) -> TrueMotion | None:
        """Where points of a frame truly go.

        `positions` `[n, 3]` (m) and `sources` `[n]`: of a prediction, or of `Frame.cloud`.

        None where the truth does not tell.
        """
        if not isinstance(frame, Frame):
            raise InputError("frame: expected a forecloud.Frame")
        told = self._native.true_motion(
            frame._native,
            _arrays.array("positions", positions, np.float32, 2),
            _arrays.array("sources", sources, np.uint32, 1),
            float(step_secs),
            _arrays.whole("horizon", horizon, 1, 1000),
        )
        return None if told is None else TrueMotion(**told)

    def __repr__(self) -> str:
        return f"<forecloud.Recording {self.path}>"


# Parameters of the node, which the tool takes by -p.
PARAMETERS = (
    "depth_registered",
    "world_frame",
    "workspace_frame",
    "level_camera",
    "robot",
    "tolerance_secs",
)


def _arguments(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the tool's arguments: underscores are dashes, True is a flag, lists go comma by comma."""
    arguments: list[str] = []
    for name, value in settings.items():
        if name == "unregistered_depth":
            name, value = "depth_registered", None if value is None else not value
        if name in PARAMETERS and isinstance(value, (str, bool, int, float, np.generic)):
            text = str(bool(value)).lower() if isinstance(value, (bool, np.bool_)) else str(value)
            arguments += ["-p", f"{name}:={text}"]
            continue
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(option)
        elif isinstance(value, (list, tuple, np.ndarray)):
            arguments.append(f"{option}={','.join(str(item) for item in value)}")
        elif isinstance(value, (str, int, float, np.generic, os.PathLike)):
            arguments.append(f"{option}={value}")
        else:
            raise ConfigError(f"{name}: {type(value).__name__} is no setting")
    return arguments
