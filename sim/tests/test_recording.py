"""A recording is what it promises: topics, times, exact flow, the same bytes. Needs OpenGL."""

import hashlib
import json

import numpy as np
import pytest
from rosbags.highlevel import AnyReader

from sim import episode, recording, robot, scene
from sim.flow import Recording
from sim.tests.test_robot import urdf_poses

FRAMES = 16
T0 = recording.START


def digest(folder):
    """Hash of all files of a folder."""
    files = sorted(path for path in folder.iterdir())
    return [(f.name, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files]


def stamp_of(message):
    """Header stamp in ns."""
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


@pytest.fixture(scope="module", params=["push", "tumble"])
def bag(request, recordings):
    """Messages of a recording by topic, as (log time, message), and the connections."""
    found, kinds, logged = {}, {}, []
    with AnyReader([recordings[request.param]]) as reader:
        for connection, at, raw in reader.messages():
            logged.append(at)
            message = reader.deserialize(raw, connection.msgtype)
            found.setdefault(connection.topic, []).append((at, message))
        for c in reader.connections:
            kinds[c.topic] = (c.msgtype, c.ext.offered_qos_profiles[0].durability.name)
    assert logged == sorted(logged)
    return found, kinds


def test_the_same_seed_gives_the_same_bytes(recordings, tmp_path):
    again = tmp_path / "tumble_200000"
    recording.write(episode.simulate("tumble", 200_000, frames=FRAMES), again)
    assert digest(again) == digest(recordings["tumble"])
    assert [p.name for p in tmp_path.iterdir()] == ["tumble_200000"]  # nothing left beside it


def test_topics_types_and_counts(bag):
    found, kinds = bag
    once = {"/robot_description", "/tf_static", "/truth/bodies"}
    for topic, kind, latched in recording.topics():
        durability = "TRANSIENT_LOCAL" if latched else "VOLATILE"
        assert kinds[topic] == (kind, durability)
        many = 5 * (FRAMES - 1) + 1 if topic == "/joint_states" else FRAMES
        assert len(found[topic]) == (1 if topic in once else many), topic
    assert set(found) == {name for name, _, _ in recording.topics()}


def test_times(bag):
    found, _ = bag
    delays = {"/planned_joints": -30_000_000, "/joint_states": 0}
    for topic, messages in found.items():
        if "body_poses" in topic or topic.startswith("/camera") or topic in delays:
            period = 20_000_000 if topic == "/joint_states" else 100_000_000
            for k, (at, message) in enumerate(messages):
                assert stamp_of(message) == T0 + k * period
                assert at - stamp_of(message) == delays.get(topic, 10_000_000)
    first_plan = found["/planned_joints"][0][0]
    for topic in ("/robot_description", "/tf_static", "/truth/bodies"):
        assert found[topic][0][0] < first_plan


def test_images(bag):
    found, _ = bag
    for camera in scene.CAMERAS:
        for topic, encoding, step in (
            (f"/{camera}/color/image_raw", "rgb8", 960),
            (f"/{camera}/depth/image_raw", "16UC1", 640),
            (f"/truth/{camera}/body_ids", "16UC1", 640),
        ):
            for _, m in found[topic]:
                assert (m.width, m.height, m.encoding, m.step) == (320, 240, encoding, step)
                assert m.is_bigendian == 0 and len(m.data) == 240 * step
                assert m.header.frame_id == f"{camera}_optical_frame"
        info = found[f"/{camera}/color/camera_info"][0][1]
        assert info.k[2] == 159.5 and info.k[5] == 119.5 and not info.d.any()


def test_plans_and_joints_carry_the_same_names(bag):
    found, _ = bag
    for _, plan in found["/planned_joints"]:
        assert plan.joint_names == robot.joint_names()
        ahead = [p.time_from_start.sec * 10**9 + p.time_from_start.nanosec for p in plan.points]
        assert ahead == [k * 100_000_000 for k in range(11)]
        assert all(len(p.positions) == 14 for p in plan.points)
    for _, state in found["/joint_states"]:
        assert state.name == robot.joint_names() and len(state.velocity) == 14


def test_tf_names_the_robot_and_the_cameras_only(bag):
    """The truth is never on tf, and the robot's links stand where the URDF puts them."""
    found, _ = bag
    static = {t.child_frame_id: t.header.frame_id for t in found["/tf_static"][0][1].transforms}
    for camera in scene.CAMERAS:
        assert static[f"{camera}_optical_frame"] == "world"
    moving = {t.child_frame_id for _, m in found["/tf"] for t in m.transforms}
    links = {link.name for side in robot.SIDES for link in robot.links(side)}
    assert moving | set(static) == links | {f"{c}_optical_frame" for c in scene.CAMERAS}
    about = json.loads(found["/truth/bodies"][0][1].data)
    poses = found["/truth/body_poses"]
    state = dict(zip(robot.joint_names(), found["/joint_states"][5 * 7][1].position))
    expected = urdf_poses(found["/robot_description"][0][1].data, state)
    for body in about["bodies"]:
        if body["kind"] == "robot":
            at = poses[7][1].poses[body["id"]].position
            np.testing.assert_allclose((at.x, at.y, at.z), expected[body["name"]][:3, 3], atol=1e-9)


def test_truth_names_every_body(bag):
    found, _ = bag
    about = json.loads(found["/truth/bodies"][0][1].data)
    assert about["split"] == "test" and about["seed"] == 200_000
    assert [b["id"] for b in about["bodies"]] == list(range(len(about["bodies"])))
    assert {b["kind"] for b in about["bodies"]} == {"static", "robot", "object"}
    ids = np.concatenate([m.data.view("<u2") for _, m in found["/truth/camera_left/body_ids"]])
    assert ids.max() < len(about["bodies"])


@pytest.mark.parametrize("task", ["push", "tumble"])
def test_flow_is_exact(recordings, task):
    """Points moved by the poses of their bodies land on the next picture."""
    read = Recording(recordings[task])
    for kind in ("robot", "object"):
        errors = np.concatenate(
            [
                read.flow_error(frame, camera, kind)
                for frame in range(FRAMES - 1)
                for camera in scene.CAMERAS
            ]
        )
        assert len(errors) > 500
        assert np.median(errors) < 0.0005, kind  # depth is rounded to 1 mm


def test_the_table_is_at_zero(recordings):
    read = Recording(recordings["push"])
    for camera in scene.CAMERAS:
        points, ids = read.points(0, camera)
        top = points[(ids == 1) & np.all(np.abs(points[:, :2]) < 0.3, axis=1)]
        assert abs(np.median(top[:, 2])) < 0.0005
