"""An only camera with nothing else: no transform, no robot."""

from __future__ import annotations

import math

import pytest
from conftest import PERIOD_SECS, Received, wait_for
from play import Player, Stream
from rclpy.serialization import deserialize_message
from recording import message_class

PREDICTION = "forecloud/msg/Prediction"
TIMING = "forecloud/msg/Timing"
TF = "tf2_msgs/msg/TFMessage"


def up(rotation) -> list[float]:
    """The parent's z axis in the child frame."""
    x, y, z, w = rotation.x, rotation.y, rotation.z, rotation.w
    return [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]


@pytest.fixture
def lonely(ros, recording):
    """The left camera alone, over and over."""
    messages = [m for m in recording if m.topic.startswith("/camera_left/")]
    player = Player(ros, messages)
    stream = Stream(player, PERIOD_SECS)
    yield stream
    stream.stop()
    player.close()


def test_it_is_placed_above_the_plane_that_it_sees(ros, recording, start_node, lonely):
    arguments = ["-p", "cameras:=[camera_left]", "-p", "level_camera:=true"]
    node = start_node(*arguments)
    node.wait_for_log("waits for messages")
    transforms = Received(ros, "/tf_static", TF, latched=True)
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    timings = Received(ros, "/forecloud/timing", TIMING)
    for received in (predictions, timings):
        received.wait_for_publisher()
    lonely.start()
    predictions.wait_for(2)
    node.wait_for_log("as level, so", "camera_left")

    [made] = [t for m in transforms.wait_for(1) for t in m.transforms]
    assert made.header.frame_id == "world"
    # Where it truly is, but for yaw and the origin's place on the table.
    latched = [m for m in recording if m.topic == "/tf_static"]
    known = [t for m in latched for t in deserialize_message(m.data, message_class(TF)).transforms]
    [true] = [t for t in known if t.child_frame_id == made.child_frame_id]
    height = made.transform.translation.z
    assert abs(height - true.transform.translation.z) < 0.02, height
    cosine = sum(a * b for a, b in zip(up(made.transform.rotation), up(true.transform.rotation)))
    assert cosine > math.cos(math.radians(1.0)), cosine

    # The table lies at z = 0, whichever frames were seen: many points are there, and from there down
    # to the floor few. (Other layers may be as full: the particles lie on all surfaces.)
    for prediction in predictions.wait_for(12):
        heights = prediction.positions[2::3]
        table = sum(abs(height) < 0.01 for height in heights)
        below = sum(-0.3 < height < -0.02 for height in heights)
        assert table > 0.1 * len(heights) and below < table / 3, (table, below, len(heights))
    # No robot is there, and nobody said so.
    last = timings.wait_for(2)[-1]
    assert last.frames_without_robot == last.frames_in > 0


def test_a_robot_that_comes_later_places_it(ros, recording, start_node, lonely):
    node = start_node("-p", "cameras:=[camera_left]", "-p", "level_camera:=true")
    node.wait_for_log("waits for messages")
    transforms = Received(ros, "/tf_static", TF, latched=True)
    lonely.start()
    node.wait_for_log("as level, so", "Other nodes are told in 5 s")
    assert not [t for m in transforms.messages for t in m.transforms], "not before nobody tells otherwise"
    latched = [m for m in recording if m.topic == "/tf_static"]
    robot = Player(ros, latched)
    robot.wait_for_subscriber()
    node.wait_for_log("it counts from now on")
    wait_for(lambda: lonely.n_frames > 80, "eight seconds of images")
    known = {t.child_frame_id for m in latched for t in deserialize_message(m.data, message_class(TF)).transforms}
    transforms.wait_for(len(latched))
    told = [t.child_frame_id for m in transforms.messages for t in m.transforms]
    assert len(told) == len(known) and set(told) == known, "only the robot's own"
    robot.close()


def test_without_being_asked_nothing_is_made_up(ros, start_node, lonely):
    node = start_node("-p", "cameras:=[camera_left]")
    node.wait_for_log("waits for messages")
    transforms = Received(ros, "/tf_static", TF, latched=True)
    lonely.start()
    node.wait_for_log("no path from 'world'", "level_camera")
    wait_for(lambda: lonely.n_frames > 30, "three seconds of images")
    assert not transforms.messages
    assert "as level, so" not in node.log
