"""The node's services over DDS: ~/reset, ~/pause and ~/predict, and what bad requests come to."""

from __future__ import annotations


import pytest
from conftest import PERIOD_SECS, Received, wait_for, wait_for_future
from play import Player, Stream
from raw_request import RawRequests
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger
from test_diagnostics import WARN, Diagnostics
from trajectory_msgs.msg import JointTrajectory

from forecloud.srv import Predict

PREDICTION = "forecloud/msg/Prediction"
TIMING = "forecloud/msg/Timing"
# Few particles: what is tested does not depend on their number.
SMALL = ("-p", "horizon:=3", "-p", "n_particles:=256")


class Caller:
    """Clients of the node's services."""

    def __init__(self, ros, node_name="/forecloud"):
        self._ros = ros
        self._clients = {
            name: ros.create_client(kind, f"{node_name}/{name}")
            for name, kind in [("reset", Trigger), ("pause", SetBool), ("predict", Predict)]
        }

    def wait(self) -> Caller:
        for name, client in self._clients.items():
            wait_for(client.service_is_ready, f"the service {name}")
        return self

    def send(self, name, request):
        return self._clients[name].call_async(request)

    def reset(self):
        return wait_for_future(self.send("reset", Trigger.Request()))

    def pause(self, paused):
        return wait_for_future(self.send("pause", SetBool.Request(data=paused)))

    def predict(self, plans, n_steps=0):
        return wait_for_future(self.send("predict", Predict.Request(plans=plans, n_steps=n_steps)))

    def close(self):
        for client in self._clients.values():
            self._ros.destroy_client(client)


@pytest.fixture
def call(ros):
    caller = Caller(ros)
    yield caller
    caller.close()


@pytest.fixture
def stream(ros, recording):
    """Starts playing the recording over and over; ended with the test."""
    streams = []

    def start(rate=1.0) -> Stream:
        player = Player(ros, recording)
        streams.append((Stream(player, PERIOD_SECS, rate), player))
        return streams[-1][0].start()

    yield start
    for stream, player in streams:
        stream.stop()
        player.close()


def subscribe(ros):
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    timings = Received(ros, "/forecloud/timing", TIMING)
    for received in (predictions, timings):
        received.wait_for_publisher()
    return predictions, timings


def stamp_of(message) -> tuple[int, int]:
    return message.header.stamp.sec, message.header.stamp.nanosec


def secs(message) -> float:
    return message.header.stamp.sec + message.header.stamp.nanosec / 1e9


def nanos(point) -> int:
    return point.time_from_start.sec * 10**9 + point.time_from_start.nanosec


SLOWER = 3


def plan_of(recording, sec: int | None = None, **changes) -> JointTrajectory:
    """The recording's first plan, from the newest frame's stamp on: slower, and from wherever the robot is
    by then."""
    first = next(m for m in recording if m.topic == "/planned_joints")
    plan = deserialize_message(first.data, JointTrajectory)
    plan.header.stamp.sec = plan.header.stamp.nanosec = 0
    plan.points = [point for point in plan.points if nanos(point)]
    for point in plan.points:
        at = point.time_from_start
        at.sec, at.nanosec = divmod(SLOWER * nanos(point), 10**9)
    if sec is not None:
        plan.header.stamp.sec = sec
    for name, value in changes.items():
        setattr(plan, name, value)
    return plan


def scaled(plan: JointTrajectory, factor: float) -> JointTrajectory:
    """The plan with the robot moving `factor` times as far."""
    first = list(plan.points[0].positions)
    for point in plan.points:
        point.positions = [a + factor * (b - a) for a, b in zip(first, point.positions)]
    return plan


def test_the_live_plan_as_candidate_is_answered_with_the_live_prediction(
    ros, recording, start_node, stream, call
):
    start_node(*SMALL)
    predictions, timings = subscribe(ros)
    playing = stream()
    predictions.wait_for(4)
    playing.stop()
    # What was sent is done with: every frame but the last, which may wait for a joint state.
    wait_for(
        lambda: timings.messages and timings.messages[-1].frames_in >= playing.n_frames - 1,
        "the last frame",
    )
    answer = call.wait().predict([plan_of(recording)])  # which frame is the newest?
    assert answer.success, answer.message
    [other] = answer.predictions
    live = next(m for m in predictions.messages if stamp_of(m) == stamp_of(other))
    assert live is predictions.messages[-1]
    newest = max(
        (deserialize_message(m.data, JointTrajectory) for m in playing.plans),
        key=lambda plan: (secs(plan) <= secs(live), secs(plan)),
    )
    assert stamp_of(newest) == stamp_of(live)

    answer = call.predict([newest, scaled(plan_of(recording), -2.0), newest])
    assert answer.success, answer.message
    same, moved, again = answer.predictions
    assert same == live, "bit for bit"
    assert again == live, "whatever was rolled out before"
    assert list(moved.displacements) != list(live.displacements)
    assert list(moved.sigma) != list(live.sigma)
    moved.displacements = live.displacements
    moved.sigma, moved.sigma_90 = live.sigma, live.sigma_90
    assert moved == live, "but for the motion and how sure it is"

    longer = call.predict([newest], n_steps=5)
    assert longer.predictions[0].n_steps == 5
    n = 3 * 3 * live.n_particles
    assert list(longer.predictions[0].displacements[:n]) == list(live.displacements)


def test_live_predictions_are_the_same_with_and_without_candidates(
    ros, recording, start_node, call
):
    node = start_node(*SMALL)
    predictions, _ = subscribe(ros)
    call.wait()
    n_predictable = 5  # of 6 frames: the first has no history
    player = Player(ros, recording)
    player.wait_for_subscriber()
    player.play(answered=lambda n: predictions.wait_for(n - 1))
    without = list(predictions.wait_for(n_predictable))
    answer = call.reset()
    assert answer.success and "discarded the history" in answer.message
    predictions.messages.clear()

    answers = []

    def ask(_):
        request = Predict.Request(plans=[scaled(plan_of(recording), -1.0)] * 4)
        answers.append(call.send("predict", request))

    predictions.on_message = ask
    player.play(answered=lambda n: predictions.wait_for(n - 1))
    with_candidates = list(predictions.wait_for(n_predictable))
    predictions.on_message = None
    wait_for(lambda: answers and all(answer.done() for answer in answers), "all answers")
    assert [stamp_of(m) for m in without] == [stamp_of(m) for m in with_candidates]
    assert without == with_candidates, "bit for bit"
    done = [answer.result() for answer in answers]
    assert sum(answer.success for answer in done) >= 1, done
    stamps = {stamp_of(m) for m in without}
    assert {stamp_of(p) for answer in done for p in answer.predictions} <= stamps
    player.close()
    assert node.running()


def test_reset_forgets_the_history(ros, start_node, stream, call):
    start_node(*SMALL)
    predictions, timings = subscribe(ros)
    stream()
    predictions.wait_for(3)
    wait_for(lambda: timings.messages, "timings")
    before = timings.messages[-1].frames_without_history
    answer = call.wait().reset()
    assert answer.success and "kept calibrations" in answer.message

    def counted() -> bool:
        timings.wait_for(len(timings.messages) + 2)
        # Again: on a busy machine a frame that is passed over is the next one's history.
        return timings.messages[-1].frames_without_history > before or not call.reset().success

    wait_for(counted, "a frame without history")
    last = timings.messages[-1]
    assert last.frames_rejected == last.time_jumps == 0


def test_pause_lets_frames_pass_and_remembers_them(ros, start_node, stream, call):
    start_node(*SMALL)
    predictions, timings = subscribe(ros)
    playing = stream()
    predictions.wait_for(2)
    answer = call.wait().pause(True)
    assert answer.success and answer.message.startswith("paused")
    refused = call.predict([])
    assert not refused.success
    n_sent = playing.n_frames
    wait_for(lambda: playing.n_frames >= n_sent + 5, "five more frames")
    n_paused_at = len(predictions.messages)
    refused = call.predict([JointTrajectory()])
    assert not refused.success and "paused: call ~/pause" in refused.message
    answer = call.pause(False)
    assert answer.success and answer.message == "predicting"
    messages = predictions.wait_for(n_paused_at + 1)
    gap_secs = secs(messages[n_paused_at]) - secs(messages[n_paused_at - 1])
    assert gap_secs > 0.35, "no frame between was predicted from"
    wait_for(lambda: timings.messages[-1].frames_paused, "its timing")
    last = timings.messages[-1]
    assert last.frames_paused >= 3
    assert last.frames_without_history == 1, "the history was remembered"
    n_done = last.frames_used + last.frames_without_history + last.frames_paused
    assert last.frames_in == n_done + last.frames_dropped_busy


def test_a_request_without_frames_says_what_is_missing(ros, recording, start_node, call):
    # What the test before sent to its node must not come to this one.
    topic = "/robot_description"
    wait_for(lambda: not ros.count_publishers(topic), f"the last publisher of {topic} to be gone")
    start_node(*SMALL, "-p", "robot:=required")
    answer = call.wait().predict([plan_of(recording)])
    assert not answer.success and answer.message.startswith("no frame was predicted in 2 s: ")
    assert "no robot description yet" in answer.message and "publish the URDF" in answer.message
    player = Player(ros, recording)
    player.wait_for_subscriber()
    assert not answer.predictions

    def told():
        return call.predict([plan_of(recording)]).message

    wait_for(lambda: "no frame was predicted from yet" in told(), "the robot description to come")
    player.close()


def test_a_robot_description_that_cannot_be_used_leaves_the_one_before(
    ros, recording, start_node, stream, call
):
    diagnostics = Diagnostics(ros)
    start_node(*SMALL)
    predictions, _ = subscribe(ros)
    stream()
    predictions.wait_for(1)
    call.wait()
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publisher = ros.create_publisher(String, "/robot_description", qos)
    wait_for(publisher.get_subscription_count, "a subscriber of the description")
    for useless in ("<robot name='x'><link name='a'/></robot>", "not xml"):
        publisher.publish(String(data=useless))
        told = "no link that a joint moves" if useless.startswith("<") else "URDF): "
        # Not by the log, which warns of one status every five seconds at most.
        newest = "the newest one can't be used: the one before is"
        diagnostics.wait_for("robot description", WARN, newest, told)
        predictions.wait_for(len(predictions.messages) + 5)
        answer = call.predict([plan_of(recording)])
        assert answer.success, answer.message
    ros.destroy_publisher(publisher)


def test_requests_that_make_no_sense_are_refused_with_the_reason(
    ros, recording, start_node, stream, call
):
    node = start_node(*SMALL)
    predictions, _ = subscribe(ros)
    stream()
    predictions.wait_for(1)
    call.wait()
    good = plan_of(recording)
    names = list(good.joint_names)

    def points(*times):
        plan = plan_of(recording)
        plan.points = [plan.points[0]] * len(times)
        data = [serialize_message(p) for p in plan.points]
        plan.points = [deserialize_message(d, type(p)) for d, p in zip(data, plan.points)]
        for point, at in zip(plan.points, times):
            point.time_from_start.sec = at
        return plan

    nan = plan_of(recording)
    nan.points[0].positions = [float("nan")] * len(names)
    for plans, n_steps, told in [
        ([], 0, "0 plans: send 1 to 64"),
        ([good] * 65, 0, "65 plans: send 1 to 64"),
        ([good], 101, "n_steps is 101: ask for 1 to 100"),
        ([good], 2**32 - 1, "ask for 1 to 100"),
        ([good] * 64, 1, None),
        ([good, plan_of(recording, joint_names=["x", *names[1:]])], 0,
         "plan 1: planned motion: the robot has no joint 'x'; its joints are: left_joint_1"),
        ([plan_of(recording, joint_names=names[1:])], 0, "point 0 has"),
        ([plan_of(recording, joint_names=[names[1], *names[1:]])], 0, "twice"),
        ([points(0, 1, 1)], 0, "time of point 2 is not after that of point 1"),
        ([points(-1)], 0, "time of point 0"),
        ([nan], 0, f"point 0 puts '{names[0]}' at nan"),
        ([plan_of(recording, sec=2**31 - 1)], 0, "set header.stamp in the time of the images"),
    ]:  # fmt: skip
        answer = call.predict(plans, n_steps)
        if told is None:
            assert answer.success and len(answer.predictions) == 64, answer.message
            continue
        assert not answer.success and not answer.predictions
        assert told.lower() in answer.message.lower(), answer.message
    stops = call.predict([JointTrajectory()])
    assert stops.success, "a plan without points stops the robot"
    assert node.running() and "panicked" not in node.log


def test_a_busy_node_refuses_and_goes_on_predicting(ros, recording, start_node, stream, call):
    start_node(*SMALL)
    predictions, _ = subscribe(ros)
    stream()
    predictions.wait_for(1)
    call.wait()
    request = Predict.Request(plans=[plan_of(recording)] * 64, n_steps=2)
    answers = [call.send("predict", request) for _ in range(6)]
    wait_for(lambda: any(answer.done() for answer in answers), "a first answer")
    n_before = len(predictions.messages)
    predictions.wait_for(n_before + 2)
    results = [wait_for_future(answer) for answer in answers]
    refused = [result for result in results if not result.success]
    assert 1 <= len(refused) <= 4, "one runs, two wait"
    assert all(result.message.startswith("busy") for result in refused), refused
    assert all(len(result.predictions) == 64 for result in results if result.success)


def test_garbage_on_the_services_does_not_end_it(ros, recording, start_node, stream, call):
    node = start_node(*SMALL)
    predictions, _ = subscribe(ros)
    stream()
    predictions.wait_for(1)
    call.wait()
    good = {
        "predict": ("forecloud/srv/Predict", Predict.Request(plans=[plan_of(recording)] * 2)),
        "pause": ("std_srvs/srv/SetBool", SetBool.Request(data=True)),
        "reset": ("std_srvs/srv/Trigger", Trigger.Request()),
        "set_parameters": (
            "rcl_interfaces/srv/SetParameters",
            SetParameters.Request(parameters=[Parameter("seed", value=3).to_parameter_msg()] * 3),
        ),
        "get_parameters": (
            "rcl_interfaces/srv/GetParameters",
            GetParameters.Request(names=["seed", "horizon"]),
        ),
    }
    for name, (type_name, request) in good.items():
        requests = RawRequests(ros, f"/forecloud/{name}", type_name)
        wait_for(requests.n_services, f"the service {name}")
        sent = [requests.send(data) for data in garbage(serialize_message(request))]
        assert sum(sent) >= 4, "a type of fixed size takes no longer message"
        if name == "pause":  # one that can be read: what is sent does arrive
            requests.send(serialize_message(request))
            node.wait_for_log("pause: paused")
        requests.close()
    # It still answers, and predicts.
    assert call.pause(False).success
    n_before = len(predictions.messages)
    predictions.wait_for(n_before + 2)
    # Some of what it got can be read, and is worked on before this.
    answer = wait_for(
        lambda: None if (told := call.predict([plan_of(recording)])).message.startswith("busy") else told,
        "an answer that is not `busy`",
    )
    assert answer.success, answer.message
    assert node.running() and "panicked" not in node.log


def garbage(good: bytes) -> list[bytes]:
    """What may come instead of a request.

    Not lengths that are far beyond the message: for those, rmw_fastrtps_cpp allocates before any
    node's code runs (it checks them for topics, but not for services).
    """
    head = b"\x00\x01\x00\x00"
    return [
        b"\x00",
        head,
        *(good[:n] for n in range(4, len(good), max(1, len(good) // 20))),
        good + bytes(300),
        good[:-1] + b"\x07",
        good.replace(b"left", b"\xff\xfe\x80\x00").replace(b"seed", b"\x80\x81\x82\x83"),
        good.replace(b"joint", bytes(5)),
    ]
