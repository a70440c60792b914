"""The node as a managed one: driven by the calls that Nav2's lifecycle manager and `ros2 lifecycle` make."""

from __future__ import annotations

import signal

import pytest
from conftest import ROOT, Received, wait_for, wait_for_future
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetAvailableStates, GetAvailableTransitions, GetState
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient

from forecloud.srv import PoseAt, Predict
from trajectory_msgs.msg import JointTrajectory

PREDICTION = "forecloud/msg/Prediction"
NODE = "/forecloud"


class Manager:
    """The clients of a lifecycle manager."""

    def __init__(self, ros):
        self._ros = ros
        self._clients = {}

    def call(self, service, name, request=None):
        if name not in self._clients:
            self._clients[name] = self._ros.create_client(service, f"{NODE}/{name}")
        client = self._clients[name]
        wait_for(client.service_is_ready, f"{name}")
        return wait_for_future(client.call_async(request or service.Request()))

    def change(self, transition: int | str) -> bool:
        """By number, as Nav2's manager does, or by name."""
        request = ChangeState.Request()
        if isinstance(transition, str):
            request.transition.label = transition
        else:
            request.transition.id = transition
        return self.call(ChangeState, "change_state", request).success

    def state(self) -> tuple[int, str]:
        state = self.call(GetState, "get_state").current_state
        return state.id, state.label

    def transitions(self, name="get_available_transitions") -> list[tuple[str, str, str]]:
        found = self.call(GetAvailableTransitions, name).available_transitions
        return [(t.start_state.label, t.transition.label, t.goal_state.label) for t in found]

    def close(self):
        for client in self._clients.values():
            self._ros.destroy_client(client)


@pytest.fixture
def manager(ros):
    manager = Manager(ros)
    yield manager
    manager.close()


UNCONFIGURED = (State.PRIMARY_STATE_UNCONFIGURED, "unconfigured")
INACTIVE = (State.PRIMARY_STATE_INACTIVE, "inactive")
ACTIVE = (State.PRIMARY_STATE_ACTIVE, "active")
FINALIZED = (State.PRIMARY_STATE_FINALIZED, "finalized")


def start_unconfigured(ros, start_node, *ros_args):
    """The node, once it is known here and knows of this process: an answer to a client that it does not know yet
    is lost in the middleware. And what it says of itself."""
    diagnostics = Received(ros, "/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
    node = start_node("-p", "autostart:=false", *ros_args)
    return node, diagnostics.wait_for(1)[0]


def get_predictions(ros, n=2):
    predictions = Received(ros, f"{NODE}/prediction", PREDICTION)
    predictions.wait_for(n)
    predictions.close()


def test_a_node_without_a_manager_is_active_by_itself(ros, start_node, manager):
    node = start_node()
    node.wait_for_log("activate: active")
    assert manager.state() == ACTIVE
    states = manager.call(GetAvailableStates, "get_available_states").available_states
    assert [s.id for s in states] == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15]
    assert manager.transitions() == [
        ("active", "deactivate", "deactivating"),
        ("active", "shutdown", "shuttingdown"),
    ]
    graph = manager.transitions("get_transition_graph")
    assert ("unconfigured", "configure", "configuring") in graph and len(graph) == 7
    assert not manager.change("configure") and not manager.change("no such\nname")
    node.wait_for_log("`no such\\nname` can't be made while the node is active")
    assert manager.state() == ACTIVE
    assert node.stop() == 0


def test_a_manager_takes_it_through_all_states_and_back(ros, start_node, stream, manager):
    events = Received(ros, f"{NODE}/transition_event", "lifecycle_msgs/msg/TransitionEvent")
    node, told = start_unconfigured(ros, start_node, "-p", "horizon:=2")
    # Nothing is there yet, and that is no fault.
    assert manager.state() == UNCONFIGURED
    (status,) = told.status
    assert status.name == "forecloud: lifecycle" and "`configure`" in status.message
    assert ros.count_subscribers("/joint_states") == 0
    wait_for(lambda: ros.count_publishers(f"{NODE}/transition_event"), "its events")
    assert not manager.change(Transition.TRANSITION_ACTIVATE), "it is not configured"
    answer = manager.call(PoseAt, "pose_at")
    assert not answer.success and answer.message == "the node is unconfigured"

    assert manager.change(Transition.TRANSITION_CONFIGURE)
    assert manager.state() == INACTIVE
    wait_for(lambda: ros.count_subscribers("/joint_states"), "its subscriptions")
    stream.start()
    predictions = Received(ros, f"{NODE}/prediction", PREDICTION)
    predictions.wait_for_publisher()
    last = stream.n_frames + 6
    wait_for(lambda: stream.n_frames >= last, "some frames")
    assert not predictions.messages
    answer = manager.call(Predict, "predict", Predict.Request(plans=[JointTrajectory()]))
    assert not answer.success and "inactive" in answer.message

    assert manager.change(Transition.TRANSITION_ACTIVATE)
    assert manager.state() == ACTIVE
    predictions.wait_for(2)

    assert manager.change(Transition.TRANSITION_DEACTIVATE)
    # One may have been under way.
    last = stream.n_frames + 3
    wait_for(lambda: stream.n_frames >= last, "some frames")
    n, last = len(predictions.messages), stream.n_frames + 6
    wait_for(lambda: stream.n_frames >= last, "more frames")
    assert len(predictions.messages) == n
    predictions.close()

    assert manager.change(Transition.TRANSITION_CLEANUP)
    assert manager.state() == UNCONFIGURED
    wait_for(lambda: ros.count_subscribers("/joint_states") == 0, "its subscriptions to go")
    ids = [event.transition.id for event in events.messages]
    assert ids == [1, 10, 3, 30, 4, 40, 2, 20]
    assert [e.goal_state.label for e in events.messages[:2]] == ["configuring", "inactive"]

    # And once more.
    assert manager.change("configure") and manager.change("activate")
    get_predictions(ros)
    assert manager.change("shutdown")
    assert manager.state() == FINALIZED and manager.transitions() == []
    assert not manager.change("configure")
    assert node.running() and node.stop(signal.SIGTERM) == 0


def test_what_can_not_be_configured_stays_so_and_can_be_mended(ros, start_node, stream, manager):
    node, _ = start_unconfigured(ros, start_node, "-p", "model:=/no/such.safetensors")
    assert not manager.change(Transition.TRANSITION_CONFIGURE)
    node.wait_for_log("configure: ", "/no/such.safetensors", "still unconfigured")
    assert manager.state() == UNCONFIGURED and node.running()
    client = AsyncParameterClient(ros, NODE)
    wait_for(client.services_are_ready, "the parameter services")

    def set_parameter(name, value):
        results = wait_for_future(client.set_parameters([Parameter(name, value=value)])).results
        assert results[0].successful, results[0].reason

    set_parameter("model", str(ROOT / "models" / "small.safetensors"))
    # No name of a topic: it is found after the model, and leaves no publisher behind.
    set_parameter("cameras", ["no camera"])
    assert not manager.change(Transition.TRANSITION_CONFIGURE)
    node.wait_for_log("no camera")
    assert manager.state() == UNCONFIGURED
    assert ros.count_publishers(f"{NODE}/prediction") == 0
    set_parameter("cameras", ["camera_left", "camera_right"])
    assert manager.change(Transition.TRANSITION_CONFIGURE)
    # What is configured by it is fixed again.
    results = wait_for_future(client.set_parameters([Parameter("model", value="")])).results
    assert not results[0].successful and "clean it up first" in results[0].reason
    assert manager.change(Transition.TRANSITION_ACTIVATE)
    stream.start()
    get_predictions(ros)
    assert node.stop() == 0
