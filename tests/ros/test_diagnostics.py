"""/diagnostics: each cause at its level, with topic or frame and remedy; and OK again after it."""

from __future__ import annotations

import array
import dataclasses

import pytest
from conftest import NodeProcess, Received, wait_for
from endless import Endless, edited, shifted, with_data
from play import Player
from rclpy.qos import DurabilityPolicy, QoSProfile
from recording import message_class

OK, WARN, ERROR, STALE = (bytes([level]) for level in range(4))
PERIOD_SECS = 0.6
"""Time from the recording's first frame to what would be the next one after its last."""
MACHINE = {"latency", "load", "transport", "shared memory"}
"""Statuses that a busy machine may well change."""


class Diagnostics:
    """The newest status of each name."""

    def __init__(self, ros, node_name: str = "forecloud"):
        kind = "diagnostic_msgs/msg/DiagnosticArray"
        # Of nodes that several tests share; nobody predicts for it.
        self._received = Received(ros, "/diagnostics", kind, outlives_test=True)
        self._node_name = node_name

    @property
    def messages(self):
        prefix = self._node_name + ": "
        mine = (m for m in list(self._received.messages) if m.status[0].name.startswith(prefix))
        return list(mine)

    def statuses(self) -> dict:
        messages = self.messages
        last = messages[-1].status if messages else []
        return {status.name.removeprefix(self._node_name + ": "): status for status in last}

    def wait_for(self, name: str, levels: bytes, *told: str):
        """The status, once it has one of the levels and its message all these parts."""

        def as_told():
            status = self.statuses().get(name)
            fits = status and status.level in levels and all(t in status.message for t in told)
            return status if fits else None

        try:
            return wait_for(as_told, f"'{name}' at {levels} with {told}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it was {self.statuses().get(name)}") from None


@dataclasses.dataclass
class Running:
    """A node, and what it says of itself."""

    node: NodeProcess
    diagnostics: Diagnostics


@pytest.fixture(scope="module")
def running(ros):
    diagnostics = Diagnostics(ros)
    kind = "forecloud/msg/Prediction"
    predictions = Received(ros, "/forecloud/prediction", kind, outlives_test=True)
    node = NodeProcess()
    wait_for(diagnostics.statuses, "diagnostics")
    predictions.wait_for_publisher()
    yield Running(node, diagnostics)
    predictions.close()
    node.stop()
    print(f"--- log of the node\n{node.log}")


@pytest.fixture(scope="module")
def played(ros, running, recording):
    """The recording without end; its plans are left out at first."""
    # From the first message on: it is a plan.
    endless = Endless(ros, recording, PERIOD_SECS, change=without("/planned_joints"))
    yield endless
    endless.stop()


def without(*topics):
    return lambda message: None if message.topic.startswith(topics) else message


# Before anything is published


def test_a_node_that_hears_nothing_says_what_it_waits_for(running):
    diagnostics = running.diagnostics
    nobody, remedy = "(never; published by nobody)", "start what publishes them"
    images = ["/camera_left/color/image_raw", f"/camera_right/color/camera_info {nobody}"]
    diagnostics.wait_for("images", ERROR, *images, remedy)
    diagnostics.wait_for("joints", OK, "there is no robot")
    robot = [f"/robot_description {nobody}", "robot_state_publisher", "robot: none"]
    diagnostics.wait_for("robot description", WARN, *robot)
    diagnostics.wait_for("plan", OK, "no robot is known")
    diagnostics.wait_for("predictions", STALE, "none yet")
    diagnostics.wait_for("latency", STALE)
    running.node.wait_for_log("WARN images: no message on /camera_left/color/image_raw")


def test_messages_follow_the_conventions(running):
    def two_seconds():
        messages = running.diagnostics.messages
        return messages if seconds(messages[-1]) - seconds(messages[0]) > 2.0 else None

    messages = wait_for(two_seconds, "diagnostics for two seconds")
    for message in messages:
        names = [status.name for status in message.status]
        assert names == [status.name for status in messages[0].status]
        assert len(set(names)) == len(names)
        for status in message.status:
            assert status.hardware_id == "/forecloud"
            assert status.message
            keys = [value.key for value in status.values]
            assert len(set(keys)) == len(keys) and all(keys)
    assert "p99_ms" in {v.key for v in running.diagnostics.statuses()["latency"].values}


def seconds(message) -> float:
    return message.header.stamp.sec + message.header.stamp.nanosec / 1e9


def test_publishers_of_another_type_or_qos_are_told(ros, running):
    wrong_type = ros.create_publisher(message_class("std_msgs/msg/Int32"), "/joint_states", 1)
    volatile = ros.create_publisher(
        message_class("std_msgs/msg/String"),
        "/robot_description",
        QoSProfile(depth=1, durability=DurabilityPolicy.VOLATILE),
    )
    diagnostics = running.diagnostics
    try:
        diagnostics.wait_for(
            "topics", WARN, "/joint_states of /test is of type std_msgs/msg/Int32",
            "sensor_msgs/msg/JointState", "/robot_description of /test is volatile",
            "publish it transient local",
        )  # fmt: skip
        log = ["WARN /joint_states of /test is of type", "WARN /robot_description of /test"]
        running.node.wait_for_log(*log)
    finally:
        ros.destroy_publisher(wrong_type)
        ros.destroy_publisher(volatile)
    diagnostics.wait_for("topics", OK)


# While the recording is played


def test_predictions_without_a_plan(running, played):
    diagnostics = running.diagnostics
    diagnostics.wait_for("plan", WARN, "/planned_joints (never", "keep their velocity")
    played.change = lambda message: message
    diagnostics.wait_for("plan", OK)
    for name in set(diagnostics.statuses()) - MACHINE:
        diagnostics.wait_for(name, OK)


def moved_elsewhere(message):
    """What a camera sends, in a frame that no transform leads from."""
    if not message.topic.startswith("/camera_right/"):
        return message
    return edited(message, lambda content: setattr(content.header, "frame_id", "nowhere"))


def seen_far_away(message):
    """The depth image with distances 30 times as long."""
    if "depth/image" not in message.topic:
        return message

    def edit(image):
        kind = {"16UC1": "H", "32FC1": "f"}[image.encoding]
        depth = array.array(kind, bytes(image.data))
        far = (min(30 * value, 65000) if kind == "H" else 30 * value for value in depth)
        image.data = array.array("B", array.array(kind, far).tobytes())

    return edited(message, edit)


def truncated(message):
    """Calibrations that end early."""
    cut = message.topic == "/camera_left/color/camera_info"
    return with_data(message, message.data[:100]) if cut else message


def unsynchronised(message):
    """One camera half a period late."""
    return shifted(message, 0.05) if message.topic.startswith("/camera_right/") else message


def test_no_transform(running, played):
    played.change = moved_elsewhere
    told = ["no transform from 'nowhere' to 'world'", "static_transform_publisher"]
    running.diagnostics.wait_for("transforms", ERROR, *told)
    played.change = lambda message: message


def test_no_joints(running, played):
    played.change = without("/joint_states")
    # Frames go on without the robot.
    running.diagnostics.wait_for("joints", WARN + ERROR, "/joint_states (", "`ros2 topic hz`")
    played.change = lambda message: message


def test_unsynchronised_cameras(running, played):
    played.change = unsynchronised
    told = ["no images within 0.02 s of each other", "raise tolerance_secs above 0.05"]
    running.diagnostics.wait_for("cameras", WARN + ERROR, *told)
    played.change = lambda message: message


def test_a_silent_camera(running, played):
    played.change = without("/camera_right/")
    told = ["/camera_right/color/image_raw", "published by /test)", "fastdds_large_clouds.xml"]
    status = running.diagnostics.wait_for("images", WARN + ERROR, *told)
    assert "/camera_left" not in status.message
    told = ["frames are made without camera_right", "check its driver"]
    running.diagnostics.wait_for("cameras", WARN, *told)
    # Frames come without it.
    running.diagnostics.wait_for("images", WARN, "/camera_right/color/image_raw")
    played.change = lambda message: message


def test_bad_messages(running, played):
    played.change = truncated
    told = ["bad ones on /camera_left/color/camera_info", "sensor_msgs/msg/CameraInfo", "correct"]
    running.diagnostics.wait_for("messages", WARN, *told)
    played.change = lambda message: message


def test_an_empty_workspace(running, played):
    played.change = seen_far_away
    told = ["points that the cameras see", "most lie between", "workspace_min", "'world'"]
    running.diagnostics.wait_for("workspace", ERROR, *told)
    played.change = lambda message: message


def test_images_that_get_lost(running, played):
    n = 0

    def lossy(message):
        nonlocal n
        if message.topic != "/camera_left/color/image_raw":
            return message
        n += 1
        return message if n % 4 else None

    played.change = lossy
    told = ["lost before the node", "on /camera_left/color/image_raw", "fastdds_large_clouds.xml"]
    running.diagnostics.wait_for("transport", WARN + ERROR, *told)
    played.change = lambda message: message


def test_time_that_is_set_back(running, played):
    played.offset_secs = -1000.0
    running.diagnostics.wait_for("time", WARN, "went back", "clocks")


def test_all_is_well_again(running, played):
    diagnostics = running.diagnostics
    for name in set(diagnostics.statuses()) - MACHINE:
        diagnostics.wait_for(name, OK)
    assert "panicked" not in running.node.log


# Nodes of their own




def test_a_model_that_cannot_be_used_is_told_before_the_node_ends(ros, tmp_path):
    diagnostics = Diagnostics(ros, "blind")
    model = tmp_path / "none.safetensors"
    node = NodeProcess("-r", "__node:=blind", "-p", f"model:={model}")
    diagnostics.wait_for("start", ERROR, str(model))
    assert node.wait_for_end() == 1


def test_names_of_statuses_carry_the_namespace(ros, start_node):
    """Nodes of several robots have one name."""
    diagnostics = Diagnostics(ros, "arm/forecloud")
    start_node("-r", "__ns:=/arm")
    wait_for(lambda: "images" in diagnostics.statuses(), "its statuses")
    assert diagnostics.statuses()["images"].hardware_id == "/arm/forecloud"

