"""Objects as tf frames (`object_frames_secs`): where they are and will be, on /tf."""

from __future__ import annotations

import pytest
from conftest import NodeProcess, Received, wait_for, wait_for_future
from std_srvs.srv import SetBool

TF = "tf2_msgs/msg/TFMessage"
# Busy machines are late, and late predictions have no frames.
FRAMES = ("-p", "object_frames_secs:=[0.0, 0.2, 0.25, 0.5]", "-p", "horizon:=5")
PATIENT = ("-p", "slow_timeout_secs:=10.0")


def nanos(stamp) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


class ObjectFrames(Received):
    """What /tf tells of objects: of each stamp, transforms by child frame."""

    def __init__(self, node):
        super().__init__(node, "/tf", TF)

    def by_stamp(self) -> dict[int, dict[str, object]]:
        found: dict[int, dict[str, object]] = {}
        for message in list(self.messages):
            for transform in message.transforms:
                if "/object_" in transform.child_frame_id:
                    assert transform.header.frame_id == "world"
                    found.setdefault(nanos(transform.header.stamp), {})[transform.child_frame_id] = transform
        return found


def test_frames_are_where_the_paths_say(ros, start_node, playing):
    start_node(*FRAMES, *PATIENT)
    frames, paths = ObjectFrames(ros), Received(ros, "/forecloud/object_paths", "forecloud/msg/ObjectPaths")
    paths.wait_for_publisher()
    playing()

    def of_both():
        told = {nanos(m.header.stamp): m for m in list(paths.messages) if m.objects}
        seen = frames.by_stamp()
        both = sorted(told.keys() & seen.keys())
        return [(told[at], seen[at]) for at in both] if len(both) > 2 else None

    for path, seen in wait_for(of_both, "frames of three predictions"):
        assert path.step_secs == pytest.approx(0.1)
        times = {"now": 0.0, "in_0.2s": 2.0, "in_0.25s": 2.5, "in_0.5s": 5.0}
        names = {f"forecloud/object_{o.id}/{name}" for o in path.objects for name in times}
        assert set(seen) == names
        for told in path.objects:
            for name, step in times.items():
                transform = seen[f"forecloud/object_{told.id}/{name}"].transform
                before, after = told.poses[int(step)].pose, told.poses[min(int(step) + 1, 5)].pose
                for axis in "xyz":
                    ends = [getattr(pose.position, axis) for pose in (before, after)]
                    wanted = ends[0] + (step % 1) * (ends[1] - ends[0])
                    assert getattr(transform.translation, axis) == pytest.approx(wanted, abs=1e-6)
                if step % 1 == 0:
                    for part in "xyzw":
                        turn = getattr(before.orientation, part)
                        assert getattr(transform.rotation, part) == pytest.approx(turn, abs=1e-6)


def test_times_beyond_the_prediction_have_no_frame(ros, start_node, playing):
    start_node("-p", "object_frames_secs:=[1.0, 0.0]", "-p", "horizon:=5", *PATIENT)
    frames = ObjectFrames(ros)
    playing()
    [*_, seen] = wait_for(lambda: len(found := frames.by_stamp()) > 1 and found.values(), "frames")
    assert {name.rsplit("/", 1)[1] for name in seen} == {"now"}


def test_stale_predictions_have_no_frames(ros, start_node, playing):
    """No prediction is as fresh as that."""
    start_node(*FRAMES, "-p", "slow_timeout_secs:=0.01")
    frames, predictions = ObjectFrames(ros), Received(ros, "/forecloud/prediction", "forecloud/msg/Prediction")
    predictions.wait_for_publisher()
    playing()
    predictions.wait_for(4)
    assert not frames.by_stamp()


def test_only_others_who_listen_to_tf_wake_it_and_a_pause_ends_the_frames(ros, start_node, playing):
    node = start_node(*FRAMES, *PATIENT)
    timings = Received(ros, "/forecloud/timing", "forecloud/msg/Timing")
    timings.wait_for_publisher()
    playing()
    node.wait_for_log("nobody subscribes to predictions")  # it listens to /tf itself
    assert not timings.messages
    frames = ObjectFrames(ros)
    wait_for(frames.by_stamp, "frames")
    pause = ros.create_client(SetBool, "/forecloud/pause")
    wait_for(pause.service_is_ready, "~/pause")
    wait_for_future(pause.call_async(SetBool.Request(data=True)))
    ros.destroy_client(pause)
    # What was under way when it paused may still come; later, nothing does.
    sent = Received(ros, "/camera_left/depth/image_raw", "sensor_msgs/msg/Image")

    def after_later_images() -> int:
        """Waits for a second of images; the stamp of the first of them."""
        n = len(sent.messages)
        wait_for(lambda: len(sent.messages) > n, "an image")
        first = nanos(sent.messages[n].header.stamp)
        wait_for(lambda: nanos(sent.messages[-1].header.stamp) > first + 10**9, "later images")
        return first

    first = after_later_images()
    n, n_frames = len(timings.messages), len(frames.by_stamp())
    assert max(frames.by_stamp()) <= first, "of what came after the pause"
    after_later_images()
    assert len(timings.messages) == n and len(frames.by_stamp()) == n_frames


def test_without_the_parameter_it_publishes_no_transforms(ros, start_node):
    node = start_node()
    node.wait_for_log("waits for messages")
    wait_for(lambda: ros.count_subscribers("/tf"), "its subscription")
    assert "forecloud" not in [info.node_name for info in ros.get_publishers_info_by_topic("/tf")]


def test_wrong_times_end_the_node_with_the_reason(ros):
    node = NodeProcess("-p", "object_frames_secs:=[0.5, 0.5]")
    assert node.wait_for_end() == 1
    assert "`object_frames_secs` has 0.5 twice" in node.log
