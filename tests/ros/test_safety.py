"""Contacts, the speed scale with its watchdog, and occupied points over DDS."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import PERIOD_SECS, Received, wait_for, wait_for_future
from endless import Endless
from std_srvs.srv import SetBool

from forecloud.msg import Contacts

# Few particles: what is tested does not depend on their number. Late is what a busy machine is not.
TIMEOUT_SECS = 2.0
SMALL = (
    *("-p", "horizon:=3", "-p", "n_particles:=256"),
    *("-p", f"slow_timeout_secs:={TIMEOUT_SECS}", "-p", "slow_stop_secs:=0.0", "-p", "slow_secs:=0.0"),
)
SCALE = ("/forecloud/speed_scale", "std_msgs/msg/Float64")
FACTOR = ("/forecloud/speed_scaling_factor", "control_msgs/msg/SpeedScalingFactor")
CONTACT = ("/forecloud/contact", "forecloud/msg/Contacts")
MARKERS = ("/forecloud/contact_markers", "visualization_msgs/msg/MarkerArray")
OCCUPIED = ("/forecloud/occupied_points", "sensor_msgs/msg/PointCloud2")
PREDICTION = ("/forecloud/prediction", "forecloud/msg/Prediction")


def stamp(message) -> tuple[int, int]:
    return message.header.stamp.sec, message.header.stamp.nanosec


@pytest.fixture
def playing(ros, recording):
    """Starts playing the recording over and over; ended with the test."""
    started = []

    def start(**options) -> Endless:
        started.append(Endless(ros, recording, PERIOD_SECS, **options))
        return started[-1]

    yield start
    for endless in started:
        endless.stop()


@pytest.fixture
def heard(ros):
    """Who hears the speed, latched, and contacts."""
    speeds = Received(ros, *SCALE, latched=True)
    contacts = Received(ros, *CONTACT)
    return speeds, contacts


def goes(speeds, contacts):
    """Waits until the robot may move, and its contacts are predicted: which of the two is heard first is open."""
    n, n_contacts = len(speeds.messages), len(contacts.messages)
    wait_for(lambda: any(m.data == 1.0 for m in speeds.messages[n:]), "a speed of 1")
    predicted = lambda: any(m.state == Contacts.PREDICTED for m in contacts.messages[n_contacts:])  # noqa: E731
    wait_for(predicted, "predicted contacts")


def stands(speeds, contacts, since: int, timeout_secs: float = 3 * TIMEOUT_SECS):
    """Waits until it has to stand, and for the word why; then nothing else may come."""
    # On a busy machine one more prediction may come after a first word of 0.
    latest = lambda: [m.data for m in speeds.messages[since:]][-3:]  # noqa: E731
    stale = lambda: contacts.messages[-1].state == Contacts.STALE  # noqa: E731
    wait_for(lambda: latest() == [0.0] * 3 and stale(), "a speed of 0, and that contacts are stale", timeout_secs)
    assert not contacts.messages[-1].contacts
    n, n_contacts = len(speeds.messages), len(contacts.messages)
    wait_for(lambda: len(speeds.messages) >= n + 3, "the word again")
    assert all(m.data == 0.0 for m in speeds.messages[n:])
    assert len(contacts.messages) == n_contacts, "said once"


def test_all_of_it_is_of_the_prediction(ros, start_node, playing):
    start_node(*SMALL)
    topics = (SCALE, FACTOR, CONTACT, MARKERS, OCCUPIED, PREDICTION)
    received = [Received(ros, *topic, latched=topic in (SCALE, FACTOR)) for topic in topics]
    speeds, factors, contacts, markers, occupied, predictions = received
    wait_for(lambda: speeds.messages and factors.messages, "what is latched")
    assert speeds.messages[0].data == 0.0 == factors.messages[0].factor, "before the first prediction"
    playing()
    contacts.wait_for(6)
    goes(speeds, contacts)
    occupied.wait_for(4)
    wait_for(lambda: len(factors.messages) > 3, "factors")
    by_stamp = {stamp(p): p for p in list(predictions.messages)}
    told = [m for m in list(contacts.messages) if m.state == Contacts.PREDICTED and stamp(m) in by_stamp]
    assert told
    for message in told:
        prediction = by_stamp[stamp(message)]
        assert message.header.frame_id == prediction.header.frame_id == "world"
        assert message.horizon == pytest.approx(prediction.n_steps * prediction.step_secs)
        for contact in message.contacts:
            assert contact.link and 0 <= contact.time_to_contact <= message.horizon + 1e-5
            assert 0.05 <= contact.probability <= 1 and contact.min_distance >= 0
    assert {m.data for m in speeds.messages} <= {0.0, 1.0}
    assert {m.factor for m in factors.messages} <= {0.0, 1.0}
    shown = [m for m in list(markers.messages) if m.markers]
    assert all(m.markers[0].action == m.markers[0].DELETEALL for m in shown)
    seen = [m for m in list(occupied.messages) if stamp(m) in by_stamp]
    assert seen
    for cloud in seen:
        prediction = by_stamp[stamp(cloud)]
        points = [struct.unpack_from("<5f", cloud.data, i) for i in range(0, len(cloud.data), 20)]
        assert len(points) == cloud.width > 10
        n, p = prediction.n_particles, prediction.positions
        places = {tuple(p[3 * i : 3 * i + 3]) for i in range(n)}
        now = [point[:3] for point in points if point[3] == 0.0]
        assert now and set(now) <= places
        voxels = [tuple(int(x // 0.02) for x in point[:3]) for point in points]
        # Coordinates on a border are rounded.
        assert len(set(voxels)) >= 0.98 * len(voxels)
        times = [point[3] for point in points]
        assert times == sorted(times) and times[-1] <= prediction.n_steps * prediction.step_secs + 1e-5


def test_nothing_is_told_where_nobody_hears(ros, start_node, playing):
    start_node(*SMALL, "-p", "idle_without_subscribers:=true")
    timings = Received(ros, "/forecloud/timing", "forecloud/msg/Timing")
    timings.wait_for_publisher()
    endless = playing()
    time.sleep(2 * PERIOD_SECS)
    assert not timings.messages, "idle"
    speeds = Received(ros, *SCALE)
    wait_for(lambda: any(m.data == 1.0 for m in speeds.messages), "a speed, for this subscriber alone")
    speeds.close()
    endless.stop()


def test_inputs_that_stop(start_node, playing, heard):
    start_node(*SMALL)
    endless = playing()
    goes(*heard)
    since = len(heard[0].messages)
    endless.change = lambda message: None if "image" in message.topic else message
    stands(*heard, since)
    endless.change = lambda message: message
    goes(*heard)


def thread_of(process, name: str) -> int:
    tasks = Path(f"/proc/{process.pid}/task")
    [tid] = [int(task.name) for task in tasks.iterdir() if (task / "comm").read_text().strip() == name]
    return tid


def test_a_predictor_that_hangs(start_node, playing, heard):
    node = start_node(*SMALL)
    playing()
    goes(*heard)
    since = len(heard[0].messages)
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    thread = thread_of(node.process, "predict")
    attach, detach = 16, 17
    if ptrace(attach, thread, None, None) != 0:
        pytest.skip(f"threads can't be stopped here: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, 0x40000000)  # __WALL: a thread, not a process
    try:
        stands(*heard, since)
    finally:
        ptrace(detach, thread, None, None)
    goes(*heard)


def test_stamps_that_jump_back(start_node, playing, heard):
    node = start_node(*SMALL, "-p", "slow_timeout_secs:=10.0")
    endless = playing()
    goes(*heard)
    n_stale = sum(m.state == Contacts.STALE for m in heard[1].messages)
    endless.offset_secs = -1000.0
    node.wait_for_log("went back")
    stale = lambda: sum(m.state == Contacts.STALE for m in list(heard[1].messages)) > n_stale  # noqa: E731
    wait_for(stale, "that contacts are stale")
    goes(*heard)


def test_a_robot_that_is_required_and_not_known(ros, recording, start_node, heard):
    start_node(*SMALL, "-p", "robot:=required")
    timings = Received(ros, "/forecloud/timing", "forecloud/msg/Timing")
    speeds, contacts = heard
    without = [m for m in recording if m.topic != "/robot_description"]
    endless = Endless(ros, without, PERIOD_SECS)
    speeds.wait_for(20)
    endless.stop()
    assert all(m.data == 0.0 for m in speeds.messages)
    assert not contacts.messages and not timings.messages


def test_a_robot_that_is_not_there_is_said(ros, recording, start_node, heard):
    start_node(*SMALL)
    speeds, contacts = heard
    without = [m for m in recording if m.topic != "/joint_states"]
    endless = Endless(ros, without, PERIOD_SECS)
    wait_for(lambda: any(m.state == Contacts.NO_ROBOT for m in contacts.messages), "that there is none")
    endless.stop()
    assert all(m.data == 0.0 for m in speeds.messages)
    assert all(not m.contacts for m in contacts.messages)


def test_predicting_that_is_paused(ros, start_node, playing, heard):
    start_node(*SMALL, "-p", "slow_timeout_secs:=10.0")
    playing()
    goes(*heard)
    client = ros.create_client(SetBool, "/forecloud/pause")
    wait_for(client.service_is_ready, "the service")
    since = len(heard[0].messages)
    wait_for_future(client.call_async(SetBool.Request(data=True)))
    stands(*heard, since, timeout_secs=10.0)
    wait_for_future(client.call_async(SetBool.Request(data=False)))
    goes(*heard)
    ros.destroy_client(client)


def test_predictions_that_are_always_late(start_node, playing, heard):
    start_node(*SMALL, "-p", "slow_timeout_secs:=0.01")
    playing()
    speeds, contacts = heard
    contacts.wait_for(3)
    assert all(m.data == 0.0 for m in speeds.messages)
    assert all(m.state == Contacts.STALE and not m.contacts for m in contacts.messages)


CONFIGS = Path(__file__).resolve().parents[2] / "config" / "occupancy"


def configured(tree, key: str) -> list:
    """Values of a key anywhere in a file."""
    if isinstance(tree, dict):
        found = [value for name, value in tree.items() if name == key]
        return found + [value for below in tree.values() for value in configured(below, key)]
    return []


def test_occupied_points_are_what_the_configurations_take(ros, start_node, playing):
    """Message level: that MoveIt, Nav2 and nvblox do with it what they should is not tested."""
    read = {path.stem: yaml.safe_load(path.read_text()) for path in CONFIGS.iterdir()}
    topics = {
        "moveit_sensors_3d": configured(read["moveit_sensors_3d"], "point_cloud_topic"),
        "nav2_costmap": configured(read["nav2_costmap"], "topic"),
    }
    assert topics == {name: [OCCUPIED[0]] for name in topics}
    assert f"/pointcloud to {OCCUPIED[0]}" in (CONFIGS / "nvblox.yaml").read_text()
    frames = configured(read["moveit_sensors_3d"], "octomap_frame") + configured(read["nvblox"], "global_frame")
    assert configured(read["nav2_costmap"], "data_type") == ["PointCloud2"]
    start_node(*SMALL, "-p", "occupied_secs:=0.15")
    # As they subscribe: best effort (MoveIt, nvblox: sensor data), reliable is tested above.
    clouds = Received(ros, *OCCUPIED)
    predictions = Received(ros, *PREDICTION)
    playing()
    stamps = lambda: {stamp(p) for p in list(predictions.messages)}  # noqa: E731
    seen = lambda: [c for c in list(clouds.messages) if stamp(c) in stamps()]  # noqa: E731
    [cloud, *_] = wait_for(seen, "points of a prediction")
    assert set(frames) == {cloud.header.frame_id}
    names = [field.name for field in cloud.fields]
    assert names == ["x", "y", "z", "time", "sigma"]
    assert all(f.datatype == f.FLOAT32 and f.count == 1 for f in cloud.fields)
    assert [f.offset for f in cloud.fields] == [0, 4, 8, 12, 16] and cloud.point_step == 20
    assert cloud.height == 1 and not cloud.is_bigendian and cloud.is_dense
    assert cloud.row_step == len(cloud.data) == 20 * cloud.width > 0
    points = np.frombuffer(bytes(cloud.data), np.float32).reshape(-1, 5)
    assert np.isfinite(points).all() and points[:, 3].max() <= 0.15 + 1e-6
