"""Recordings and their predictions in rerun: `forecloud view BAG`, `forecloud.show`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arrays
from .errors import FileError, ForecloudError, InputError, MissingExtra
from .predictor import Model, Prediction, Predictor
from .recording import CLASSES, PARAMETERS, Camera, Frame, Recording, TrueMotion

if TYPE_CHECKING:
    import rerun

OLDEST = (0, 41)
"""The oldest version of rerun-sdk whose calls these are."""
MOVES_M = 0.003
"""Particles that are predicted to go less far than this over the horizon (m) get no line."""
MAX_CLOUD, MAX_LINES, MAX_BALLS = 60_000, 1_500, 150
"""Points, lines and balls that are drawn of one frame, at most."""
PREDICTED, TRUE, UNSURE = (255, 140, 0), (0, 200, 120), (255, 140, 0, 50)


def show(
    recording: Recording | str | os.PathLike[str],
    model: Model | str | os.PathLike[str] | None = None,
    *,
    save: str | os.PathLike[str] | None = None,
    max_frames: int | None = None,
    recording_settings: dict[str, Any] | None = None,
    **settings: Any,
) -> rerun.RecordingStream:
    """Shows a recording, what is predicted of it, how sure that is, and, of simulated recordings, the truth
    and the errors over time.

    Opens a window, or writes the file `save` (.rrd; `rerun FILE.rrd` opens it). `settings` are those of
    `Predictor`, `recording_settings` those of `Recording`. Needs the extra: `pip install forecloud[rerun]`.

    In it: `world/cloud` (what the cameras see), `world/prediction` (orange: where moving particles go over the
    horizon), `world/truth` (green), `world/sigma` (balls of radius sigma about where they end), the cameras'
    images, `errors` (mean over object points that move, at the end of the horizon, mm; beside it the error
    if nothing moved) and `sigma` (mean of the same points, mm).
    """
    rr = _rerun()
    if not isinstance(recording, Recording):
        recording = Recording(recording, **(recording_settings or {}))
    predictor = Predictor.of(recording, model, **settings)
    name = os.path.basename(os.path.normpath(recording.path)) or "recording"
    # Explicit: nothing of this is left to the process's own recording.
    stream: rerun.RecordingStream = rr.RecordingStream(f"forecloud {name}")
    blueprint = _blueprint(recording, predictor)
    if save is not None:
        path = os.fspath(save)
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise FileError(f"{path}: there is no folder {folder}")
        stream.save(path, default_blueprint=blueprint)
    else:
        stream.spawn(default_blueprint=blueprint)
    stream.log("world", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    _log_styles(rr, stream)
    first_ns = None
    for number, frame in enumerate(recording):
        if max_frames is not None and number >= max_frames:
            break
        first_ns = frame.stamp_ns if first_ns is None else first_ns
        stream.set_time("time", duration=(frame.stamp_ns - first_ns) / 1e9)
        _log_frame(rr, stream, frame, predictor)
        prediction = predictor.step(frame)
        if prediction is not None:
            steps = len(prediction.displacements)
            truth = recording.true_motion(
                frame, prediction.positions, prediction.sources, prediction.step_secs, max(steps, 1)
            )
            _log_prediction(rr, stream, prediction, truth)
    stream.flush()
    if save is not None:
        stream.disconnect()
    return stream


def _rerun() -> Any:
    try:
        import rerun
        import rerun.blueprint
    except ImportError:
        raise MissingExtra("rerun is not installed: pip install 'forecloud[rerun]', or rerun-sdk") from None
    version = str(getattr(rerun, "__version__", "0"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise MissingExtra(f"rerun-sdk {version} is installed, {oldest} or newer is needed: pip install -U rerun-sdk")
    return rerun


def _blueprint(recording: Recording, predictor: Predictor) -> Any:
    import rerun.blueprint as rrb

    box = predictor.config["workspace"] or predictor.model.config["workspace"]
    low, high = np.array(box["min"]), np.array(box["max"])
    center, size = (low + high) / 2, float(np.max(high - low))
    eye = rrb.EyeControls3D(
        position=center + size * np.array([0.75, -0.85, 0.6]), look_target=center - [0, 0, size / 5]
    )
    images = [rrb.Spatial2DView(origin=f"world/{name}", name=name) for name in recording.cameras]
    depths = [rrb.Spatial2DView(origin=f"depth/{name}", name=f"{name}, depth") for name in recording.cameras]
    plots = [rrb.TimeSeriesView(origin="sigma", name="sigma at the end of the horizon (mm)")]
    if recording.task is not None:
        plots.insert(0, rrb.TimeSeriesView(origin="errors", name="error of moving points (mm)"))
    return rrb.Blueprint(
        rrb.Horizontal(
            rrb.Spatial3DView(
                origin="world", name="prediction (orange), truth (green), sigma (balls)", eye_controls=eye,
                contents=["+ $origin/**", *(f"- world/{name}/color" for name in recording.cameras)],
            ),
            rrb.Vertical(rrb.Tabs(*images, *depths), *plots),
            column_shares=[3, 2],
        ),
        collapse_panels=True,
    )


def _log_styles(rr: Any, stream: Any) -> None:
    for name, color, words in [
        ("errors/prediction", PREDICTED, "prediction"),
        ("errors/nothing_moves", (150, 150, 150), "nothing moves"),
        ("sigma/sigma", PREDICTED, "sigma"),
        ("sigma/sigma_90", (255, 200, 120), "sigma_90"),
    ]:
        stream.log(name, rr.SeriesLines(colors=color, names=words), static=True)


def _log_frame(rr: Any, stream: Any, frame: Frame, predictor: Predictor) -> None:
    for camera in frame.cameras:
        name = camera.name or f"camera_{camera.number}"
        _log_camera(rr, stream, f"world/{name}", f"depth/{name}", camera)
    positions, colors, _ = frame.cloud(predictor.config["workspace"] or predictor.model.config["workspace"])
    few = _few(len(positions), MAX_CLOUD)
    stream.log("world/cloud", rr.Points3D(positions[few], colors=colors[few], radii=0.0015))


def _log_camera(rr: Any, stream: Any, path: str, depth_path: str, camera: Camera) -> None:
    if camera.depth is None:
        return
    # Of a colour camera of its own: where that is.
    world_from_camera, intrinsics = camera.world_from_camera, camera.intrinsics
    if camera.color_intrinsics is not None and camera.color is not None:
        intrinsics = camera.color_intrinsics
        if camera.color_from_depth is not None:
            world_from_camera = world_from_camera @ np.linalg.inv(_arrays.matrix(camera.color_from_depth))
    image = camera.depth if camera.color is None else camera.color
    height, width = image.shape[:2]
    stream.log(path, rr.Transform3D(translation=world_from_camera[:3, 3], mat3x3=world_from_camera[:3, :3]))
    stream.log(path, rr.Pinhole(
        image_from_camera=intrinsics, width=width, height=height, camera_xyz=rr.ViewCoordinates.RDF,
        image_plane_distance=0.12,
    ))
    if camera.color is not None:
        stream.log(f"{path}/color", rr.Image(np.ascontiguousarray(camera.color)).compress(jpeg_quality=85))
    meter = 1000.0 if camera.depth.dtype.kind == "u" else 1.0
    stream.log(depth_path, rr.DepthImage(np.ascontiguousarray(camera.depth), meter=meter))


def _log_prediction(rr: Any, stream: Any, prediction: Prediction, truth: TrueMotion | None) -> None:
    paths = prediction.paths()
    moves = np.flatnonzero(np.linalg.norm(paths[-1] - paths[0], axis=1) > MOVES_M)
    drawn = moves[_few(len(moves), MAX_LINES)]
    stream.log("world/prediction", rr.LineStrips3D(
        paths[:, drawn].transpose(1, 0, 2), colors=PREDICTED, radii=0.001))
    balls = moves[_few(len(moves), MAX_BALLS)]
    if prediction.sigma is not None and prediction.sigma_90 is not None:
        stream.log("world/sigma", rr.Ellipsoids3D(
            centers=paths[-1, balls], half_sizes=np.repeat(prediction.sigma[-1, balls, None], 3, axis=1), colors=UNSURE))
    measured = moves
    if truth is not None:
        true = np.concatenate([prediction.positions[None], truth.positions])
        stream.log("world/truth", rr.LineStrips3D(
            true[:, drawn].transpose(1, 0, 2), colors=TRUE, radii=0.001))
        if len(truth.positions) == len(prediction.displacements):
            measured = np.flatnonzero(truth.classes[-1] == CLASSES.index("moving"))
            if len(measured):
                error = np.linalg.norm(paths[-1, measured] - true[-1, measured], axis=1).mean()
                still = np.linalg.norm(paths[0, measured] - true[-1, measured], axis=1).mean()
                stream.log("errors/prediction", rr.Scalars(1e3 * float(error)))
                stream.log("errors/nothing_moves", rr.Scalars(1e3 * float(still)))
    if prediction.sigma is not None and prediction.sigma_90 is not None and len(measured):
        stream.log("sigma/sigma", rr.Scalars(1e3 * float(prediction.sigma[-1, measured].mean())))
        stream.log("sigma/sigma_90", rr.Scalars(1e3 * float(prediction.sigma_90[-1, measured].mean())))


def _few(n: int, most: int) -> np.ndarray:
    """At most `most` numbers below `n`, spread evenly."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)


def _param(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":=")
    if name not in PARAMETERS or not value:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME:=VALUE with one of {', '.join(PARAMETERS)}")
    return name, value


def command(arguments: list[str]) -> int:
    """`forecloud view`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="forecloud view", description="Look at a recording and its predictions in rerun.",
        epilog="Needs the extra: pip install 'forecloud[rerun]'. Example: forecloud view --save push.rrd push",
    )
    parser.add_argument("bag", metavar="BAG", help="rosbag2 folder, .mcap or .db3 file")
    parser.add_argument("--model", metavar="FILE", help="model file [default: the shipped one]")
    parser.add_argument("--horizon", type=int, default=5, metavar="STEPS", help="steps to predict [default: 5]")
    parser.add_argument("--save", metavar="FILE", help="write an .rrd file instead of opening a window")
    parser.add_argument("--frames", type=int, metavar="N", help="stop after so many frames")
    parser.add_argument("--device", default="cpu", help="what to predict on [default: cpu]")
    topics = parser.add_argument_group("topics and frames", "as of forecloud replay")
    topics.add_argument("--cameras", metavar="NAMES")
    topics.add_argument("--input", metavar="INPUT")
    topics.add_argument("--remap", action="append", metavar="OLD:=NEW")
    topics.add_argument("-p", "--param", action="append", default=[], metavar="NAME:=VALUE", type=_param,
                        help=f"a parameter of the node (repeatable): {', '.join(PARAMETERS)}")
    try:
        given = vars(parser.parse_args(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        remap = given.pop("remap")
        if remap is not None:
            pairs = [pair.split(":=", 1) for pair in remap]
            if any(len(pair) != 2 for pair in pairs):
                raise InputError("--remap: expected OLD:=NEW")
            remap = [(old, new) for old, new in pairs]
        settings = {name: given.pop(name) for name in ("cameras", "input")}
        settings.update(given.pop("param"))
        robot = {"robot": settings["robot"]} if "robot" in settings else {}
        show(given["bag"], given["model"], save=given["save"], max_frames=given["frames"],
             recording_settings={**settings, "remap": remap}, horizon=given["horizon"], device=given["device"], **robot)
    except (ForecloudError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
