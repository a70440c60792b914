"""Bad input: one clear line that names cause and remedy, and the node goes on."""

from __future__ import annotations

import array
import os
import struct

import pytest
from conftest import Received, wait_for
from play import Player
from rclpy.serialization import deserialize_message, serialize_message
from recording import Message, message_class
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String

PREDICTION = "forecloud/msg/Prediction"


def play(ros, messages):
    player = Player(ros, messages)
    player.wait_for_subscriber()
    player.play()
    return player


def still_predicts(ros, node, recording):
    """The recording played at a later time, after what was done to the node, gives predictions."""
    later = [shifted(m, secs=10) for m in recording]
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    predictions.wait_for_publisher()
    player = play(ros, later)
    predictions.wait_for(1)
    assert node.running()
    player.close()


def garbage(good: bytes) -> list[bytes]:
    """What may come instead of a message (at least one byte: reliable DDS gets stuck on none)."""
    return [
        b"\x00",
        b"\x00\x01\x00\x00",
        good[: len(good) // 2],
        good[:-1] if len(good) < 2000 else good[:-100],
        b"\x00\x01\x00\x00" + b"\xff" * 200,
        b"\x00\x01\x00\x00" + struct.pack("<iII", 1, 2, 0xFFFFFFF0) + b"x" * 64,
        os.urandom(500),
    ]


def test_malformed_messages_on_every_topic(ros, recording, start_node):
    node = start_node()
    node.wait_for_log("waits for messages")
    first = {m.topic: m for m in reversed(recording)}
    player = Player(ros, list(first.values()))
    player.wait_for_subscriber()
    for topic, message in first.items():
        for data in garbage(message.data):
            player.publishers[topic].publish(data)
        node.wait_for_log(topic)
    for topic in first:
        node.wait_for_log(f"{topic}: ")
    player.close()
    assert node.log.count("\n") < 100, "warnings are throttled"
    assert "panicked" not in node.log
    still_predicts(ros, node, recording)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("/tf_static", "no transform from"),
        ("/camera_left/color/camera_info", "no calibration of 'camera_left'"),
        ("/joint_states", "without the robot from"),
        ("/camera_right/depth/image_raw", "/camera_right/depth/image_raw"),
    ],
)
def test_a_missing_topic_is_named(ros, recording, start_node, missing, told):
    node = start_node()
    node.wait_for_log("waits for messages")
    node_log_start = len(node.log)
    player = play(ros, [m for m in recording if m.topic != missing])
    wait_for(lambda: told in node.log[node_log_start:], f"'{told}' in the log")
    player.close()
    still_predicts(ros, node, recording)


def test_time_that_jumps_back(ros, recording, start_node):
    node = start_node()
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    predictions.wait_for_publisher()
    play(ros, [shifted(m, secs=1000) for m in recording]).close()
    n_before = len(predictions.wait_for(1))
    play(ros, recording).close()
    node.wait_for_log("went back")
    predictions.wait_for(n_before + 1)
    assert node.running()


def shifted(message: Message, secs: int) -> Message:
    """The message with its header's stamp (where it has one) later."""
    if not hasattr(message_class(message.type_name), "header"):
        return message
    data = bytearray(message.data)
    struct.pack_into("<i", data, 4, struct.unpack_from("<i", data, 4)[0] + secs)
    return Message(message.topic, message.type_name, message.log_time_ns, bytes(data))


def test_images_without_a_valid_depth(ros, recording, start_node):
    node = start_node("-p", "idle_without_subscribers:=false")
    node.wait_for_log("waits for messages")
    play(ros, [blinded(m) if "depth" in m.topic else m for m in recording]).close()
    node.wait_for_log("no prediction for this frame")
    still_predicts(ros, node, recording)


def test_images_that_come_too_rarely(ros, recording, start_node):
    node = start_node("-p", "idle_without_subscribers:=false")
    node.wait_for_log("waits for messages")
    stamps = sorted({m.data[4:12] for m in recording if "depth/image" in m.topic}, key=stamp_secs)
    left_out = set(stamps[1::2])  # of 10 images a second, 5 are left
    rare = [m for m in recording if "/image" not in m.topic or m.data[4:12] not in left_out]
    play(ros, rare).close()
    node.wait_for_log("no frame lies 0.1 s before", "at 10 Hz or a multiple of it")
    still_predicts(ros, node, recording)


def stamp_secs(stamp: bytes) -> float:
    secs, nanos = struct.unpack("<iI", stamp)
    return secs + nanos / 1e9


def test_joints_that_the_robot_description_lacks(ros, recording, start_node):
    node = start_node("-p", "idle_without_subscribers:=false")
    node.wait_for_log("waits for messages")
    play(ros, [renamed(m) if m.topic == "/joint_states" else m for m in recording]).close()
    node.wait_for_log("without the robot", "left_joint_1")
    assert node.running() and "panicked" not in node.log


def renamed(message: Message) -> Message:
    """The joint state with other names."""
    state = deserialize_message(message.data, JointState)
    state.name = [f"other_{name}" for name in state.name]
    data = serialize_message(state)
    return Message(message.topic, message.type_name, message.log_time_ns, data)


def test_a_robot_description_that_is_none(ros, recording, start_node):
    node = start_node("-p", "idle_without_subscribers:=false", "-p", "robot:=required")
    node.wait_for_log("waits for messages")
    nonsense = serialize_message(String(data="<robot name='half'><link"))
    broken = [
        Message(m.topic, m.type_name, m.log_time_ns, nonsense)
        if m.topic == "/robot_description"
        else m
        for m in recording
    ]
    play(ros, broken).close()
    node.wait_for_log("WARN robot_description", "no robot description yet")
    still_predicts(ros, node, recording)


def blinded(message: Message) -> Message:
    """The depth image with zero, no measurement, in each pixel."""
    image = deserialize_message(message.data, Image)
    image.data = array.array("B", bytes(len(image.data)))
    data = serialize_message(image)
    return Message(message.topic, message.type_name, message.log_time_ns, data)


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ("horizn: 3", ["`horizn` is unknown", "Known parameters"]),
        ("horizon: three", ["`horizon` must be a whole number", "'three'"]),
        ("cameras: [a, a]", ["parameters: cameras: must be 1 to 255 different names"]),
        ("workspace_min: [1.0, 2.0]", ["`workspace_min` must be three numbers"]),
        ("horizon: [1, 2]", ["`horizon` must be a whole number"]),
        ("tolerance_secs: -0.1", ["`tolerance_secs` must be a number from 0 to 10, but is the number -0.1"]),
        ("time_jump_secs: 0.0", ["`time_jump_secs` must be a number from 0.001 to 3600"]),
        ("history_tolerance_secs: 11.0", ["`history_tolerance_secs` must be a number from 0 to 10"]),
    ],
)
def test_wrong_parameters_are_refused_by_name(start_node, tmp_path, yaml, told):
    params = tmp_path / "params.yaml"
    params.write_text(f"/**:\n  ros__parameters:\n    {yaml}\n")
    node = start_node("--params-file", str(params))
    assert node.wait_for_end() == 1
    for text in told:
        assert text in node.log


def test_a_parameter_file_that_is_not_there_is_named(start_node, tmp_path):
    node = start_node("--params-file", str(tmp_path / "none.yaml"))
    assert node.wait_for_end() == 1
    assert "none.yaml" in node.log and "panicked" not in node.log


@pytest.mark.parametrize("content", [b"", b"not a model", os.urandom(4096), None])
def test_a_model_that_cannot_be_used_ends_it(start_node, tmp_path, content):
    model = tmp_path / "bad.safetensors"
    if content is not None:
        model.write_bytes(content)
    params = tmp_path / "params.yaml"
    params.write_text(f"/**:\n  ros__parameters:\n    model: {model}\n")
    node = start_node("--params-file", str(params))
    assert node.wait_for_end() == 1
    assert str(model) in node.log and "panicked" not in node.log
