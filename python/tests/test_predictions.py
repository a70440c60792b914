"""Predictions, and that they are the tool's to the bit."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import forecloud as fc
from conftest import ROOT, TINY
from mcap import chunks


def mean_errors(recording: fc.Recording, frames, predictions, horizon: int) -> dict[str, list[list[float]]]:
    """Distances of predicted from true positions by class and step, one after the other."""
    by_stamp = {frame.stamp_ns: frame for frame in frames}
    distances: dict[str, list[list[float]]] = {name: [[] for _ in range(horizon)] for name in fc.CLASSES}
    for prediction in predictions:
        frame = by_stamp[prediction.stamp_ns]
        truth = recording.true_motion(frame, prediction.positions, prediction.sources, horizon=horizon)
        if truth is None:
            continue
        paths = prediction.paths()[1:]
        for step, (there, classes) in enumerate(zip(truth.positions, truth.classes)):
            apart = np.linalg.norm(paths[step].astype(np.float64) - there.astype(np.float64), axis=1)
            for number, name in enumerate(fc.CLASSES):
                distances[name][step] += apart[classes == number].tolist()
    return distances


def test_predictions_have_shapes_and_types(predictions, recording, model):
    assert len(predictions) == 5
    for prediction in predictions:
        n, steps = len(prediction), len(prediction.displacements)
        assert n == model.config["n_particles"] and steps == 5
        assert prediction.displacements.shape == (steps, n, 3) and prediction.displacements.dtype == np.float32
        assert prediction.positions.shape == prediction.colors.shape == (n, 3)
        assert prediction.sources.shape == (n,) and prediction.sources.dtype == np.uint32
        assert prediction.sigma.shape == prediction.sigma_90.shape == (steps, n)
        assert (prediction.sigma_90 >= prediction.sigma).all() and (prediction.sigma > 0).all()
        assert prediction.situations.max() < len(fc.SITUATIONS)
        assert prediction.object_of.shape == prediction.kinds.shape == (n,)
        assert prediction.kinds.max() < len(fc.KINDS)
        objects = prediction.objects()
        assert [thing.id for thing in objects] == [i for i in np.unique(prediction.object_of) if i > 0]
        for thing in objects:
            assert thing.n_particles == (prediction.object_of == thing.id).sum() and thing.kind in fc.KINDS
            assert thing.poses.shape == (steps + 1, 7) and thing.variances.shape == (steps + 1, 6)
            assert thing.since_ns <= thing.last_seen_ns == prediction.stamp_ns
        assert 0 < prediction.stamp_ns - prediction.history_stamp_ns < 2e8
        assert prediction.paths().shape == (steps + 1, n, 3)


def test_contacts_and_what_will_be_occupied(predictions, recording):
    links = {link.attrib["name"] for link in ElementTree.fromstring(recording.robot_description).iter("link")}
    for prediction in predictions:
        contacts = prediction.contacts(min_probability=0.0)
        horizon = len(prediction.displacements) * prediction.step_secs
        assert contacts.has_robot and contacts.horizon == pytest.approx(horizon)
        assert [c.probability for c in contacts] == sorted((c.probability for c in contacts), reverse=True)
        for contact in contacts:
            assert contact.link in links and 0 <= contact.time <= horizon + 1e-6
            assert contact.place.shape == (3,) and contact.min_distance >= 0 <= contact.probability <= 1
        with pytest.raises(fc.errors.ConfigError, match="touch_m"):
            prediction.contacts(touch=0.0)
        occupied = prediction.occupied()
        assert occupied.positions.shape == (len(occupied), 3) and occupied.positions.dtype == np.float32
        assert (np.diff(occupied.times) >= 0).all() and occupied.times[-1] <= horizon + 1e-6
        now = {tuple(p) for p in prediction.positions.tolist()}
        assert {tuple(p) for p in occupied.positions[occupied.times == 0].tolist()} <= now
        assert len(np.unique(np.floor(occupied.positions / np.float32(0.02)), axis=0)) == len(occupied)
        earlier = prediction.occupied(0.2)
        assert np.array_equal(earlier.positions, occupied.positions[: len(earlier)])
        with pytest.raises(fc.errors.ConfigError, match=r"is not in 0\.\.=0\.5"):
            prediction.occupied(0.7)


def test_without_a_robot_there_are_no_contacts_and_that_is_said(recording, frames, model):
    predictor = fc.Predictor(model, robot="none")
    [prediction, *_] = [told for frame in frames if (told := predictor.step(frame)) is not None]
    assert not prediction.contacts().has_robot and len(prediction.contacts()) == 0
    assert len(prediction.occupied()) > 0


def test_predictions_are_the_tools_to_the_bit(predictions, recording, model, tmp_path):
    """The tool writes its predictions as messages (MCAP, CDR); they are found there byte by byte."""
    out = tmp_path / "out"
    table = fc.replay(TINY, model=model, out=out, progress=False)
    assert table.report["n_predicted"] == len(predictions)
    assert table.report["model_hash"] == model.hash
    messages = chunks(out)
    for prediction in predictions:
        for array in (prediction.positions, prediction.displacements, prediction.sources,
                      prediction.sigma, prediction.sigma_90, prediction.kinds):
            assert array.tobytes() in messages, "a prediction is not the tool's"
    wrong = predictions[0].displacements.copy()
    wrong.view(np.uint32)[2, 100, 1] ^= 1
    assert wrong.tobytes() not in messages


def test_replay_is_a_table_of_what_the_tool_prints(recording, frames, predictions, model):
    table = fc.replay([TINY], model=model.path, progress=False)
    command = [sys.executable, "-m", "forecloud", "replay", "--json", "--model", model.path, str(TINY)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told["errors"] == table.report["errors"]
    rows = {(m, c, t, s): mean for m, c, t, s, mean in zip(
        table["method"], table["class"], table["task"], table["step"], table["mean_mm"])}
    distances = mean_errors(recording, frames, predictions, 5)
    compared = 0
    for ours, theirs in (("moving", "object_moving"), ("robot", "robot")):
        for step in range(5):
            mean = rows.get(("model", theirs, "all", step + 1))
            if mean is not None and not math.isnan(mean):
                ours_mm = 1e3 * math.fsum(distances[ours][step]) / len(distances[ours][step])
                assert ours_mm == pytest.approx(mean, rel=1e-5)
                compared += 1
    assert compared > 0
    assert len({len(column) for column in table.values()}) == 1
    assert "<table>" in table._repr_html_()


def test_arrays_give_the_same_prediction(recording, frames, predictions, model):
    """Frames taken apart and put together again: to the bit, by frames and by plain arrays."""
    by_frames, by_arrays = fc.Predictor.of(recording, model), fc.Predictor.of(recording, model)
    n_compared = 0
    for frame in frames:
        again = fc.Frame(frame.stamp_ns, frame.cameras, frame.joints, frame.plans, frame.root)
        cameras = frame.cameras
        found = [by_frames.step(again), by_arrays.step(
            stamp=frame.stamp_ns, depth=[camera.depth for camera in cameras],
            intrinsics=[camera.intrinsics for camera in cameras], poses=[camera.pose for camera in cameras],
            color=[camera.color for camera in cameras], joints=frame.joints, plans=frame.plans,
        )]
        wanted = [p for p in predictions if p.stamp_ns == frame.stamp_ns]
        for prediction in found:
            assert (prediction is not None) == bool(wanted)
            if prediction is not None:
                assert prediction.displacements.tobytes() == wanted[0].displacements.tobytes()
                assert prediction.sigma.tobytes() == wanted[0].sigma.tobytes()
                n_compared += 1
    assert n_compared == 10


def test_matrices_serve_as_poses(frames, model, recording):
    predictor = fc.Predictor.of(recording, model)
    found = []
    for frame in frames[:3]:
        cameras = [fc.Camera(c.depth.astype(np.float32) / 1000, c.intrinsics[[0, 1, 0, 1], [0, 1, 2, 2]],
                             c.world_from_camera, c.color) for c in frame.cameras]
        found.append(predictor.step(fc.Frame(frame.stamp, cameras, frame.joints)))
    assert found[-1] is not None and np.abs(found[-1].displacements).max() > 1e-3


def test_images_are_views_that_live_on(recording):
    frame = next(iter(recording))
    camera = frame.cameras[0]
    depth, color = camera.depth, camera.color
    assert depth.dtype == np.uint16 and color.shape == (*depth.shape, 3)
    assert not depth.flags.owndata and not depth.flags.writeable and not color.flags.writeable
    with pytest.raises(ValueError):
        depth[0, 0] = 1
    before = (depth.sum(), color.sum())
    del frame, camera
    assert (depth.sum(), color.sum()) == before
    positions, colors, sources = next(iter(recording)).cloud()
    assert len(positions) == len(colors) == len(sources) > 1000


def test_truth_bodies_and_robot(recording, frames):
    kinds = {kind for _, kind in recording.bodies}
    assert kinds == {"static", "robot", "object"} and recording.task
    frame = frames[2]
    positions, _, sources = frame.cloud()
    assert frame.has_bodies and frame.bodies(sources).max() < len(recording.bodies)
    poses = recording.body_poses(frame.stamp_ns)
    assert poses.shape == (len(recording.bodies), 7)
    assert np.allclose(np.linalg.norm(poses[:, 3:], axis=1), 1)
    assert set(frame.joints) and all(math.isfinite(x) for x in frame.joints.values())
    assert recording.body_poses(0) is None
    assert recording.counts["frames"] == len(frames)


def test_settings_are_taken_and_told(recording, model):
    predictor = fc.Predictor.of(recording, model, horizon=2, n_particles=512, seed=7)
    assert predictor.config["horizon"] == 2 and predictor.config["seed"] == 7
    found = [p for p in map(predictor.step, recording) if p is not None]
    assert {p.displacements.shape for p in found} == {(2, 512, 3)}
    predictor.set_config(horizon=3)
    assert predictor.config["horizon"] == 3 and predictor.config["n_particles"] == 512
    assert predictor.forget() > 0
    assert predictor.step(next(iter(recording))) is None


def test_a_kept_frame_is_the_history_of_a_later_one(recording, frames, model):
    every = fc.Predictor.of(recording, model, horizon=2, n_particles=512)
    seldom = fc.Predictor.of(recording, model, horizon=2, n_particles=512)
    expected = [every.step(frame) for frame in frames[:3]][-1]
    seldom.keep(frames[0])
    seldom.keep(frames[1])
    found = seldom.step(frames[2])
    assert np.array_equal(found.displacements, expected.displacements)
    assert seldom.forget() == 3 and seldom.step(frames[2]) is None


def test_the_shipped_model_comes_with_the_package(model):
    assert fc.Model().hash == model.hash


@pytest.mark.skipif(shutil.which("forecloud") is None, reason="the package is not installed")
def test_the_command_runs_anywhere(tmp_path):
    def run(*arguments):
        return subprocess.run(["forecloud", *arguments], cwd=tmp_path, capture_output=True, text=True)

    assert run("--version").stdout.split()[1] == fc.__version__
    assert run("replay", "--json", str(TINY)).returncode == 0
    assert run("replay").returncode == 2
    wrong = run("replay", "nowhere")
    assert wrong.returncode == 1 and "nowhere" in wrong.stderr
    assert "view" in run("--help").stdout
    assert (ROOT / "python").is_dir()
