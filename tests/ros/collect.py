#!/usr/bin/env python3
"""Writes the node's predictions and timings into an MCAP file, as they come over DDS.

Ends when the expected number of predictions has come, or when the player has gone and nothing
more comes, or on SIGINT and SIGTERM.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from pathlib import Path

import rclpy
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message

from recording import RecordingWriter, message_class


def summary(timings: list[bytes]) -> str:
    """Latency and what became of the frames, as the node told it."""
    timing_class = message_class("forecloud/msg/Timing")
    messages = [deserialize_message(data, timing_class) for data in timings]
    latencies = sorted(message.latency_ms for message in messages)
    last = messages[-1]

    def percentile(share: float) -> float:  # nearest rank
        return latencies[max(0, math.ceil(share * len(latencies)) - 1)]

    return (
        "node: last image's arrival to published prediction "
        f"p50 {percentile(0.5):.1f} ms, p99 {percentile(0.99):.1f} ms of {len(latencies)}; "
        f"frames in {last.frames_in}, used {last.frames_used}, "
        f"dropped while busy {last.frames_dropped_busy}, "
        f"without history {last.frames_without_history}, "
        f"incomplete {last.frames_dropped_incomplete}, bad messages {last.bad_messages}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the MCAP file to write")
    parser.add_argument("--node", default="/forecloud", help="full name of the node")
    parser.add_argument("--expect", type=int, help="end after so many predictions")
    parser.add_argument("--source", default="/tf_static", help="topic that the player publishes")
    parser.add_argument("--quiet-secs", type=float, default=3.0, help="end so long after the last")
    args = parser.parse_args()

    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    rclpy.init(signal_handler_options=rclpy.SignalHandlerOptions.NO)
    node = rclpy.create_node("collector")
    writer = RecordingWriter(args.output)
    counts = {"prediction": 0, "timing": 0}
    timings: list[bytes] = []
    last = time.monotonic()

    def subscribe(name: str, type_name: str) -> None:
        topic = f"{args.node}/{name}"

        def received(data: bytes) -> None:
            nonlocal last
            last = time.monotonic()
            counts[name] += 1
            writer.write(topic, type_name, data)
            if name == "timing":
                timings.append(data)

        node.create_subscription(
            message_class(type_name), topic, received, QoSProfile(depth=100), raw=True
        )

    subscribe("prediction", "forecloud/msg/Prediction")
    subscribe("timing", "forecloud/msg/Timing")

    ready = played = False
    while not stopped:
        rclpy.spin_once(node, timeout_sec=0.1)
        if not ready and node.count_publishers(f"{args.node}/prediction"):
            ready = True
            print("ready", flush=True)
        playing = node.count_publishers(args.source) > 0
        played |= playing
        if args.expect and min(counts.values()) >= args.expect:
            break
        if played and not playing and time.monotonic() - last > args.quiet_secs:
            break
    writer.close()
    node.destroy_node()
    rclpy.try_shutdown()
    print(f"{args.output}: {counts['prediction']} predictions, {counts['timing']} timings")
    if timings:
        print(summary(timings))
    if not counts["prediction"]:
        sys.exit("no prediction came: see what the node logged")


if __name__ == "__main__":
    main()
