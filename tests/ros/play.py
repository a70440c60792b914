#!/usr/bin/env python3
"""Plays a recording over DDS at its own rate: what robot and cameras would publish.

The serialized messages go out as they were recorded, except those of /truth.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import rclpy
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from recording import Message, message_class, read

# What robot_state_publisher and static_transform_publisher latch.
LATCHED = {"/tf_static", "/robot_description"}


class Player:
    """Publishers of the topics of a recording."""

    def __init__(self, node: Node, messages: list[Message], reliable: bool = True):
        self.node = node
        self.messages = messages
        self.publishers = {}
        types = {m.topic: m.type_name for m in messages}
        for topic in sorted(types, key=lambda topic: topic in LATCHED):
            qos = QoSProfile(depth=10)
            if topic in LATCHED:
                qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
            elif not reliable:
                qos.reliability = ReliabilityPolicy.BEST_EFFORT
            publisher = node.create_publisher(message_class(types[topic]), topic, qos)
            self.publishers[topic] = publisher

    def wait_for_subscriber(self, timeout_secs: float = 60.0) -> None:
        """Publishes the latched messages; returns once every topic has a subscriber that hears it.

        A publisher that knows a subscriber is not yet known to it, and what is sent until then is
        lost. Publishers become known in the order in which they were made, so once a latched
        message (their publishers were made last) is acknowledged, all topics are heard.
        """
        deadline = time.monotonic() + timeout_secs
        while missing := [t for t, p in self.publishers.items() if not p.get_subscription_count()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no subscriber in {timeout_secs} s: {', '.join(missing)}")
            time.sleep(0.02)
        for message in self.messages:
            if message.topic in LATCHED:
                self.publishers[message.topic].publish(message.data)
        for topic in LATCHED & self.publishers.keys():
            left = Duration(seconds=max(0.0, deadline - time.monotonic()))
            if not self.publishers[topic].wait_for_all_acked(left):
                raise TimeoutError(f"{topic} was not received in {timeout_secs} s")

    def play(self, rate: float = 1.0) -> None:
        """Publishes each message at its log time from now on, `rate` times as fast."""
        start, first = time.monotonic(), self.messages[0].log_time_ns
        for message in self.messages:
            if message.topic in LATCHED:
                continue
            due = start + (message.log_time_ns - first) / 1e9 / rate
            time.sleep(max(0.0, due - time.monotonic()))
            self.publishers[message.topic].publish(message.data)

    def close(self) -> None:
        for publisher in self.publishers.values():
            self.node.destroy_publisher(publisher)


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
    print(f"playing {len(messages)} messages", flush=True)
    player.play(args.rate)
    # A message in shared memory goes with its publisher: leave the readers time for the last ones.
    time.sleep(1.0)
    print("played", flush=True)
    player.close()
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
