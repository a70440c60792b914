"""Predictions: where every point that the cameras see will be next."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from . import _arrays, _native
from .ahead import Contact, Contacts, Occupied
from .errors import ConfigError, InputError, ModelError
from .plans import Costs, Found, Goal, costs_of, goal_in, plans_in
from .recording import Camera, Frame, Plan, Recording

SITUATIONS = ("robot", "resting", "moving", "flying")
"""Names of what `Prediction.situations` tells: carried by a link of the robot, known to rest, moving or
not known, moving and touching nothing."""

KINDS = ("support", "robot", "resting", "moving", "flying")
"""Names of what `Prediction.kinds` tells: on the support plane, on a link of the robot, at rest, moving or not
known, moving and touching nothing."""


def shipped_model() -> str:
    """Path of the model that comes with the package: the tool's `models/small.safetensors`."""
    return str(Path(__file__).parent / "models" / "small.safetensors")


class Model:
    """A model file, loaded once; predictors may share it.

    Raises `ModelError` for files that cannot be used, of another version for instance.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """`path`: without one the shipped model."""
        self.path = shipped_model() if path is None else _path(path)
        self._native = _native.Model(self.path)

    @property
    def hash(self) -> str:
        """Hash of its file, as reports and messages tell it."""
        return self._native.hash

    @property
    def config(self) -> dict[str, Any]:
        """Its sizes and settings; `step_secs` is the length of a step (s)."""
        return json.loads(self._native.config)

    def __repr__(self) -> str:
        return f"<forecloud.Model {self.path}, {self.hash[:12]}>"


def _path(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        raise InputError(f"model: expected a path or a forecloud.Model, got {type(path).__name__}") from None


@dataclass(frozen=True)
class Object:
    """An object of a prediction, in the world frame (z up, metres)."""

    id: int
    """Its number, from 1 up: it stays from prediction to prediction."""
    kind: str
    """What most of its particles are: one of `forecloud.KINDS`."""
    n_particles: int
    """Number of its particles."""
    since_ns: int
    """Stamp of the frame in which it was first seen."""
    last_seen_ns: int
    """Stamp of the frame in which it was last seen."""
    size: np.ndarray
    """Sides of the upright box about what is seen of it, `[3]`, m; x is the longer horizontal one."""
    poses: np.ndarray
    """Pose of the box at the stamp and after each step, `[1 + steps, 7]`: x, y, z (m), quaternion x, y, z, w."""
    variances: np.ndarray | None
    """Variances of these, `[1 + steps, 6]`: along x, y, z (m²) and about them (rad²), world axes; None of models
    that don't tell."""


@dataclass(frozen=True)
class Prediction:
    """Predicted motion of the particles of one frame, in the world frame (z up, metres).

    All arrays are yours.
    """

    positions: np.ndarray
    """Particles in the frame, `[n, 3]`, float32, m."""
    displacements: np.ndarray
    """Displacement of each in each step, `[steps, n, 3]`, float32, m, from where the step before left it."""
    sigma: np.ndarray | None
    """Radius (m) `[steps, n]` within which, of models that were calibrated, about two thirds of the errors
    lie; None of models that don't tell."""
    sigma_90: np.ndarray | None
    """The same for nine tenths of the errors."""
    colors: np.ndarray
    """Red, green, blue of each, `[n, 3]`, float32, 0 to 1."""
    sources: np.ndarray
    """Where each was seen, `[n]`, uint32: camera << 24 | pixel (row * width + column)."""
    situations: np.ndarray
    """What each does at the start, `[n]`, uint8: index into `forecloud.SITUATIONS`."""
    object_of: np.ndarray
    """Number of each one's object, `[n]`, uint64; 0 for none: support plane, robot, walls and furniture."""
    kinds: np.ndarray
    """What each is, `[n]`, uint8: index into `forecloud.KINDS`."""
    stamp_ns: int
    """Stamp of the frame."""
    history_stamp_ns: int
    """Stamp of the frame one step back."""
    held_against_ns: int | None
    """Stamp of the prediction that was held against this frame, to tell what goes on; None if none was made about
    one step before."""
    step_secs: float
    """Length of a step (s)."""
    seed: int
    """Seed of the particles' draw."""
    is_cut: bool
    """Whether it has fewer steps or particles than were asked for, to end in time."""
    support_m: float | None
    """Height (world z, m) of the plane that most points lie on; None without one."""
    timings_ms: tuple[float, float] = field(repr=False)
    """What clouds and particles, and what graph and model took (ms)."""
    _ahead: Any = field(repr=False, compare=False)
    objects_since_ns: int
    """Stamp of the first frame that the numbers of objects hang on."""
    _objects: list[dict[str, Any]] = field(repr=False, default_factory=list)

    def objects(self) -> list[Object]:
        """The objects that are seen, by ascending number, and where they will be."""
        return [Object(**values) for values in self._objects]

    @property
    def stamp(self) -> float:
        """Stamp in seconds; `stamp_ns` is exact."""
        return self.stamp_ns / 1e9

    def __len__(self) -> int:
        """Number of particles."""
        return len(self.positions)

    def paths(self) -> np.ndarray:
        """Where each particle is now and after each step, `[steps + 1, n, 3]`, float32, m.

        Summed step by step in float32, as the node's clients do.
        """
        path = np.empty((len(self.displacements) + 1, *self.positions.shape), np.float32)
        path[0] = self.positions
        for t, displacement in enumerate(self.displacements):
            np.add(path[t], displacement, out=path[t + 1])
        return path

    def contacts(self, *, touch: float = 0.005, min_probability: float = 0.05) -> Contacts:
        """Contacts to come between the robot and the scene: `~/contact`, to the bit. Not a certified safety
        function.

        `touch`: distance of a particle from a link's surface that counts as one (m). What touches already, lies
        on the robot, or is not approached is none.
        """
        touch, least = _arrays.real("touch", touch), _arrays.real("min_probability", min_probability)
        has_robot, horizon, told = self._ahead.contacts(touch, least)
        place = lambda p: np.array(p, np.float32)  # noqa: E731
        contacts = [Contact(link, of, time, away, place(p), likely) for link, of, time, away, p, likely in told]
        return Contacts(has_robot, horizon, contacts)

    def occupied(self, until: float | None = None, *, voxel: float = 0.02, padding: float = 0.02) -> Occupied:
        """Points that the scene sweeps from now until `until` (s; None: all of the prediction), the robot left out:
        `~/occupied_points`, to the bit. Points until an earlier time are its first ones.

        `voxel`: side of a cube that has one point, the earliest (m); `padding`: what is nearer to a link now is
        taken for the robot (m). Raises `ConfigError` for times that are not within the prediction.
        """
        until = len(self.displacements) * self.step_secs if until is None else _arrays.real("until", until)
        sizes = _arrays.real("voxel", voxel), _arrays.real("padding", padding)
        return Occupied(**self._ahead.occupied(until, *sizes))


class Predictor:
    """Predicts frame after frame; the same predictor as the node's and the tool's.

    ::

        recording = fc.Recording("data/demo_tumble")
        predictor = fc.Predictor.of(recording, horizon=10)
        for frame in recording:
            if prediction := predictor.step(frame):
                print(prediction.displacements[0].max())

    Keywords are settings that the node has too (`config/forecloud.yaml`, `config/advanced.yaml`): `horizon`
    (steps), `n_particles` (0: as trained), `seed`, `device` (`"cpu"`, `"auto"`, `"cuda"`, `"cuda:1"`),
    `robot` (`"required"`, `"optional"`, `"none"`), `workspace` (lowest and highest corner, `[2, 3]`, m;
    None: the model's), `origin` (m), `hold_at_rest`, `carry_robot`, `history_tolerance_secs`,
    `deadline_secs`.

    A predictor works for one thread at a time; steps leave the interpreter to other threads.

    Raises `ConfigError` for settings that make no sense, `ModelError`, `DeviceError`.
    """

    def __init__(self, model: Model | str | os.PathLike[str] | None = None, **settings: Any) -> None:
        """`model`: a model or its file; without one the shipped model."""
        self.model = model if isinstance(model, Model) else Model(model)
        self._native = _native.Predictor(self.model._native, _settings(settings))
        self.warnings: list[str] = []
        """What of the robot's description was read otherwise than its author may expect."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        model: Model | str | os.PathLike[str] | None = None,
        mesh_folders: Sequence[str | os.PathLike[str]] = (),
        **settings: Any,
    ) -> Predictor:
        """A predictor that is set up for a recording as `forecloud replay` sets it up: with its robot, and,
        unless `workspace` is given, with the box that its cameras see where that is not the model's."""
        if not isinstance(recording, Recording):
            raise InputError(f"recording: expected a forecloud.Recording, got {type(recording).__name__}")
        loaded = model if isinstance(model, Model) else Model(model)
        if settings.get("workspace") is None:
            place = recording._native.place(loaded._native)
            if place is not None:
                settings = {**settings, "workspace": place[0], "origin": place[1]}
        predictor = cls(loaded, **settings)
        urdf = recording.robot_description
        if urdf is not None and predictor.config["robot"] != "none":
            predictor.set_robot(urdf, recording.world_frame, mesh_folders, beside=recording.path)
        return predictor

    def set_robot(
        self,
        urdf: str,
        world_frame: str = "world",
        mesh_folders: Sequence[str | os.PathLike[str]] = (),
        beside: str | os.PathLike[str] | None = None,
    ) -> list[str]:
        """Takes the robot's description (URDF text); returns its warnings.

        `mesh_folders`: where its meshes are looked for first; `beside`: a recording beside which they may
        lie. Raises `RobotError`.
        """
        folders = [_path(folder) for folder in mesh_folders]
        beside = None if beside is None else _path(beside)
        self.warnings = self._native.set_robot(urdf, world_frame, folders, beside)
        return self.warnings

    def step(
        self,
        frame: Frame | None = None,
        *,
        stamp: float | int | None = None,
        depth: Any = None,
        intrinsics: Any = None,
        poses: Any = None,
        color: Any = None,
        points: Any = None,
        joints: Mapping[str, float] | None = None,
        plans: Sequence[Plan] = (),
    ) -> Prediction | None:
        """Predicts from a frame; None while there is no frame of the same cameras one step before it.

        Instead of `frame`: arrays of one camera, or lists of them for several: `depth` `[height, width]`
        (uint16 mm or float32 m), `intrinsics` (3 x 3, or fx, fy, cx, cy), `poses` (4 x 4 world from camera,
        or x, y, z and a quaternion x, y, z, w), `color` `[height, width, 3]` uint8; or, instead of images, `points` `[n, 3]` (m, in the frame of its
        pose) or a tuple of them and their colours `[n, 3]` uint8; and `stamp` (s, or ns
        as an int), `joints` (names with rad or m).

        Raises `InputError` for what makes the frame unusable, `RobotError`, `StateError`; the next frame
        starts afresh.
        """
        if frame is None:
            if stamp is None:
                raise InputError("stamp: the time of the images is needed (s, or ns as an int)")
            cameras = _cameras(depth, intrinsics, poses, color) if points is None else _clouds(points, poses)
            frame = Frame(stamp, cameras, joints, plans)
        elif any(given is not None for given in (stamp, depth, intrinsics, poses, color, points, joints)):
            raise InputError("step: either a frame, or arrays by name")
        if not isinstance(frame, Frame):
            raise InputError(f"frame: expected a forecloud.Frame or arrays by name, got {type(frame).__name__}")
        told = self._native.step(frame._native)
        return None if told is None else Prediction(**told)

    def evaluate(self, plans: Sequence[Plan], goal: Goal | str | os.PathLike[str], *, steps: int = 10,
                 particles: int = 512) -> Costs:
        """What each of `plans` would cost from the newest predicted frame on, held against `goal` (or the path
        of its YAML file), in one batch on all threads: the costs of the node's `~/evaluate` and of `forecloud
        evaluate`, to the bit on the CPU.

        Plans start at the frame (`Plan.start` 0) or at their own stamp; joints that they leave out go on as
        in the prediction. `steps`: of each roll-out; `particles`: 0 for all of the frame's.

        Raises `RobotError` for plans that can't be followed (it names the plan), `InputError` for goals that
        make no sense in this frame, `StateError` before a frame was predicted.
        """
        told = self._native.evaluate(goal_in(goal), plans_in(plans), *_sizes(steps, particles))
        return costs_of(told.pop("columns"), **told)

    def plan(self, goal: Goal | str | os.PathLike[str], *, budget: float | None = None, max_plans: int = 0,
             steps: int = 30, joints: Sequence[str] = (), tools: Sequence[str] = (), seed: int = 0,
             particles: int = 512) -> Found:
        """Looks for a plan that reaches `goal` from the newest predicted frame on: `~/plan`.

        `budget`: seconds (None: 2, or as long as `max_plans` take); `max_plans`: to roll out at most, 0 for no
        such limit; `steps`: of the longest plan; `joints` that may move (all), `tools`: links that may touch the
        target (the ends of arms). With `max_plans` alone the same seed gives the same plan.

        That no plan is good enough is no error: see `Found.success`. Raises as `evaluate`, and `ConfigError`.
        """
        steps, particles = _sizes(steps, particles)
        if budget is None and max_plans == 0:
            budget = 2.0
        settings = {
            "budget": None if budget is None else _seconds("budget", budget), "steps": steps, "particles": particles,
            "max_plans": _arrays.whole("max_plans", max_plans), "joints": _names("joints", joints),
            "tools": _names("tools", tools), "seed": _arrays.whole("seed", seed, 0, 2**64 - 1),
        }
        told = self._native.plan(goal_in(goal), settings)
        start, names, times, rows = told.pop("plan")
        plan = Plan(names, np.array(times, np.float64) / 1e9, np.array(rows, np.float64).reshape(-1, len(names)), start)
        return Found(plan=plan, costs=costs_of(told.pop("costs"), stamp_ns=start), **told)

    def predict(self, plan: Plan, *, steps: int = 10) -> Prediction:
        """The prediction from the newest predicted frame on, if the robot follows `plan`: `~/predict`. All
        particles, in the order of the frame's prediction."""
        [given] = plans_in([plan])
        return Prediction(**self._native.predict(given, _sizes(steps, 0)[0]))

    def keep(self, frame: Frame) -> None:
        """Keeps a frame that is not predicted from, so that later ones find their history. It is looked at only
        where one needs it; the last eight are kept."""
        if not isinstance(frame, Frame):
            raise InputError(f"frame: expected a forecloud.Frame, got {type(frame).__name__}")
        self._native.keep(frame._native)

    def forget(self) -> int:
        """Forgets all frames, as after a jump of the scene; returns how many there were."""
        return self._native.forget()

    @property
    def config(self) -> dict[str, Any]:
        """All settings."""
        return json.loads(self._native.config)

    def set_config(self, **settings: Any) -> None:
        """Takes other settings from the next frame on; those that are not named stay."""
        self._native.set_config(_settings({**self.config, **settings}))

    @property
    def device(self) -> str:
        """What it runs on."""
        return self._native.device

    @property
    def step_secs(self) -> float:
        """Length of a step (s)."""
        return self.model.config["step_secs"]


def _clouds(points: Any, poses: Any) -> list[Camera]:
    if poses is None:
        raise InputError("poses: the pose of the points' frame in the world is needed, of each cloud one")
    # Several clouds: a list of arrays or of tuples of positions and colours.
    if isinstance(points, list) and points and (isinstance(points[0], tuple) or np.ndim(points[0]) == 2):
        try:
            return [Camera(points=p, pose=at) for p, at in zip(points, poses, strict=True)]
        except (TypeError, ValueError):
            raise InputError("poses: as many are needed as clouds") from None
    return [Camera(points=points, pose=poses)]


def _sizes(steps: Any, particles: Any) -> tuple[int, int]:
    return _arrays.whole("steps", steps), _arrays.whole("particles", particles)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError(f"{name}: expected seconds, got {value!r}")
    return float(value)


def _names(name: str, values: Any) -> list[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{name}: expected a list of names, got {values!r}")
    return list(values)


def _settings(settings: dict[str, Any]) -> str:
    if settings.get("workspace") is not None:
        corners = _arrays.box("workspace", settings["workspace"])
        assert corners is not None
        settings = {**settings, "workspace": {"min": corners[0], "max": corners[1]}}
    return _arrays.settings("settings of the predictor", settings)


def _cameras(depth: Any, intrinsics: Any, poses: Any, color: Any) -> list[Camera]:
    if depth is None or intrinsics is None or poses is None:
        raise InputError("depth, intrinsics and poses are needed, of one camera or lists of several")
    if isinstance(depth, (list, tuple)) and depth and np.ndim(depth[0]) == 2:
        colors = [None] * len(depth) if color is None else color
        try:
            groups = list(zip(depth, intrinsics, poses, colors, strict=True))
        except (TypeError, ValueError):
            raise InputError("intrinsics, poses and color: as many are needed as depth images") from None
        return [Camera(depth=d, intrinsics=k, pose=p, color=c) for d, k, p, c in groups]
    return [Camera(depth=depth, intrinsics=intrinsics, pose=poses, color=color)]
