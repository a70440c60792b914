"""Faults of a running system that are not of a message: see docs/src/reference/faults.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from conftest import Received, wait_for
from play import Player

# Subscribes with the least queue there is, says so, and then takes what it gets.
SUBSCRIBER = """
import rclpy
from rclpy.qos import QoSProfile
from forecloud.msg import Prediction
rclpy.init()
node = rclpy.create_node("slow")
node.create_subscription(Prediction, "/forecloud/prediction", lambda message: None, QoSProfile(depth=1))
while not node.count_publishers("/forecloud/prediction"):
    rclpy.spin_once(node, timeout_sec=0.05)
print("ready", flush=True)
rclpy.spin(node)
"""


def test_a_slow_subscriber_does_not_slow_the_node(ros, recording, start_node):
    """One that is stopped altogether; reliable, so that DDS would have to wait for it."""
    start_node()
    predictions = Received(ros, "/forecloud/prediction", "forecloud/msg/Prediction")
    timings = Received(ros, "/forecloud/timing", "forecloud/msg/Timing")
    predictions.wait_for_publisher()
    slow = subprocess.Popen([sys.executable, "-c", SUBSCRIBER], stdout=subprocess.PIPE, text=True)
    try:
        assert slow.stdout.readline() == "ready\n"
        player = Player(ros, recording)
        player.wait_for_subscriber()
        os.kill(slow.pid, signal.SIGSTOP)
        # Waited for, so that a busy machine loses none: the first frame has no history.
        player.play(answered=lambda n: predictions.wait_for(n - 1))
        frames = sum(m.topic == "/camera_left/depth/image_raw" for m in recording)
        last = wait_for(
            lambda: timings.messages and timings.messages[-1].frames_in >= frames - 1, "all frames"
        )
        assert last
        last = timings.messages[-1]
        assert last.frames_used >= frames - 2, "all that can be predicted, but for the last"
        predictions.wait_for(last.frames_used)
        # Publishing does not wait: a few milliseconds, where DDS would block for 100.
        assert max(t.publish_ms for t in timings.messages) < 100.0
        player.close()
    finally:
        os.kill(slow.pid, signal.SIGCONT)
        slow.kill()
        slow.wait()
