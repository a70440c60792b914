"""Nothing is computed while nobody wants it; with the first subscriber, predictions come at once."""

from __future__ import annotations

import os

from conftest import Received, wait_for, wait_for_future
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient

from forecloud.srv import Predict
from trajectory_msgs.msg import JointTrajectory

PREDICTION = "forecloud/msg/Prediction"
TIMING = "forecloud/msg/Timing"
PASSING = "nobody subscribes to predictions"


def cpu_secs(node) -> float:
    """User and system time of the node so far."""
    with open(f"/proc/{node.process.pid}/stat", encoding="utf8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_secs_of_frames(node, stream, n_frames=12) -> float:
    """What the node takes while so many more frames are sent."""
    before, last = cpu_secs(node), stream.n_frames + n_frames
    wait_for(lambda: stream.n_frames >= last, f"{n_frames} frames")
    return cpu_secs(node) - before


def test_the_first_subscriber_gets_predictions_at_once(ros, start_node, stream):
    # Many steps: what is spared outweighs what the arrival of images takes.
    node = start_node("-p", "horizon:=20")
    timings = Received(ros, "/forecloud/timing", TIMING)
    timings.wait_for_publisher()
    stream.start()
    node.wait_for_log(PASSING)
    # At the first frame with the robot it warms up, by a prediction.
    last = stream.n_frames + 5
    wait_for(lambda: stream.n_frames >= last, "some frames")
    idle_secs = cpu_secs_of_frames(node, stream)
    assert not timings.messages, "nothing was predicted"

    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    predictions.wait_for(1)
    wait_for(lambda: timings.messages, "its timing")
    first = timings.messages[0]
    assert first.frames_idle >= 10
    assert first.frames_used == 1
    assert first.frames_in - first.frames_idle <= 2, "the history was remembered"
    busy_secs = cpu_secs_of_frames(node, stream)
    print(f"CPU of 12 frames: {idle_secs:.2f} s idle, {busy_secs:.2f} s with a subscriber")
    assert idle_secs < 0.5 * busy_secs

    n_told = node.log.count(PASSING)
    predictions.close()
    wait_for(lambda: node.log.count(PASSING) > n_told, "it to be idle again")


def test_asking_for_candidates_wakes_it(ros, start_node, stream):
    node = start_node("-p", "n_particles:=256", "-p", "horizon:=2")
    timings = Received(ros, "/forecloud/timing", TIMING)
    timings.wait_for_publisher()
    stream.start()
    node.wait_for_log(PASSING)
    client = ros.create_client(Predict, "/forecloud/predict")
    wait_for(client.service_is_ready, "the service")
    answer = wait_for_future(client.call_async(Predict.Request(plans=[JointTrajectory()])))
    assert answer.success, answer.message
    timings.wait_for(2)  # more are likely to be asked for soon
    stamp = answer.predictions[0].header.stamp
    assert any(timing.header.stamp == stamp for timing in timings.messages), "a live frame's"
    assert timings.messages[0].frames_without_history == 0
    ros.destroy_client(client)


def test_the_parameter_turns_it_off(ros, start_node, stream):
    node = start_node("-p", "n_particles:=256", "-p", "horizon:=2")
    timings = Received(ros, "/forecloud/timing", TIMING)
    timings.wait_for_publisher()
    stream.start()
    node.wait_for_log(PASSING)
    assert not timings.messages
    client = AsyncParameterClient(ros, "/forecloud")
    wait_for(client.services_are_ready, "the parameter services")
    off = Parameter("idle_without_subscribers", value=False)
    assert wait_for_future(client.set_parameters([off])).results[0].successful
    timings.wait_for(2)
