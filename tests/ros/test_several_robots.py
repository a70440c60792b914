"""Two robots, each with a node in its own namespace and a prefix of its frames, on one /tf."""

from __future__ import annotations

import pytest
from conftest import Received, wait_for
from endless import Endless, edited
from geometry_msgs.msg import TransformStamped
from recording import Message

ROBOTS = {"left": 0.0, "right": 0.25}
"""Where the robots' own `world` is in the common one, along x (m)."""
APART_SECS = 1000
"""By so much the stamps of the second robot are later: its messages can be told from those of the first."""
FRAMES_OF = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CameraInfo")
ROBOT = 1  # in `kinds` of forecloud/msg/Prediction


def nanos(stamp) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


def of_robot(messages: list[Message], name: str) -> list[Message]:
    """What cameras and robot_state_publisher (frame_prefix: NAME/) of one robot publish in its namespace."""

    def prefix(content) -> None:
        if hasattr(content, "header"):
            content.header.frame_id = f"{name}/{content.header.frame_id}"
            return
        for transform in content.transforms:
            transform.header.frame_id = f"{name}/{transform.header.frame_id}"
            transform.child_frame_id = f"{name}/{transform.child_frame_id}"

    def place(content) -> None:
        prefix(content)
        mounted = TransformStamped(child_frame_id=f"{name}/world")
        mounted.header.frame_id = "world"
        mounted.transform.translation.x = ROBOTS[name]
        content.transforms.append(mounted)

    made = []
    for message in messages:
        if message.topic.startswith("/tf"):
            made.append(edited(message, place if message.topic == "/tf_static" else prefix))
            continue
        if message.type_name in FRAMES_OF:
            message = edited(message, prefix)
        made.append(Message(f"/{name}{message.topic}", message.type_name, message.log_time_ns, message.data))
    return made


@pytest.fixture
def playing(ros, recording):
    started = []

    def start(name: str) -> Endless:
        endless = Endless(ros, of_robot(recording, name), period_secs=0.6)
        endless.offset_secs = APART_SECS * list(ROBOTS).index(name)
        started.append(endless)
        return endless

    yield start
    for endless in started:
        endless.stop()


def statuses(diagnostics: Received, node: str) -> dict[str, object]:
    """Its newest statuses by name; those of no other node."""
    found = {}
    for message in list(diagnostics.messages):
        for status in message.status:
            if status.hardware_id == f"/{node}":
                assert status.name.startswith(f"{node}: ")
                found[status.name.removeprefix(f"{node}: ")] = status
    return found


def test_two_robots_side_by_side_hear_only_their_own(ros, start_node, playing):
    options = ["n_particles:=256", "horizon:=2", "robot:=required", "object_frames_secs:=[0.2]", "slow_timeout_secs:=10.0"]
    for name in ROBOTS:
        x = ROBOTS[name]
        own = [
            *options, f"frame_prefix:={name}/",
            f"workspace_min:=[{x - 0.4}, -0.45, -0.05]", f"workspace_max:=[{x + 0.4}, 0.45, 0.6]",
        ]  # fmt: skip
        start_node("-r", f"__ns:=/{name}", *(word for option in own for word in ("-p", option)))
    predictions = {
        name: Received(ros, f"/{name}/forecloud/prediction", "forecloud/msg/Prediction") for name in ROBOTS
    }
    tf, diagnostics = Received(ros, "/tf", "tf2_msgs/msg/TFMessage"), Received(
        ros, "/diagnostics", "diagnostic_msgs/msg/DiagnosticArray"
    )
    for received in predictions.values():
        received.wait_for_publisher()
    # The robot is required: without its links' transforms under the prefix there would be no prediction.
    players = {name: playing(name) for name in ROBOTS}
    middles = {}
    for name, received in predictions.items():
        messages = received.wait_for(4)[:4]
        message = messages[-1]
        assert message.header.frame_id == "world"
        assert list(message.kinds).count(ROBOT) > 20, "the robot is where the cameras see it"
        # Of four frames: the middle of 256 particles of a single one is off by some centimetres.
        xs = sorted(x for message in messages for x in message.positions[0::3])
        middles[name] = xs[len(xs) // 2]
    assert middles["right"] - middles["left"] == pytest.approx(ROBOTS["right"], abs=0.1)

    def object_frames() -> dict[str, set[int]]:
        seen: dict[str, set[int]] = {}
        for transform in (t for m in list(tf.messages) for t in m.transforms):
            if "/object_" in transform.child_frame_id:
                robot = transform.child_frame_id.split("/forecloud/object_")[0]
                seen.setdefault(robot, set()).add(nanos(transform.header.stamp))
        return seen

    seen = wait_for(lambda: (found := object_frames()).keys() == ROBOTS.keys() and found, "frames of both")
    # No message of the one came to the other: their times lie far apart.
    stamps = {name: {nanos(m.header.stamp) for m in r.messages} for name, r in predictions.items()}
    middle = max(stamps["left"]) + APART_SECS * 10**9 // 2
    for of_node in (stamps, seen):
        assert max(of_node["left"]) < middle < min(of_node["right"])

    # What goes wrong is told of the robot that it goes wrong with.
    players["left"].stop()

    def images(name: str):
        """Level of its newest status of images; None before the first one came."""
        status = statuses(diagnostics, f"{name}/forecloud").get("images")
        return status and status.level

    wait_for(lambda: images("left") not in (None, b"\0"), "its images to be missed")
    assert wait_for(lambda: images("right"), "the other's status") == b"\0"
    n = len(predictions["right"].messages)
    predictions["right"].wait_for(n + 2)


def test_a_wrong_prefix_is_told_with_the_frame_that_is_missing(ros, start_node, playing):
    start_node("-r", "__ns:=/left", "-p", "frame_prefix:=arm_", "-p", "robot:=required")
    received = Received(ros, "/left/forecloud/prediction", "forecloud/msg/Prediction")
    diagnostics = Received(ros, "/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
    received.wait_for_publisher()
    playing("left")

    def told():
        all_of = statuses(diagnostics, "left/forecloud").values()
        return [s.message for s in all_of if s.level != b"\0" and "'arm_world'" in s.message]

    wait_for(told, "the frame that is missing")
    assert not received.messages
