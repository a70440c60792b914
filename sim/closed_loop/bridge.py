#!/usr/bin/env python3
"""The ROS side of the closed loop: publishes what the simulator says, over DDS, and asks the node.

Runs in a ROS 2 environment (scripts/ros2_env), started by `sim.closed_loop`; packets of `wire.py` come on
stdin and are answered on stdout. Serialized messages go out as they are, as in a recording.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
sys.path.insert(0, HERE)
import wire  # noqa: E402

# The other files here are the simulator's: their names must not stand before packages'.
sys.path[:] = [path for path in sys.path if path != HERE]

import rclpy  # noqa: E402
from ament_index_python.packages import get_package_prefix  # noqa: E402
from rclpy.action import ActionClient  # noqa: E402
from rclpy.duration import Duration  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile  # noqa: E402
from rclpy.serialization import deserialize_message, serialize_message  # noqa: E402

from forecloud.msg import Prediction  # noqa: E402

NAME = "/forecloud"
FOUND_SECS = 60.0


def class_of(kind: str) -> type:
    """The Python class of `package/msg/Name` (or srv, action)."""
    package, part, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.{part}"), name)


class Bridge:
    """A node of its own, the node it starts, and the answers of the latter."""

    def __init__(self):
        rclpy.init(signal_handler_options=rclpy.SignalHandlerOptions.NO)
        self.node = rclpy.create_node("closed_loop")
        self.publishers, self.latched, self.clients, self.process = {}, set(), {}, None
        self.stamps: set[int] = set()
        self.node.create_subscription(Prediction, f"{NAME}/prediction", self.predicted, 20)
        self.actions = {}

    def spin(self, done, seconds: float) -> bool:
        """Handles what comes in until `done()`, or for so long. In this thread: an action client that another
        one spins can get the answer to a goal before it has noted that it asked (rclpy)."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            rclpy.spin_once(self.node, timeout_sec=0.1)
        return True

    def predicted(self, message) -> None:
        """Notes that a frame was predicted."""
        stamp = message.header.stamp
        self.stamps.add(stamp.sec * 10**9 + stamp.nanosec)

    def start(self, head: dict, _) -> dict:
        """Starts the node (`find`: that of the package), and makes publishers."""
        for topic, kind, latched in head["topics"]:
            qos = QoSProfile(depth=50)
            if latched:
                qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
                self.latched.add(topic)
            self.publishers[topic] = self.node.create_publisher(class_of(kind), topic, qos)
        command = head["command"]
        if head["find"]:
            command = [str(Path(get_package_prefix("forecloud")) / "lib" / "forecloud" / "forecloud_node"), *command]
        with open(head["log"], "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        return {"ok": True}

    def meet(self, head: dict, _) -> dict:
        """Waits until topics that must be heard are, and latched ones have been received."""
        until = time.monotonic() + FOUND_SECS
        while missing := [t for t in head["needed"] if not self.publishers[t].get_subscription_count()]:
            if self.process and self.process.poll() is not None:
                return {"ok": False, "message": f"the node ended with {self.process.returncode}"}
            if time.monotonic() > until:
                return {"ok": False, "message": f"nobody subscribes {', '.join(missing)}"}
            time.sleep(0.02)
        for topic in self.latched & set(head["needed"]):
            self.publishers[topic].wait_for_all_acked(Duration(seconds=10))
        return {"ok": True}

    def publish(self, head: dict, body: bytes) -> None:
        """Sends a message; no answer."""
        self.publishers[head["topic"]].publish(body)

    def wait(self, head: dict, _) -> dict:
        """Waits for the prediction of a stamp (ns)."""
        return {"ok": self.spin(lambda: head["stamp"] in self.stamps, head["seconds"]), "predicted": len(self.stamps)}

    def until(self, future, seconds: float, what: str):
        """The result of a future; raises TimeoutError."""
        if not self.spin(future.done, seconds):
            raise TimeoutError(f"no {what} in {seconds} s")
        return future.result()

    def call(self, head: dict, body: bytes):
        """Calls a service: `service`, `kind`; the request serialized, and so the answer."""
        kind = class_of(head["kind"])
        name = f"{NAME}/{head['service']}"
        client = self.clients.get(name) or self.clients.setdefault(name, self.node.create_client(kind, name))
        if not self.spin(client.service_is_ready, head["find_seconds"]):
            return {"ok": False, "message": f"no service {name}"}, b""
        start = time.monotonic()
        answer = self.until(client.call_async(deserialize_message(body, kind.Request)), head["seconds"], "answer")
        return {"ok": True, "seconds": time.monotonic() - start}, serialize_message(answer)

    def act(self, head: dict, body: bytes):
        """Sends a goal to an action and waits for its result."""
        kind = class_of(head["kind"])
        name = f"{NAME}/{head['action']}"
        client = self.actions.get(name) or self.actions.setdefault(name, ActionClient(self.node, kind, name))
        if not self.spin(client.server_is_ready, head["find_seconds"]):
            return {"ok": False, "message": f"no action {name}"}, b""
        heard: list = []
        start = time.monotonic()
        sent = client.send_goal_async(deserialize_message(body, kind.Goal), feedback_callback=heard.append)
        goal = self.until(sent, head["seconds"], "answer to a goal")
        if not goal.accepted:
            return {"ok": False, "message": "the goal was refused"}, b""
        result = self.until(goal.get_result_async(), head["seconds"], "result")
        told = {"ok": True, "seconds": time.monotonic() - start, "feedback": len(heard), "status": result.status}
        return told, serialize_message(result.result)

    def stop(self) -> None:
        """Ends the node, and this one: what is only killed leaves its shared memory behind, 70 MB an episode."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        for action in self.actions.values():
            action.destroy()
        self.node.destroy_node()
        rclpy.shutdown()


def main() -> None:
    """Answers packets until stdin ends."""
    # What ROS prints must not get between packets.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    bridge = Bridge()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the node ends with it
    try:
        while packet := wire.read(sys.stdin.buffer):
            head, body = packet
            try:
                answer = getattr(bridge, head["do"])(head, body)
            except Exception as problem:  # the simulator is told, and decides
                answer = {"ok": False, "message": f"{type(problem).__name__}: {problem}"}
            if answer is not None:
                wire.write(out, *(answer if isinstance(answer, tuple) else (answer,)))
    finally:
        bridge.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
