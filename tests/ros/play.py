#!/usr/bin/env python3
"""Plays a recording over DDS at its own rate: what robot and cameras would publish.

The serialized messages go out as they were recorded, except those of /truth and of topics that no
node subscribes.
"""

from __future__ import annotations

import argparse
import itertools
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import rclpy
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from recording import Message, message_class, read

# What robot_state_publisher and static_transform_publisher latch, in whatever namespace.
LATCHED = ("/tf_static", "/robot_description")
# How long no further topic must have found a subscriber for the others to be left out.
SETTLED_SECS = 1.0


class Player:
    """Publishers of the topics of a recording."""

    def __init__(self, node: Node, messages: list[Message], reliable: bool = True):
        self.node = node
        self.messages = messages
        self.publishers = {}
        self.left_out: list[str] = []
        """Topics that are not played: of an unknown type, or nobody subscribes them."""
        types = {m.topic: m.type_name for m in messages}
        images = {topic for topic, name in types.items() if name == "sensor_msgs/msg/Image"}
        # There must be a subscriber to one topic of each group.
        states = {topic for topic in types if topic.endswith("/joint_states")}
        self._groups = [states, images, {topic for topic in types if topic.endswith(LATCHED)}]
        for topic in sorted(types, key=lambda topic: topic.endswith(LATCHED)):
            qos = QoSProfile(depth=10)
            if topic.endswith(LATCHED):
                qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
            elif not reliable:
                qos.reliability = ReliabilityPolicy.BEST_EFFORT
            try:
                type_class = message_class(types[topic])
            except (ImportError, AttributeError):
                self.left_out.append(topic)
                continue
            self.publishers[topic] = node.create_publisher(type_class, topic, qos)

    def wait_for_subscriber(self, timeout_secs: float = 60.0) -> None:
        """Publishes the latched messages; returns once subscribers hear all topics that are played.

        Those are all that have a subscriber once joint states, images and a latched topic have one
        and no further topic finds any.

        A publisher that knows a subscriber is not yet known to it, and what is sent until then is
        lost. Publishers become known in the order in which they were made, so once a latched
        message (their publishers were made last) is acknowledged, all topics are heard.
        """
        deadline = time.monotonic() + timeout_secs
        n_missing, since = 0, time.monotonic()
        while missing := {t for t, p in self.publishers.items() if not p.get_subscription_count()}:
            if len(missing) != n_missing:
                n_missing, since = len(missing), time.monotonic()
            groups = [group & self.publishers.keys() for group in self._groups]
            needed = any(group and group <= missing for group in groups)
            if not needed and time.monotonic() - since > SETTLED_SECS:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"no subscriber in {timeout_secs} s: {', '.join(sorted(missing))}")
            time.sleep(0.02)
        for topic in sorted(missing):
            self.left_out.append(topic)
            self.node.destroy_publisher(self.publishers.pop(topic))
        latched = {topic for topic in self.publishers if topic.endswith(LATCHED)}
        for message in self.messages:
            if message.topic in latched:
                self.publishers[message.topic].publish(message.data)
        for topic in latched:
            left = Duration(seconds=max(0.0, deadline - time.monotonic()))
            if not self.publishers[topic].wait_for_all_acked(left):
                raise TimeoutError(f"{topic} was not received in {timeout_secs} s")

    def play(self, rate: float = 1.0, answered: Callable[[int], None] | None = None) -> None:
        """Publishes each message at its log time from now on, `rate` times as fast.

        `answered(n)` is called before the images that follow the n-th frame, from 1 on: where it
        waits for that frame's prediction, a busy machine makes the player late, and loses nothing.
        """
        start, first = time.monotonic(), self.messages[0].log_time_ns
        n_frames, frame_ns = 0, None
        for message in self.messages:
            if message.topic.endswith(LATCHED) or message.topic not in self.publishers:
                continue
            if message.type_name == "sensor_msgs/msg/Image" and message.log_time_ns != frame_ns:
                if answered and n_frames:
                    answered(n_frames)
                n_frames, frame_ns = n_frames + 1, message.log_time_ns
            due = start + (message.log_time_ns - first) / 1e9 / rate
            time.sleep(max(0.0, due - time.monotonic()))
            self.publishers[message.topic].publish(message.data)

    def close(self) -> None:
        for publisher in self.publishers.values():
            self.node.destroy_publisher(publisher)


def shifted(message: Message, nanos: int) -> Message:
    """The message with its header's stamp (where it has one) and its log time later."""
    data = bytearray(message.data)
    if hasattr(message_class(message.type_name), "header"):
        sec, nanosec = struct.unpack_from("<iI", data, 4)
        struct.pack_into("<iI", data, 4, *divmod(sec * 10**9 + nanosec + nanos, 10**9))
    log_time_ns = message.log_time_ns + nanos
    return Message(message.topic, message.type_name, log_time_ns, bytes(data))


class Stream:
    """Plays a recording over and over, in the background, with stamps that go on ascending."""

    def __init__(self, player: Player, period_secs: float, rate: float = 1.0):
        self.n_frames = 0
        """Depth images of the first camera that were sent."""
        self.plans: list[Message] = []
        """Planned joints that were sent."""
        self._player = player
        self._period_ns = round(period_secs * 1e9)
        self._rate = rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Stream:
        self._player.wait_for_subscriber()
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        messages = [
            m
            for m in self._player.messages
            if not m.topic.endswith(LATCHED) and m.topic in self._player.publishers
        ]
        start, first = time.monotonic(), messages[0].log_time_ns
        for i in itertools.count():
            for message in messages:
                later = shifted(message, i * self._period_ns)
                due = start + (later.log_time_ns - first) / 1e9 / self._rate
                if self._stopped.wait(max(0.0, due - time.monotonic())):
                    return
                self._player.publishers[message.topic].publish(later.data)
                self.n_frames += message.topic == "/camera_left/depth/image_raw"
                if message.topic == "/planned_joints":
                    self.plans.append(later)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path, help="folder of a rosbag2 recording (MCAP)")
    parser.add_argument("--rate", type=float, default=1.0, help="speed (1 = as recorded)")
    parser.add_argument("--best-effort", action="store_true", help="publish as camera drivers may")
    args = parser.parse_args()
    messages = list(read(args.recording))
    rclpy.init()
    node = rclpy.create_node("player")
    player = Player(node, messages, reliable=not args.best_effort)
    player.wait_for_subscriber()
    if player.left_out:
        topics = ", ".join(player.left_out)
        print(f"play: left out, as no node subscribes them: {topics}", file=sys.stderr)
    n_played = sum(m.topic in player.publishers for m in messages)
    print(f"playing {n_played} messages", flush=True)
    player.play(args.rate)
    # A message in shared memory goes with its publisher: leave the readers time for the last ones.
    time.sleep(1.0)
    print("played", flush=True)
    player.close()
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
