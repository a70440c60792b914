"""Objects under numbers that stay: ~/objects, ~/object_paths, ~/object_markers and ~/pose_at."""

from __future__ import annotations

import math

import pytest
from builtin_interfaces.msg import Time
from conftest import Received, wait_for, wait_for_future
from geometry_msgs.msg import Point
from std_srvs.srv import SetBool

from forecloud.msg import Prediction
from forecloud.srv import PoseAt

KINDS = ("support", "robot", "resting", "moving", "flying")
TOPICS = {
    "objects": "vision_msgs/msg/Detection3DArray",
    "object_paths": "forecloud/msg/ObjectPaths",
    "object_markers": "visualization_msgs/msg/MarkerArray",
}


def nanos(stamp) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


def time_of(nanoseconds: int) -> Time:
    return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)


@pytest.fixture
def ask(ros):
    client = ros.create_client(PoseAt, "/forecloud/pose_at")

    def call(**request) -> PoseAt.Response:
        wait_for(client.service_is_ready, "the service ~/pose_at")
        return wait_for_future(client.call_async(PoseAt.Request(**request)))

    yield call
    ros.destroy_client(client)


def test_objects_are_told_alike_on_all_topics(ros, start_node, playing):
    start_node()
    outputs = {name: Received(ros, f"/forecloud/{name}", kind) for name, kind in TOPICS.items()}
    predictions = Received(ros, "/forecloud/prediction", "forecloud/msg/Prediction")
    for received in (predictions, *outputs.values()):
        received.wait_for_publisher()
    playing()

    def all_of_one():
        def by_stamp(messages, header):
            return {nanos(header(m).stamp): m for m in list(messages)}

        known = by_stamp(predictions.messages, lambda m: m.header)
        found = by_stamp(outputs["objects"].messages, lambda m: m.header)
        paths = by_stamp(outputs["object_paths"].messages, lambda m: m.header)
        marked = [m for m in list(outputs["object_markers"].messages) if m.markers]
        marks = by_stamp(marked, lambda m: m.markers[0].header)
        both = known.keys() & found.keys() & paths.keys() & marks.keys()
        both = [at for at in sorted(both) if found[at].detections]
        return [(known[at], found[at], paths[at], marks[at]) for at in both] if len(both) > 2 else None

    for prediction, detections, paths, markers in wait_for(all_of_one, "objects of three predictions"):
        n = prediction.n_particles
        assert prediction.version == Prediction.VERSION
        assert len(prediction.objects) == len(prediction.kinds) == n
        assert list(prediction.object_ids) == sorted(prediction.object_ids)
        assert max(prediction.objects) <= len(prediction.object_ids)
        assert nanos(prediction.objects_since) <= nanos(prediction.header.stamp)
        told = [path.id for path in paths.objects]
        assert told == [int(d.id) for d in detections.detections] == list(prediction.object_ids)
        assert detections.header == paths.header == prediction.header
        assert len(markers.markers) == 3 * len(told)
        for index, (path, detection) in enumerate(zip(paths.objects, detections.detections), 1):
            assert path.n_particles == list(prediction.objects).count(index) > 0
            assert len(path.poses) == prediction.n_steps + 1
            [result] = detection.results
            assert result.hypothesis.class_id == KINDS[path.kind]
            assert result.pose == path.poses[0]
            assert detection.bbox.center == path.poses[0].pose and detection.bbox.size == path.size
            for pose in path.poses:
                q = pose.pose.orientation
                assert abs(math.hypot(q.x, q.y, q.z, q.w) - 1) < 1e-6
                assert all(pose.covariance[7 * i] > 0 for i in range(6))
            x, y, z = (sum(getattr(p.pose.position, axis) for p in path.poses[:1]) for axis in "xyz")
            inside = [
                math.dist(prediction.positions[3 * i : 3 * i + 3], (x, y, z))
                for i in range(n)
                if prediction.objects[i] == index
            ]
            half = 0.5 * math.hypot(path.size.x, path.size.y, path.size.z)
            assert max(inside) < half + 1e-4


def test_where_an_object_will_be_is_answered_or_refused_with_the_reason(ros, start_node, playing, ask):
    start_node()
    received = Received(ros, "/forecloud/object_paths", TOPICS["object_paths"])
    received.wait_for_publisher()
    answer = ask(time=time_of(1))
    assert not answer.success and "nothing was predicted yet" in answer.message
    endless = playing()

    def answered():
        """An answer for the newest prediction's own paths."""
        seen = [m for m in list(received.messages) if m.objects]
        if not seen:
            return None
        message = seen[-1]
        path, stamp = message.objects[0], nanos(message.header.stamp)
        answer = ask(id=path.id, time=time_of(stamp + 250_000_000))
        by_stamp = {nanos(m.header.stamp): m for m in list(received.messages)}
        made_of = by_stamp.get(nanos(answer.predicted_from))
        return (answer, made_of, stamp) if answer.success and made_of else None

    answer, message, stamp = wait_for(answered, "an answer")
    [path] = [path for path in message.objects if path.id == answer.id]
    steps = (stamp + 250_000_000 - nanos(message.header.stamp)) / 1e9 / message.step_secs
    low = min(int(steps), len(path.poses) - 2)
    a, b = path.poses[low].pose.position, path.poses[low + 1].pose.position
    share = steps - low
    found = answer.pose.pose.pose.position
    for axis in "xyz":
        wanted = getattr(a, axis) + share * (getattr(b, axis) - getattr(a, axis))
        assert abs(getattr(found, axis) - wanted) < 1e-4
    assert answer.pose.header.frame_id == message.header.frame_id
    assert nanos(answer.pose.header.stamp) == stamp + 250_000_000
    assert 0 <= answer.age_secs < 2 and nanos(answer.latest) > nanos(answer.predicted_from)

    # The nearest to where one is; and what can't be answered.
    newest = nanos(answer.predicted_from)
    near = wait_for(
        lambda: (a := ask(point=Point(x=found.x, y=found.y, z=found.z), time=answer.latest)).success and a,
        "the nearest object",
    )
    assert near.id > 0
    late = ask(time=time_of(newest + 60 * 10**9))
    assert not late.success and "not within the prediction, which tells of" in late.message
    unknown = ask(id=2**63 + 1, time=time_of(newest))
    assert not unknown.success and f"object {2**63 + 1} is not seen" in unknown.message
    nowhere = ask(point=Point(x=math.nan), time=time_of(newest))
    assert not nowhere.success and "not finite" in nowhere.message

    # Old predictions are told as old, and never as new.
    endless.stop()
    stale = wait_for(
        lambda: (a := ask(time=time_of(newest))).message.startswith("the newest") and a, "a refusal"
    )
    assert not stale.success and stale.age_secs > 2 and "s old" in stale.message
    pause = ros.create_client(SetBool, "/forecloud/pause")
    wait_for(pause.service_is_ready, "~/pause")
    wait_for_future(pause.call_async(SetBool.Request(data=True)))
    paused = ask(time=time_of(newest))
    assert not paused.success and "paused" in paused.message
    ros.destroy_client(pause)


def test_nobody_who_listens_costs_nothing_and_is_no_publisher_of_old(ros, start_node, playing):
    """Without subscribers there are no objects; who comes late gets those of new frames only."""
    start_node()
    first = Received(ros, "/forecloud/prediction", "forecloud/msg/Prediction")
    first.wait_for_publisher()
    playing()
    before = nanos(first.wait_for(3)[-1].header.stamp)
    late = Received(ros, "/forecloud/objects", TOPICS["objects"])
    assert nanos(late.wait_for(1)[0].header.stamp) >= before
