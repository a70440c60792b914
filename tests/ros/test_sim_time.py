"""`use_sim_time`: predictions go by the stamps as ever; ROS time, and its jumps, come from /clock."""

from __future__ import annotations

import time

import pytest
from conftest import Received, wait_for, wait_for_future
from play import Player
from rcl_interfaces.msg import ParameterEvent
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient
from rosgraph_msgs.msg import Clock
from trajectory_msgs.msg import JointTrajectory

from forecloud.srv import Predict

PREDICTION = "forecloud/msg/Prediction"
TIMING = "forecloud/msg/Timing"
SIM_SEC = 1_700_000_000  # of the recording's stamps


@pytest.fixture
def events(ros):
    """What the node tells about its parameters."""
    received: list[ParameterEvent] = []
    subscription = ros.create_subscription(ParameterEvent, "/parameter_events", received.append, 10)
    yield lambda: [e for e in received if e.node == "/forecloud" and e.changed_parameters]
    ros.destroy_subscription(subscription)


@pytest.fixture
def clock(ros):
    publisher = ros.create_publisher(Clock, "/clock", 10)

    def tell(sec: int) -> None:
        wait_for(publisher.get_subscription_count, "a subscriber of /clock")
        message = Clock()
        message.clock.sec = sec
        publisher.publish(message)

    tell.publisher = publisher
    yield tell
    ros.destroy_publisher(publisher)


def set_parameter(client, name, value):
    wait_for(client.services_are_ready, "the parameter services")
    # The node may find the client's reader of answers after the request: that answer is lost, so it is asked again.
    asked = []

    def answered():
        if not asked or time.monotonic() - asked[-1][0] > 5.0:
            asked.append((time.monotonic(), client.set_parameters([Parameter(name, value=value)])))
        return next((future for _, future in asked if future.done()), None)

    [result] = wait_for(answered, "an answer").result().results
    assert result.successful, result.reason


def wait_for_events(ros):
    infos = ros.get_publishers_info_by_topic
    topic = "/parameter_events"
    wait_for(lambda: [i for i in infos(topic) if i.node_name == "forecloud"], "its events")


def ros_secs(client, events) -> int:
    """The node's time, as it stamps a change."""
    n = len(events())
    set_parameter(client, "seed", 1000 + n)
    wait_for(lambda: len(events()) > n, "an event")
    return events()[-1].stamp.sec


def wait_for_time(client, events, clock, sec: int) -> None:
    """Tells the time until the node knows it: what is sent before it hears the clock is lost."""

    def is_known() -> bool:
        clock(sec)
        return ros_secs(client, events) == sec

    wait_for(is_known, "its time")


def test_a_clock_that_goes_back_starts_it_anew(ros, recording, start_node, clock, events):
    node = start_node("-p", "use_sim_time:=true", "-p", "n_particles:=256", "-p", "horizon:=2")
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    timings = Received(ros, "/forecloud/timing", TIMING)
    for received in (predictions, timings):
        received.wait_for_publisher()
    client = AsyncParameterClient(ros, "/forecloud")
    wait_for_events(ros)
    wait_for_time(client, events, clock, SIM_SEC + 100)
    player = Player(ros, recording)
    player.wait_for_subscriber()
    player.play(0.5)
    n_before = len(predictions.wait_for(4))
    # A second is not more than time_jump_secs.
    wait_for_time(client, events, clock, SIM_SEC + 99)
    assert "went back" not in node.log
    clock(SIM_SEC)
    node.wait_for_log("/clock went back from")
    predictions.messages.clear()
    player.play(0.5)
    predictions.wait_for(n_before)
    wait_for(lambda: timings.messages[-1].frames_in > n_before + 2, "the frames' timings")
    last = timings.messages[-1]
    assert last.time_jumps == 1
    assert last.frames_without_history == 2, "the first frame before and after"
    player.close()


def test_it_can_be_set_while_it_runs(ros, start_node, clock, events):
    start_node()
    client = AsyncParameterClient(ros, "/forecloud")
    wait_for(client.services_are_ready, "the parameter services")
    wait_for_events(ros)
    assert abs(ros_secs(client, events) - time.time()) < 1000, "the system's time"
    set_parameter(client, "use_sim_time", True)
    wait_for_time(client, events, clock, 42)
    set_parameter(client, "use_sim_time", False)
    assert abs(ros_secs(client, events) - time.time()) < 1000
    clock.publisher.publish(Clock())
    set_parameter(client, "use_sim_time", True)
    wait_for_time(client, events, clock, 43)


def test_a_paused_simulation_makes_no_frame_old(ros, recording, start_node, clock, events):
    start_node("-p", "use_sim_time:=true", "-p", "n_particles:=256", "-p", "horizon:=2")
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    predictions.wait_for_publisher()
    parameters = AsyncParameterClient(ros, "/forecloud")
    wait_for_events(ros)
    wait_for_time(parameters, events, clock, SIM_SEC)
    player = Player(ros, recording)
    player.wait_for_subscriber()
    player.play(0.5)
    predictions.wait_for(4)
    client = ros.create_client(Predict, "/forecloud/predict")
    wait_for(client.service_is_ready, "~/predict")

    def predict():
        return wait_for_future(client.call_async(Predict.Request(plans=[JointTrajectory()])))

    time.sleep(3.0)  # more than 2 s of the machine's clock, none of the simulation's
    assert predict().success
    wait_for_time(parameters, events, clock, SIM_SEC + 3)
    answer = predict()
    assert not answer.success and "the last frame is 3.0 s old" in answer.message
    ros.destroy_client(client)
    player.close()


def test_diagnostics_are_stamped_by_the_clock_in_use(ros, start_node, clock):
    start_node("-p", "use_sim_time:=true")
    diagnostics = Received(ros, "/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")

    def is_simulated() -> bool:
        clock(SIM_SEC)
        return any(m.header.stamp.sec == SIM_SEC for m in diagnostics.messages)

    wait_for(is_simulated, "a stamp of /clock")
