#!/usr/bin/env python3
"""Measures the node on clouds: two cameras of 640 x 480 PointCloud2 at 30 Hz, over DDS.

    scripts/bench_node [--seconds 20] [--node ARGUMENT ...]

Clouds are those of data/demo_tumble's first frames, enlarged; publisher, node and this collector
share the machine. Prints rates, latencies, processor time and memory of the node, and what became
of every frame.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from rclpy.serialization import deserialize_message, serialize_message

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "ros"))

from recording import message_class, read  # noqa: E402

CAMERAS = ["camera_left", "camera_right"]
SIZE = (480, 640)
RATE_HZ = 30
# Bytes of a point: x, y, z, padding, rgb, padding, as depth_image_proc sends it.
POINT_STEP = 32


def cloud(messages: dict, camera: str):
    """The camera's first depth image as an organized cloud of SIZE."""
    of = lambda name, kind: deserialize_message(messages[f"/{camera}/{name}"], message_class(kind))  # noqa: E731
    depth, color = of("depth/image_raw", "sensor_msgs/msg/Image"), of("color/image_raw", "sensor_msgs/msg/Image")
    info = of("color/camera_info", "sensor_msgs/msg/CameraInfo")
    z = np.frombuffer(bytes(depth.data), np.uint16).reshape(depth.height, depth.width) * 1e-3
    rgb = np.frombuffer(bytes(color.data), np.uint8).reshape(color.height, color.width, 3)
    rows = np.arange(SIZE[0]) * depth.height / SIZE[0]
    columns = np.arange(SIZE[1]) * depth.width / SIZE[1]
    v, u = np.meshgrid(rows, columns, indexing="ij")
    z, rgb = z[v.astype(int), u.astype(int)], rgb[v.astype(int), u.astype(int)]
    points = np.zeros((*SIZE, POINT_STEP), np.uint8)
    xyz = np.stack([(u - info.k[2]) / info.k[0] * z, (v - info.k[5]) / info.k[4] * z, z], -1)
    xyz[z == 0] = np.nan
    points[..., :12] = xyz.astype("<f4").view(np.uint8).reshape(*SIZE, 12)
    points[..., 16:19] = rgb[..., ::-1]
    message = message_class("sensor_msgs/msg/PointCloud2")()
    message.header = depth.header
    message.height, message.width = SIZE
    field = message_class("sensor_msgs/msg/PointField")
    offsets = {"x": 0, "y": 4, "z": 8, "rgb": 16}
    message.fields = [field(name=n, offset=o, datatype=7, count=1) for n, o in offsets.items()]
    message.point_step, message.row_step = POINT_STEP, POINT_STEP * SIZE[1]
    message.data = points.tobytes()
    return message


def stamped(data: bytearray, nanos: int) -> bytes:
    """A serialized message of another stamp: its header comes first."""
    data[4:8] = (nanos // 10**9).to_bytes(4, "little")
    data[8:12] = (nanos % 10**9).to_bytes(4, "little")
    return bytes(data)


def processor_secs(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--node", nargs="*", default=[], help="more ROS arguments, such as -p deadline_secs:=0.1")
    args, more = parser.parse_known_args()
    first = {m.topic: m.data for m in reversed(list(read(ROOT / "data" / "demo_tumble")))}

    program = ROOT / "install/forecloud/lib/forecloud/forecloud_node"
    command = [str(program), "--ros-args", "-p", "camera_inputs:=[points]"]
    log = open(ROOT / "out" / "bench_node.log", "w")
    process = subprocess.Popen([*command, *args.node, *more], stderr=log)
    rclpy.init()
    node = rclpy.create_node("bench")
    timings = []
    reliable = QoSProfile(depth=100)
    node.create_subscription(message_class("forecloud/msg/Timing"), "/forecloud/timing", timings.append, reliable)
    node.create_subscription(message_class("forecloud/msg/Prediction"), "/forecloud/prediction", lambda _: None, reliable, raw=True)
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    kinds = {"/tf_static": "tf2_msgs/msg/TFMessage", "/robot_description": "std_msgs/msg/String"}
    keep = [node.create_publisher(message_class(kind), topic, latched) for topic, kind in kinds.items()]
    for publisher, topic in zip(keep, kinds):
        publisher.publish(first[topic])
    joints = node.create_publisher(message_class("sensor_msgs/msg/JointState"), "/joint_states", qos_profile_sensor_data)
    clouds = [node.create_publisher(message_class("sensor_msgs/msg/PointCloud2"), f"/{c}/points", qos_profile_sensor_data) for c in CAMERAS]
    cloud_data = [bytearray(serialize_message(cloud(first, camera))) for camera in CAMERAS]
    joint_data = bytearray(first["/joint_states"])
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    threading.Thread(target=executor.spin, daemon=True).start()
    while not all(p.get_subscription_count() for p in [joints, *clouds, *keep]):
        assert process.poll() is None, "the node ended: see out/bench_node.log"
        time.sleep(0.05)

    n_sent, warm, end, start, before, used = 0, 40, None, 0.0, 0.0, 0
    begin = time.monotonic()
    while end is None or time.monotonic() < end:
        nanos = time.time_ns()
        for publisher, data in zip(clouds, cloud_data):
            publisher.publish(stamped(data, nanos))
        joints.publish(stamped(joint_data, nanos))
        n_sent += 1
        if end is None and len(timings) >= warm:
            start, before, used = time.monotonic(), processor_secs(process.pid), len(timings)
            sent, end = n_sent, start + args.seconds
        time.sleep(max(0.0, begin + n_sent / RATE_HZ - time.monotonic()))
    secs = time.monotonic() - start
    cpu, memory = (processor_secs(process.pid) - before) / secs, resident_mb(process.pid)
    time.sleep(1.0)
    measured, last, at_start = timings[used:], timings[-1], timings[used - 1]
    latencies = np.array([t.latency_ms for t in measured])
    count = lambda name: getattr(last, name) - getattr(at_start, name)  # noqa: E731
    print(f"{len(CAMERAS)} clouds of {SIZE[1]} x {SIZE[0]} points at {(n_sent - sent) / secs:.1f} Hz for {secs:.0f} s; node: {' '.join([*args.node, *more]) or 'defaults'}")
    print(f"predictions: {len(measured) / secs:.1f} Hz; latency ms: p50 {np.percentile(latencies, 50):.1f}, p99 {np.percentile(latencies, 99):.1f}, largest {latencies.max():.1f}")
    print("stages, median ms: " + ", ".join(f"{s} {np.median([getattr(t, s + '_ms') for t in measured]):.1f}" for s in ("decode", "particles", "predict", "publish")))
    print(f"node: {100 * cpu:.0f} % of one core, {memory:.0f} MB resident")
    names = ("frames_in", "frames_used", "frames_dropped_busy", "frames_without_history", "frames_rejected", "frames_dropped_incomplete", "images_dropped_unpaired", "bad_messages", "predictions_cut")
    print(f"sent {n_sent - sent}; " + ", ".join(f"{name} {count(name)}" for name in names))
    process.terminate()
    process.wait(30)
    os._exit(0)


if __name__ == "__main__":
    main()
