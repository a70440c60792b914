"""examples/mpc.py against a planner and a controller that this test plays: what it executes, and what not."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from conftest import ROOT, TIMEOUT_SECS
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionServer
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from forecloud.action import Plan
from forecloud.msg import Prediction

JOINTS = ["a", "b"]


class Robot:
    """A robot at 0.1, 0.2, whose planner answers with `answers`, one after another. Its joint states begin
    `silent_ticks` ticks after the first request of a plan, or at once."""

    def __init__(self, ros, answers, silent_ticks=None):
        self.ros, self.answers, self.asked, self.executed = ros, list(answers), [], []
        self.silent_ticks = silent_ticks
        states = ros.create_publisher(JointState, "joint_states", QoSProfile(depth=10))
        predictions = ros.create_publisher(Prediction, "/forecloud/prediction", QoSProfile(depth=10))

        def tick() -> None:
            if self.silent_ticks is None or self.silent_ticks <= 0:
                states.publish(JointState(name=JOINTS, position=[0.1, 0.2]))
            elif self.asked:
                self.silent_ticks -= 1
            predictions.publish(Prediction())

        self.made = [
            (ros.destroy_timer, ros.create_timer(0.05, tick)),
            (ros.destroy_publisher, states),
            (ros.destroy_publisher, predictions),
        ]
        controller = "joint_trajectory_controller/follow_joint_trajectory"
        self.servers = [
            ActionServer(ros, Plan, "/forecloud/plan", self.plan),
            ActionServer(ros, FollowJointTrajectory, controller, self.execute),
        ]

    def plan(self, handle):
        self.asked.append(handle.request)
        handle.publish_feedback(Plan.Feedback(n_plans=7))
        handle.succeed()
        return self.answers.pop(0)

    def execute(self, handle):
        self.executed.append(handle.request.trajectory)
        handle.succeed()
        return FollowJointTrajectory.Result()

    def close(self) -> None:
        for server in self.servers:
            server.destroy()
        for destroy, made in self.made:
            destroy(made)


def plan_from(*positions) -> JointTrajectory:
    plan = JointTrajectory(joint_names=JOINTS)
    plan.header.stamp.sec = 1234
    for k in range(3):
        point = JointTrajectoryPoint(positions=[p + 0.1 * k for p in positions])
        point.time_from_start.sec = k
        plan.points.append(point)
    return plan


def found(plan: JointTrajectory) -> Plan.Result:
    answer = Plan.Result(success=True, message="found", plan=plan, n_plans=7)
    answer.idle.reach = 0.1
    return answer


def reached() -> Plan.Result:
    answer = Plan.Result(message="reached already", plan=plan_from(0.1, 0.2))
    answer.idle.reach = 0.001
    return answer


@pytest.fixture
def run(ros):
    robots = []

    def start(*answers, options=(), **kwargs) -> tuple[Robot, subprocess.CompletedProcess]:
        robot = Robot(ros, answers, **kwargs)
        robots.append(robot)
        command = [sys.executable, str(ROOT / "examples" / "mpc.py")]
        command += ["--region", *"0 0 0 1 1 1".split(), "--box", *"2 2 0 3 3 1".split(), *options]
        ended: list[subprocess.CompletedProcess] = []

        def call() -> None:
            ended.append(subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECS))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return robot, ended[0]

    yield start
    for robot in robots:
        robot.close()


def test_it_executes_what_it_is_given_until_it_is_there(run):
    robot, ended = run(found(plan_from(0.1, 0.2)), found(plan_from(0.12, 0.2)), reached())
    assert ended.returncode == 0, ended.stderr
    assert "there" in ended.stdout and "7 plans" in ended.stdout
    assert [list(plan.points[0].positions) for plan in robot.executed] == [[0.1, 0.2], [0.12, 0.2]]
    assert all(plan.header.stamp.sec == 0 for plan in robot.executed), "from now on"
    assert len({goal.seed for goal in robot.asked}) == 3
    assert robot.asked[0].goal.box.max.x == 3.0 and robot.asked[0].goal.region.max.z == 1.0


def test_it_goes_back_the_way_it_came_where_it_is_told_to(run):
    plan = plan_from(0.1, 0.2)
    plan.points[2].time_from_start.sec = 3
    robot, ended = run(found(plan), reached(), options=["--back"])
    assert ended.returncode == 0, ended.stderr
    there, back = ([list(p.positions) for p in t.points] for t in robot.executed)
    assert back == there[::-1]
    assert [p.time_from_start.sec for p in robot.executed[1].points] == [0, 2, 3]


def test_it_waits_for_joint_states_that_come_after_the_plan(run):
    robot, ended = run(found(plan_from(0.1, 0.2)), reached(), silent_ticks=20)
    assert ended.returncode == 0, ended.stderr
    assert len(robot.executed) == 1


def test_it_does_not_execute_without_joint_states(run):
    robot, ended = run(found(plan_from(0.1, 0.2)), silent_ticks=10**9)
    assert ended.returncode != 0 and "never told of a, b" in ended.stderr
    assert not robot.executed


def test_it_does_not_execute_a_plan_from_elsewhere(run):
    robot, ended = run(found(plan_from(0.5, 0.2)))
    assert ended.returncode != 0 and "off its start" in ended.stderr
    assert not robot.executed


def test_it_does_not_execute_where_nothing_was_found(run):
    refused = Plan.Result(message="the region is empty")
    robot, ended = run(refused)
    assert ended.returncode != 0 and "can't be planned for" in ended.stderr
    assert "the region is empty" in ended.stdout and not robot.executed
