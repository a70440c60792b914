"""~/evaluate and ~/plan over DDS: costs, plans, refusals, clients that cancel, die and come in crowds."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PERIOD_SECS, ROOT, ActionClient, Received, wait_for, wait_for_future
from geometry_msgs.msg import Point
from play import Player, Stream, shifted
from rclpy.qos import QoSProfile
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from unique_identifier_msgs.msg import UUID
from test_services import SMALL, plan_of, scaled, stream, subscribe  # noqa: F401
from action_msgs.msg import GoalInfo, GoalStatus
from action_msgs.srv import CancelGoal

from forecloud.action import Plan
from forecloud.msg import Goal
from forecloud.srv import Evaluate

# Requests that are sent at once: more than the middleware keeps by default (10), and than wait (16).
N_BURST = 50

ASK = """
import sys, rclpy
from rclpy.action import ActionClient
from forecloud.action import Plan
from forecloud.msg import Goal
rclpy.init()
node = rclpy.create_node("mortal")
client = ActionClient(node, Plan, "/forecloud/plan")
client.wait_for_server()
goal = Plan.Goal(budget_secs=6.0, n_steps=30)
goal.goal.select = Goal.SELECT_BODY
goal.goal.reach = Goal.REACH_POSE
goal.goal.motion.translation.x = 0.08
goal.goal.tolerance = 0.0
got = lambda m: print("working", flush=True)
future = client.send_goal_async(goal, feedback_callback=got)
rclpy.spin(node)
"""


def goal(**fields) -> Goal:
    """The body nearest to the middle goes 8 cm along x."""
    made = Goal(select=Goal.SELECT_BODY, reach=Goal.REACH_POSE, point=Point(z=0.1))
    made.motion.translation.x = 0.08
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Planner:
    """Clients of the planner."""

    def __init__(self, ros):
        self._ros = ros
        self._evaluate = ros.create_client(Evaluate, "/forecloud/evaluate")
        self._plan = ActionClient(ros, Plan, "/forecloud/plan")
        self.feedback: list = []
        # What an action is made of, for what an action's client never asks.
        services = Plan.Impl.SendGoalService, CancelGoal, Plan.Impl.GetResultService
        names = "send_goal", "cancel_goal", "get_result"
        part = lambda name, kind: ros.create_client(kind, f"/forecloud/plan/_action/{name}")
        self.raw = {name: part(name, kind) for name, kind in zip(names, services, strict=True)}

    def wait(self) -> Planner:
        wait_for(self._evaluate.service_is_ready, "~/evaluate")
        wait_for(self._plan.server_is_ready, "~/plan")
        for name, client in self.raw.items():
            wait_for(client.service_is_ready, f"~/plan: {name}")
        return self

    def send(self, plans, **fields):
        given = {"goal": goal(), "n_steps": 5, **fields}
        return self._evaluate.call_async(Evaluate.Request(plans=plans, **given))

    def evaluate(self, plans, **fields):
        return wait_for_future(self.send(plans, **fields))

    def begin(self, **fields):
        """The handle of an accepted goal."""
        asked = Plan.Goal(**{"goal": goal(), "n_steps": 30, **fields})
        handle = wait_for_future(self._plan.send_goal_async(asked, self.feedback.append))
        assert handle.accepted
        return handle

    def plan(self, **fields):
        return wait_for_future(self.begin(**fields).get_result_async())

    def close(self):
        for client in [self._evaluate, *self.raw.values()]:
            self._ros.destroy_client(client)
        self._plan.destroy()


@pytest.fixture
def planner(ros):
    made = Planner(ros)
    yield made
    made.close()


@pytest.fixture
def node(ros, start_node, stream, planner):  # noqa: F811
    """A node that predicts."""
    started = start_node(*SMALL)
    predictions, _ = subscribe(ros)
    stream()
    predictions.wait_for(1)
    planner.wait()
    started.predictions = predictions
    return started


def test_plans_are_judged_and_the_best_is_told(node, recording, planner):
    plans = [scaled(plan_of(recording), factor) for factor in (1.0, -2.0, 0.0)]
    answer = planner.evaluate(plans, want_prediction=True)
    assert answer.success, answer.message
    assert answer.n_evaluated == len(answer.costs) == 3
    costs = [c.cost for c in answer.costs]
    assert answer.best == costs.index(min(costs))
    assert all(c.cost == pytest.approx(c.reach) for c in answer.costs), "the only weight"
    assert all(0.0 <= c.success_probability <= 1.0 for c in answer.costs)
    (prediction,) = answer.prediction
    assert prediction.n_steps == 5
    reached = planner.evaluate(plans[:1], goal=goal(tolerance=1.0))
    assert reached.success and "already reached" in reached.message


def test_what_makes_no_sense_is_refused_with_the_reason(node, recording, planner):
    good = plan_of(recording)
    beyond = scaled(plan_of(recording), 1000.0)
    other = plan_of(recording)
    other.joint_names[0] = "x"
    nan = plan_of(recording)
    nan.points[0].positions[0] = math.nan
    empty = goal(select=Goal.SELECT_PIXELS)
    empty.mask.encoding = "mono8"
    far = goal()
    far.motion.translation.x = 9.0
    nothing = goal(select=Goal.SELECT_REGION)
    nothing.region.min.z = nothing.region.max.z = 5.0
    for plans, asked, told in [
        ([], goal(), "0 plans: send 1 to 256"),
        ([good] * 257, goal(), "257 plans"),
        ([good, beyond], goal(), "plan 1: point"),
        ([other], goal(), "no joint 'x'"),
        ([nan], goal(), "at NaN"),
        ([good], empty, "goal: mask: 0 x 0 pixels"),
        ([good], far, "outside of the workspace"),
        ([good], nothing, "no particle lies in"),
        ([good], goal(kappa=math.nan), "goal: kappa: NaN"),
        ([good], goal(reach=7), "goal: reach: 7"),
    ]:
        answer = planner.evaluate(plans, goal=asked)
        assert not answer.success and told in answer.message, answer.message
    for fields, told in [
        ({"budget_secs": -1.0}, "budget_secs is -1 s: ask for 0 to 600 s"),
        ({"budget_secs": 0.0}, "would never end"),
        ({"n_steps": 101}, "n_steps is 101: ask for 1 to 100"),
        ({"joint_names": ["x"]}, "no joint 'x'"),
        ({"tool_links": ["spoon"]}, "no link 'spoon'"),
        ({"goal": far}, "outside of the workspace"),
    ]:
        ended = planner.plan(**fields)
        assert ended.status == GoalStatus.STATUS_ABORTED
        assert not ended.result.success and told in ended.result.message, ended.result.message
    assert node.running() and "panicked" not in node.log


def test_a_plan_is_found_and_told_of_and_evaluates_to_its_cost(node, planner):
    ended = planner.plan(budget_secs=0.0, max_plans=16, seed=1)
    result = ended.result
    assert ended.status == (GoalStatus.STATUS_SUCCEEDED if result.success else GoalStatus.STATUS_ABORTED)
    assert 0 < result.n_plans <= 16, result.message
    assert result.plan.header.stamp.sec > 0 and len(result.plan.joint_names) == 14
    assert all(len(p.positions) == 14 for p in result.plan.points)
    assert result.cost.cost <= result.idle.cost
    assert planner.feedback and planner.feedback[-1].feedback.n_plans == result.n_plans
    ended = planner.plan(goal=goal(tolerance=1.0))
    assert ended.status == GoalStatus.STATUS_ABORTED, "without a plan it has not succeeded"
    assert not ended.result.success and ended.result.message.startswith("the goal is reached already")


def test_a_cancelled_goal_is_answered_soon(node, planner):
    handle = planner.begin(budget_secs=60.0, goal=goal(tolerance=0.0), n_steps=100)
    result = handle.get_result_async()
    time.sleep(0.5)
    begun = time.monotonic()
    wait_for_future(handle.cancel_goal_async())
    ended = wait_for_future(result)
    assert ended.status == GoalStatus.STATUS_CANCELED and ended.result.message.startswith("cancelled")
    # 0.3 s, and a loaded machine's share.
    assert time.monotonic() - begun < 1.0


def test_cancelled_dead_and_many_clients_get_their_answers(ros, node, recording, planner):
    handle = planner.begin(budget_secs=60.0, goal=goal(tolerance=0.0))
    wait_for(lambda: planner.feedback, "feedback")
    result = handle.get_result_async()
    assert wait_for_future(handle.cancel_goal_async()).goals_canceling
    ended = wait_for_future(result)
    assert ended.status == GoalStatus.STATUS_CANCELED
    assert ended.result.message.startswith("cancelled")
    # A client that dies while its plan is looked for.
    mortal = subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, env=os.environ)
    assert mortal.stdout.readline() == b"working\n"
    mortal.send_signal(signal.SIGKILL)
    mortal.wait()
    # Ten at once, behind it and behind one another: all are answered.
    waiting = [planner.send([plan_of(recording)]) for _ in range(10)]
    n_before = len(node.predictions.messages)
    node.predictions.wait_for(n_before + 2)
    answers = [wait_for_future(answer) for answer in waiting]
    assert all(answer.success or "busy" in answer.message for answer in answers)
    assert any(answer.success for answer in answers)
    assert node.running() and "panicked" not in node.log


GOAL = """
select: {body: [0.0, 0.0, 0.1]}
reach: {pose: {translation: [0.08, 0.0, 0.0]}}
"""
PLANS = """
plans:
  - joint_names: [left_joint_1]
    points: [{time: 0.0, positions: [0.05]}, {time: 0.5, positions: [0.175]}]
"""


def test_the_node_tells_the_tools_costs_to_the_bit(ros, recording, start_node, planner, tmp_path):
    start_node(*SMALL)
    predictions, _ = subscribe(ros)
    planner.wait()
    player = Player(ros, recording)
    player.wait_for_subscriber()
    player.play(answered=lambda n: predictions.wait_for(n - 1))
    predictions.wait_for(5)  # of 6 frames, the first has no history; the tool begins at the last
    plan = JointTrajectory(joint_names=["left_joint_1"])
    plan.points = [JointTrajectoryPoint(positions=[q]) for q in (0.05, 0.175)]
    plan.points[1].time_from_start.nanosec = 500_000_000
    answer = planner.evaluate([plan])
    player.close()
    assert answer.success, answer.message
    (tmp_path / "goal.yaml").write_text(GOAL)
    (tmp_path / "plans.yaml").write_text(PLANS)
    tool = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "forecloud"
    command = [tool, "evaluate", ROOT / "tests/data/tiny_push", "--at", "0.5", "--particles", "256"]
    command += ["--goal", tmp_path / "goal.yaml", "--plans", tmp_path / "plans.yaml"]
    done = subprocess.run([*command, "--steps", "5", "--json"], capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["costs"]
    assert told == {name: getattr(answer.costs[0], name) for name in told}


def joints(recording):
    return next(m for m in recording if m.topic == "/joint_states")


def test_what_cameras_saw_long_ago_is_not_planned_from(ros, recording, start_node, planner):
    start_node(*SMALL)
    predictions, _ = subscribe(ros)
    planner.wait()
    player = Player(ros, recording)
    player.wait_for_subscriber()
    player.play(answered=lambda n: predictions.wait_for(n - 1))
    predictions.wait_for(5)
    assert planner.evaluate([plan_of(recording)]).success
    # The cameras fall silent; the joints go on.
    for i in range(30):
        player.publishers["/joint_states"].publish(shifted(joints(recording), 10**9 + i * 10**8).data)
        time.sleep(0.1)
    answer = planner.evaluate([plan_of(recording)])
    told = "no frame was predicted in 2 s: the last frame is "
    assert not answer.success and answer.message.startswith(told), answer.message
    assert " s old: do the cameras still send?" in answer.message
    ended = planner.plan(budget_secs=0.5)
    assert ended.status == GoalStatus.STATUS_ABORTED and told in ended.result.message
    # What is heard again is planned from again (here after a jump back in time).
    fresh = Stream(player, PERIOD_SECS)
    fresh.start()
    wait_for(lambda: planner.evaluate([plan_of(recording)]).success, "frames to count again")
    fresh.stop()
    player.close()


def test_a_goal_that_nobody_waits_for_is_told_of_and_can_be_cancelled(ros, node, recording, planner):
    handle = planner.begin(goal=goal(tolerance=0.0), budget_secs=0.0, max_plans=2**32 - 1)
    wait_for(lambda: planner.feedback, "feedback")
    # All at once, by a client that keeps all answers (rclpy's keep ten that were not taken yet).
    qos = QoSProfile(depth=N_BURST)
    crowd = ros.create_client(Evaluate, "/forecloud/evaluate", qos_profile=qos)
    wait_for(crowd.service_is_ready, "~/evaluate")
    request = Evaluate.Request(plans=[plan_of(recording)], goal=goal(), n_steps=5)
    waiting = [crowd.call_async(request) for _ in range(N_BURST)]
    refused = lambda: [w for w in waiting if w.done()]
    wait_for(lambda: len(refused()) == N_BURST - 16, "refusals")
    for told in refused():
        message = told.result().message
        assert message.startswith("busy with earlier requests: ~/plan has been working on a request for ")
        assert "ros2 service call /forecloud/plan/_action/cancel_goal" in message
    node.wait_for_log("WARN ~/plan has been working on a request for 10.", "(budget_secs 0); 16 more wait")
    # As the answer says: by who does not know the goal.
    client = ros.create_client(CancelGoal, "/forecloud/plan/_action/cancel_goal")
    wait_for(client.service_is_ready, "the service")
    wait_for_future(client.call_async(CancelGoal.Request()))
    assert wait_for_future(handle.get_result_async()).status == GoalStatus.STATUS_CANCELED
    assert sum(wait_for_future(answer).success for answer in waiting) == 16
    ros.destroy_client(client)
    ros.destroy_client(crowd)


def test_goals_of_an_action_are_kept_as_rcl_keeps_them(ros, node, planner):
    # Latched, as the action's own clients have it: a status that nobody was found for is not lost.
    statuses = Received(
        ros, "/forecloud/plan/_action/status", "action_msgs/msg/GoalStatusArray", latched=True
    )

    def stands(handle):
        """The last status of a goal that was told of."""
        told = statuses.messages[-1].status_list if statuses.messages else []
        return next((s.status for s in told if s.goal_info.goal_id == handle.goal_id), None)

    first = planner.begin(goal=goal(tolerance=0.0), budget_secs=60.0)
    wait_for(lambda: planner.feedback, "feedback")
    wait_for(lambda: stands(first) == GoalStatus.STATUS_EXECUTING, "its status")
    # Behind it one that is not begun: cancelled, it ends at once.
    second = planner.begin(budget_secs=60.0)
    assert wait_for_future(second.cancel_goal_async()).return_code == CancelGoal.Response.ERROR_NONE
    ended = wait_for_future(second.get_result_async())
    assert ended.status == GoalStatus.STATUS_CANCELED
    assert ended.result.message == "cancelled before it started"
    # The same id once more, and ids that nobody has sent.
    with_id = lambda uuid: Plan.Impl.SendGoalService.Request(goal_id=uuid, goal=Plan.Goal(goal=goal()))
    raw = planner.raw
    assert not wait_for_future(raw["send_goal"].call_async(with_id(first.goal_id))).accepted
    nobody = UUID(uuid=[7] * 16)
    result = lambda uuid: raw["get_result"].call_async(Plan.Impl.GetResultService.Request(goal_id=uuid))
    told = wait_for_future(result(nobody))
    assert told.status == GoalStatus.STATUS_UNKNOWN and "no goal has this id" in told.result.message
    cancel = lambda **info: wait_for_future(
        raw["cancel_goal"].call_async(CancelGoal.Request(goal_info=GoalInfo(**info)))
    )
    assert cancel(goal_id=nobody).return_code == CancelGoal.Response.ERROR_UNKNOWN_GOAL_ID
    assert cancel(goal_id=second.goal_id).return_code == CancelGoal.Response.ERROR_GOAL_TERMINATED
    # All of them; two wait for the result.
    waiting = [result(first.goal_id), result(first.goal_id)]
    told = cancel()
    assert told.return_code == CancelGoal.Response.ERROR_NONE
    assert [info.goal_id for info in told.goals_canceling] == [first.goal_id]
    for answer in [*waiting, result(first.goal_id)]:
        assert wait_for_future(answer).status == GoalStatus.STATUS_CANCELED
    wait_for(lambda: stands(first) == GoalStatus.STATUS_CANCELED, "its status to be told")
    assert not cancel().goals_canceling, "none is left"
    # Half a second is too short for any plan.
    ended = planner.plan(budget_secs=0.0, max_plans=4, n_steps=5)
    assert ended.status == GoalStatus.STATUS_ABORTED and ended.result.message.startswith("no plan is good enough")
    # By the time at which it was accepted, which answer and status tell.
    early = planner.begin(goal=goal(tolerance=0.0), budget_secs=60.0)
    stamp = wait_for(lambda: [s for s in all_of(statuses) if s.goal_id == early.goal_id], "its status")[0].stamp
    assert stamp == early.stamp and abs(stamp.sec - time.time()) < 60
    late = planner.begin(budget_secs=60.0)
    assert [info.goal_id for info in cancel(stamp=stamp).goals_canceling] == [early.goal_id]
    assert [info.goal_id for info in cancel().goals_canceling][-1:] == [late.goal_id]
    statuses.close()


def all_of(statuses) -> list[GoalInfo]:
    """The goals of the last message."""
    return [s.goal_info for s in statuses.messages[-1].status_list] if statuses.messages else []


def test_goals_that_are_cancelled_make_room_for_others(node, recording, planner):
    planner.begin(goal=goal(tolerance=0.0), budget_secs=60.0)
    wait_for(lambda: planner.feedback, "feedback")
    for _ in range(16):
        waiting = planner.begin(budget_secs=60.0)
        assert wait_for_future(waiting.cancel_goal_async()).goals_canceling
    behind = planner.begin(budget_secs=60.0)
    result = behind.get_result_async()
    time.sleep(0.3)
    assert not result.done(), "it waits, and is not refused"
    wait_for_future(planner.raw["cancel_goal"].call_async(CancelGoal.Request()))
    assert wait_for_future(result).status == GoalStatus.STATUS_CANCELED


def test_the_node_that_ends_answers_who_waits(node, planner):
    running = planner.begin(goal=goal(tolerance=0.0), budget_secs=60.0).get_result_async()
    wait_for(lambda: planner.feedback, "feedback")
    waiting = planner.begin(budget_secs=60.0).get_result_async()
    node.process.send_signal(signal.SIGINT)
    for answer in (running, waiting):
        ended = wait_for_future(answer)
        assert ended.status == GoalStatus.STATUS_ABORTED
        assert ended.result.message == "the node is ending"
    assert node.process.wait(20) == 0


def test_the_node_that_ends_answers_all_who_ask(node, recording, planner):
    """What is worked on, what waits behind it, and what comes with the signal."""
    plans = [plan_of(recording)] * 256
    judged = [planner.send(plans, n_steps=30, budget_secs=60.0)]
    waiting = planner.begin(budget_secs=60.0)
    judged += [planner.send(plans[:1]) for _ in range(4)]
    result = waiting.get_result_async()
    node.process.send_signal(signal.SIGINT)
    for answer in judged:
        told = wait_for_future(answer)
        assert not told.success and told.message == "the node is ending"
    assert wait_for_future(result).result.message == "the node is ending"
    assert node.process.wait(20) == 0


def test_the_action_is_remapped_as_a_whole(ros, recording, start_node, stream):  # noqa: F811
    start_node(*SMALL, "-r", "~/plan:=/robot/find_plan")
    stream()
    client = ActionClient(ros, Plan, "/robot/find_plan")
    wait_for(client.server_is_ready, "the action by its new name")
    asked = Plan.Goal(goal=goal(), n_steps=5, max_plans=4)
    handle = wait_for_future(client.send_goal_async(asked))
    told = wait_for_future(handle.get_result_async()).result.message
    assert told.startswith("no plan is good enough"), told
    of_node = lambda: [name for name, _ in ros.get_service_names_and_types_by_node("forecloud", "/")]
    wait_for(lambda: not any("/forecloud/plan/" in name for name in of_node()), "the old name to go")
    assert any("/robot/find_plan/" in name for name in of_node())
    client.destroy()


def test_words_of_clients_are_cut_and_forge_no_line_of_the_log(node, recording, planner):
    forged = plan_of(recording)
    forged.joint_names[0] = "a\n2026-11-25T00:00:00Z  WARN forged\x1b[31m" + "x" * 1_000_000
    masked = goal(select=Goal.SELECT_PIXELS)
    masked.mask.encoding = "y\n" * 500_000
    for answer in [
        planner.evaluate([forged]),
        planner.evaluate([plan_of(recording)], goal=masked),
        planner.plan(budget_secs=0.5, joint_names=forged.joint_names[:1]).result,
    ]:
        assert not answer.success and len(answer.message) < 5000
        assert "\n" not in answer.message and "\x1b" not in answer.message
    assert "a\\n2026" in node.log and "\n2026-11-25T00:00:00Z  WARN forged" not in node.log
    assert len(node.log) < 50_000


def test_one_wait_for_a_frame_serves_all(ros, recording, start_node, planner):
    start_node(*SMALL)
    planner.wait()
    begun = time.monotonic()
    waiting = [planner.send([plan_of(recording)]) for _ in range(10)]
    for answer in waiting:
        assert wait_for_future(answer).message.startswith("no frame was predicted in 2 s: ")
    assert time.monotonic() - begun < 8.0, "not 2 s each"
