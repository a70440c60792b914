"""Costs of plans and finding one: the tool's to the bit; points in place of images."""

from __future__ import annotations

import json
import math
import threading
import time

import numpy as np
import pytest

import forecloud as fc
from conftest import TINY

GOAL = "select: {body: [0.0, 0.0, 0.1]}\nreach: {pose: {translation: [0.08, 0.0, 0.0]}}\ntolerance: 0.02\nleave_weight: 0.2\nkappa: 0.5\n"


def same_goal(**others) -> fc.Goal:
    settings = {"pose": (0.08, 0, 0, 0, 0, 0, 1), "body": (0, 0, 0.1), "tolerance": 0.02, "leave_weight": 0.2, "kappa": 0.5}
    return fc.Goal(**{**settings, **others})


@pytest.fixture
def predictor(recording, frames, model) -> fc.Predictor:
    """That has predicted the first frame that can be."""
    predictor = fc.Predictor.of(recording, model, n_particles=256)
    assert any(predictor.step(frame) is not None for frame in frames)
    return predictor


@pytest.fixture
def plans(frames) -> list[fc.Plan]:
    joints = frames[1].joints
    return [fc.Plan([name], [0.0, 0.5], [[at], [at + 0.1]]) for name, at in list(joints.items())[:5]]


def test_costs_are_the_tools_to_the_bit(predictor, plans, tmp_path):
    (tmp_path / "goal.yaml").write_text(GOAL)
    lines = [{"joint_names": plan.joints, "points": [
        {"time": t, "positions": row} for t, row in zip(plan.times, plan.positions)]} for plan in plans]
    (tmp_path / "plans.yaml").write_text(json.dumps({"plans": lines}))
    told = json.loads(fc.run("evaluate", TINY, goal=tmp_path / "goal.yaml", plans=tmp_path / "plans.yaml", particles=256,
                             steps=5, json=True, model=predictor.model.path, progress=False).stdout)
    costs = predictor.evaluate(plans, same_goal(), steps=5)
    assert set(costs) == set(told["costs"][0])
    for name, column in costs.items():
        assert column.tolist() == [row[name] for row in told["costs"]], name
    assert (costs.best, costs.n_target, costs.reach_now) == (told["best"], told["n_target"], told["reach_now"])
    assert len(set(costs["cost"].tolist())) > 1 and "<table>" in costs._repr_html_()
    of_file = predictor.evaluate(plans, tmp_path / "goal.yaml", steps=5)
    assert of_file["cost"].tolist() == costs["cost"].tolist()
    # Another plan, another cost.
    moved = [fc.Plan(p.joints, p.times, np.add(p.positions, [[0], [0.2]])) for p in plans]
    assert predictor.evaluate(moved, same_goal(), steps=5)["cost"].tolist() != costs["cost"].tolist()


def test_a_plan_is_found_as_the_tool_finds_it_and_costs_what_was_told(predictor, tmp_path):
    (tmp_path / "goal.yaml").write_text(GOAL)
    told = json.loads(fc.run("plan", TINY, goal=tmp_path / "goal.yaml", particles=256, max_plans=12, steps=30, seed=3,
                             json=True, model=predictor.model.path, progress=False).stdout)
    found = predictor.plan(same_goal(), max_plans=12, steps=30, seed=3)
    assert (found.success, found.message, found.n_plans) == (told["success"], told["message"], told["n_plans"])
    assert list(found.plan.joints) == told["plan"]["joint_names"]
    assert found.plan.positions.tolist() == [point["positions"] for point in told["plan"]["points"]]
    assert found.costs["cost"].tolist() == [told["cost"]["cost"], told["idle"]["cost"]]
    assert found.plan.start == found.costs.stamp_ns
    again = predictor.evaluate([found.plan], same_goal(), steps=found.n_steps)
    assert again["cost"][0] == found.costs["cost"][0]
    assert found.n_plans == 12 and np.ptp(found.plan.positions, axis=0).max() > 0
    other = predictor.plan(same_goal(), max_plans=12, steps=30, seed=4)
    assert not np.array_equal(other.plan.positions, found.plan.positions)


def test_a_plan_begins_where_the_robot_is(predictor, plans):
    plan, goal = plans[0], same_goal(length_weight=1)
    target_alone = fc.Plan(plan.joints, plan.times[1:], plan.positions[1:])
    costs = predictor.evaluate([plan, target_alone], goal, steps=5)
    assert costs["cost"][0] == costs["cost"][1] and costs["length"][0] > 0.09
    for given, told in (
        (fc.Plan(plan.joints, plan.times, np.add(plan.positions, 0.4)), "starts 0.4"),
        (fc.Plan(plan.joints, [0.0, 1e-4], plan.positions), "would move at 1000.00 rad/s"),
        (fc.Plan(plan.joints, plan.times, plan.positions, start=costs.stamp_ns - 3 * 10**9), "was over 2.5 s before"),
        (fc.Plan(plan.joints, [], []), "no points"),
    ):
        with pytest.raises(fc.errors.RobotError, match=told):
            predictor.evaluate([given], goal)
        with pytest.raises(fc.errors.RobotError, match=told):
            predictor.predict(given)


def test_predict_follows_a_plan(predictor, plans, frames, recording, model):
    prediction = predictor.predict(plans[0], steps=4)
    assert prediction.displacements.shape == (4, 256, 3)
    assert not np.array_equal(prediction.displacements, predictor.predict(plans[1], steps=4).displacements)
    # The predictor goes on as if nothing had been asked.
    other = fc.Predictor.of(recording, model, n_particles=256)
    goes_on = [other.step(frame) for frame in frames]
    last = predictor.step(frames[-1])
    assert last is None or np.array_equal(last.positions, goes_on[-1].positions)


def test_pixels_and_regions_select(predictor, plans, frames):
    depth = frames[1].cameras[0].depth
    everything = predictor.evaluate(plans[:1], same_goal(body=None, pixels=np.ones(depth.shape, np.uint8)), steps=1)
    region = predictor.evaluate(plans[:1], same_goal(body=None, region=[[-1, -1, -1], [1, 1, 1]]), steps=1)
    # The robot is never part of it.
    assert 0 < everything.n_target < region.n_target < region.n_particles
    right = predictor.evaluate(plans[:1], same_goal(body=None, pixels=np.ones(depth.shape), camera=1), steps=1)
    assert right.n_target not in (0, everything.n_target)
    inside = [[-0.1, -0.1, 0.0], [0.1, 0.1, 0.1]]
    box = predictor.evaluate(plans[:1], same_goal(pose=None, box=inside, keep_out=[inside], clearance=0.01), steps=1)
    cloud = predictor.evaluate(plans[:1], same_goal(pose=None, cloud=np.array([[0.1, 0.0, 0.05]])), steps=1)
    assert np.isfinite([box["cost"][0], cloud["cost"][0]]).all() and cloud["reach"][0] > 0


@pytest.mark.parametrize("settings, told", [
    ({"body": None}, "select: give one of region, pixels, body"),
    ({"region": [[0, 0, 0], [1, 1, 1]]}, "select: give one of"),
    ({"pose": None}, "reach: give one of box, cloud, pose"),
    ({"tolerance": -1}, "tolerance"),
    ({"tolerance": math.nan}, "tolerance: holds a number that is not finite"),
    ({"kappa": "a"}, "kappa"),
    ({"body": (1, 2)}, "body: expected 3 numbers"),
    ({"pose": (0, 0, 0, 0, 0, 0, 2)}, "norm is 2"),
    ({"pose": None, "box": [[1, 1, 1], [0, 0, 0]]}, "swap them"),
    ({"pose": None, "cloud": np.zeros((2000, 3))}, "at most 1024"),
    ({"pose": None, "cloud": [1.0, 2.0]}, "[n, 3]"),
    ({"keep_out": [[[0, 0, 0]]]}, "keep_out 0"),
])
def test_goals_that_make_no_sense_say_so(settings, told):
    with pytest.raises(fc.errors.InputError) as caught:
        same_goal(**settings)
    assert told in str(caught.value)


def test_plans_that_make_no_sense_say_so(predictor, plans, recording, model):
    goal = same_goal()
    for given, kind, told in (
        (plans[0], fc.errors.InputError, "put it into a list"),
        ([], fc.errors.InputError, "there are none"),
        ([1], fc.errors.InputError, "plan 0"),
        ([plans[0], fc.Plan(["nose"], [0.0], [[0.0]])], fc.errors.RobotError, "plan 1"),
        ([plans[0], fc.Plan(plans[0].joints, [0.0], [[99.0]])], fc.errors.RobotError, "plan 1"),
        ([fc.Plan(plans[0].joints, [0.0], [[math.nan]])], fc.errors.RobotError, "plan 0"),
    ):
        with pytest.raises(kind) as caught:
            predictor.evaluate(given, goal)
        assert told in str(caught.value)
    for call in (
        lambda: predictor.evaluate(plans, goal, steps=0), lambda: predictor.evaluate(plans, goal, steps=10**6),
        lambda: predictor.plan(goal, budget=-1), lambda: predictor.plan(goal, budget=math.inf),
        lambda: predictor.plan(goal, joints="elbow"), lambda: predictor.plan(goal, max_plans=-1),
    ):
        with pytest.raises(fc.errors.ConfigError):
            call()
    with pytest.raises(fc.errors.InputError, match="region"):
        predictor.evaluate(plans, same_goal(body=None, region=[[5, 5, 5], [6, 6, 6]]))
    with pytest.raises(fc.errors.InputError, match="goal: expected"):
        predictor.evaluate(plans, 3)
    with pytest.raises(fc.errors.FileError):
        predictor.evaluate(plans, "no_such_goal.yaml")
    with pytest.raises(fc.errors.StateError):
        fc.Predictor.of(recording, model).evaluate(plans, goal)


def test_planning_leaves_the_interpreter_to_others(predictor):
    """And a second thread is told that the predictor is at work."""
    done = threading.Event()
    found: list[fc.Found] = []

    def plan() -> None:
        found.append(predictor.plan(same_goal(), max_plans=64, steps=10))
        done.set()

    thread = threading.Thread(target=plan)
    thread.start()
    n_counted, refused = 0, False
    while not done.is_set():
        n_counted += 1
        try:
            predictor.plan(same_goal(), max_plans=1, steps=1)
        except fc.errors.StateError:
            refused = True
        time.sleep(0.001)
    thread.join()
    assert n_counted > 3 and refused and found[0].n_plans <= 64


def test_points_serve_as_images_do(frames, recording, model):
    """The clouds of a recording's frames, as a depth camera's driver would send them: the same scene."""
    predictor = fc.Predictor.of(recording, model)
    found = []
    for frame in frames:
        positions, colors, _ = frame.cloud()
        clouds = [fc.Camera(points=(positions, colors), pose=np.eye(4))]
        again = fc.Frame(frame.stamp_ns, clouds, frame.joints, frame.plans, frame.root)
        told = again.cloud()
        assert np.array_equal(told[0], positions) and np.array_equal(told[1], colors)
        assert np.array_equal(again.cameras[0].points[0], positions)
        found.append((predictor.step(again), fc.Frame(frame.stamp_ns, again.cameras, frame.joints)))
    predicted = [prediction for prediction, _ in found if prediction is not None]
    assert len(predicted) == 5 and np.abs(predicted[-1].displacements).max() > 1e-3
    by_arrays = fc.Predictor.of(recording, model)
    last = [by_arrays.step(stamp=f.stamp_ns, points=f.cloud()[:2], poses=np.eye(4), joints=f.joints, plans=f.plans)
            for f in frames]
    assert [p.displacements.tobytes() for p in last if p] == [p.displacements.tobytes() for p in predicted]


@pytest.mark.parametrize("camera, told", [
    ({"points": np.zeros((4, 2), "f4")}, "points: expected shape [n, 3]"),
    ({"points": (np.zeros((4, 3), "f4"), np.zeros((3, 3), "u1"))}, "colors of the points"),
    ({"points": np.zeros(3, "f4")}, "2 dimensions"),
    ({"points": np.zeros((4, 3), "f4"), "depth": np.zeros((4, 4), "u2")}, "either images or points"),
    ({"points": np.zeros((4, 3), "f4"), "pose": None}, "pose"),
])
def test_points_that_make_no_sense_say_so(camera, told):
    with pytest.raises(fc.errors.InputError) as caught:
        fc.Frame(1.0, [fc.Camera(**{"pose": np.eye(4), **camera})])
    assert told in str(caught.value)
