"""The URDF and the MuJoCo model are the same robot. No OpenGL needed."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import mujoco
import numpy as np
import pytest

from sim import episode, fixtures, robot, scene, textures
from sim.tests.conftest import PLAIN, VARIED, name_of

DATA = Path(__file__).parents[2] / "tests" / "data"


def turn(axis, angle):
    """Rotation about an axis, after Rodrigues."""
    x, y, z = axis
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * skew + (1 - np.cos(angle)) * skew @ skew


def numbers(element, key, default="0 0 0"):
    """A vector attribute."""
    return np.array([float(v) for v in element.get(key, default).split()])


def origin(element):
    """4 × 4 of an <origin> child."""
    found, pose = element.find("origin"), np.eye(4)
    if found is not None:
        roll, pitch, yaw = numbers(found, "rpy")
        pose[:3, :3] = turn((0, 0, 1), yaw) @ turn((0, 1, 0), pitch) @ turn((1, 0, 0), roll)
        pose[:3, 3] = numbers(found, "xyz")
    return pose


def urdf_poses(text, positions):
    """World pose of every link of a URDF, read without any of the generator's code."""
    joints = ET.fromstring(text).findall("joint")
    poses = {"world": np.eye(4)}
    while len(poses) <= len(joints):
        for joint in joints:
            parent, child = joint.find("parent").get("link"), joint.find("child").get("link")
            if parent in poses and child not in poses:
                motion = np.eye(4)
                if joint.get("type") == "revolute":
                    angle = positions[joint.get("name")]
                    motion[:3, :3] = turn(numbers(joint.find("axis"), "xyz"), angle)
                poses[child] = poses[parent] @ origin(joint) @ motion
    return poses


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return scene.build([], scene.cameras(rng), textures.plain(rng))


def test_forward_kinematics_of_urdf_and_mujoco_agree(model):
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    for _ in range(20):
        data.qpos[:] = rng.uniform(-2, 2, 14)
        mujoco.mj_kinematics(model, data)
        poses = urdf_poses(robot.urdf(), dict(zip(robot.joint_names(), data.qpos)))
        assert len(poses) == 19
        for name, pose in poses.items():
            np.testing.assert_allclose(data.body(name).xpos, pose[:3, 3], atol=1e-9)
            np.testing.assert_allclose(data.body(name).xmat.reshape(3, 3), pose[:3, :3], atol=1e-9)


def test_shapes_of_urdf_and_mujoco_agree(model):
    """Every cylinder, box and capsule body lies at the same place in both."""
    for link in ET.fromstring(robot.urdf()).findall("link")[1:]:
        body = model.body(link.get("name")).id
        geoms = [g for g in range(model.ngeom) if model.geom_bodyid[g] == body]
        solids = [v for v in link.findall("visual") if v.find("geometry/sphere") is None]
        assert len(geoms) == len(solids)
        for geom, solid in zip(geoms, solids):
            pose, frame = origin(solid), np.empty(9)
            np.testing.assert_allclose(model.geom_pos[geom], pose[:3, 3], atol=1e-9)
            if solid.find("geometry/box") is None:
                mujoco.mju_quat2Mat(frame, model.geom_quat[geom])
                assert abs(frame.reshape(3, 3)[:, 2] @ pose[:3, 2]) == pytest.approx(1)
                length = float(solid.find("geometry/cylinder").get("length"))
                assert 2 * model.geom_size[geom, 1] == pytest.approx(length)


def test_joint_order_is_that_of_the_model(model):
    names = [model.joint(j).name for j in range(14)]
    assert names == robot.joint_names()


def test_committed_fixtures_are_current():
    assert (DATA / "two_arms.urdf").read_text() == robot.urdf()
    assert json.loads((DATA / "kinematics.json").read_text()) == fixtures.kinematics(6)


@pytest.mark.parametrize("name", [*PLAIN, ("lift", "test"), ("can", "unseen")], ids=name_of)
def test_arms_trail_their_command(whole, name):
    """Measured joints lag by about the servo's 50 ms, and do not run away."""
    made = whole(name)
    times = np.arange(len(made.joint_positions)) * 0.02
    lagged = np.concatenate([arm.at(times - robot.SERVO_LAG) for arm in made.arms], axis=1)
    now = np.concatenate([arm.at(times) for arm in made.arms], axis=1)
    error = np.abs(made.joint_positions - lagged).mean()
    assert error < 0.5 * np.abs(made.joint_positions - now).mean()
    assert error < np.radians(0.5)


@pytest.mark.parametrize("name", [*PLAIN, *VARIED], ids=name_of)
def test_plans_agree_with_each_other(whole, name):
    """What one plan says of a moment, the next one says too: plans are known ahead."""
    made = whole(name)
    for frame in range(len(made.qpos) - 1):
        np.testing.assert_array_equal(made.plan(frame)[1:], made.plan(frame + 1)[:-1])


@pytest.mark.parametrize("task", ["can", "lift", "push"])
def test_plans_are_fixed_before_they_are_told(monkeypatch, task):
    """When a plan is logged, the command already reaches to its end."""
    ends = []
    commit = episode.Attempt.commit

    def watched(self, now):
        commit(self, now)
        ends.append(min(arm.end() for arm in self.arms) - now)

    monkeypatch.setattr(episode.Attempt, "commit", watched)
    episode.simulate(task, 200_001, frames=30)
    assert min(ends) >= 1.03  # a plan's second and its lead
