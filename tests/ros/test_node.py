"""The installed node, over DDS: predictions out of a recording, and a clean end."""

from __future__ import annotations

import math
import signal
import struct
import time
from pathlib import Path

import pytest
from conftest import Received, wait_for
from play import Player

PREDICTION = "forecloud/msg/Prediction"
TIMING = "forecloud/msg/Timing"
POINTS = "sensor_msgs/msg/PointCloud2"


def play(ros, messages, rate=1.0):
    player = Player(ros, messages)
    player.wait_for_subscriber()
    player.play(rate)
    return player


def n_frames(messages):
    return sum(m.topic == "/camera_left/depth/image_raw" for m in messages)


def test_predicts_every_frame_that_has_a_history(ros, recording, start_node):
    start_node()
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    clouds = Received(ros, "/forecloud/predicted_points", POINTS)
    timings = Received(ros, "/forecloud/timing", TIMING)
    for received in (predictions, clouds, timings):
        received.wait_for_publisher()
    player = play(ros, recording)

    # The last frame may wait for a joint state that the recording ends before.
    def all_used():
        last = timings.messages[-1] if timings.messages else None
        return last and last.frames_in >= n_frames(recording) - 1 and last

    last = wait_for(all_used, "the last frame's timing")
    assert last.bad_messages == 0
    assert last.frames_rejected == last.frames_without_robot == 0
    assert last.frames_in == (
        last.frames_used + last.frames_dropped_busy + last.frames_without_history + last.frames_idle
    )
    predictions.wait_for(last.frames_used)
    clouds.wait_for(last.frames_used)
    assert len(predictions.messages) == len(timings.messages) == last.frames_used > 0
    stamps = [(m.header.stamp.sec, m.header.stamp.nanosec) for m in predictions.messages]
    assert stamps == sorted(set(stamps))
    assert stamps == [(m.header.stamp.sec, m.header.stamp.nanosec) for m in timings.messages]
    for prediction in predictions.messages:
        check_prediction(prediction)
    for timing in timings.messages:
        assert 0 < timing.publish_ms <= timing.latency_ms
        assert timing.decode_ms > 0
    check_points(predictions.messages[0], clouds.messages[0])
    player.close()


def check_prediction(prediction):
    n, steps = prediction.n_particles, prediction.n_steps
    assert n > 0 and steps > 0 and prediction.step_secs > 0
    assert prediction.header.frame_id == "world"
    assert len(prediction.positions) == 3 * n
    assert len(prediction.displacements) == 3 * n * steps
    assert len(prediction.colors) == 3 * n
    assert len(prediction.sources) == n
    assert len(prediction.sigma) == len(prediction.sigma_90) == n * steps
    radii = zip(prediction.sigma, prediction.sigma_90, strict=True)
    assert all(0 < half <= most < math.inf for half, most in radii)
    assert all(map(math.isfinite, prediction.positions))
    assert all(map(math.isfinite, prediction.displacements))
    assert {source >> 24 for source in prediction.sources} <= {0, 1}


def check_points(prediction, cloud):
    n = prediction.n_particles
    assert cloud.header == prediction.header
    assert [(f.name, f.offset) for f in cloud.fields] == [
        (name, 4 * i) for i, name in enumerate("x y z rgb dx dy dz step sigma".split())
    ]
    assert [f.datatype for f in cloud.fields] == [7] * 7 + [6, 7]
    assert (cloud.width, cloud.height) == (n * prediction.n_steps, 1)
    assert len(cloud.data) == cloud.row_step == cloud.width * cloud.point_step
    for step in range(prediction.n_steps):
        i = n - 1  # the last particle
        x, y, z, bgr, dx, dy, dz, at, sigma = struct.unpack_from(
            "<3f4s3fIf", bytes(cloud.data), (step * n + i) * cloud.point_step
        )
        moved = [
            sum(prediction.displacements[3 * (h * n + i) + axis] for h in range(step + 1))
            for axis in range(3)
        ]
        expected = [prediction.positions[3 * i + axis] + moved[axis] for axis in range(3)]
        assert [x, y, z] == pytest.approx(expected, abs=1e-5)
        assert [dx, dy, dz] == list(prediction.displacements[3 * (step * n + i) :][:3])
        assert [bgr[2], bgr[1], bgr[0]] == list(prediction.colors[3 * i :][:3])
        assert at == step + 1
        assert sigma == prediction.sigma[step * n + i]


def moved(messages, **topics):
    """The messages with other topics: by name without slashes, or all but /tf into `namespace`."""
    namespace = topics.pop("namespace", "")
    names = {f"/{name.replace('__', '/')}": topic for name, topic in topics.items()}

    def topic_of(message):
        topic = message.topic
        return names.get(topic, topic if topic.startswith("/tf") else namespace + topic)

    return [type(m)(topic_of(m), m.type_name, m.log_time_ns, m.data) for m in messages]


def test_runs_in_a_namespace_with_remaps_and_parameters(ros, recording, start_node, tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("/**:\n  ros__parameters:\n    horizon: 2\n")
    start_node(
        "-r", "__ns:=/robot_1", "-r", "__node:=seer", "--params-file", str(params),
        "-r", "camera_left/color/image_raw:=/left/rgb",
    )  # fmt: skip
    predictions = Received(ros, "/robot_1/seer/prediction", PREDICTION)
    predictions.wait_for_publisher()
    messages = moved(recording, namespace="/robot_1", camera_left__color__image_raw="/left/rgb")
    player = play(ros, messages)
    predictions.wait_for(1)
    assert predictions.messages[0].n_steps == 2
    player.close()


def test_two_nodes_side_by_side_in_namespaces(ros, recording, start_node):
    small = ["-p", "n_particles:=256", "-p", "horizon:=2"]
    start_node("-r", "__ns:=/left", *small)
    # Cameras and robot of the whole system, seen from a namespace of its own.
    absolute = [
        f"{name}:=/shared/{name}"
        for name in ["joint_states", "planned_joints", "robot_description"]
        + [f"camera_{side}/{kind}" for side in ("left", "right")
           for kind in ("color/image_raw", "depth/image_raw", "color/camera_info")]
    ]  # fmt: skip
    start_node("-r", "__ns:=/right", *small, *(a for rule in absolute for a in ("-r", rule)))
    received = {
        side: [
            Received(ros, f"/{side}/forecloud/prediction", PREDICTION),
            Received(ros, f"/{side}/forecloud/timing", TIMING),
        ]
        for side in ("left", "right")
    }
    for predictions, timings in received.values():
        predictions.wait_for_publisher()
        timings.wait_for_publisher()
    left = moved(recording, namespace="/left")
    right = [m for m in moved(recording, namespace="/shared") if not m.topic.startswith("/tf")]
    player = play(ros, sorted(left + right, key=lambda m: m.log_time_ns), rate=0.5)
    n = n_frames(recording) - 1
    for predictions, timings in received.values():
        wait_for(lambda: timings.messages and timings.messages[-1].frames_in >= n, "all frames")
        assert timings.messages[-1].bad_messages == 0
        predictions.wait_for(timings.messages[-1].frames_used)
    by_stamp = [
        {(m.header.stamp.sec, m.header.stamp.nanosec): m for m in predictions.messages}
        for predictions, _ in received.values()
    ]
    both = by_stamp[0].keys() & by_stamp[1].keys()
    assert len(both) >= 2
    assert all(by_stamp[0][stamp] == by_stamp[1][stamp] for stamp in both), "the same frames"
    player.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(start_node, number):
    """Also twice in one instant: `timeout` and `ros2 launch` send it to the process and to its group."""
    segments = lambda: {path for path in Path("/dev/shm").glob("fastrtps_*") if "port" not in path.name}
    others = segments()
    node = start_node()
    node.wait_for_log("waits for messages")
    maps = Path(f"/proc/{node.process.pid}/maps").read_text().split()
    # It maps those of others, too.
    own = (segments() - others) & {Path(word) for word in maps}
    assert own, "it has shared memory"
    node.process.send_signal(number)
    assert node.stop(number, timeout_secs=10.0) == 0
    assert "ends" in node.log
    assert not [path for path in own if path.exists()], "it cleans up"


def test_it_ends_soon_while_another_of_its_name_runs(ros, start_node):
    first, second = start_node(), start_node()
    for node in (first, second):
        node.wait_for_log("waits for messages")
    begun = time.monotonic()
    assert first.stop(timeout_secs=10.0) == 0
    # 0.4 s, and a loaded machine's share.
    assert time.monotonic() - begun < 1.5
    assert second.running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_while_it_predicts(ros, recording, start_node, number):
    node = start_node()
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    predictions.wait_for_publisher()
    player = play(ros, recording)
    predictions.wait_for(1)
    assert node.stop(number, timeout_secs=10.0) == 0
    player.close()


def test_a_recording_with_topics_that_nobody_subscribes_is_played(ros, recording, start_node):
    start_node()
    predictions = Received(ros, "/forecloud/prediction", PREDICTION)
    predictions.wait_for_publisher()
    image = next(m for m in recording if m.topic == "/camera_left/color/image_raw")
    third = type(image)("/third/image_raw", image.type_name, image.log_time_ns, image.data)
    other = type(image)("/other", "no_such_msgs/msg/Thing", image.log_time_ns, b"")
    player = play(ros, [*recording, third, other])
    assert player.left_out == ["/other", "/third/image_raw"]
    predictions.wait_for(1)
    player.close()
