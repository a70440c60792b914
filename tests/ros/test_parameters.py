"""The node's parameters over DDS, through rclpy's own client: listed, described, set and refused."""

from __future__ import annotations

import os

import pytest
from ament_index_python.packages import get_package_share_directory
from conftest import Received, wait_for, wait_for_future
from play import Player
from rcl_interfaces.msg import Parameter as ParameterMsg
from rcl_interfaces.msg import ParameterEvent, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter, parameter_dict_from_yaml_file
from rclpy.parameter_client import AsyncParameterClient

PREDICTION = "forecloud/msg/Prediction"
CONFIG = os.path.join(get_package_share_directory("forecloud"), "config")
EMPTY = ("workspace_", "object_frames_secs")  # lists of numbers, of which an empty one has no type
FILES = [os.path.join(CONFIG, name) for name in ("forecloud.yaml", "advanced.yaml")]


@pytest.fixture(scope="module")
def client(ros):
    return AsyncParameterClient(ros, "/forecloud")


@pytest.fixture
def node(start_node, client):
    node = start_node("-p", "deadline_secs:=0.1")  # as in the file
    wait_for(client.services_are_ready, "the parameter services")
    return node


def set_all(client, **values):
    """What became of each."""
    parameters = [Parameter(name, value=value) for name, value in values.items()]
    return wait_for_future(client.set_parameters(parameters)).results


def get(client, *names):
    values = wait_for_future(client.get_parameters(list(names))).values
    return [Parameter.from_parameter_msg(ParameterMsg(name="n", value=v)).value for v in values]


def test_every_parameter_of_the_files_is_listed_described_and_has_that_value(client, node):
    basic, advanced = (parameter_dict_from_yaml_file(file, use_wildcard=True) for file in FILES)
    names = wait_for_future(client.list_parameters([], 0)).result.names
    assert names == [*basic, *advanced]
    of_file = basic | advanced
    assert wait_for_future(client.list_parameters(["seed", "x"], 1)).result.names == ["seed"]
    for name, value in zip(names, get(client, *names), strict=True):
        expected = Parameter.from_parameter_msg(of_file[name]).value
        assert list(value) == [] if name.startswith(EMPTY) else value == expected, name
    types = wait_for_future(client.get_parameter_types(names)).types
    descriptors = wait_for_future(client.describe_parameters(names)).descriptors
    assert [d.name for d in descriptors] == names
    assert [d.type for d in descriptors] == list(types)
    # Comments may break lines where descriptions do not.
    lines = [line for file in FILES for line in open(file, encoding="utf8")]
    comments = " ".join(line.strip().removeprefix("# ") for line in lines)
    for descriptor in descriptors:
        assert descriptor.description in comments, descriptor.name


def test_descriptors_tell_types_ranges_and_what_needs_a_restart(client, node):
    names = ["horizon", "tolerance_secs", "cameras", "use_sim_time", "no_such"]
    horizon, tolerance, cameras, sim, unknown = wait_for_future(
        client.describe_parameters(names)
    ).descriptors
    assert horizon.type == ParameterType.PARAMETER_INTEGER and not horizon.read_only
    assert [(r.from_value, r.to_value, r.step) for r in horizon.integer_range] == [(1, 100, 1)]
    assert tolerance.type == ParameterType.PARAMETER_DOUBLE
    assert [(r.from_value, r.to_value) for r in tolerance.floating_point_range] == [(0.0, 10.0)]
    assert cameras.type == ParameterType.PARAMETER_STRING_ARRAY and cameras.read_only
    assert sim.type == ParameterType.PARAMETER_BOOL
    assert unknown.type == ParameterType.PARAMETER_NOT_SET
    assert get(client, "no_such", "horizon") == [None, 5]


REFUSED = [
    ("horizn", 3, "`horizn` is unknown; known parameters: model, cameras"),
    ("horizon", 0, "`horizon` must be a whole number from 1 to 100"),
    ("horizon", "three", "but is the string 'three'"),
    ("n_particles", 2, "n_particles: 2 are too few for a graph of 3 neighbours"),
    ("tolerance_secs", 10.5, "`tolerance_secs` must be a number from 0 to 10"),
    ("workspace_max", [1.0, 2.0], "`workspace_max` must be three numbers"),
    ("workspace_min", [9.0, 9.0, 9.0], "is not below max"),
    ("cameras", ["other"], "`cameras` is read when the node is configured: restart it, or clean it up first"),
    ("threads", 3, "`threads` is read when the node is configured: restart it, or clean it up first"),
    ("seed", None, "`seed` can't be deleted"),
]


def test_what_is_refused_says_why_and_changes_nothing(client, node):
    for name, value, reason in REFUSED:
        before = get(client, name, "time_jump_secs")
        [result] = set_all(client, **{name: value})
        assert not result.successful and reason in result.reason, result.reason
        parameters = [Parameter("time_jump_secs", value=9.0), Parameter(name, value=value)]
        result = wait_for_future(client.set_parameters_atomically(parameters)).result
        assert not result.successful and reason in result.reason, "all or none"
        assert get(client, name, "time_jump_secs") == before


def test_each_parameter_of_a_request_stands_alone_unless_atomic(client, node):
    good, bad, also_good = set_all(client, horizon=7, cameras=["other"], tolerance_secs=1)
    assert good.successful and not bad.successful and also_good.successful
    assert get(client, "horizon", "tolerance_secs") == [7, 1.0]
    parameters = [Parameter("horizon", value=8), Parameter("seed", value=4)]
    assert wait_for_future(client.set_parameters_atomically(parameters)).result.successful
    assert get(client, "horizon", "seed") == [8, 4]


@pytest.mark.parametrize("file", FILES, ids=os.path.basename)
def test_the_whole_file_can_be_loaded_while_it_runs(client, node, file):
    results = wait_for_future(client.load_parameter_file(file, use_wildcard=True)).results
    assert all(result.successful for result in results), results


def test_it_starts_with_both_files_and_the_last_one_counts(client, start_node, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("/**:\n  ros__parameters: {seed: 5, horizon: 4}\n")
    arguments = [word for file in (*FILES, str(mine)) for word in ("--params-file", file)]
    start_node(*arguments)
    wait_for(client.services_are_ready, "the parameter services")
    assert get(client, "seed", "horizon", "plan_threads") == [5, 4, 1]


def test_events_tell_of_changes(ros, client, start_node):
    events: list[ParameterEvent] = []
    subscription = ros.create_subscription(ParameterEvent, "/parameter_events", events.append, 100)

    def of_node():
        return [event for event in events if event.node == "/forecloud"]

    start_node()
    wait_for(client.services_are_ready, "the parameter services")
    wait_for(
        lambda: [i for i in ros.get_publishers_info_by_topic("/parameter_events")
                 if i.node_name == "forecloud"],
        "its events",
    )  # fmt: skip
    set_all(client, horizon=7)
    wait_for(lambda: [e for e in of_node() if e.changed_parameters], "an event")
    event = next(e for e in of_node() if e.changed_parameters)
    assert [(p.name, p.value.integer_value) for p in event.changed_parameters] == [("horizon", 7)]
    assert event.stamp.sec > 0
    n_events = len(of_node())
    set_all(client, horizon=7)
    set_all(client, horizon=700)
    set_all(client, horizon=6)
    wait_for(lambda: len(of_node()) > n_events, "an event")
    [last] = of_node()[n_events:]
    assert last.changed_parameters[0].value.integer_value == 6, "none for what did not change"
    ros.destroy_subscription(subscription)


def test_a_value_of_no_type_is_refused(ros, client, node):
    raw = ros.create_client(SetParameters, "/forecloud/set_parameters")
    wait_for(raw.service_is_ready, "the service")
    value = ParameterValue(type=77, integer_value=3)
    request = SetParameters.Request(parameters=[ParameterMsg(name="horizon", value=value)] * 1001)
    results = wait_for_future(raw.call_async(request)).results
    assert len(results) == 1001 and "at most 1000" in results[1000].reason
    request.parameters = request.parameters[:1]
    [result] = wait_for_future(raw.call_async(request)).results
    assert not result.successful and "can't be deleted" in result.reason
    ros.destroy_client(raw)


def test_a_change_counts_from_the_next_frame_on(ros, recording, client, start_node):
    start_node("-p", "horizon:=3", "-p", "n_particles:=256")
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    timings = Received(ros, "/forecloud/timing", "forecloud/msg/Timing")
    predictions.wait_for_publisher()
    timings.wait_for_publisher()
    player = Player(ros, recording)
    player.wait_for_subscriber()
    assert get(client, "horizon", "n_particles") == [3, 256]
    changed = []

    def change(messages):
        if len(messages) == 1:
            future = client.set_parameters(
                [Parameter("horizon", value=2), Parameter("seed", value=5)]
            )
            future.add_done_callback(lambda _: changed.append(len(messages)))

    def answered(n):
        predictions.wait_for(n - 1)  # the first frame has no history
        if n == 2:
            wait_for(lambda: changed, "the change")

    predictions.on_message = change
    # A busy machine makes the player late, and loses nothing.
    player.play(answered=answered)
    wait_for(lambda: changed and len(predictions.messages) > changed[0] + 1, "a later prediction")
    predictions.on_message = None
    messages = predictions.messages
    assert (messages[0].n_steps, messages[0].seed) == (3, 0)
    assert (messages[-1].n_steps, messages[-1].seed) == (2, 5)
    assert len(messages[-1].displacements) == 2 * 256 * 3
    # The frame at work when the answer came may still be of before.
    assert all(m.n_steps == 2 for m in messages[changed[0] + 1 :])
    wait_for(lambda: len(timings.messages) >= len(messages), "the timings")
    assert timings.messages[-1].frames_without_history == 1, "nothing was forgotten"
    player.close()
