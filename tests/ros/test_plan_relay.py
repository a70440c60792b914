"""The plan relay between a real action client and a real action server, and the plans it publishes."""

from __future__ import annotations

import math
import signal
import subprocess
import sys

import controller
import pytest
from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Duration, Time
from conftest import ActionClient, Received, wait_for, wait_for_future
from control_msgs.action import FollowJointTrajectory, GripperCommand
from control_msgs.msg import JointTolerance
from controller import Controller
from rclpy.action import get_action_names_and_types
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64
from trajectory_msgs.msg import JointTrajectoryPoint

PROGRAM = "forecloud_plan_relay"
PLAN = "trajectory_msgs/msg/JointTrajectory"
GRIPPER = ("-p", "hand.type:=GripperCommand", "-p", "hand.joints:=[finger]", "-p", "hand.speed:=0.1")


def duration(secs: float) -> Duration:
    return Duration(sec=int(secs), nanosec=round((secs % 1) * 1e9))


def secs(time) -> float:
    return time.sec + time.nanosec / 1e9


def goal_of(joints, *points) -> FollowJointTrajectory.Goal:
    """Points of (seconds, positions)."""
    goal = FollowJointTrajectory.Goal()
    goal.trajectory.joint_names = list(joints)
    goal.trajectory.points = [
        JointTrajectoryPoint(positions=positions, time_from_start=duration(at))
        for at, positions in points
    ]
    return goal


def slow() -> FollowJointTrajectory.Goal:
    return goal_of(["a", "b"], (0.0, [0.0, 1.0]), (5.0, [1.0, 1.0]), (10.0, [1.0, 3.0]))


def contents(plan):
    """Joints, and per point its seconds and positions by joint, rounded."""
    return [
        (round(secs(p.time_from_start), 1), {n: round(x, 2) for n, x in zip(plan.joint_names, p.positions)})
        for p in plan.points
    ]


def positions(plan, joint: str) -> list[float]:
    return [point.positions[list(plan.joint_names).index(joint)] for point in plan.points]


class Setup:
    """The relay, controllers behind it, clients before it, and what it publishes."""

    def __init__(self, ros, start_node):
        self.ros = ros
        self.start_node = start_node
        self.plans = Received(ros, "/planned_joints", PLAN)
        self.controllers = []
        self.clients = []
        self.publishers = []

    def start(self, *names: str, timeout_secs: float = 2.0, more=()):
        self.relay = self.start_node(
            "-p", f"controllers:=[{','.join(names)}]",
            "-p", f"controller_timeout_secs:={timeout_secs}",
            *more,
            program=PROGRAM,
        )
        self.plans.wait_for_publisher()
        return self.relay

    def controller(self, name: str, kind=FollowJointTrajectory) -> Controller:
        self.controllers.append(Controller(self.ros, name, kind))
        return self.controllers[-1]

    def client(self, name: str, kind=FollowJointTrajectory) -> ActionClient:
        action = "gripper_cmd" if kind is GripperCommand else "follow_joint_trajectory"
        client = ActionClient(self.ros, kind, f"{name}/forecloud/{action}")
        self.clients.append(client)
        wait_for(client.server_is_ready, f"the relay's action for {name}")
        return client

    def publisher(self, kind, topic: str):
        self.publishers.append(self.ros.create_publisher(kind, topic, QoSProfile(depth=10)))
        wait_for(lambda: self.ros.count_subscribers(topic), f"a subscriber of {topic}")
        return self.publishers[-1]

    def last_plan(self, n_points: int | None = None):
        """The newest plan; the first one with `n_points` if it is given."""
        def found():
            messages = self.plans.messages
            return messages and (n_points is None or len(messages[-1].points) == n_points)

        wait_for(found, f"a plan of {n_points} points")
        return self.plans.messages[-1]

    def close(self):
        for client in self.clients:
            client.destroy()
        for controller in self.controllers:
            controller.close()
        for publisher in self.publishers:
            self.ros.destroy_publisher(publisher)


@pytest.fixture
def setup(ros, start_node):
    setup = Setup(ros, start_node)
    yield setup
    setup.close()


def send(client, goal, on_feedback=None):
    """The goal's handle, accepted."""
    handle = wait_for_future(client.send_goal_async(goal, feedback_callback=on_feedback))
    assert handle.accepted
    return handle


def result_of(handle):
    """Status and result."""
    answer = wait_for_future(handle.get_result_async())
    return answer.status, answer.result


def now(ros) -> float:
    return ros.get_clock().now().nanoseconds / 1e9


def test_goal_feedback_and_success_pass_unchanged_and_the_plan_is_told(setup):
    arm = setup.controller("arm")
    setup.start("arm")
    client = setup.client("arm")
    sent = slow()
    sent.path_tolerance = [JointTolerance(name="a", position=0.5, velocity=0.25)]
    sent.goal_time_tolerance = duration(1.5)
    sent.trajectory.points[1].velocities = [0.0, 0.25]
    feedbacks = []
    before = now(setup.ros)
    handle = send(client, sent, feedbacks.append)
    after = now(setup.ros)
    assert arm.wait(0).request == sent
    assert bytes(arm.wait(0).goal_id.uuid) == bytes(handle.goal_id.uuid)

    plan = setup.last_plan(3)
    assert plan.joint_names == ["a", "b"]
    assert contents(plan) == [
        (0.0, {"a": 0.0, "b": 1.0}), (5.0, {"a": 1.0, "b": 1.0}), (10.0, {"a": 1.0, "b": 3.0})
    ]
    assert before <= secs(plan.header.stamp) <= after + 0.1
    # Repeated for those who come late, from where it has come to.
    again = wait_for(lambda: len(setup.plans.messages) > 1 and setup.plans.messages[1], "a second")
    gone = secs(again.header.stamp) - secs(plan.header.stamp)
    assert 0.9 < gone < 5.0
    assert again.points[0].positions[0] == pytest.approx(gone / 5.0, abs=1e-6)
    assert secs(again.points[-1].time_from_start) == pytest.approx(10.0 - gone, abs=1e-6)

    told = FollowJointTrajectory.Feedback(joint_names=["a", "b"])
    told.actual.positions = [0.125, 1.0]
    told.error.time_from_start = duration(0.25)
    arm.wait(0).publish_feedback(told)
    wait_for(lambda: feedbacks, "feedback")
    assert feedbacks[0].feedback == told
    assert bytes(feedbacks[0].goal_id.uuid) == bytes(handle.goal_id.uuid)
    wait_for(lambda: handle.status == GoalStatus.STATUS_ACCEPTED, "its status")

    result = FollowJointTrajectory.Result(error_string="well done")
    arm.end(0, "succeed", result)
    assert result_of(handle) == (GoalStatus.STATUS_SUCCEEDED, result)
    last = setup.last_plan(0)
    assert last.joint_names == ["a", "b"]
    # Once more asked, once more answered.
    assert result_of(handle) == (GoalStatus.STATUS_SUCCEEDED, result)


def test_it_is_an_action_like_any_other(setup):
    setup.start("arm", "hand", more=GRIPPER)
    found = wait_for(
        lambda: {"/arm/forecloud/follow_joint_trajectory", "/hand/forecloud/gripper_cmd"}
        <= (known := dict(get_action_names_and_types(setup.ros))).keys() and known,
        "the actions",
    )
    assert found["/hand/forecloud/gripper_cmd"] == ["control_msgs/action/GripperCommand"]


def test_what_the_controller_rejects_is_rejected_and_not_planned(setup):
    arm = setup.controller("arm")
    arm.accepts = False
    setup.start("arm")
    client = setup.client("arm")
    handle = wait_for_future(client.send_goal_async(slow()))
    assert not handle.accepted
    arm.accepts = True
    send(client, slow())
    assert len(setup.last_plan(3).points) == len(setup.plans.messages[0].points) == 3


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda goal: goal.trajectory.points[1].positions.__setitem__(1, math.nan), "point 1 has nan"),
        (lambda goal: goal.trajectory.points[2].positions.pop(), "point 2 has 1 positions of 2 joints"),
        (lambda goal: setattr(goal.trajectory.points[0], "time_from_start", duration(9.0)), "ascend"),
        (lambda goal: goal.trajectory.joint_names.extend(map(str, range(999))), "too many"),
    ],
)
def test_goals_that_cannot_be_executed_are_refused_in_words(setup, spoil, words):
    arm = setup.controller("arm")
    setup.start("arm")
    client = setup.client("arm")
    goal = slow()
    spoil(goal)
    handle = send(client, goal)
    status, result = result_of(handle)
    assert status == GoalStatus.STATUS_ABORTED
    assert result.error_code == FollowJointTrajectory.Result.INVALID_GOAL
    assert words in result.error_string.lower() and "not passed on" in result.error_string
    wait_for(lambda: handle.status == GoalStatus.STATUS_ABORTED, "its status")
    # The next one is none the worse for it.
    send(client, slow())
    assert len(arm.goals) == 1 and setup.last_plan(3)


def test_a_goal_without_positions_is_passed_on_without_a_plan(setup):
    arm = setup.controller("arm")
    relay = setup.start("arm")
    client = setup.client("arm")
    goal = slow()
    for point in goal.trajectory.points:
        point.positions, point.velocities = [], [0.1, 0.1]
    handle = send(client, goal)
    assert arm.wait(0).request == goal
    relay.wait_for_log("lacks positions")
    arm.end(0, "succeed", FollowJointTrajectory.Result())
    assert result_of(handle)[0] == GoalStatus.STATUS_SUCCEEDED
    assert not setup.plans.messages


def test_abort_comes_with_the_controllers_words_and_ends_the_plan(setup):
    arm = setup.controller("arm")
    setup.start("arm")
    handle = send(setup.client("arm"), slow())
    setup.last_plan(3)
    result = FollowJointTrajectory.Result(
        error_code=FollowJointTrajectory.Result.PATH_TOLERANCE_VIOLATED, error_string="a ran late"
    )
    arm.end(0, "abort", result)
    assert result_of(handle) == (GoalStatus.STATUS_ABORTED, result)
    assert setup.last_plan(0).joint_names == ["a", "b"]


def test_cancel_is_passed_on_and_ends_the_plan_at_once(setup):
    arm = setup.controller("arm")
    setup.start("arm")
    handle = send(setup.client("arm"), slow())
    setup.last_plan(3)
    answer = wait_for_future(handle.cancel_goal_async())
    assert [bytes(info.goal_id.uuid) for info in answer.goals_canceling] == [
        bytes(handle.goal_id.uuid)
    ]
    # The robot stops; that the controller takes its time to say so is another thing.
    setup.last_plan(0)
    wait_for(lambda: arm.wait(0).is_cancel_requested, "the request at the controller")
    wait_for(lambda: handle.status == GoalStatus.STATUS_CANCELING, "its status")
    result = FollowJointTrajectory.Result(error_string="stopped")
    arm.end(0, "canceled", result)
    assert result_of(handle) == (GoalStatus.STATUS_CANCELED, result)


def test_a_cancel_that_the_controller_refuses_leaves_all_as_it_is(setup):
    arm = setup.controller("arm")
    arm.cancels = False
    setup.start("arm")
    handle = send(setup.client("arm"), slow())
    setup.last_plan(3)
    answer = wait_for_future(handle.cancel_goal_async())
    assert not answer.goals_canceling
    assert setup.last_plan().points
    arm.end(0, "succeed", FollowJointTrajectory.Result())
    assert result_of(handle)[0] == GoalStatus.STATUS_SUCCEEDED


def test_a_new_goal_takes_the_place_of_the_last_as_the_controller_says(setup):
    arm = setup.controller("arm")
    setup.start("arm")
    client = setup.client("arm")
    first = send(client, slow())
    setup.last_plan(3)
    second = send(client, goal_of(["a", "b"], (0.0, [0.0, 0.0]), (8.0, [-1.0, -1.0])))
    plan = setup.last_plan(2)
    assert contents(plan)[1] == (8.0, {"a": -1.0, "b": -1.0})
    arm.end(0, "abort", FollowJointTrajectory.Result(error_string="preempted"))
    assert result_of(first)[1].error_string == "preempted"
    n = len(setup.plans.messages)
    wait_for(lambda: len(setup.plans.messages) > n, "the plan again")
    assert all(plan.points for plan in setup.plans.messages), "the end of the first is no end"
    arm.end(1, "succeed", FollowJointTrajectory.Result())
    assert result_of(second)[0] == GoalStatus.STATUS_SUCCEEDED
    setup.last_plan(0)


def test_arm_and_gripper_make_one_plan(setup):
    arm = setup.controller("arm")
    hand = setup.controller("hand", GripperCommand)
    setup.start("arm", "hand", more=GRIPPER)
    states = setup.publisher(JointState, "/joint_states")
    arm_handle = send(setup.client("arm"), slow())
    setup.last_plan(3)
    gripper = setup.client("hand", GripperCommand)
    goal = GripperCommand.Goal()
    goal.command.position, goal.command.max_effort = 0.2, 5.0
    # Where the finger is: it opens from there at 0.1 rad/s.
    for _ in range(3):
        states.publish(JointState(name=["finger"], position=[-0.1]))
    wait_for(lambda: states.wait_for_all_acked(), "the joint states to be there")
    feedbacks = []
    hand_handle = send(gripper, goal, feedbacks.append)
    assert hand.wait(0).request == goal
    plan = setup.last_plan(4)
    assert set(plan.joint_names) == {"a", "b", "finger"}
    told = contents(plan)
    assert told[0][1]["finger"] == -0.1 and told[1] == (3.0, told[1][1])
    assert told[1][1]["finger"] == 0.2 and told[-1][1] == {"a": 1.0, "b": 3.0, "finger": 0.2}
    arm_start = next(m for m in setup.plans.messages if len(m.points) == 3).header.stamp
    gone = secs(plan.header.stamp) - secs(arm_start)
    assert positions(plan, "a")[0] == pytest.approx(gone / 5, abs=1e-6)

    hand.wait(0).publish_feedback(GripperCommand.Feedback(position=0.1, stalled=True))
    wait_for(lambda: feedbacks, "feedback")
    assert feedbacks[0].feedback == GripperCommand.Feedback(position=0.1, stalled=True)
    result = GripperCommand.Result(position=0.2, reached_goal=True)
    hand.end(0, "succeed", result)
    assert result_of(hand_handle) == (GoalStatus.STATUS_SUCCEEDED, result)
    # The arm goes on, the finger stays where it was told to go to by now.
    wait_for(lambda: len(set(positions(setup.last_plan(), "finger"))) == 1, "the finger to stay")
    assert setup.last_plan().points
    arm.end(0, "succeed", FollowJointTrajectory.Result())
    assert result_of(arm_handle)[0] == GoalStatus.STATUS_SUCCEEDED
    assert set(setup.last_plan(0).joint_names) == {"a", "b", "finger"}


def test_a_gripper_command_that_is_no_number_is_refused(setup):
    hand = setup.controller("hand", GripperCommand)
    relay = setup.start("hand", more=GRIPPER)
    goal = GripperCommand.Goal()
    goal.command.position = math.inf
    status, _ = result_of(send(setup.client("hand", GripperCommand), goal))
    assert status == GoalStatus.STATUS_ABORTED and not hand.goals
    relay.wait_for_log("the gripper is sent to inf")


def test_the_robots_speed_stretches_the_plan(setup):
    setup.controller("arm")
    relay = setup.start("arm", more=("-p", "speed_scaling_topic:=/speed"))
    speed = setup.publisher(Float64, "/speed")
    send(setup.client("arm"), slow())
    start = secs(setup.last_plan(3).header.stamp)
    speed.publish(Float64(data=50.0))
    end = lambda: setup.plans.messages[-1].points[-1].time_from_start  # noqa: E731
    wait_for(lambda: secs(end()) > 12.0, "a plan at half the speed")
    plan = setup.plans.messages[-1]
    gone = secs(plan.header.stamp) - start
    assert secs(plan.points[-1].time_from_start) == pytest.approx(2 * (10.0 - gone), abs=0.5 + gone)
    speed.publish(Float64(data=0.0))
    assert len(setup.last_plan(1).points[0].positions) == 2, "it stands"
    speed.publish(Float64(data=math.nan))
    relay.wait_for_log("ignoring a speed scaling of NaN")
    speed.publish(Float64(data=100.0))
    wait_for(lambda: len(setup.plans.messages[-1].points) > 1, "it goes on")


def test_many_goals_at_once_are_bounded_and_none_is_lost(setup):
    arm = setup.controller("arm")
    setup.start("arm")
    client = setup.client("arm")
    # A few at a time: requests of services queue up to ten.
    handles = []
    while len(handles) < 68:
        sent = [client.send_goal_async(slow()) for _ in range(4)]
        handles += map(wait_for_future, sent)
    accepted = [handle for handle in handles if handle.accepted]
    assert len(accepted) == len(arm.goals) == 64
    for i in range(64):
        arm.end(i, "abort", FollowJointTrajectory.Result(error_string=f"preempted {i}"))
    told = {result_of(handle)[1].error_string for handle in accepted}
    assert told == {f"preempted {i}" for i in range(64)}
    # Those that are done make room.
    send(client, slow())


def test_times_are_ros_times(setup):
    setup.controller("arm")
    setup.start("arm", more=("-p", "use_sim_time:=true"))
    clock = setup.publisher(Clock, "/clock")
    client = setup.client("arm")
    handle = send(client, slow())
    setup.last_plan(3)

    def told_at(secs: int) -> bool:
        clock.publish(Clock(clock=Time(sec=secs)))
        return setup.plans.messages[-1].header.stamp == Time(sec=secs)

    # The goal came before the clock: it starts with it.
    wait_for(lambda: told_at(100), "the plan at 100 s")
    wait_for(lambda: told_at(104), "the plan at 104 s")
    assert positions(setup.last_plan(), "a")[0] == pytest.approx(0.8)
    wait_for_future(handle.cancel_goal_async())
    assert setup.last_plan(0).header.stamp == Time(sec=104)


def test_without_its_controller_a_goal_ends_with_a_remedy(setup):
    setup.start("nobody", timeout_secs=0.5)
    status, result = result_of(send(setup.client("nobody"), slow()))
    assert status == GoalStatus.STATUS_ABORTED
    assert "no action server nobody/follow_joint_trajectory" in result.error_string
    assert "Remedy: start or activate the controller" in result.error_string
    assert not setup.plans.messages


def test_a_controller_that_comes_late_gets_its_goal(setup):
    relay = setup.start("arm", timeout_secs=30.0)
    client = setup.client("arm")
    sent = client.send_goal_async(slow())
    relay.wait_for_log("passing goals of")
    arm = setup.controller("arm")
    assert wait_for_future(sent).accepted
    arm.end(0, "succeed", FollowJointTrajectory.Result(error_string="late"))
    assert result_of(sent.result())[1].error_string == "late"


@pytest.mark.parametrize("end", ["closed", "SIGKILL", "SIGUSR1"])
def test_a_controller_that_dies_ends_its_goal_and_the_plan(setup, end):
    process = None
    if end == "closed":
        setup.controller("arm")
    else:
        command = [sys.executable, controller.__file__, "arm"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        # Not asked of ROS, which still knows the one that the test before killed.
        assert process.stdout.readline() == "ready\n"
    try:
        # Long enough for a controller on a busy machine.
        setup.start("arm", timeout_secs=3.0)
        handle = send(setup.client("arm"), slow())
        setup.last_plan(3)
        # It lives for longer than it may be silent: it answers, though it has nothing to say.
        n = len(setup.plans.messages)
        wait_for(lambda: len(setup.plans.messages) >= n + 4, "four seconds of the plan")
        assert all(plan.points for plan in setup.plans.messages)
        if process:
            process.send_signal(getattr(signal, end))
        else:
            setup.controllers.pop().close()
        status, result = result_of(handle)
    finally:
        if process:
            process.kill()
            process.wait()
    assert status == GoalStatus.STATUS_ABORTED
    assert "Remedy" in result.error_string and "3 s" in result.error_string
    assert setup.last_plan(0).joint_names == ["a", "b"]
    wait_for(lambda: handle.status == GoalStatus.STATUS_ABORTED, "its status")


def test_a_controller_that_was_started_anew_does_not_know_the_goal(setup):
    setup.controller("arm")
    setup.start("arm", timeout_secs=1.5)
    handle = send(setup.client("arm"), slow())
    setup.last_plan(3)
    setup.controllers.pop().close()
    setup.controller("arm")
    status, result = result_of(handle)
    assert status == GoalStatus.STATUS_ABORTED
    assert "was restarted" in result.error_string and "Remedy" in result.error_string
    setup.last_plan(0)


def test_the_node_takes_the_plans(setup, start_node):
    told = Received(setup.ros, "/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
    start_node()
    setup.controller("arm")
    setup.start("arm")

    def status(name):
        last = told.messages[-1].status if told.messages else []
        return next((s for s in last if s.name == f"forecloud: {name}"), None)

    def n_taken() -> int:
        plan = status("plan")
        return int(next(v.value for v in plan.values if v.key == "messages")) if plan else 0

    wait_for(lambda: setup.ros.count_subscribers("/planned_joints") >= 2, "the node")
    send(setup.client("arm"), slow())
    # Not of the first one: the relay may learn of the node just after it.
    wait_for(lambda: n_taken() >= 2, "plans at the node")
    bad = status("messages")
    assert (bad.level, list(bad.values)) == (b"\x00", []), bad


def test_its_end_ends_the_plan_and_leaves_the_goal_to_the_controller(setup):
    arm = setup.controller("arm")
    relay = setup.start("arm")
    send(setup.client("arm"), slow())
    setup.last_plan(3)
    assert relay.stop() == 0
    setup.last_plan(0)
    assert arm.wait(0).is_active and not arm.wait(0).is_cancel_requested


def test_wrong_parameters_end_it_with_the_cause(start_node):
    for given, words in [
        ("controler:=arm", "`controler` is unknown"),
        ("controllers:=['not a name']", "not a name"),
    ]:
        relay = start_node("-p", given, program=PROGRAM)
        assert relay.wait_for_end() == 1
        assert words in relay.log
